"""Recorded sessions as logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.conversation.entries import Entry, encode_entry
from reverie.importers import read_sessions


@pytest.fixture(scope="session")
def corpus_sessions(corpus: Path) -> list[list[Entry]]:
    """Every recorded session, as entries."""
    return [list(imported.entries) for imported in read_sessions(corpus)]


@pytest.fixture(scope="session")
def corpus_logs(corpus_sessions: list[list[Entry]]) -> list[list[bytes]]:
    """Every recorded session, as the lines of a log."""
    return [[encode_entry(entry) for entry in entries] for entries in corpus_sessions]
