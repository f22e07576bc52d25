"""Quote user messages in a summary within a token budget, others by handle.

If they do not all fit, sentences that bind later work come before others, new or old; the rest of the budget goes to
the newest messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import log
from typing import Any, cast

from ...conversation.authorship import own_words
from ...conversation.cuts import Item
from ...conversation.entries import USER, Entry
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...text.directives import binding_passages, is_question
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
_SAME_SHARE = 0.3  # of the rare words of the shorter one: then two sentences are about the same thing
_COMMON = 10  # a word in more than a tenth of the sentences is not rare
_CJK_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")


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
    said: Sequence[UserMessage],
    *,
    tokens: int,
    handle_tokens: int,
    pinned: frozenset[str],
    ended: Sequence[str] = (),
) -> QuotedWords:
    """Choose the messages to quote within ``tokens``: pinned ones, sentences that bind, the newest.

    ``ended`` are the first words of rules that no longer hold, which are no sentences that bind.
    """
    costs = [one.tokens + _FRAME_TOKENS for one in said]
    fits = sum(costs) <= tokens
    binding, later = ([], []) if fits else _ranked_sentences(said, ended)
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
    said: Sequence[UserMessage], ended: Sequence[str]
) -> tuple[list[tuple[int, UserMessage]], list[tuple[int, UserMessage]]]:
    """Return sentences with the positions of their messages: those that bind most first, and of equals the oldest.

    The second list has later sentences about the same thing as one of them, which may take it back.
    """
    every = [(at, score, text) for at, one in enumerate(said) for score, text in binding_passages(one.text)]
    over = {at for at, (_, _, text) in enumerate(every) if any(one in text for one in ended)}
    order = [at for at, (_, score, _) in enumerate(every) if score >= LEAST_SCORE and at not in over]
    order.sort(key=lambda number: -every[number][1])
    found = _LaterSentences([text for _, _, text in every])
    seen: set[str] = set()

    def rows(numbers: Iterable[int]) -> list[tuple[int, UserMessage]]:
        out: list[tuple[int, UserMessage]] = []
        for at, _, text in (every[number] for number in numbers):
            if text not in seen:
                seen.add(text)
                out.append((at, UserMessage(said[at].handle, text)))
        return out

    later = [one for number in order if (one := found.than(number)) is not None]
    return rows(order), rows(at for _, at in sorted(later, reverse=True))


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
    """Finds the later sentence, not a question, that shares the most rare words with a sentence."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._asks = [is_question(one) for one in sentences]
        self._terms = [_terms(one) for one in sentences]
        places: dict[str, list[int]] = {}
        for at, terms in enumerate(self._terms):
            for term in terms:
                places.setdefault(term, []).append(at)
        most = max(3, len(sentences) // _COMMON)
        self._places = {term: found for term, found in places.items() if len(found) <= most}
        self._weights = {term: log(len(sentences) / len(found)) for term, found in self._places.items()}
        self._sizes = [sum(self._weights.get(term, 0.0) for term in terms) for terms in self._terms]

    def than(self, number: int) -> tuple[float, int] | None:
        """Return the share of rare words of that sentence, and its number; None if none shares enough."""
        shared: dict[int, float] = {}
        for term in self._terms[number]:
            for at in self._places.get(term, ()):
                if at > number and not self._asks[at]:
                    shared[at] = shared.get(at, 0.0) + self._weights[term]
        shares = ((weight / min(self._sizes[number], self._sizes[at]), at) for at, weight in shared.items())
        return max((one for one in shares if one[0] >= _SAME_SHARE), default=None)


def _terms(text: str) -> frozenset[str]:
    """Return the word stems of a text, and pairs of characters where a script has no spaces."""
    runs = _CJK_RUN.findall(text)
    pairs = (run[at : at + 2] for run in runs for at in range(len(run) - 1))
    return frozenset((*stems(words(_CJK_RUN.sub(" ", text))), *pairs))


def words_text(words: QuotedWords) -> str:
    """Return the user messages as a section of the summary; empty if there are none."""
    if not (words.whole or words.short or words.by_handle):
        return ""
    parts = ["## Messages of the user, word for word, oldest first: where two disagree, the later one holds"]
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
