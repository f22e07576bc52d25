"""Servers on this machine through which other programs reach memories and past sessions."""
