"""What is said: entries, decisions, and the view as a pure fold of both."""
