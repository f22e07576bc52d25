"""Quote user messages in a summary: newest first within a token budget, older ones by handle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ...conversation.authorship import own_words
from ...conversation.cuts import Item
from ...conversation.entries import USER, Entry
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...values import record, replace

__all__ = ["HANDLE_TOKENS", "QuotedWords", "UserMessage", "UserMessages", "quoted_words", "user_messages", "words_text"]

_FRAME_TOKENS = 24  # tokens of the line with the handle
HANDLE_TOKENS = 26
_LEAST_EXCERPT = 200


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
    """The user messages of a summary: quoted in full, at most one as an excerpt, and others only by handle."""

    whole: tuple[UserMessage, ...] = ()
    short: UserMessage | None = None
    """A message too long for the remaining budget: its start and end; its handle leads to the full text."""
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
    """Choose the messages to quote within ``tokens``, pinned ones first, then the newest; others by handle."""
    left = tokens
    whole: set[int] = set()
    short: tuple[int, UserMessage] | None = None
    order = [at for at in range(len(said) - 1, -1, -1) if said[at].handle in pinned]
    for at in [*order, *(at for at in range(len(said) - 1, -1, -1) if at not in set(order))]:
        cost = said[at].tokens + _FRAME_TOKENS
        if cost <= left:
            whole.add(at)
            left -= cost
            continue
        if left > min(_LEAST_EXCERPT, tokens // 2):
            short = (at, replace(said[at], text=_excerpt(said[at].text, cost, left - _FRAME_TOKENS)))
        break
    rest = [at for at in range(len(said) - 1, -1, -1) if at not in whole and (short is None or at != short[0])]
    named = rest[: handle_tokens // HANDLE_TOKENS]
    return QuotedWords(
        tuple(said[at] for at in sorted(whole, reverse=True)),
        short[1] if short is not None else None,
        tuple(said[at].handle for at in named),
        len(rest) - len(named),
    )


def words_text(words: QuotedWords) -> str:
    """Return the user messages as a section of the summary; empty if there are none."""
    if not (words.whole or words.short or words.by_handle):
        return ""
    parts = ["## What the user said, word for word, newest first"]
    parts += [f"[handle {one.handle}]\n{one.text}" for one in words.whole]
    if words.short is not None:
        parts.append(f"[handle {words.short.handle}; shortened here, whole behind its handle]\n{words.short.text}")
    if words.handles:
        parts.append("Older messages of the user, newest first, each behind its handle:\n" + "\n".join(words.handles))
    if words.unnamed:
        parts.append(f"{words.unnamed} still older ones are in the part that was cut; see the handles at the end.")
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
