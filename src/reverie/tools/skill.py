"""Skill: load written instructions for a kind of task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from ..errors import ReverieError
from .context import ToolContext
from .skills import Skill, find_skills, load_skill, skill_folders
from .tool import Access, NoPreview, Output, error_output

__all__ = ["SkillTool", "available_skills"]

_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "The skill, as it is listed"},
        "arguments": {"type": "string", "description": "The input for the skill"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


class SkillTool(NoPreview):
    """The tool Skill: returns the instructions of a skill."""

    name = "Skill"
    max_chars: float | None = None
    description = (
        "Load a skill: instructions, written for this user or project, for a kind of task. When a task fits one of the "
        "skills that are listed, load it first and follow it."
    )
    input_schema = _INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return an access of kind ``none``: the tool reads only skill files."""
        return Access("none", str(input.get("name", "")))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the instructions of the named skill and add its name to ``context.loaded_skills``."""
        wanted = str(input["name"]).strip().lstrip("/")
        skills = await anyio.to_thread.run_sync(available_skills, context)
        skill = next((one for one in skills if one.name == wanted), None)
        if skill is None:
            known = ", ".join(one.name for one in skills) or "none"
            return error_output(f"there is no skill {wanted[:80]!r}; there are: {known[:2_000]}")
        try:
            text = await anyio.to_thread.run_sync(load_skill, skill)
        except (OSError, ReverieError) as error:
            return error_output(f"the skill {wanted} cannot be read ({error}); go on without it")
        context.loaded_skills.append(skill.name)
        given = str(input.get("arguments") or "")
        return Output(f"{text}\n\nArguments: {given}" if given else text)


def available_skills(context: ToolContext) -> list[Skill]:
    """Return the user's skills, and the project's if ``context.project_skills`` is set, sorted by name."""
    user = os.path.expanduser("~")
    folders = skill_folders(context.cwd, home=context.home, user=Path(user) if user != "~" else None)
    return find_skills(each for each in folders if each[1] == "user" or context.project_skills)
