"""Layer 5 in a session: write memories after a query."""
