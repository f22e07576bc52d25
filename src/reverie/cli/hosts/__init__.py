"""Commands that attach Reverie to other coding agents."""
