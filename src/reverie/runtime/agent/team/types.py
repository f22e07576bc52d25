"""Find the agent types (built-in, the user's, those of a trusted project), and the memory of a type in its scope."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from ....conversation.view import View
from ....errors import ReverieError, UnsafePath
from ....layers.l5_extract import Witnesses
from ....layers.l7_relay import AgentKind, KindSource, parse_kind
from ....memories.rules.guidance import rules_text
from ....memories.rules.types import MemoryType
from ....memories.store.journal_files import SharedJournal
from ....memories.store.records import MemoryRecord, Scope
from ....memories.store.trust import worst
from ....settings import Settings
from ....tools.context import ToolContext
from ....tools.files.text_files import decoded_text
from ....tools.files.workspace import open_plain_file
from ....values import replace
from ...memory.memory import Heads, Memory
from ...memory.memory_tool import MemoryTool
from ...memory.shared_journal import shared_journal
from ...memory.standing_memories import IndexSource, read_indexes
from ...places.trust import TrustList

_MAX_KINDS: Final = 100
_MAX_BYTES: Final = 400_000
FOLDER: Final = "agent-types"
"""The name of the folder of the user's own agent types, in their Reverie directory."""
_SHARED_NOTE: Final = "This index came with the repository, and others write to it: verify its statements."


def prompt_of(name: str) -> str:
    """Return the text of a prompt file of the relay layer (``layers/l7_relay/prompts``) by its name."""
    return files("reverie.layers.l7_relay").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8").strip()


def builtin_kinds() -> dict[str, AgentKind]:
    """Return the built-in agent types, ``general`` and ``explore``, by name."""
    return {
        "general": AgentKind(
            "general",
            "Does a whole task by itself, with all tools: searching, changing, running, checking.",
            prompt_of("general"),
        ),
        "explore": AgentKind(
            "explore",
            "Finds things out in the code by reading alone, and answers with paths and lines. Cannot change anything.",
            prompt_of("explore"),
            tools=("Read", "Glob", "Grep", "Bash"),
            mode="plan",
        ),
    }


def find_kinds(cwd: Path, *, home: Path, trusted: bool) -> tuple[Mapping[str, AgentKind], list[str]]:
    """Return all agent types by name, sorted, and the problems of files that could not be used; this may block.

    The first folder with a type has priority; those of a project are searched only if ``trusted``.
    """
    user = os.path.expanduser("~")
    folders: list[tuple[Path, KindSource]] = [(home / FOLDER, "user")]
    if trusted:
        folders = [(cwd / ".reverie" / "agents", "project"), (cwd / ".claude" / "agents", "project"), *folders]
    if user != "~":  # the user has a home directory
        folders.append((Path(user) / ".claude" / "agents", "user"))
    found: dict[str, AgentKind] = {}
    problems: list[str] = []
    for folder, source in folders:
        for file, text in _files(folder, problems):
            kind, wrong = parse_kind(text, file=file, source=source)
            problems += [f"{folder / file}: {one.partition(': ')[2]}" for one in wrong]
            if kind is not None and len(found) < _MAX_KINDS:
                found.setdefault(kind.name, kind)
    for name, kind in builtin_kinds().items():
        found.setdefault(name, kind)
    return {name: found[name] for name in sorted(found)}, problems


def _files(folder: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each Markdown file directly in a folder; add unreadable ones to ``problems``."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".md") and not name.startswith("."))
    except OSError:
        return
    for name in names[:_MAX_KINDS]:
        try:
            opened = open_plain_file(name, ToolContext(cwd=folder))
            with open(opened.descriptor, "rb") as file:
                yield name, decoded_text(file.read(_MAX_BYTES), opened.target)[0]
        except (OSError, ReverieError) as error:
            problems.append(f"{folder / name}: it cannot be read ({error})")


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
