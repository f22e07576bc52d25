"""The sources of an agent's standing context: where it works, the date, instruction files, lists of its means."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from anyio import to_thread

from ...conversation.standing_context import StandingItem
from ...conversation.view import View
from ...memories.rules.instructions import INTRODUCTION, fingerprint, shown_text
from ...settings import Settings
from ...tools.context import ToolContext
from ..instructions.reader import InstructionSet, NestedInstructions, gather
from ..places.projects import canonical_root
from ..places.trust import TrustList

INSTRUCTIONS: Final = "instructions"


def environment_text(cwd: Path) -> str:
    """Return where the agent works: directory, system, repository."""
    lines = [f"Working directory: {cwd}", f"System: {platform.system()} {platform.machine()}"]
    root = canonical_root(cwd)
    if (root / ".git").exists():
        lines.append(f"Git repository: {root}")
    return "Where you are:\n" + "\n".join(f"- {line}" for line in lines)


class TextSource:
    """One text, or the one that a function returns, such as a list of skills; an empty text is no item."""

    only_after_cuts = False

    def __init__(self, key: str, name: str, text: str | Callable[[], Awaitable[str]], *, own: bool = False) -> None:
        self.name = key
        self._own = own
        self._named = name
        self._text = text

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the text as an item, if it is not empty."""
        text = self._text if isinstance(self._text, str) else await self._text()
        return [StandingItem(self.name, self.name, self._named, text, own=self._own)] if text.strip() else []


class InstructionSource:
    """Instruction files as they are now: those of the session's start, and nested ones near files that were touched."""

    name = INSTRUCTIONS
    only_after_cuts = False

    def __init__(self, context: ToolContext, settings: Settings, report: Callable[[str], None]) -> None:
        """Read the files that may be read; ``report`` is called with each problem once."""
        self._context = context
        self._settings = settings
        self._report = report
        self._gathered: InstructionSet | None = None
        self._nested = NestedInstructions(context.cwd, InstructionSet())
        self._cuts = 0
        self._reported: set[str] = set()

    def touched(self, paths: Iterable[str]) -> None:
        """Look for nested files near these paths before the next request."""
        self._nested.touched(paths)

    def reload(self) -> None:
        """Read the files of the session's start again before the next request."""
        self._gathered = None

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return an item for each file, after an introduction."""
        if view.cuts != self._cuts:
            self.reload()
        self._cuts = view.cuts
        return await to_thread.run_sync(self._items, view)

    def _items(self, view: View) -> list[StandingItem]:
        if self._gathered is None:
            consent = TrustList.open(self._settings.home).is_trusted(self._context.cwd)
            self._context.project_skills = consent
            self._gathered = gather(self._context.cwd, home=self._settings.home, consent=consent)
            nested = NestedInstructions(self._context.cwd, self._gathered, consent=consent)
            self._nested = nested.following(self._nested)
        table, prefix = view.facts.standing, f"{self.name}:"
        known = [
            key.removeprefix(prefix) for key in table if key.startswith(prefix) and table[key].item.state != "ended"
        ]
        files = [*self._gathered.files, *self._nested.current(known, self._is_readable)]
        self._report_problems([*self._gathered.problems, *self._nested.problems])
        if not files:
            return []
        items = [StandingItem(self.name, self.name, "the rule for instruction files", INTRODUCTION)]
        for file in files:
            name, digest = f"the instruction file {file.path}", fingerprint(file.text)
            items.append(StandingItem(prefix + file.path, self.name, name, shown_text(file), digest))
        return items

    def _report_problems(self, problems: list[str]) -> None:
        for problem in problems:
            if problem not in self._reported:
                self._reported.add(problem)
                self._report(problem)

    def _is_readable(self, path: str) -> bool:
        """Return whether an instruction file may be read: in the tools' directories or a folder above ``cwd``."""
        roots = (self._context.cwd, *self._context.directories)
        above = {str(parent) for parent in self._context.cwd.parents}
        return any(_is_within(path, str(root)) for root in roots) or _folder_of(path) in above


def _folder_of(path: str) -> str:
    """Return the folder that an instruction file applies to; a file in ``.claude`` applies to the folder above."""
    return path.partition("/.claude/")[0] if "/.claude/" in path else path.rpartition("/")[0]


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
