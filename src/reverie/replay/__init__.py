"""Replay recorded sessions under several policies, with a simulator of the provider's cache, and report their cost."""
