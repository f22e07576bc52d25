"""Commands about this machine: trusted directories and diagnostics."""
