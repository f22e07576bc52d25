"""The skills that an agent has loaded, folded from the calls of the tool Skill in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..conversation.authorship import text_of
from ..conversation.causes import SaidItem
from ..conversation.cuts import Item
from ..conversation.entries import ASSISTANT, DECISION, USER
from ..conversation.reads import HistoryReader
from ..conversation.standing_context import digest_of, said_in
from ..conversation.tool_calls import ToolCall
from ..conversation.view import View
from ..conversation.wire.blocks import as_blocks
from ..values import record, replace

__all__ = ["KEY", "SKILL_TOOL", "LoadedSkill", "LoadedSkills", "called_skill"]

SKILL_TOOL: Final = "Skill"
KEY: Final = "skill:"
"""The start of the keys of loaded skills in standing context."""


@record
class LoadedSkill:
    """A skill at its last load: its name, the id of the tool call, and the text of the call's result."""

    name: str
    tool_use_id: str
    text: str
    is_said_later: bool = False
    """Whether standing context has said something about the skill after this load."""

    @property
    def key(self) -> str:
        """The key of the skill in standing context."""
        return f"{KEY}{self.name}"

    def stands(self, view: View, text: str) -> bool:
        """Say whether a view shows ``text`` as this result, and nothing else about the skill after it."""
        said = self.saying(view) if self.is_said_later else None
        said_other = said is not None and (said.state == "ended" or said.digest != self.digest_of(text))
        return self.has(text) and not said_other and self.is_shown(view)

    def has(self, text: str) -> bool:
        """Say whether the result of this load has ``text``."""
        return self.text.startswith(text)

    def digest_of(self, text: str) -> str:
        """Return the identity of a text of the skill; one that is not this load's came after it."""
        return digest_of(text if self.has(text) else f"{self.tool_use_id}\n{text}")

    def saying(self, view: View) -> SaidItem | None:
        """Return the newest saying about the skill that the view shows, or None."""
        facts, row = view.facts, view.facts.standing.get(self.key)
        return facts.fallen.get(self.key, row.item if row is not None else None)

    def is_shown(self, view: View) -> bool:
        """Say whether the request of this view has the result unchanged."""
        call = view.tool_call(self.tool_use_id)
        return call is not None and not self._is_left_out(view, call)

    def _is_left_out(self, view: View, call: ToolCall) -> bool:
        """Say whether the result was replaced, deleted from the cache, or is left out by the provider."""
        called, facts, bound = self.tool_use_id, view.facts, view.clearing
        if bound is not None and call.group <= bound.group and call.name not in bound.excluded:
            return True
        deleted = any(called in edit.tool_use_ids for edit in facts.edits)
        return deleted or called in view.overrides.results or called in facts.cleared_by_provider


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
                    self._loaded.pop(name, None)
                    self._loaded[name] = LoadedSkill(name, str(block["tool_use_id"]), text_of(block))
        elif item.entry.kind == DECISION and self._loaded:
            for said in said_in(item.entry.body):
                loaded = self._loaded.get(said.key.removeprefix(KEY)) if said.key.startswith(KEY) else None
                if loaded is not None:
                    self._loaded[loaded.name] = replace(loaded, is_said_later=True)


def called_skill(input: Any) -> str:
    """Return the name of the skill in the input of a call, empty if there is none."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", input) if isinstance(input, Mapping) else {}
    return str(fields.get("name") or "").strip().lstrip("/")
