"""The source of loaded skills in the standing context: their text as it is on disk now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from anyio import to_thread

from ...conversation.standing_context import StandingItem
from ...conversation.view import View
from ...tools.context import ToolContext
from ...tools.loaded_skills import SKILL_TOOL, LoadedSkill, LoadedSkills
from ...tools.skill import SkillTexts

_SOURCE: Final = "skills"
_CHANGED: Final = "The skill {} has changed on disk. This replaces the text that you loaded.\n\n{}"


class LoadedSkillSource:
    """Returns the skills that the agent has loaded and that still exist, the last loaded one first."""

    name = _SOURCE
    only_after_cuts = False

    def __init__(self, context: ToolContext) -> None:
        self._texts = SkillTexts(context)
        self._loaded = LoadedSkills()

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return one item per loaded skill that exists."""
        loaded = self._loaded.follow(view)
        return await to_thread.run_sync(self._items, view, loaded) if loaded else ()

    def _items(self, view: View, loaded: Sequence[LoadedSkill]) -> list[StandingItem]:
        texts = [(skill, self._texts.text_of(skill.name)) for skill in loaded]
        return [skill_item(view, skill, text) for skill, text in texts if text is not None]


def skill_item(view: View, skill: LoadedSkill, text: str) -> StandingItem:
    """Return the item of a loaded skill; while an older text of it is in view as a result, the text says so."""
    stands = skill.stands(view, text)
    is_unannounced = not stands and skill.saying(view) is None and skill.is_shown(view)
    return StandingItem(
        key=skill.key,
        source=_SOURCE,
        name=f"the skill {skill.name}",
        value=_CHANGED.format(skill.name, _fenced(skill.name, text)) if is_unannounced else _fenced(skill.name, text),
        digest=skill.digest_of(text),
        stands=stands,
        shown_by=(skill.tool_use_id,) if skill.has(text) else (),
        budget="skills",
        read_with=f"load it with the tool {SKILL_TOOL}",
    )


def _fenced(name: str, text: str) -> str:
    """Return a skill's text in a tag that it cannot leave."""
    inside = re.sub(r"<(?=/?skill\b)", "&lt;", text.strip("\n"), flags=re.IGNORECASE)
    return f'<skill name="{name}">\n{inside}\n</skill>'
