"""Quote user messages in a summary within a token budget, others by handle.

If they do not all fit, sentences that bind later work come before others, whatever their age; the rest of the budget
goes to the newest messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ...conversation.authorship import own_words
from ...conversation.cuts import Item
from ...conversation.entries import USER, Entry
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...text.binding import binding_part, is_question, typed_sentences
from ...text.stems import stems
from ...text.words import words
from ...values import record, replace

__all__ = [
    "HANDLE_TOKENS",
    "LEAST_SCORE",
    "QuotedWords",
    "UserMessage",
    "UserMessages",
    "quoted_words",
    "user_messages",
    "words_text",
]

_FRAME_TOKENS = 24  # tokens of the line with the handle
HANDLE_TOKENS = 26
_LEAST_EXCERPT = 200
_LINE_TOKENS = 3  # tokens around a sentence of its own
_BINDING_SHARE = 0.6  # of the budget, for sentences of messages that are not quoted whole
LEAST_SCORE = 1.0
"""A sentence with a lower score is not quoted by itself."""
_LATER_SHARE = 0.2  # of the room for sentences, for later ones that may take an older one back
_SAME_SHARE = 0.5  # of its rare words: then a later sentence is about the same thing


@record
class UserMessage:
    """A user message: its handle, which is its uuid, and the exact text that the user wrote."""

    handle: str
    text: str

    @property
    def tokens(self) -> int:
        """The estimated tokens of the text."""
        return estimate_text(self.text)


@record
class QuotedWords:
    """The user messages of a summary: quoted in full, at most one as an excerpt, single sentences, others by handle."""

    whole: tuple[UserMessage, ...] = ()
    short: UserMessage | None = None
    """A message too long for the remaining budget: its start and end; its handle leads to the full text."""
    sentences: tuple[UserMessage, ...] = ()
    """Sentences that bind, oldest first, of messages that are not quoted in full."""
    handles: tuple[str, ...] = ()
    unnamed: int = 0
    """The number of older messages without a handle here; the handle of the cut leads to them."""

    @property
    def by_handle(self) -> int:
        """The number of messages that the summary does not quote, with a listed handle or without."""
        return len(self.handles) + self.unnamed


def user_messages(entries: Iterable[Entry]) -> list[UserMessage]:
    """Return the user messages in these entries, oldest first, without text that programs added."""
    out: list[UserMessage] = []
    for entry in entries:
        if entry.kind != USER:
            continue
        texts = [text for text in _texts(entry) if own_words(_only(entry, text))]
        if texts:
            out.append(UserMessage(entry.uuid, "\n\n".join(texts)))
    return out


class UserMessages:
    """All user messages of one session, extended as the session grows so that no entry is read twice."""

    def __init__(self) -> None:
        self.spoken: list[UserMessage] = []
        self._items = 0
        self._last = ""

    def follow(self, view: View) -> list[UserMessage]:
        """Add the user messages that the view gained since the last call, and return the list of all of them.

        If the view does not continue the earlier one, the list is built again.
        """
        known = view.history_from(max(0, self._items - 1))
        if self._items and (not known or known[0].uuid != self._last):
            self.spoken, self._items = [], 0
            known = view.history_from(0)
        fresh = known[1:] if self._items else known
        self.spoken += user_messages(one.entry for one in fresh if isinstance(one, Item))
        if fresh:
            self._items, self._last = self._items + len(fresh), fresh[-1].uuid
        return self.spoken


def quoted_words(
    said: Sequence[UserMessage], *, tokens: int, handle_tokens: int, pinned: frozenset[str]
) -> QuotedWords:
    """Choose the messages to quote within ``tokens``: pinned ones, sentences that bind, the newest."""
    costs = [one.tokens + _FRAME_TOKENS for one in said]
    fits = sum(costs) <= tokens
    binding, later = ([], []) if fits else _ranked_sentences(said)
    reserve = min(int(tokens * _BINDING_SHARE), sum(one.tokens + _LINE_TOKENS for _, one in (*binding, *later)))
    newest = range(len(said) - 1, -1, -1)
    order = [at for at in newest if said[at].handle in pinned] + [at for at in newest if said[at].handle not in pinned]
    left = tokens - reserve
    whole: set[int] = set()
    short: dict[int, UserMessage] = {}
    for at in order:
        if costs[at] > left:
            if left > min(_LEAST_EXCERPT, tokens // 2):
                short[at] = replace(said[at], text=_excerpt(said[at].text, costs[at], left - _FRAME_TOKENS))
                left = 0
            break
        whole.add(at)
        left -= costs[at]
    shown = [one.text for one in short.values()]
    binding, later = (
        [(at, one) for at, one in ranked if at not in whole and not any(one.text in text for text in shown)]
        for ranked in (binding, later)
    )
    chosen, spare = _within(binding, int((left + reserve) * (1 - _LATER_SHARE)))
    added, _ = _within(later, left + reserve - int((left + reserve) * (1 - _LATER_SHARE)) + spare)
    rest = [at for at in newest if at not in whole and at not in short]
    named = rest[: handle_tokens // HANDLE_TOKENS]
    return QuotedWords(
        tuple(said[at] for at in sorted(whole, reverse=True)),
        next(iter(short.values()), None),
        tuple(one for _, one in sorted((*chosen, *added), key=lambda row: row[0])),
        tuple(said[at].handle for at in named),
        len(rest) - len(named),
    )


def _ranked_sentences(
    said: Sequence[UserMessage],
) -> tuple[list[tuple[int, UserMessage]], list[tuple[int, UserMessage]]]:
    """Return sentences with the positions of their messages: those that bind most first, and of equals the oldest.

    The second list has the newest later sentence about the same thing as each of them, which may take it back.
    """
    every = [(at, sentence) for at, one in enumerate(said) for sentence in typed_sentences(one.text)]
    parts = [binding_part(sentence) for _, sentence in every]
    order = [number for number in range(len(every)) if parts[number][0] >= LEAST_SCORE]
    order.sort(key=lambda number: -parts[number][0])
    found = _LaterSentences([sentence for _, sentence in every])
    seen: set[str] = set()

    def rows(numbers: Iterable[int]) -> list[tuple[int, UserMessage]]:
        out: list[tuple[int, UserMessage]] = []
        for at, text in ((every[number][0], parts[number][1]) for number in numbers):
            if text not in seen:
                seen.add(text)
                out.append((at, UserMessage(said[at].handle, text)))
        return out

    return rows(order), rows(later for number in order if (later := found.than(number)) is not None)


def _within(ranked: Sequence[tuple[int, UserMessage]], tokens: int) -> tuple[list[tuple[int, UserMessage]], int]:
    """Return the first of these sentences that fit the tokens, and the tokens that are left."""
    chosen: list[tuple[int, UserMessage]] = []
    for at, one in ranked:
        cost = one.tokens + _LINE_TOKENS
        if cost <= tokens:
            chosen.append((at, one))
            tokens -= cost
    return chosen, tokens


class _LaterSentences:
    """Finds the newest later sentence, not a question, that shares the rare words of a sentence."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._asks = [is_question(one) for one in sentences]
        self._terms = [frozenset(stems(words(one))) for one in sentences]
        self._places: dict[str, list[int]] = {}
        for at, terms in enumerate(self._terms):
            for term in terms:
                self._places.setdefault(term, []).append(at)

    def than(self, number: int) -> int | None:
        """Return the number of the newest such sentence; None if there is none."""
        terms = self._terms[number]
        rare = {term: 1 / len(self._places[term]) for term in terms if len(self._places[term]) > 1}
        whole = sum(1 / len(self._places[term]) for term in terms)
        return max(
            (at for at, shared in self._shared(rare, number).items() if shared >= _SAME_SHARE * whole), default=None
        )

    def _shared(self, rare: dict[str, float], number: int) -> dict[int, float]:
        shared: dict[int, float] = {}
        for term, weight in rare.items():
            for at in self._places[term]:
                if at > number and not self._asks[at]:
                    shared[at] = shared.get(at, 0.0) + weight
        return shared


