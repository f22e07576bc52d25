"""The memory of an agent type, in one of three scopes: the user, a project and everyone who shares it, or one checkout.

Each scope is a directory with its own index and limits. No memory in it has the trust of the user. The memory of a
project came with the repository, so it is used only if the project is trusted, and always inside a fence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ....conversation.view import View
from ....errors import UnsafePath
from ....layers.l5_extract import Witnesses
from ....layers.l7_relay import AgentKind
from ....memories.rules.guidance import rules_text
from ....memories.rules.types import MemoryType
from ....memories.store.journal_files import SharedJournal
from ....memories.store.records import MemoryRecord, Scope
from ....memories.store.trust import worst
from ....settings import Settings
from ....tools.memory import MemoryTool
from ....values import replace
from ...memory.memory import Heads, Memory
from ...memory.shared_journal import shared_journal
from ...memory.standing_memories import IndexSource, read_indexes
from ...places.trust import TrustList

_SHARED_NOTE: Final = "This index came with the repository, and others write to it: verify its statements."


def scope_directory(scope: str, kind: str, cwd: Path, home: Path) -> Path:
    """Return the directory of a type's memory: in ``home`` for the scope ``user``, otherwise in the project."""
    match scope:
        case "user":
            return home / "agent-memory" / kind
        case "project":
            return cwd / ".reverie" / "agent-memory" / kind
        case _:
            return cwd / ".reverie" / "agent-memory-local" / kind


class TypeMemory:
    """The memory that all agents of one type share, in one directory."""

    def __init__(self, directory: Path, scope: str, shared: SharedJournal | None = None) -> None:
        self.path = str(directory)
        self.scope = scope
        self.view: Callable[[], View] | None = None
        """Function that returns the using agent's view, by which the trust of new memories is decided; may be None."""
        self.memory: Memory = _AgentTrustMemory(directory, shared=shared)

    @classmethod
    def of(cls, kind: AgentKind, cwd: Path, settings: Settings) -> TypeMemory | None:
        """Return the memory of an agent type; None if it asks for none, memory is off or the project untrusted.

        The scope ``user`` needs no trusted project. Raise ``UnsafePath`` if a link leads the directory elsewhere.
        """
        if not kind.memory or not settings.switches.memory:
            return None
        directory = scope_directory(kind.memory, kind.name, cwd, settings.home)
        if kind.memory != "user":
            if not TrustList.open(settings.home).is_trusted(cwd):
                return None
            if os.path.realpath(directory) != os.path.join(os.path.realpath(cwd), os.path.relpath(directory, cwd)):
                raise UnsafePath(f"{directory} leads elsewhere: remove the link in it", path=str(directory))
        shared = shared_journal(f"agent-memory/{kind.name}", settings) if kind.memory == "user" else None
        return cls(directory, kind.memory, shared)

    def tool(self) -> MemoryTool:
        """Return a Memory tool for this directory, whose saved memories have at most the trust of an agent."""

        def trust_of(text: str) -> Any:
            heard = Witnesses(self.view().history if self.view is not None else ())
            return worst(("agent", heard.trust(text)))

        return MemoryTool(self.memory, trust_of=trust_of)

    def rules(self) -> str:
        """Return the part of the sub-agent's system prompt about memory."""
        return rules_text(self.path)

    def source(self, most_bytes: int, report: Callable[[str], None]) -> IndexSource:
        """Return the source of the memory index for standing context; ``report`` is called if it cannot be read."""
        note = _SHARED_NOTE if self.scope == "project" else ""
        places: dict[Scope, str] = {"private": self.path}
        return IndexSource(lambda: read_indexes(self.memory, places, most_bytes=most_bytes, note=note), report)


class _AgentTrustMemory(Memory):
    """A memory store whose ``list`` and ``get`` report at most agent trust, even if a file claims more."""

    def list(self, *, type: MemoryType | None = None) -> Heads:
        """Return all memories, or those of one type, without their text."""
        return [_with_agent_trust(one) for one in super().list(type=type)]

    def get(self, file_or_name: str) -> MemoryRecord:
        """Return one memory with its text, by its file or name."""
        return _with_agent_trust(super().get(file_or_name))


def _with_agent_trust(record: MemoryRecord) -> MemoryRecord:
    return replace(record, trust=worst((record.trust, "agent")))
