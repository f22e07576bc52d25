"""Memory types, refusals, secrets, and instruction-file rules."""
