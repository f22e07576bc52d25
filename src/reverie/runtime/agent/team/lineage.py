"""The place of a sub-agent in its team."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...mail.local_queues import LocalQueues
from .roster import Roster
from .type_memory import TypeMemory

__all__ = ["Lineage"]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The parts of its parent that a sub-agent shares, and the limits its parent set."""

    id: str
    depth: int
    roster: Roster
    over_limit: Callable[[], str]
    """Return the limit that this agent has reached; an empty text if there is none."""
    memory: TypeMemory | None = None
    has_parent_model: bool = True
    """Whether its model belongs to its parent, which also closes it."""
    queues: LocalQueues = field(default_factory=LocalQueues)
    """The agents of this process, which write to each other by name."""
    lead: str = ""
    """The name of the agent that started it."""
    protected: tuple[Path, ...] = ()
    """Paths where every write asks; empty means the home directory of Reverie."""
