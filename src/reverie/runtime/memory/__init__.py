"""Memories on disk, recall in a session, and layer 5 (extraction)."""
