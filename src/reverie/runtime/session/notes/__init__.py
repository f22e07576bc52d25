"""Layer 3 in a session: keep running notes."""
