"""What a tool needs of whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..events import Event
from ..ports import Agents, Post
from ..settings import AgentPolicy
from ..values import record
from .files.read_state import ReadState
from .shell.shells import Shells

__all__ = ["Todo", "ToolContext", "WebAccess"]


def _ignore(event: Event) -> None:
    """Tell nobody."""


def _nothing(handle: str) -> bytes | None:
    """Know no stored result."""
    return None


@record
class Todo:
    """A step of the agent's plan; its state is pending, in_progress or completed."""

    content: str
    status: str = "pending"


@record
class WebAccess:
    """How WebFetch reaches the web: who resolves names, and whether addresses of this machine and net are allowed."""

    resolve: Callable[[str, int], list[str]] | None = None
    """Return the addresses of a host and port; None asks the system."""
    allow_private: bool = False
    """Whether loopback, private and link-local addresses may be fetched."""


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
    granted: set[str] = field(default_factory=lambda: set[str]())
    """Resolved paths outside the workspace (``Access.target``) that permission was given for; a directory stands for
    all that is beneath it. What is neither inside nor granted is refused when it is opened."""
    home: Path | None = None
    """The user's directory of Reverie, where their skills are; None leaves those out."""
    project_skills: bool = True
    """Whether the project's own skills are offered; not before its directory is trusted."""
    reads: ReadState = field(default_factory=ReadState)
    loaded_skills: list[str] = field(default_factory=lambda: list[str]())
    """The skills that were loaded, the latest last."""
    todos: list[Todo] = field(default_factory=lambda: list[Todo]())
    shells: Shells = field(default_factory=Shells)
    web: WebAccess = field(default_factory=WebAccess)
    agents: Agents | None = None
    """Starts agents for this one; None where it may start none."""
    post: Post | None = None
    """Carries messages to other agents; None where there is nobody to write to."""

    def granting(self, target: str, *, restricted: bool | None = None) -> ToolContext:
        """Return this context for one call that was given permission for a target; all else is shared.

        What lies inside needs no grant, and gets none: if it becomes something else meanwhile, it is refused.
        """
        from .files.workspace import needs_grant

        keep = self.restricted if restricted is None else restricted
        more = {target} if target and needs_grant(target, self) else set[str]()
        return replace(self, granted=self.granted | more, restricted=keep)

    def forked(self, **changes: Any) -> ToolContext:
        """Return a context of its own for a fork: it has read the same, and what it does next is not seen here."""
        own: dict[str, Any] = {
            "reads": self.reads.copy(),
            "todos": list(self.todos),
            "shells": Shells(),
            "granted": set(self.granted),
            "loaded_skills": list(self.loaded_skills),
        }
        return replace(self, **(own | changes))

    async def aclose(self) -> None:
        """End what runs in the background."""
        await self.shells.aclose()
