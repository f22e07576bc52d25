"""Delete sessions and everything that came from them, and prove it by a search of the home."""
