"""What a tool needs of whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..events import Event
from ..settings import AgentPolicy

__all__ = ["ToolContext"]


def _ignore(event: Event) -> None:
    """Tell nobody."""


def _nothing(handle: str) -> bytes | None:
    """Know no stored result."""
    return None


@dataclass(slots=True)
class ToolContext:
    """One agent's side of its tools: where it works, what it has read, what runs for it."""

    cwd: Path
    session: str = ""
    policy: AgentPolicy = field(default_factory=AgentPolicy)
    directories: tuple[Path, ...] = ()
    """Directories beside the working directory that file tools may work in without asking."""
    read_back: Callable[[str], bytes | None] = _nothing
    """Return a result that left the view, by its path or handle; None where there is none."""
    emit: Callable[[Event], None] = _ignore
    restricted: bool = False
    """Whether a command must run in the sandbox, with no write and no network."""
