"""The sockets: what the house needs from outside, few methods each.

Storage is synchronous and may block; the async runtime calls it from a worker thread. Models are asynchronous.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from .values import record

__all__ = ["Agents", "Capabilities", "Document", "Lease", "Model", "Piece", "Post", "Reply", "Started", "Storage"]


@record
class Document:
    """A stored document and the version to name when replacing it."""

    data: bytes
    version: str


class Lease(Protocol):
    """The right to be the only writer of something, until released or the process dies."""

    name: str

    def release(self) -> None:
        """Give the right back; doing it twice is harmless."""
        ...


class Storage(Protocol):
    """Where sessions rest: documents, append-only logs, leases, listing.

    Keys are relative POSIX paths such as ``projects/app-1a2b/abc.jsonl``.
    Every failure is a ``StorageError`` that names the path.
    """

    def read(self, key: str) -> Document | None:
        """Return the document, or None where there is none."""
        ...

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Replace the document atomically and durably and return its new version.

        With ``expect``, only if it still has that version; with ``create``, only if there is none.
        Otherwise ``StorageConflict``.
        """
        ...

    def delete(self, key: str) -> bool:
        """Remove a document or log; say whether there was one."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys that lie under a folder prefix, sorted."""
        ...

    def append(self, key: str, line: bytes) -> None:
        """Append one whole line (no newline inside, none at the end) and acknowledge only when it is safe."""
        ...

    def load(self, key: str) -> bytes | None:
        """Return every byte of a log, damage and all, or None where there is none."""
        ...

    def lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease or raise ``SessionBusy`` naming who holds it."""
        ...

    def holder(self, name: str) -> str | None:
        """Say who holds the lease, or None where it is free."""
        ...

    def close(self) -> None:
        """Flush and let go of everything."""
        ...


@record
class Capabilities:
    """What a model's provider can do; sizes are None where nobody says."""

    caching: bool = False
    """``cache_control`` is understood and priced; without it a provider may still reuse prefixes by itself."""
    cache_edits: bool = False
    context_management: bool = False
    diagnostics: bool = False
    window: int | None = None
    max_output: int | None = None


@record
class Piece:
    """A part of a reply as it arrives; ``tool`` names a call that has begun, by its name."""

    kind: Literal["text", "thinking", "tool"]
    text: str


@record
class Reply:
    """A whole reply in the Messages API's own shape: id, role, content, stop_reason, usage, model."""

    body: dict[str, Any]


@runtime_checkable
class Model(Protocol):
    """Who answers: requests and replies in the Messages API's shape, whatever the provider speaks.

    A request is what ``Session.prepare`` returns. Every failure is a ``ModelError``; a stream that ends without its
    ``Reply`` has raised one. Cancelling the task that reads a stream ends the request.
    """

    @property
    def name(self) -> str:
        """The name a person gives it, such as ``anthropic:claude-sonnet-4-5``."""
        ...

    @property
    def model_id(self) -> str:
        """What stands in a request's ``model`` field."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What the provider can do with this model."""
        ...

    def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[Piece | Reply, None]:
        """Yield pieces as they arrive and last the whole reply."""
        ...

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Return the whole reply."""
        ...

    async def aclose(self) -> None:
        """Let go of connections; doing it twice is harmless."""
        ...


class Post(Protocol):
    """Carries messages from one agent to others, in this process or another."""

    async def send(self, to: str, message: str, *, summary: str = "", control: Mapping[str, Any] | None = None) -> str:
        """Deliver a message and say how it went; an unknown recipient is an ``InputError``.

        ``control`` is what it is beside its text, such as the answer to a request to shut down.
        """
        ...


@record
class Started:
    """What starting an agent gave: its result, or, where it runs in the background, only its id."""

    agent: str
    status: Literal["running", "completed", "failed", "killed"]
    text: str


class Agents(Protocol):
    """Starts and stops the agents of one agent."""

    async def start(
        self,
        prompt: str,
        *,
        kind: str = "",
        description: str = "",
        background: bool = False,
        worktree: bool = False,
        model: str = "",
    ) -> Started:
        """Start a sub-agent of a type, or a fork where no type is named; limits are an ``InputError``."""
        ...

    async def stop(self, agent: str) -> str:
        """Stop an agent and all it started, and say how it ended."""
        ...

    def kinds(self) -> Mapping[str, str]:
        """Return the types there are, each with what it is for."""
        ...

    def at_work(self) -> Sequence[str]:
        """Return a line for each agent that is at work."""
        ...
