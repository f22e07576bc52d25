"""Layer 7, relay: agents start agents and write to each other, sharing one prompt cache where they can.

A fork reads the parent's prefix from the cache; a sub-agent begins with a context of its own; messages enter a
conversation at round boundaries, as attachments, and never change what was sent.
"""
