"""The skills that an agent has loaded, folded from the calls of the tool Skill in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..conversation.authorship import text_of
from ..conversation.cuts import Item
from ..conversation.entries import ASSISTANT, DECISION, USER
from ..conversation.reads import HistoryReader, shows_result
from ..conversation.standing_context import said_in
from ..conversation.view import View
from ..conversation.wire.blocks import as_blocks
from ..values import field, record, replace

SKILL_TOOL: Final = "Skill"
KEY: Final = "skill:"
"""The start of the keys of loaded skills in standing context."""


@record
class SkillLoad:
    """A call that loaded a skill, and the text of its result."""

    tool_use_id: str
    text: str

    def has(self, text: str) -> bool:
        """Return whether the result has this text of the skill; arguments may follow it."""
        return self.text.startswith(text)


@record
class LoadedSkill:
    """A skill, the calls that loaded it, and for each saying of it how many of them came before."""

    name: str
    loads: tuple[SkillLoad, ...] = ()
    sayings: Mapping[str, int] = field(default_factory=lambda: {})

    @property
    def key(self) -> str:
        """The key of the skill in standing context."""
        return f"{KEY}{self.name}"

    def shown_load(self, view: View) -> SkillLoad | None:
        """Return the last load whose result the view shows, if the view says nothing about the skill behind it."""
        said = view.facts.visible.get(self.key)
        since = self.loads[self.sayings.get(said.entry, 0) if said is not None else 0 :]
        return next((load for load in reversed(since) if shows_result(view, load.tool_use_id)), None)


class LoadedSkills:
    """The skills that the calls in a growing view have loaded; each entry is read once."""

    def __init__(self) -> None:
        self._reader = HistoryReader()
        self._called: dict[str, str] = {}
        self._loaded: dict[str, LoadedSkill] = {}

    def follow(self, view: View) -> list[LoadedSkill]:
        """Read the entries that the view gained since the last call, and return the loaded skills, newest first.

        A call that failed loads nothing. A view that does not continue the earlier one is read from the start.
        """
        if not self._reader.continues(view):
            self._reader = HistoryReader()
            self._called.clear()
            self._loaded.clear()
        for item in self._reader.items(view):
            self._add(item)
        return list(reversed(self._loaded.values()))

    def _add(self, item: Item) -> None:
        if item.kind == ASSISTANT:
            for block in as_blocks(item.message):
                if block.get("type") == "tool_use" and block.get("name") == SKILL_TOOL:
                    self._called[str(block.get("id"))] = called_skill(block.get("input"))
        elif item.kind == USER and self._called:
            for block in as_blocks(item.message):
                name = self._called.pop(str(block.get("tool_use_id")), "") if "tool_use_id" in block else ""
                if name and block.get("is_error") is not True:
                    before = self._loaded.pop(name, LoadedSkill(name))
                    load = SkillLoad(str(block["tool_use_id"]), text_of(block))
                    self._loaded[name] = replace(before, loads=(*before.loads, load))
        elif item.entry.kind == DECISION and self._loaded:
            for said in said_in(item.entry.body):
                loaded = self._loaded.get(said.key.removeprefix(KEY)) if said.key.startswith(KEY) else None
                if loaded is not None:
                    sayings = {**loaded.sayings, item.uuid: len(loaded.loads)}
                    self._loaded[loaded.name] = replace(loaded, sayings=sayings)


def called_skill(input: Any) -> str:
    """Return the name of the skill in the input of a call, empty if there is none."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", input) if isinstance(input, Mapping) else {}
    return str(fields.get("name") or "").strip().lstrip("/")
