"""The conversation: log entries, decisions, and the view folded from both."""
