"""Take a secret out of a session for good."""
