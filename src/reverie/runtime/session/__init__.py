"""A session: its log, its layers, and the requests made from it."""
