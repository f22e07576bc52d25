"""The open items of an agent: files it read, loaded skills, its list of steps, and running agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, cast

from anyio import to_thread

from ...conversation.authorship import utterances
from ...conversation.view import View
from ...errors import ReverieError
from ...tools.context import Todo, ToolContext
from ...tools.files.workspace import open_plain_file
from ...tools.skill import available_skills
from ...tools.skills import load_skill
from ..session.compact.restore import OpenContent, RestorableText

__all__ = ["OpenItems", "todos_in"]

_FILES: Final = 20
_READ_CHARS: Final = 60_000
_INSTRUCTIONS: Final = frozenset({"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"})
"""Names of instruction files, which other code attaches again after a compaction."""


class OpenItems:
    """Collects the files, skills, steps and agents of one agent that a compaction may show again."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    async def restorable(self) -> OpenContent:
        """Return the open files and skills with their text, the latest first, and the steps and running agents."""
        return await to_thread.run_sync(self._restorable)

    def _restorable(self) -> OpenContent:
        steps = [f"- [{todo.status}] {todo.content}" for todo in self._context.todos]
        agents = [f"- {line}" for line in self._context.agents.at_work()] if self._context.agents is not None else []
        parts = {"The list of steps:": steps, "Agents at work, whose results will come:": agents}
        rest = tuple(f"{head}\n" + "\n".join(lines) for head, lines in parts.items() if lines)
        return OpenContent(files=tuple(self._files()), skills=tuple(self._skills()), rest=rest)

    def _files(self) -> list[RestorableText]:
        found: list[RestorableText] = []
        for reading in self._context.reads.known.newest_first():
            if Path(reading.path).name in _INSTRUCTIONS or len(found) >= _FILES:
                continue
            try:
                opened = open_plain_file(reading.path, self._context)
                with os.fdopen(opened.descriptor, encoding="utf-8", errors="replace") as file:
                    found.append(RestorableText(reading.path, file.read(_READ_CHARS)))
            except (OSError, ReverieError):
                continue  # the file was removed or may no longer be read
        return found

    def _skills(self) -> list[RestorableText]:
        wanted = dict.fromkeys(reversed(self._context.loaded_skills))
        known = {skill.name: skill for skill in available_skills(self._context)} if wanted else {}
        return [RestorableText(name, load_skill(known[name])) for name in wanted if name in known]


def todos_in(view: View) -> list[Todo]:
    """Return the steps of the last TodoWrite call in a view's history; an empty list if there is none."""
    for entry in reversed(view.history):
        for one in utterances(entry):
            given: Any = one.input
            if one.kind == "call" and one.tool == "TodoWrite" and isinstance(given, dict):
                return _todos(cast("dict[str, Any]", given).get("todos"))
    return []


def _todos(given: Any) -> list[Todo]:
    listed = cast("list[Any]", given) if isinstance(given, list) else []
    steps = [cast("dict[str, Any]", one) for one in listed if isinstance(one, dict)]
    return [Todo(str(one.get("content", "")), str(one.get("status", "pending"))) for one in steps]
