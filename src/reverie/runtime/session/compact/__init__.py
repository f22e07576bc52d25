"""Layer 4 in a session: turn the past into a summary, and undo it."""
