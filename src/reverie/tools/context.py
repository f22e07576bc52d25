"""The context that an agent's tools run in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..events import Event
from ..ports import Agents, Messenger
from ..settings import AgentPolicy
from ..values import record
from .files.read_state import ReadState
from .shell.shells import Shells

__all__ = ["Todo", "ToolContext", "WebAccess"]


def _ignore(event: Event) -> None:
    """Drop an event."""


def _nothing(handle: str) -> bytes | None:
    """Return None: there are no stored results."""
    return None


@record
class Todo:
    """A step of the agent's plan; its state is pending, in_progress or completed."""

    content: str
    status: str = "pending"


@record
class WebAccess:
    """How WebFetch reaches the web: name resolution, and whether addresses of this machine and network are allowed."""

    resolve: Callable[[str, int], list[str]] | None = None
    """Return the addresses of a host and port; None uses the system's resolver."""
    allow_private: bool = False
    """Whether loopback, private and link-local addresses may be fetched."""


@dataclass(slots=True)
class ToolContext:
    """The state that one agent's tools share: its directories, the files it has read, and its running commands."""

    cwd: Path
    session: str = ""
    policy: AgentPolicy = field(default_factory=AgentPolicy)
    directories: tuple[Path, ...] = ()
    """Other directories that file tools may use without asking."""
    read_back: Callable[[str], bytes | None] = _nothing
    """Return a stored tool result by its path or handle; None if there is none."""
    emit: Callable[[Event], None] = _ignore
    restricted: bool = False
    """Whether a command must run in the sandbox, with no write and no network."""
    granted: set[str] = field(default_factory=lambda: set[str]())
    """Resolved paths outside the workspace that a person allowed (``Access.target``); a directory includes everything
    beneath it. A path that is neither inside nor granted is refused when it is opened."""
    home: Path | None = None
    """The user's Reverie directory, which holds their skills; None leaves those out."""
    project_skills: bool = True
    """Whether the project's own skills are offered; false until its directory is trusted."""
    reads: ReadState = field(default_factory=ReadState)
    loaded_skills: list[str] = field(default_factory=lambda: list[str]())
    """Names of loaded skills, the latest last."""
    todos: list[Todo] = field(default_factory=lambda: list[Todo]())
    shells: Shells = field(default_factory=Shells)
    web: WebAccess = field(default_factory=WebAccess)
    agents: Agents | None = None
    """Starts agents for this one; None if it may start none."""
    post: Messenger | None = None
    """Carries messages to other agents; None if there are none."""

    def forked(self, **changes: Any) -> ToolContext:
        """Return a copy for a fork: it starts with the same read state and then changes independently."""
        own: dict[str, Any] = {
            "reads": self.reads.copy(),
            "todos": list(self.todos),
            "shells": Shells(),
            "granted": set(self.granted),
            "loaded_skills": list(self.loaded_skills),
        }
        return replace(self, **(own | changes))

    async def aclose(self) -> None:
        """Stop every background command."""
        await self.shells.aclose()
