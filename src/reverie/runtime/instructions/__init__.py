"""Find and read instruction files such as ``AGENTS.md`` and ``CLAUDE.md``."""
