"""The context that an agent's tools run in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..events import Event
from ..ports import Agents, Messenger, PlanDesk
from ..settings import AgentPolicy
from ..values import record
from .files.read_state import ReadState
from .shell.shells import Shells


def _ignore(event: Event) -> None:
    """Do nothing with an event: the default of ``ToolContext.emit``."""


def _nothing(handle: str) -> bytes | None:
    """Return None for every handle: the default of ``ToolContext.read_back``, which has no stored results."""
    return None


@record
class Todo:
    """A step of the agent's to-do list; ``status`` is pending, in_progress or completed."""

    content: str
    status: str = "pending"


@record
class WebAccess:
    """How WebFetch reaches the web: name resolution, and whether addresses of this machine and network are allowed."""

    resolve: Callable[[str, int], list[str]] | None = None
    """Function that returns the IP addresses of a host and port; None uses the system's resolver."""
    allow_private: bool = False
    """Whether pages at addresses that are not public (this machine, private networks) may be fetched."""


@dataclass(slots=True)
class ToolContext:
    """The state that one agent's tools share: its directories, the files it has read, and its running commands."""

    cwd: Path
    session: str = ""
    policy: AgentPolicy = field(default_factory=AgentPolicy)
    directories: tuple[Path, ...] = ()
    """Directories besides ``cwd`` that file tools may use without asking."""
    read_back: Callable[[str], bytes | None] = _nothing
    """Function that returns the bytes of a stored tool result by its path or handle; None if there is none."""
    expand: Callable[[str], bytes | None] = _nothing
    """The same, but it returns the list of the messages that a summary replaced instead of all of them."""
    keep_version: Callable[[bytes | None], str | None] = lambda data: None
    """Function that keeps the content of a file (None: no file) before a tool changes it, and returns its version."""
    emit: Callable[[Event], None] = _ignore
    restricted: bool = False
    """Whether a shell command must run in the sandbox, where it cannot write files or use the network."""
    reads_inside: bool = False
    """Whether a command in the sandbox can read only the session's directories, and programs."""
    hides_denied: bool = False
    """Whether a command that runs freely runs without the files that rules deny."""
    denied: tuple[str, ...] = ()
    """Patterns of paths that rules deny to every tool that reads."""
    granted: set[str] = field(default_factory=lambda: set[str]())
    """Resolved paths that were allowed although outside the workspace or with other hard links.

    A granted directory includes everything beneath it. A path that is neither in the workspace nor granted is
    refused when it is opened.
    """
    home: Path | None = None
    """The user's Reverie directory, whose ``skills`` folder is offered; None leaves those skills out."""
    project_skills: bool = True
    """Whether the project's own skills are offered; the caller sets it to False for an untrusted project."""
    reads: ReadState = field(default_factory=ReadState)
    todos: list[Todo] = field(default_factory=lambda: list[Todo]())
    shells: Shells = field(default_factory=Shells)
    web: WebAccess = field(default_factory=WebAccess)
    agents: Agents | None = None
    """Starts and stops agents for this agent; None if it may start none."""
    post: Messenger | None = None
    """Sends messages to other agents; None if there are no other agents."""
    plan: PlanDesk | None = None
    """Takes the plan of the agent's session; None if it cannot have one."""

    def forked(self, **changes: Any) -> ToolContext:
        """Return a copy for a fork, with ``changes``: own reads, todos and grants, no shells, no plan."""
        own: dict[str, Any] = {
            "reads": self.reads.copy(),
            "todos": list(self.todos),
            "shells": Shells(),
            "granted": set(self.granted),
            "plan": None,
        }
        return replace(self, **(own | changes))

    async def aclose(self) -> None:
        """Stop every background command that still runs."""
        await self.shells.aclose()
