"""Layer 1 in a session: store big tool results and read them back."""
