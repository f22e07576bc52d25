"""Doors into agents people already use: their hooks call us at the moments of their own loop.

A hook is one short process: JSON on stdin, JSON on stdout, always exit code 0. It loads no command framework and no
vendor SDK, and leaves what takes time to a worker.
"""
