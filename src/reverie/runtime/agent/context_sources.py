"""The sources of an agent's standing context: its place, the date, instruction files, lists, skills, files in use."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from anyio import to_thread

from ...conversation.file_reads import FileRead
from ...conversation.reads import files_in_view, whole_reads
from ...conversation.standing_context import StandingItem, digest_of
from ...conversation.view import View
from ...errors import ReverieError
from ...memories.rules.instructions import INTRODUCTION, fingerprint, shown_text
from ...settings import Settings
from ...tools.context import ToolContext
from ...tools.files.read_state import version_of
from ...tools.files.workspace import open_plain_file, resolved_path
from ...tools.loaded_skills import SKILL_TOOL, LoadedSkill, LoadedSkills
from ...tools.skill import SkillTexts
from ..instructions.reader import InstructionSet, NestedInstructions, gather
from ..places.projects import canonical_root
from ..places.trust import TrustList
from ..session.standing_context import ContextSource, FilesSource

INSTRUCTIONS: Final = "instructions"
_SOURCE: Final = "skills"
_READ_CHARS: Final = 60_000
_READ_LINES: Final = 200_000
_TAG_BYTES: Final = 8
"""The size of the random part of the tag around a file, which its content cannot know and so cannot close."""
_INSTRUCTIONS: Final = frozenset({"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"})
"""Names of instruction files, which a source of their own says."""


def environment_text(cwd: Path) -> str:
    """Return where the agent works: directory, system, repository."""
    lines = [f"Working directory: {cwd}", f"System: {platform.system()} {platform.machine()}"]
    root = canonical_root(cwd)
    if (root / ".git").exists():
        lines.append(f"Git repository: {root}")
    return "Where you are:\n" + "\n".join(f"- {line}" for line in lines)


class TextSource(ContextSource):
    """One text, or the one that a function returns, such as a list of skills; an empty text is no item."""

    def __init__(self, key: str, name: str, text: str | Callable[[], Awaitable[str]], *, own: bool = False) -> None:
        self.name = key
        self._own = own
        self._named = name
        self._text = text

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the text as an item, if it is not empty."""
        text = self._text if isinstance(self._text, str) else await self._text()
        return [StandingItem(self.name, self.name, self._named, text, own=self._own)] if text.strip() else []


class InstructionSource(FilesSource):
    """Instruction files as they are now: those of the session's start, and nested ones near files that were touched."""

    name = INSTRUCTIONS

    def __init__(self, context: ToolContext, settings: Settings, report: Callable[[str], None]) -> None:
        """Read the files that may be read; ``report`` is called with each problem once."""
        super().__init__()
        self._context = context
        self._settings = settings
        self._report = report
        self._gathered: InstructionSet | None = None
        self._nested = NestedInstructions(context.cwd, InstructionSet())
        self._reported: set[str] = set()

    def touched(self, paths: Iterable[str]) -> None:
        """Look for nested files near these paths before the next request."""
        self._nested.touched(paths)

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return an item for each file, after an introduction."""
        if self.takes_files(view):
            self._gathered = None
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


class LoadedSkillSource(ContextSource):
    """Returns the skills that the agent has loaded, the last loaded one first."""

    name = _SOURCE

    def __init__(self, context: ToolContext) -> None:
        self._texts = SkillTexts(context)
        self._loaded = LoadedSkills()

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return one item per loaded skill; an empty one if it no longer exists."""
        loaded = self._loaded.follow(view)
        return await to_thread.run_sync(self._items, view, loaded) if loaded else ()

    def _items(self, view: View, loaded: Sequence[LoadedSkill]) -> list[StandingItem]:
        texts = [(skill, self._texts.text_of(skill.name)) for skill in loaded]
        return [skill_item(view, skill, text or "") for skill, text in texts]


def skill_item(view: View, skill: LoadedSkill, text: str) -> StandingItem:
    """Return the item of a loaded skill; ``text`` is empty if there is no such skill any more."""
    shown = skill.shown_load(view)
    digest, has_text = digest_of(text), bool(text) and shown is not None and shown.has(text)
    return StandingItem(
        key=skill.key,
        source=_SOURCE,
        name=f"the skill {skill.name}",
        value=_fenced(skill.name, text) if text else "",
        digest=digest,
        native=digest if has_text else digest_of(shown.text) if shown is not None else "",
        shown_by=tuple(load.tool_use_id for load in skill.loads if load.has(text))[-1:] if text else (),
        not_shown_by=tuple(load.tool_use_id for load in skill.loads if not load.has(text)),
        budget="skills",
        read_with=f"load it with the tool {SKILL_TOOL}",
    )


def _fenced(name: str, text: str) -> str:
    inside = re.sub(r"<(?=/?skill\b)", "&lt;", text.strip("\n"), flags=re.IGNORECASE)
    return f'<skill name="{name}">\n{inside}\n</skill>'


class FileSource(ContextSource):
    """The files read or written last that the view no longer shows whole."""

    name = "files"
    only_after_cuts = True

    def __init__(self, context: ToolContext, most_files: int) -> None:
        self._context = context
        self._most = most_files

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return an item for each file, the one used last first; leave out those that may no longer be read."""
        return await to_thread.run_sync(lambda: list(islice(self._items(view), self._most)))

    def _items(self, view: View) -> Iterator[StandingItem]:
        shown = {resolved_path(path, self._context).target for path in files_in_view(view)}
        standing, calls = view.facts.standing, whole_reads(view)
        for read in view.facts.files.newest_first():
            path = Path(read.path)
            is_standing = path.name in _INSTRUCTIONS or f"instructions:{read.path}" in standing
            if read.path in shown or is_standing or self._is_ours(path):
                continue
            text, version = self._text(read)
            if text:
                called = calls.get((read.path, version))
                tag = f"file-{os.urandom(_TAG_BYTES).hex()}"
                yield StandingItem(
                    f"file:{read.path}",
                    self.name,
                    f"the file {read.path}",
                    f"<{tag}>\n{text}\n</{tag}>",
                    digest=digest_of(text),
                    shown_by=(called,) if called else (),
                    budget="files",
                    read_with=f"read {read.path} with the Read tool",
                )

    def _is_ours(self, path: Path) -> bool:
        """Say whether a file belongs to the user's Reverie directory, such as the plan, notes and memories."""
        return self._context.home is not None and path.is_relative_to(self._context.home)

    def _text(self, read: FileRead) -> tuple[str, str]:
        """Return the start of a file and, where it is all of it, its version; an empty text if it cannot be read."""
        first = read.spans[0][0] if read.spans else 1
        try:
            opened = open_plain_file(read.path, self._context)
            with os.fdopen(opened.descriptor, "rb") as file:
                for _ in islice(file, min(first - 1, _READ_LINES)):
                    pass
                data = file.read(4 * _READ_CHARS)
        except (OSError, ReverieError):
            return "", ""  # the file was removed or may no longer be read
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        version = version_of(data) if first == 1 and len(text) < _READ_CHARS else ""
        text = text[:_READ_CHARS]
        if not text.strip() or "\0" in text:
            return "", ""
        start = f" from line {first}" if first > 1 else ""
        return f"{read.path}{start}, as it is on disk now:\n\n{text}", version
