"""The inspector: a session as a film of its requests, in one page."""
