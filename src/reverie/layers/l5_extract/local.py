"""The local extractor: memories from what a person said, without a model. Pure and deterministic.

It looks at the person's own words only. What stands in tool output, attachments or pasted text is never taken; what
a person repeats from it is kept, if at all, as unconfirmed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from ...conversation.authorship import heard, own_words
from ...conversation.entries import USER, Entry
from ...memories.rules.secrets import find_secrets
from ...memories.rules.taxonomy import body_for, description_for, refusal, vagueness
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import Trust
from ...text.dates import absolute
from ...values import record, replace
from .found import Found
from .known import Known
from .said import found_in
from .sentences import Sentence, bare, sentences_of

__all__ = ["Candidate", "Local", "extract", "said_on"]

MAX_CANDIDATES: Final = 20
_KEPT_DAYS: Final = 30
_NO_REASON: Final = "The user asked for it and gave no reason."
_ALWAYS: Final = "In all later work here, until the user says otherwise."
_WHO_SPEAKS: Final = "These are the user's own words: “I” is the user."
_QUOTED_WORDS: Final = 6
_OUTPUT_CHARS: Final = 400_000


@record
class Candidate:
    """A memory to be: what it says, whose word it is, and the message it comes from."""

    type: str
    text: str
    why: str = ""
    how: str = ""
    trust: Trust = "agent"
    message: str = ""
    by: str = ""
    """What gave it away: ``remember``, ``rule``, ``correction``, ``deadline``, ..."""
    expires: str = ""
    updates: str = ""
    """The file of the memory that it brings up to date; empty for a new one."""

    @property
    def body(self) -> str:
        """The text with its reason and its use."""
        return body_for(self.text, self.why, self.how)


@record
class Local:
    """What the local extractor found, and what it left out and why."""

    candidates: tuple[Candidate, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Message and reason, never the text."""


def extract(
    entries: Sequence[Entry],
    existing: Iterable[MemoryRecord] = (),
    *,
    instructions: Sequence[str] = (),
    heard_before: Sequence[Entry] = (),
    imported: Collection[str] = (),
    most: int = MAX_CANDIDATES,
    find: Callable[[Sentence], Found | None] = found_in,
) -> Local:
    """Return the memories that these entries hold and that are not there yet.

    ``heard_before`` are earlier entries whose tool output a person may be repeating, ``imported`` the messages that
    were recorded elsewhere, so that nobody knows whose words they are. ``existing`` is not looked at before something
    is found, which is seldom. ``find`` says what one sentence asks to be kept.
    """
    known: Known | None = None
    outputs = _Outputs([*heard_before, *entries])
    kept: list[Candidate] = []
    refused: list[tuple[str, str]] = []
    for entry in entries:
        words = own_words(entry) if entry.kind == USER else ""
        for sentence in sentences_of(words) if words else ():
            found = find(sentence)
            if found is None:
                continue
            made, reason = _candidate(found, sentence, entry, outputs, instructions)
            if made is None:
                refused.append((entry.uuid, reason))
                continue
            if entry.uuid in imported:
                made = replace(made, trust="unconfirmed")
            known = known or Known(existing)
            placed = known.placed(made.type, made.text, made.trust)
            if placed is None:
                continue
            if len(kept) >= most:
                refused.append((entry.uuid, f"one run keeps {most} memories at most"))
                continue
            known.add(made.type, made.text, file=placed)
            kept.append(replace(made, updates=placed))
    return Local(tuple(kept), tuple(refused))


def said_on(entry: Entry) -> date | None:
    """Return the day an entry was written, or None where it does not say."""
    at = entry.at
    try:
        return datetime.fromtimestamp(at, UTC).date() if at > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _candidate(
    found: Found, sentence: Sentence, entry: Entry, outputs: _Outputs, instructions: Sequence[str]
) -> tuple[Candidate | None, str]:
    day = said_on(entry)
    text, why = _stated(found.text), _stated(found.why)
    expires = ""
    if found.type != "reference":
        dated, since = absolute(text, day), absolute(why, day)
        if found.type == "project" and (dated.unknown or since.unknown):
            return None, "it names a day relative to a time that is not known"
        text, why = dated.text, since.text
        if found.type == "project" and dated.last is not None:
            expires = _later(dated.last)
    reason = refusal(text, found.type, instructions=instructions) or vagueness(description_for(text))
    if reason:
        return None, reason
    if find_secrets(f"{text}\n{why}"):
        return None, "it holds a secret"
    trust: Trust = "unconfirmed" if sentence.quoting or outputs.hold(found.text) else "user"
    how = found.how
    if found.type == "user":
        how = how or _WHO_SPEAKS
    if found.type in ("feedback", "project"):
        why = why or (_NO_REASON if found.type == "feedback" else _said_when(day))
        how = how or (_ALWAYS if found.type == "feedback" else "")
    return Candidate(found.type, text, why, how, trust, entry.uuid, found.by, expires), ""


def _later(last: date) -> str:
    try:
        return (last + timedelta(days=_KEPT_DAYS)).isoformat()
    except OverflowError:
        return last.isoformat()


def _said_when(day: date | None) -> str:
    return f"The user said so on {day.isoformat()}." if day is not None else "The user said so."


def _stated(text: str) -> str:
    """Return a person's words as a sentence: one line, a capital first, a full stop last."""
    line = " ".join(text.split()).strip(" ,;:—–-")
    if not line:
        return ""
    line = line[0].upper() + line[1:] if line[0].islower() and not re.match(r"\w*[/:_.`]\w", line) else line
    return line if line[-1] in ".!?…)" or re.search(r"https?://\S+$", line) else f"{line}."


class _Outputs:
    """What tools printed, to tell whether a person repeats it."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._text: str | None = None

    def hold(self, words: str) -> bool:
        """Say whether a run of these words stands in any output."""
        said = bare(words).split()
        if len(said) < 3:
            return False
        if self._text is None:
            self._text = self._gathered()
        size = min(_QUOTED_WORDS, len(said))
        return any(f" {' '.join(said[at : at + size])} " in self._text for at in range(len(said) - size + 1))

    def _gathered(self) -> str:
        parts: list[str] = []
        left = _OUTPUT_CHARS
        for entry in reversed(self._entries):
            for one in heard(entry):
                if one.kind == "result" and left > 0:
                    parts.append(bare(one.text[:left]))
                    left -= len(one.text)
        return f" {' | '.join(parts)} "
