"""An invented but believable coding session, for the demo and for tests.

It has a freight service, an agent that reads, searches, runs tests and edits, and a user who asks, interrupts and
goes to lunch. The seed determines everything.
"""

from __future__ import annotations

from random import Random
from typing import Final

from reverie.conversation.entries import Entry

from .agent import InventedAgent
from .author import MODEL, SessionAuthor
from .claude_code import as_claude_code_jsonl
from .phrases import SYSTEM, TOOLS

__all__ = ["MODEL", "SYSTEM", "TITLE", "TOOLS", "as_claude_code_jsonl", "coding_session"]

TITLE: Final = "A week on the harbour service"


def coding_session(seed: int = 1, tokens: int = 350_000, *, compact_at: int | None = 160_000) -> list[Entry]:
    """Return the entries of an invented session of about so many tokens; the same seed gives the same session.

    Where the window passes ``compact_at`` tokens, a summary replaces the history; None never compacts.
    """
    rng = Random(seed)
    author = SessionAuthor(rng, TITLE, compact_at)
    InventedAgent(rng, author, tokens).work()
    return author.entries
