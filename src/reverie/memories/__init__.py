"""Memories that last across sessions: files of front matter and text, their rules, and their recall."""
