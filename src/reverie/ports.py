"""The protocols that Reverie needs from outside: storage, models, embeddings, messages between agents, and sub-agents.

Storage and embedders are synchronous and may block; the async runtime calls them in a worker thread. Models are
asynchronous.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from .values import record


@record
class Document:
    """A stored document and its version, to be passed as ``expect`` when it is replaced."""

    data: bytes
    version: str


@record
class Stamp:
    """A key with its size in bytes and the time of its last change; a change of any of them shows that it changed."""

    key: str
    size: int
    changed_ns: int
    identity: int
    """A number that another document or log of the same name does not have."""


class Lease(Protocol):
    """The exclusive right to write a session, held until it is released or the process dies."""

    name: str

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        ...


class Storage(Protocol):
    """A store of documents, append-only logs and leases, each named by a key.

    Keys are relative POSIX paths such as ``projects/app-1a2b/abc.jsonl``.
    Every failure is a ``StorageError`` that names the path.
    """

    def read(self, key: str) -> Document | None:
        """Return the document, or None if it does not exist."""
        ...

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        """Create or replace the document atomically and durably, and return its new version.

        Raise ``StorageConflict`` if the current version is not ``expect``, or if ``create`` is set and the document
        exists.
        """
        ...

    def delete(self, key: str) -> bool:
        """Delete a document or log, and say whether it existed."""
        ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a folder prefix, sorted."""
        ...

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """Yield the stamps of the documents and logs under a folder prefix, sorted by key."""
        ...

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        """Append one line, given without a newline, to a log, and return when it is stored safely.

        Raise ``LogLost``, without creating the log, if its size in bytes is not ``expect``.
        """
        ...

    def load(self, key: str, start: int = 0, size: int = -1) -> bytes | None:
        """Return the bytes of a log or document, including damaged lines, or None if it does not exist.

        With a ``size`` return at most so many bytes from the offset ``start`` on; fewer only at its end.
        """
        ...

    def lease(self, name: str, *, holder: str = "") -> Lease:
        """Take the lease on a name for ``holder``, or raise ``SessionBusy`` that names the present holder."""
        ...

    def holder(self, name: str) -> str | None:
        """Return the holder of the lease on a name, or None if the lease is free."""
        ...

    def close(self) -> None:
        """Flush all logs and release all leases and files."""
        ...


@record
class Capabilities:
    """The features a provider offers for a model; a size is None if it is unknown."""

    caching: bool = False
    """The provider honours ``cache_control``; without this a provider may still cache prefixes on its own."""
    cache_edits: bool = False
    context_management: bool = False
    compaction: bool = False
    """The provider writes a signed summary for a request with the field ``compaction``."""
    diagnostics: bool = False
    window: int | None = None
    max_output: int | None = None


@record
class ReplyDelta:
    """A part of a reply as it streams in; with kind ``tool``, ``text`` is the name of the tool being called."""

    kind: Literal["text", "thinking", "tool"]
    text: str


@record
class Reply:
    """A complete reply in the Messages API's format: id, role, content, stop_reason, usage, model."""

    body: dict[str, Any]


class Embedder(Protocol):
    """A model that turns texts into vectors, which are the more alike the more the texts mean the same."""

    @property
    def name(self) -> str:
        """The name of the model; vectors of different names cannot be compared."""
        ...

    def vectors(self, texts: Sequence[str]) -> list[array[float]]:
        """Return one vector of length 1 per text, in order; the end of a text that is too long may be cut.

        Unrelated texts have a cosine near 0; ``models.embedders.CentredEmbedder`` makes that true of any model.
        Every failure is a ``ModelError``.
        """
        ...


@runtime_checkable
class PromptEmbedder(Embedder, Protocol):
    """An embedder that also tells general questions from prompts about a person's own work."""

    def specificity(self, vector: Sequence[float]) -> float:
        """Return how much a prompt with this vector concerns the person's own work; below 0 it is a general one."""
        ...


@runtime_checkable
class Model(Protocol):
    """A language model that takes and returns the Messages API's format, for every provider.

    ``Session.prepare`` builds the requests. Every failure is a ``ModelError``; a stream that ends without a ``Reply``
    raises one. Cancelling the task that reads a stream cancels the request.
    """

    @property
    def name(self) -> str:
        """The name with its provider, such as ``anthropic:MODEL``."""
        ...

    @property
    def model_id(self) -> str:
        """The value of a request's ``model`` field."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The features the provider offers for this model."""
        ...

    def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Send a request, yield the parts of the reply as they arrive, and yield the complete reply last."""
        ...

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        """Send a request and return the complete reply."""
        ...

    async def aclose(self) -> None:
        """Close all connections; a second call does nothing."""
        ...


@runtime_checkable
class Connectable(Protocol):
    """A model whose client can be opened before its first request."""

    async def connect(self) -> None:
        """Load the provider's library and open the client, if that was not done; raise ``ModelError`` if it fails."""
        ...


class Messenger(Protocol):
    """The delivery of messages from one agent to others, in this process or in another one."""

    async def send(self, to: str, message: str, *, summary: str = "", control: Mapping[str, Any] | None = None) -> str:
        """Deliver a message and return a sentence about the delivery; raise ``InputError`` for an unknown recipient.

        ``control`` carries structured data besides the text, such as the answer to a shutdown request.
        """
        ...


class PlanDesk(Protocol):
    """Where an agent hands in the plan of its session."""

    async def propose(self, text: str) -> str:
        """Save a plan, ask for its approval, and return the answer in words."""
        ...

    async def finish(self) -> str:
        """End the open plan and return a sentence about it; raise ``InputError`` if there is none."""
        ...


@record
class AgentRequest:
    """A task for a sub-agent of type ``kind``, or for a fork of the conversation if ``kind`` is empty."""

    prompt: str
    kind: str = ""
    description: str = ""
    background: bool = False
    worktree: bool = False
    model: str = ""


@record
class StartedAgent:
    """A sub-agent that was started: its id and status, and its result unless it still runs in the background."""

    agent: str
    status: Literal["running", "completed", "failed", "killed"]
    text: str


class Agents(Protocol):
    """The sub-agents of one agent, which can be started and stopped."""

    async def start(self, request: AgentRequest) -> StartedAgent:
        """Start a sub-agent or a fork and, unless it runs in the background, wait until it ends.

        Raise ``InputError`` if a limit of sub-agents is reached.
        """
        ...

    async def stop(self, agent: str) -> str:
        """Stop an agent and every agent it started, and return a sentence about how it ended."""
        ...

    def kinds(self) -> Mapping[str, str]:
        """Return a mapping from the name of each available agent type to its purpose."""
        ...

    def works_apart(self, kind: str) -> bool:
        """Return whether agents of a type work in a worktree of their own."""
        ...
