"""Check any proxy: a scripted server behind it, a client in front, and about twenty statements about what passes."""
