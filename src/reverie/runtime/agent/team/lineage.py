"""The place of a sub-agent in its team."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....settings import Mode
from ...mail.local_queues import LocalQueues
from .roster import Roster
from .type_memory import TypeMemory


@dataclass(frozen=True, slots=True)
class Lineage:
    """A sub-agent's place in its team: the parts it shares with its parent, and the limits that apply to it."""

    id: str
    depth: int
    roster: Roster
    over_limit: Callable[[], str]
    """Function that returns a text about the limit that the sub-agent has reached; empty if none."""
    memory: TypeMemory | None = None
    has_parent_model: bool = True
    """Whether the sub-agent's model belongs to its parent, which also closes it."""
    queues: LocalQueues = field(default_factory=LocalQueues)
    """The message queues of the agents of this process, which write to each other by name."""
    lead: str = ""
    """The name of the agent that started this sub-agent."""
    lead_mode: Callable[[], Mode] = lambda: "plan"
    """Function that returns the permission mode of that agent, which limits the mode of this one."""
    background: bool = False
    """Whether that agent goes on meanwhile, so that it can answer messages."""
    protected: tuple[Path, ...] = ()
    """Paths where writes ask; empty means the Reverie directory."""
