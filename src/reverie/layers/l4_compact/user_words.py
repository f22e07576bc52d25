"""Quote user messages in a summary within a token budget, others by handle.

If they do not all fit, sentences that bind later work come before others, new or old; the rest of the budget goes to
the newest messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, cast

from ...conversation.authorship import own_words, utterances
from ...conversation.entries import USER, Entry
from ...conversation.reads import HistoryReader
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...values import record, replace
from .binding_sentences import QuotedSentence, Sentence, SentenceRanking, sentences_of

_FRAME_TOKENS = 12  # tokens of the speaker and the handle
HANDLE_TOKENS = 14
_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-")
_LEAST_EXCERPT = 200
_BINDING_SHARE = 0.6  # of the budget, for sentences of messages that are not quoted whole
_MOST_CHARS = 150_000  # of the newest messages that a session holds, and half as many of older ones
_CHARS_AROUND = 400  # that a message takes beside its text
_SENTENCES = (
    "Sentences of theirs, oldest first, which may still bind or change an older one; [later: ...] marks one that a "
    "later one may have changed: where they disagree, only the later one holds, and so does a later message that is "
    "not quoted here"
)


@record
class UserMessage:
    """A user message: its handle, which is its uuid, and the exact text that the user wrote."""

    handle: str
    text: str
    sentences: tuple[Sentence, ...] | None = None
    """Its sentences, if the session keeps the message, so that no compaction judges it again."""

    @property
    def tokens(self) -> int:
        """The estimated tokens of the text, with its speaker and its handle."""
        return estimate_text(self.text) + _FRAME_TOKENS + (0 if _RANDOM.match(self.handle) else len(self.handle) // 3)


@record
class QuotedWords:
    """The user messages of a summary: quoted in full, at most one as an excerpt, single sentences, others by handle."""

    whole: tuple[UserMessage, ...] = ()
    short: UserMessage | None = None
    """A message too long for the remaining budget: its start and end; its handle leads to the full text."""
    sentences: tuple[QuotedSentence, ...] = ()
    """Sentences that may bind, or change one that did, oldest first, of messages that are not quoted in full."""
    handles: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    """The handles of all messages with a place in the summary, oldest first."""
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
        texts += [one.text for one in utterances(entry) if one.kind == "refused" and one.text]
        if texts:
            out.append(UserMessage(entry.uuid, "\n\n".join(texts)))
    return out


class UserMessages:
    """The user messages that a summary of one session may quote, extended so that no entry is read twice.

    Of a long session these are the newest and, of the others, pinned ones and those with the sentences that bind most;
    the rest is only counted.
    """

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.spoken: list[UserMessage] = []
        self.unheld = 0
        """The number of older messages that are only counted."""
        self._chars = 0
        self._pinned: frozenset[str] = frozenset()
        self._reader = HistoryReader()

    def follow(self, view: View) -> list[UserMessage]:
        """Add the user messages that the view gained and return those held.

        Start again if the view is another one, or if other messages are pinned than when some were dropped.
        """
        if not self._reader.continues(view) or (self.unheld and view.facts.pinned != self._pinned):
            self._restart()
        self._pinned = view.facts.pinned
        for one in user_messages(item.entry for item in self._reader.items(view)):
            self.spoken.append(replace(one, sentences=sentences_of(one.text)))
            self._chars += _size(one)
            if self._chars > 2 * _MOST_CHARS:
                self._drop()
        return self.spoken

    def _drop(self) -> None:
        """Drop the older messages that bind least."""
        start = _start_of_newest(self.spoken)
        older = self.spoken[:start]
        ranked = sorted(range(start), key=lambda at: (older[at].handle not in self._pinned, -_binding(older[at])))
        sizes = accumulate(_size(older[at]) for at in ranked)
        kept = sorted(at for at, size in zip(ranked, sizes, strict=True) if size <= _MOST_CHARS // 2)
        self.unheld += start - len(kept)
        self.spoken = [*(older[at] for at in kept), *self.spoken[start:]]
        self._chars = sum(map(_size, self.spoken))

    def text_after(self, view: View, compared: str, others: Iterable[str], *, tokens: int) -> str:
        """Return the messages after this one, if any of the others is before them, as a section of a summary."""
        later: list[UserMessage] = []
        older = set(others)
        for one in reversed(self.follow(view)):
            older.discard(one.handle)
            if one.handle == compared or not older:
                break
            later.append(one)
        return words_text(quoted_words(later[::-1], tokens=tokens, handle_tokens=tokens // 4, pinned=frozenset()))


def _size(one: UserMessage) -> int:
    return len(one.text) + _CHARS_AROUND


def _binding(one: UserMessage) -> float:
    return max((sentence.score for sentence in one.sentences or ()), default=0.0)


def _start_of_newest(said: Sequence[UserMessage]) -> int:
    """Return the position of the oldest message of the newest ones that are held; the last one always is."""
    sizes = accumulate(_size(one) for one in reversed(said))
    return len(said) - max(1, sum(size <= _MOST_CHARS for size in sizes))


def quoted_words(
    said: Sequence[UserMessage],
    *,
    tokens: int,
    handle_tokens: int,
    pinned: frozenset[str],
    ended: Sequence[str] = (),
    unheld: int = 0,
) -> QuotedWords:
    """Choose the messages to quote within ``tokens``: pinned ones, sentences that bind, the newest.

    ``ended`` are the first words of rules that no longer hold, which are no sentences that bind; ``unheld`` is the
    number of older messages that are not among ``said``.
    """
    sentences = (sentences_of(one.text) if one.sentences is None else one.sentences for one in said)
    ranking = None if tokens_spoken(said, tokens + 1) <= tokens else SentenceRanking(sentences, ended)
    reserve = min(int(tokens * _BINDING_SHARE), ranking.tokens) if ranking is not None else 0
    newest = range(len(said) - 1, -1, -1)
    order = [at for at in newest if said[at].handle in pinned] + [at for at in newest if said[at].handle not in pinned]
    left = tokens - reserve
    whole: set[int] = set()
    short: dict[int, UserMessage] = {}
    for at in order:
        cost = said[at].tokens
        if cost > left:
            if left > min(_LEAST_EXCERPT, tokens // 2):
                short[at] = UserMessage(said[at].handle, _excerpt(said[at].text, cost, left - _FRAME_TOKENS))
                left = 0
            break
        whole.add(at)
        left -= cost
    shown = [one.text for one in short.values()]
    chosen = ranking.chosen(reserve, left, whole, shown) if ranking is not None else ()
    rest = [at for at in newest if at not in whole and at not in short]
    named = rest[: handle_tokens // HANDLE_TOKENS]
    return QuotedWords(
        tuple(said[at] for at in sorted(whole, reverse=True)),
        next(iter(short.values()), None),
        tuple(chosen),
        tuple(said[at].handle for at in named),
        tuple(said[at].handle for at in sorted({*whole, *short, *named})),
        len(rest) - len(named) + unheld,
    )


def tokens_spoken(said: Sequence[UserMessage], most: int) -> int:
    """Return the tokens of these messages, at most ``most``; only as many are measured as that takes."""
    total = 0
    for one in reversed(said):
        total += one.tokens
        if total >= most:
            return most
    return total


def words_text(words: QuotedWords, accounts: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the user messages as a section of the summary, each with the account of the work after it.

    Accounts are by handle; those of messages without a place here come first.
    """
    if not (words.whole or words.short or words.by_handle or accounts):
        return ""
    about = "with the agent's words and work in between" if accounts else "without the agent's words"
    parts = [f"## The conversation so far, {about}, oldest first: where two messages disagree, the later one holds"]
    if words.unnamed:
        parts.append(f"{words.unnamed} still older messages are in the part that was cut; see the handles at the end.")
    if words.sentences:
        lines = (f"- {one.text}" + (f" [later: {one.later}]" if one.later else "") for one in words.sentences)
        parts.append(f"{_SENTENCES}:\n" + "\n".join(lines))
    parts += [text for handle, text in accounts.items() if handle not in words.order]
    quoted = {one.handle: f": {one.text}" for one in words.whole}
    if words.short is not None:
        quoted[words.short.handle] = f", shortened here: {words.short.text}"
    for handle in words.order:
        said = f"user [handle {short_handle(handle)}]{quoted.get(handle, ', whole behind its handle')}"
        parts.append("\n".join(part for part in (said, accounts.get(handle, "")) if part))
    return "\n\n".join(parts)


def short_handle(handle: str) -> str:
    """Return the first part of a random uuid, which reads a message back as well as the whole; else the handle."""
    return handle[:8] if _RANDOM.match(handle) else handle


def _texts(entry: Entry) -> list[str]:
    content: Any = (entry.message or {}).get("content")
    if isinstance(content, str):
        return [content]
    listed = cast("list[Any]", content) if isinstance(content, list) else []
    blocks = (cast("dict[str, Any]", one) for one in listed if isinstance(one, dict))
    found = (block.get("text") for block in blocks if block.get("type") == "text")
    return [text for text in found if isinstance(text, str)]


def _only(entry: Entry, text: str) -> Entry:
    return replace(entry, body={**entry.body, "message": {"role": "user", "content": text}})


def _excerpt(text: str, cost: int, tokens: int) -> str:
    chars = max(1, int(len(text) * tokens / max(1, cost)) - 40)
    head = chars * 2 // 3
    return f"{text[:head]}\n[... {len(text) - chars:,} characters ...]\n{text[len(text) - (chars - head) :]}"
