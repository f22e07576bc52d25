"""Doors for loops that exist: one file a framework, each behind an extra of its own, all on the same three seams."""
