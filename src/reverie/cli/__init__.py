"""The terminal door: one file a command, each imported only when it runs."""
