"""Commands about agents and their messages."""
