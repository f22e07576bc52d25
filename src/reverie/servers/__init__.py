"""Servers on this machine: the doors through which other programs reach memories and past sessions."""
