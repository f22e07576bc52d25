"""The local extractor: memories that a person explicitly asked for, without a model. Pure and deterministic.

It reads only the person's own words, never tool output, attachments or pasted text. A request that may quote another
person is saved as unconfirmed. Everything else is left to a model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Final

from ...conversation.authorship import own_words, utterances
from ...conversation.entries import USER, Entry
from ...memories.rules.secrets import find_secrets
from ...memories.rules.taxonomy import body_for, description_for, refusal, vagueness
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import Trust
from ...text.dates import absolute
from ...text.sentences import bare, sentences_of
from ...values import record, replace
from .cues import SaveRequest, request_in
from .existing_memories import ExistingMemories

__all__ = ["LocalExtraction", "MemoryCandidate", "extract", "said_on"]

MAX_CANDIDATES: Final = 20
_KEPT_DAYS: Final = 30
_NO_REASON: Final = "The user asked for it and gave no reason."
_ALWAYS: Final = "In all later work here, until the user says otherwise."
_WHO_SPEAKS: Final = "These are the user's own words: “I” is the user."
_UNKNOWN_SPEAKER: Final = "The user may not have said this: “I” may be another person."
_UNKNOWN_REASON: Final = "Another person may have asked for it; the user has not confirmed it."
_UNKNOWN_REASONS: Final = {"feedback": _UNKNOWN_REASON, "project": _UNKNOWN_REASON}
_QUOTED_WORDS: Final = 6
_OUTPUT_CHARS: Final = 400_000


@record
class MemoryCandidate:
    """A memory that layer 5 may save: its type, text, trust, and the uuid of the message it comes from."""

    type: str
    text: str
    why: str = ""
    how: str = ""
    trust: Trust = "agent"
    message: str = ""
    by: str = ""
    """The cue that opened the request: ``remember``, ``always``, ``never`` or ``from now on``."""
    expires: str = ""
    updates: str = ""
    """The file of the memory that this one updates; empty for a new memory."""

    @property
    def body(self) -> str:
        """The body of the memory file: the text with its reason (``why``) and use (``how``)."""
        return body_for(self.text, self.why, self.how)


@record
class LocalExtraction:
    """The memories that the local extractor proposes, and the requests to save that it refused."""

    candidates: tuple[MemoryCandidate, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Pairs of a message's uuid and the reason, without the text."""


def extract(
    entries: Sequence[Entry],
    existing: Iterable[MemoryRecord] = (),
    *,
    instructions: Sequence[str] = (),
    heard_before: Iterable[Entry] = (),
    imported: Collection[str] = (),
    most: int = MAX_CANDIDATES,
) -> LocalExtraction:
    """Return the new memories, at most ``most``, that user messages in these entries ask to save, and refusals.

    ``instructions`` are texts of instruction files. ``heard_before`` are earlier entries, newest first, whose tool
    output a person may repeat; ``imported`` are uuids of messages recorded elsewhere. Both make a memory unconfirmed.
    ``existing`` is read only after a request is found, which is rare.
    """
    known: ExistingMemories | None = None
    outputs = _Outputs(chain(reversed(entries), heard_before))
    kept: list[MemoryCandidate] = []
    refused: list[tuple[str, str]] = []
    for entry in entries:
        for request, is_own in _requests(entry):
            is_users = is_own and entry.uuid not in imported and not outputs.hold(request.text)
            made, reason = _candidate(request, entry, instructions, is_users=is_users)
            if made is None:
                refused.append((entry.uuid, reason))
                continue
            known = known or ExistingMemories(existing)
            file = known.place(made.type, made.text, made.trust)
            if file is None:
                continue
            if len(kept) >= most:
                refused.append((entry.uuid, f"one run keeps {most} memories at most"))
                continue
            known.add(made.type, made.text, file=file, trust=made.trust)
            kept.append(replace(made, updates=file))
    return LocalExtraction(tuple(kept), tuple(refused))


def _requests(entry: Entry) -> Iterator[tuple[SaveRequest, bool]]:
    """Yield the requests to save in a user message, each with whether it is certainly the person's own.

    After a sentence of another kind, or after a colon, a person may be quoting.
    """
    words = own_words(entry) if entry.kind == USER else ""
    is_own = False
    for sentence in sentences_of(words) if words else ():
        request = request_in(sentence.text)
        is_own = request is not None and not sentence.announced and (sentence.opens or is_own)
        if request is not None and (sentence.first or not sentence.in_document):
            yield request, is_own


def said_on(entry: Entry) -> date | None:
    """Return the day in UTC on which an entry was written; None if it has no valid time."""
    at = entry.at
    try:
        return datetime.fromtimestamp(at, UTC).date() if at > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _candidate(
    request: SaveRequest, entry: Entry, instructions: Sequence[str], *, is_users: bool
) -> tuple[MemoryCandidate | None, str]:
    """Return the memory for a request and "", or None and the reason for the refusal.

    ``is_users`` says that the request is certainly in the user's own words.
    """
    day = said_on(entry)
    text, why, expires = _stated(request.text), _stated(request.why), ""
    if request.type != "reference":
        dated, since = absolute(text, day), absolute(why, day)
        if request.type == "project" and (dated.unknown or since.unknown):
            return None, "it names a day relative to a time that is not known"
        text, why = dated.text, since.text
        if request.type == "project" and dated.last is not None:
            expires = _later(dated.last)
    reason = refusal(text, request.type, instructions=instructions) or vagueness(description_for(text))
    if reason:
        return None, reason
    if find_secrets(f"{text}\n{why}"):
        return None, "it holds a secret"
    how = {"user": _WHO_SPEAKS if is_users else _UNKNOWN_SPEAKER, "feedback": _ALWAYS}.get(request.type, "")
    if not why:
        reasons = {"feedback": _NO_REASON, "project": _said_when(day)} if is_users else _UNKNOWN_REASONS
        why = reasons.get(request.type, "")
    trust: Trust = "user" if is_users else "unconfirmed"
    return MemoryCandidate(request.type, text, why, how, trust, entry.uuid, request.cue, expires), ""


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
    """The newest tool output of a conversation, to detect that a person repeats it."""

    def __init__(self, latest: Iterable[Entry]) -> None:
        self._latest = latest
        self._text: str | None = None

    def hold(self, words: str) -> bool:
        """Say whether any output contains six of these words in a row, or all if they are three to five."""
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
        for entry in self._latest:
            if left <= 0:
                break
            for one in utterances(entry):
                if one.kind == "result" and left > 0:
                    parts.append(bare(one.text[:left]))
                    left -= len(one.text)
        return f" {' | '.join(parts)} "
