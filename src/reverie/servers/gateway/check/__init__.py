"""Check any proxy: a scripted server behind it, a client in front, and a list of statements that must hold."""
