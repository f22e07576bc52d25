"""The gateway: one base URL for clients of any provider, which changes no byte and records their sessions."""
