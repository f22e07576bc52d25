"""Skill: load written instructions for a kind of task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from ..errors import ReverieError
from .context import ToolContext
from .loaded_skills import SKILL_TOOL, called_skill
from .skills import Skill, SkillSource, find_skills, load_skill, skill_folders
from .tool import Access, NoPreview, Output, error_output, object_schema

_INPUT: Final = object_schema(
    ("name",),
    name={"type": "string", "minLength": 1, "description": "The skill, as it is listed"},
    arguments={"type": "string", "description": "The input for the skill"},
)


class SkillTool(NoPreview):
    """The tool Skill: returns the instructions of a skill."""

    name = SKILL_TOOL
    description = (
        "Load a skill: instructions, written for this user or project, for a kind of task. When a task fits one of the "
        "skills that are listed, load it first and follow it."
    )
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: the tool reads only skill files."""
        return Access("none", str(input.get("name", "")))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the instructions of the named skill; the call in the log makes it a loaded skill."""
        wanted = called_skill(input)
        skills = await anyio.to_thread.run_sync(available_skills, context)
        skill = next((one for one in skills if one.name == wanted), None)
        if skill is None:
            known = ", ".join(one.name for one in skills) or "none"
            return error_output(f"there is no skill {wanted[:80]!r}; there are: {known[:2_000]}")
        try:
            text = await anyio.to_thread.run_sync(load_skill, skill)
        except (OSError, ReverieError) as error:
            return error_output(f"the skill {wanted} cannot be read ({error}); go on without it")
        given = str(input.get("arguments") or "")
        return Output(f"{text}\n\nArguments: {given}" if given else text)


def available_skills(context: ToolContext) -> list[Skill]:
    """Return the user's skills, and the project's if ``context.project_skills`` is set, sorted by name."""
    return find_skills(_folders(context))


class SkillTexts:
    """The instructions of skills as they are on disk now; a file that looks unchanged is not read again."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._seen: tuple[object, ...] = ()
        self._skills: dict[str, Skill] = {}
        self._texts: dict[Path, tuple[tuple[int, ...], str]] = {}

    def text_of(self, name: str) -> str | None:
        """Return the instructions of a skill, or None if there is no such skill that can be read; this may block."""
        folders = _folders(self._context)
        seen = tuple((folder, _look(folder)) for folder, _ in folders)
        if seen != self._seen or not self._is_current(name):
            self._skills = {skill.name: skill for skill in find_skills(folders)}
            self._seen = seen
        skill = self._skills.get(name)
        if skill is None:
            return None
        looks = _look(skill.folder / "SKILL.md")
        known = self._texts.get(skill.folder)
        if known is not None and known[0] == looks:
            return known[1]
        try:
            text = load_skill(skill)
        except (OSError, ReverieError):
            return None
        self._texts[skill.folder] = (looks, text)
        return text

    def _is_current(self, name: str) -> bool:
        """Say whether the file of a skill looks as it did when it was read: a new front matter may rename it."""
        skill = self._skills.get(name)
        known = self._texts.get(skill.folder) if skill is not None else None
        return skill is not None and known is not None and known[0] == _look(skill.folder / "SKILL.md")


def _folders(context: ToolContext) -> list[tuple[Path, SkillSource]]:
    user = os.path.expanduser("~")
    folders = skill_folders(context.cwd, home=context.home, user=Path(user) if user != "~" else None)
    return [each for each in folders if each[1] == "user" or context.project_skills]


def _look(path: Path) -> tuple[int, ...]:
    """Return the time of change, size and inode of a file or folder; empty if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
