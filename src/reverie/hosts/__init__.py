"""Hooks for agents that people already use: Claude Code, Codex, Gemini CLI and Cursor call Reverie from their own loop.

A hook is one short process: JSON on stdin, JSON on stdout, always exit code 0. It loads no command framework and no
vendor SDK, and leaves slow work to a background worker.
"""
