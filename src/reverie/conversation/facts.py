"""The small things a log says beside its messages: prefix, notes, cursors, pins, compactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ..values import field, record
from .decisions import (
    AgentFinished,
    AgentSpawned,
    CacheEdits,
    CallRecorded,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    CursorMoved,
    Decision,
    MessageQueued,
    NotesUpdated,
    Pinned,
    PrefixRendered,
    ResultStubbed,
)
from .options import opening_of

__all__ = ["Facts", "facts_after"]

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@record
class Facts:
    """What decisions and metadata have said so far; ``opening`` is what the prefix makes of a request."""

    prefix: PrefixRendered | None = None
    opening: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    notes: Mapping[str, str] = field(default_factory=lambda: _NONE)
    notes_covered: str | None = None
    cursors: Mapping[str, str] = field(default_factory=lambda: _NONE)
    pinned: frozenset[str] = frozenset()
    queued: frozenset[str] = frozenset()
    compactions: tuple[str, ...] = ()
    undone: frozenset[str] = frozenset()
    failures: int = 0
    edits: tuple[CacheEdits, ...] = ()
    last_call: CallRecorded | None = None
    given_up: frozenset[str] = frozenset()
    agents: Mapping[str, str] = field(default_factory=lambda: _NONE)


def facts_after(facts: Facts, uuid: str, decision: Decision) -> Facts:
    """Return the facts once this decision has been logged."""
    match decision:
        case PrefixRendered():
            return replace(facts, prefix=decision, opening=opening_of(decision))
        case NotesUpdated():
            covered = decision.covered or facts.notes_covered
            return replace(facts, notes={**facts.notes, **decision.sections}, notes_covered=covered)
        case CursorMoved():
            return replace(facts, cursors={**facts.cursors, decision.cursor: decision.message})
        case Pinned():
            return replace(facts, pinned=facts.pinned | {*decision.messages, *decision.tool_use_ids})
        case MessageQueued():
            return replace(facts, queued=facts.queued | {decision.id})
        case Compacted():
            return replace(facts, compactions=(*facts.compactions, uuid), failures=0)
        case CompactionUndone():
            return replace(facts, undone=facts.undone | {decision.compaction})
        case CompactionFailed():
            return replace(facts, failures=facts.failures + 1)
        case CacheEdits():
            return replace(facts, edits=(*facts.edits, decision))
        case ResultStubbed() if decision.cause.moves_prefix:
            return replace(facts, given_up=facts.given_up | {decision.tool_use_id})
        case CallRecorded() if decision.source == "main":
            return replace(facts, last_call=decision)
        case AgentSpawned():
            return replace(facts, agents={**facts.agents, decision.agent: "running"})
        case AgentFinished():
            return replace(facts, agents={**facts.agents, decision.agent: decision.status})
        case _:
            return facts
