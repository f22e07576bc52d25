"""The local extractor: wishes that a person repeats across sessions, without a model. Pure and deterministic.

It reads only the words that a person typed, and proposes little: a sentence that was said in one session alone is left
to a model. A proposal quotes the person and waits for approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ...conversation.entries import Entry
from ...memories.rules.secrets import find_secrets
from ...memories.rules.taxonomy import MemoryType, body_for, refusal
from ...memories.store.records import MemoryRecord
from ...memories.store.trust import Trust
from ...text.dates import absolute
from ...text.words import sentences, words
from ...values import record, replace
from .repetition import PastSayings, RepeatedWish, are_equal
from .sayings import TypedMessage, sayings_of

MAX_CANDIDATES: Final = 20
_ALWAYS: Final = "In all later work here, until the user says otherwise."
_URL: Final = re.compile(r"https?://\S")


@record
class MemoryCandidate:
    """A memory that layer 5 may save: its type, text, trust, and the sayings it quotes."""

    type: MemoryType
    text: str
    why: str = ""
    how: str = ""
    trust: Trust = "unconfirmed"
    sources: tuple[str, ...] = ()
    """The session and the uuid of each quoted message, oldest first."""

    @property
    def body(self) -> str:
        """The body of the memory file: the text with its reason (``why``) and use (``how``)."""
        return body_for(self.text, self.why, self.how)


@record
class LocalExtraction:
    """The memories that the local extractor proposes, and the repeated wishes that it refused."""

    candidates: tuple[MemoryCandidate, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    """Pairs of a message's uuid and the reason, without the text."""


def extract(
    session: str,
    entries: Sequence[Entry],
    past: PastSayings,
    existing: Iterable[MemoryRecord] = (),
    *,
    instructions: Sequence[str] = (),
    trust: Trust = "unconfirmed",
    most: int = MAX_CANDIDATES,
) -> LocalExtraction:
    """Return the wishes in a session's entries that an earlier session has too, at most ``most``, and refusals.

    ``instructions`` are texts of instruction files, ``trust`` is that of the memories. ``existing`` is read only after
    a repeated wish is found, which is rare.
    """
    wishes = past.repeated(list(sayings_of(session, entries)))
    known: list[str] | None = None
    kept: list[MemoryCandidate] = []
    refused: list[tuple[str, str]] = []
    for wish in wishes:
        known = _texts(existing) if known is None else known
        new = [quote for quote in wish.quotes if not _is_known(quote, known)]
        if len(new) < 2 or all(quote.session != session for quote in new):
            continue
        made = _candidate(replace(wish, quotes=tuple(new)), trust)
        reason = _problem(made, instructions)
        if not reason and len(kept) >= most:
            reason = f"one run keeps {most} memories at most"
        if reason:
            refused.append((new[-1].message, reason))
            continue
        kept.append(made)
        known += [" ".join(words(quote.text)) for quote in new]
    return LocalExtraction(tuple(kept), tuple(refused))


def _candidate(wish: RepeatedWish, trust: Trust) -> MemoryCandidate:
    """Return the memory for a repeated wish: the clearest sentence, then all of them as quotes."""
    dated = absolute(wish.text, wish.quotes[-1].day)
    said = "The user said it" if trust == "user" else "It was said"  # the author of a recording may be another person
    why = f"{said} in {len(wish.quotes)} sessions: {wish.quoted()}."
    sources = tuple(f"{saying.session} {saying.message}" for saying in wish.quotes)
    type_name: MemoryType = "reference" if _URL.search(wish.text) else "feedback"
    return MemoryCandidate(type_name, _stated(dated.text), why, _ALWAYS, trust, sources)


def _problem(made: MemoryCandidate, instructions: Sequence[str]) -> str:
    """Return why a candidate must not be saved; empty if it may be."""
    if find_secrets(made.body):
        return "it holds a secret"
    return refusal(made.text, made.type, instructions=instructions)


def _texts(existing: Iterable[MemoryRecord]) -> list[str]:
    """Return the texts of existing memories and each of their sentences, as normalised words."""
    found = [text for one in existing if not one.problem for text in (one.description, one.body) if text]
    return [" ".join(said) for text in found for said in (words(text), *sentences(text))]


def _is_known(saying: TypedMessage, known: Iterable[str]) -> bool:
    said = " ".join(words(saying.text))
    return any(said in one or are_equal(saying.text, one) for one in known)


def _stated(text: str) -> str:
    """Return a person's words as a sentence: one line, a capital first, a full stop last."""
    line = " ".join(text.split()).strip(" ,;:—–-")
    if not line:
        return ""
    line = line[0].upper() + line[1:] if line[0].islower() and not re.match(r"\w*[/:_.`]\w", line) else line
    return line if line[-1] in ".!?…)。！？" or re.search(r"https?://\S+$", line) else f"{line}."
