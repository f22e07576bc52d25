"""Decide when notes are due, their size, the messages they cover, and which sections to log. Pure."""

from __future__ import annotations

import re
from typing import Final

from ...conversation.entries import ASSISTANT
from ...conversation.tokens.window import capped
from ...conversation.view import View
from ...values import record
from .local import NotesBudget
from .policy import NotesPolicy
from .sections import CURRENT, Notes, Template, changed_sections

_WORTH: Final = 0.25
_WORD: Final = re.compile(r"\S+")
_COUNT: Final = re.compile(r"\(?\d+x?[),:;.]*")


@record
class NotesLimits:
    """Token counts of layer 3 in this window: first update, growth until the next, one section, all notes."""

    start: int
    step: int
    section: int
    total: int

    @property
    def budget(self) -> NotesBudget:
        """The size limits of a section and of the whole notes."""
        return NotesBudget(self.section, self.total)


def notes_limits(policy: NotesPolicy, effective: int) -> NotesLimits:
    """Return the policy's token counts, each at most its share of ``effective``, the window's tokens (T8)."""
    return NotesLimits(
        capped(policy.start_tokens, 0.06, effective),
        capped(policy.step_tokens, 0.03, effective),
        capped(policy.section_tokens, 0.0125, effective),
        capped(policy.total_tokens, 0.08, effective),
    )


def enough_tokens(view: View, limits: NotesLimits) -> bool:
    """Say whether the view has ``limits.start`` tokens and, if notes exist, grew by ``limits.step`` since."""
    count, facts = view.token_count.tokens, view.facts
    return count >= limits.start and (not facts.notes or count - facts.notes_tokens >= limits.step)


def notes_due(view: View, policy: NotesPolicy, limits: NotesLimits, *, calls: int) -> bool:
    """Say whether the notes should be updated now; ``calls`` is the number of tool calls of the session.

    There must be enough new tokens; after the first notes also enough calls since the last update, or a reply
    without calls.
    """
    if not enough_tokens(view, limits):
        return False
    if not view.facts.notes:
        return True
    return calls - view.facts.notes_calls >= policy.step_calls or not _replied_with_calls(view)


def _replied_with_calls(view: View) -> bool:
    """Say whether the last assistant message in the view calls tools."""
    for at in range(view.length - 1, -1, -1):
        group = view.group(at)
        if group.role == ASSISTANT:
            return bool(group.uses)
    return False


def covered_by(view: View) -> str | None:
    """Return the uuid of the last message that new notes cover, before any open calls; None if there is none."""
    at = view.length - 1
    if view.unanswered():
        while at >= 0 and view.group(at).role != ASSISTANT:
            at -= 1
        at -= 1
    while at >= 0 and not view.group(at).pieces:
        at -= 1
    return view.group(at).pieces[-1].uuid if at >= 0 else None


def worth_logging(before: Notes, after: Notes, template: Template) -> dict[str, str]:
    """Return the content, by heading, of the changed sections with enough new words; Current State needs none.

    Local notes can be written again at any time, so the log need not hold every word; ``changed_sections`` returns all.
    """
    changed = changed_sections(before, after, template)
    return {name: content for name, content in changed.items() if name == CURRENT or _news(before[name], content)}


def _news(before: str, after: str) -> bool:
    """Say whether a quarter of ``after`` is new words, or either text is blank; counts like "3x" are not new."""
    if not before.strip() or not after.strip():
        return True
    known = set(_WORD.findall(before))
    words = _WORD.findall(after)
    fresh = sum(len(word) for word in words if word not in known and not _COUNT.fullmatch(word))
    return fresh >= _WORTH * sum(map(len, words))