def words_text(words: QuotedWords) -> str:
    """Return the user messages as a section of the summary; empty if there are none."""
    if not (words.whole or words.short or words.by_handle):
        return ""
    parts = ["## What the user said, word for word, oldest first: where two sentences contradict, the later one holds"]
    if words.unnamed:
        parts.append(f"{words.unnamed} still older ones are in the part that was cut; see the handles at the end.")
    if words.handles:
        parts.append("Older messages of the user, newest first, each behind its handle:\n" + "\n".join(words.handles))
    if words.sentences:
        parts.append(
            "Sentences of theirs that may still bind:\n" + "\n".join(f"- {one.text}" for one in words.sentences)
        )
    if words.short is not None:
        parts.append(f"[handle {words.short.handle}; shortened here, whole behind its handle]\n{words.short.text}")
    parts += [f"[handle {one.handle}]\n{one.text}" for one in reversed(words.whole)]
    return "\n\n".join(parts)


def _texts(entry: Entry) -> list[str]:
    content: Any = (entry.message or {}).get("content")
    if isinstance(content, str):
        return [content]
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    blocks = (cast("dict[str, Any]", one) for one in listed if isinstance(one, dict))
    found = (block.get("text") for block in blocks if block.get("type") == "text")
    return [text for text in found if isinstance(text, str)]


def _only(entry: Entry, text: str) -> Entry:
    """Return a copy of the entry with only this text."""
    return replace(entry, body={**entry.body, "message": {"role": "user", "content": text}})


def _excerpt(text: str, cost: int, tokens: int) -> str:
    """Return the start and the end of a text of ``cost`` tokens, together about ``tokens`` long."""
    chars = max(1, int(len(text) * tokens / max(1, cost)) - 40)
    head = chars * 2 // 3
    return f"{text[:head]}\n[... {len(text) - chars:,} characters ...]\n{text[len(text) - (chars - head) :]}"
