"""Commands that show token usage and cost."""
