"""The terminal door: one module per command, imported only when the command runs."""
