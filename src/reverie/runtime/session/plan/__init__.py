"""The plan of a session and its list of steps."""
