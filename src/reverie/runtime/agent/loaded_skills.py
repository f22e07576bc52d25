"""The source of loaded skills in the standing context: their text as it is on disk now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from anyio import to_thread

from ...conversation.standing_context import StandingItem, digest_of
from ...conversation.view import View
from ...tools.context import ToolContext
from ...tools.loaded_skills import SKILL_TOOL, LoadedSkill, LoadedSkills
from ...tools.skill import SkillTexts

_SOURCE: Final = "skills"


class LoadedSkillSource:
    """Returns the skills that the agent has loaded, the last loaded one first."""

    name = _SOURCE
    only_after_cuts = False

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
    """Return a skill's text in a tag that it cannot leave."""
    inside = re.sub(r"<(?=/?skill\b)", "&lt;", text.strip("\n"), flags=re.IGNORECASE)
    return f'<skill name="{name}">\n{inside}\n</skill>'
