"""Turn a session into a skill: a SKILL.md in the Agent Skills format, from notes and user messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ...conversation.authorship import own_words
from ...conversation.cuts import LoggedCut
from ...conversation.decisions import Compacted
from ...conversation.view import View
from ...errors import InputError
from ...memories.store.frontmatter import FrontMatter, render
from ...values import record
from .sections import CODEBASE, ERRORS, FILES, LEARNINGS, RESULTS, TASK, TITLE, WORKFLOW, Notes
from .tool_effects import one_line

__all__ = ["Skill", "render_skill", "skill_name", "skill_of", "words_since_compaction"]

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_NAME_CHARS: Final = 64
_DESCRIPTION_CHARS: Final = 1_024
_LINES: Final = 24


@record
class Skill:
    """A skill: its name, its description (with when to use it) and its instructions."""

    name: str
    description: str
    body: str


def words_since_compaction(view: View) -> list[str]:
    """Return the texts of the user messages since the last compaction that was not undone, oldest first."""
    said: list[str] = []
    for one in view.history_from(0):
        if isinstance(one, LoggedCut):
            if isinstance(one.cut, Compacted) and one.uuid not in view.facts.undone:
                said = []
        elif words := own_words(one.entry):
            said.append(words)
    return said


def skill_name(text: str) -> str:
    """Return a valid skill name from the first words of a text; ``session-skill`` if it has none."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word
        if len(longer) > _NAME_CHARS:
            break
        name = longer
    return name or "session-skill"


def skill_of(notes: Notes, words: Sequence[str], *, name: str = "") -> Skill:
    """Build a skill without a model from the session's notes and user messages (``words``).

    Raise ``InputError`` if both are empty or ``name`` is not a valid skill name.
    """
    title = notes[TITLE] or (one_line(words[0], 80) if words else "")
    if notes.empty and not words:
        raise InputError("there is nothing to make a skill of: the session has neither notes nor messages of a user")
    asked = one_line(notes[TASK].split("\n", 1)[0] or (words[0] if words else title), 400)
    description = f"{one_line(title, 200)}. Use it for tasks like this one: {asked}"
    parts = [f"# {one_line(title, 120) or 'A skill'}"]
    parts += _part("When to use it", [asked, *_bullets(words[1:])])
    parts += _part("Steps", _lines(notes[WORKFLOW]))
    parts += _part("Where things are", [*_lines(notes[FILES])[: _LINES // 2], *_lines(notes[CODEBASE])[:3]])
    parts += _part("What went wrong, and what put it right", _lines(notes[ERRORS]))
    parts += _part("What was learnt", _lines(notes[LEARNINGS]))
    parts += _part("What the result looked like", _lines(notes[RESULTS]))
    return Skill(_checked_name(name) if name else skill_name(title), description[:_DESCRIPTION_CHARS], "\n".join(parts))


def render_skill(skill: Skill) -> str:
    """Return the text of the SKILL.md file of a skill."""
    return render(FrontMatter({"name": skill.name, "description": skill.description}, f"\n{skill.body.strip()}\n"))


def _checked_name(name: str) -> str:
    if len(name) > _NAME_CHARS or not _NAME.match(name):
        raise InputError(
            f"{name[:80]!r} cannot name a skill: lower-case letters, digits and single hyphens, at most 64"
        )
    return name


def _part(title: str, lines: Iterable[str]) -> list[str]:
    kept = [line for line in lines if line.strip()]
    return ["", f"## {title}", "", *kept] if kept else []


def _lines(content: str) -> list[str]:
    return [line for line in content.split("\n") if line.strip()][:_LINES]


def _bullets(words: Sequence[str]) -> list[str]:
    return [f"- {one_line(text, 300)}" for text in words if len(text) >= 16][:_LINES]
