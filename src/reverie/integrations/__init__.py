"""Doors for loops that exist: one for each framework, behind an extra of its own, all on the same three seams."""
