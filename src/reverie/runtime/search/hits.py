"""The messages that a search shows: a tool call with its result, or the text, around the words that were found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from ...conversation.authorship import strings_of, text_of, without_our_text
from ...conversation.entries import Entry
from ...memories.recall.terms import snippet, weight
from ...values import record, replace, rows_of
from .log_text import speaker_of, text_of_entry
from .message_scores import SessionRanking, SessionScore

Cut = Callable[..., str]
"""``snippet``, or ``excerpt``, which keeps lines apart."""

CANDIDATES: Final = 2
"""Messages to rank for each one to show: a call and its result are shown as one."""
PHRASE_CANDIDATES: Final = 50
"""Messages in which a quoted phrase of the query is looked for."""
_SNIPPET_CHARS: Final = 300
_NEAR: Final = 8
"""The most messages between a call and its result: those of other calls at the same time."""
_HEAD_CHARS: Final = 100
_LEAST_RESULT_CHARS: Final = 60
_QUOTED: Final = re.compile(r"`([^`\n]{3,})`|\"([^\"\n]{3,})\"|“([^”\n]{3,})”|«([^»\n]{3,})»")

ReadEntries = Callable[[int, Sequence[int]], Mapping[int, Entry]]
"""Returns messages of a log by their numbers."""


@record
class SearchHit:
    """A found message: its session and handle, speaker and time, and a snippet with the words of the query."""

    session: str
    project: str
    handle: str
    """The message's uuid, which ``reverie read`` accepts."""
    kind: str
    speaker: str
    time: str
    snippet: str
    score: float


def phrases_in(query: str) -> list[re.Pattern[str]]:
    """Return patterns that find the parts of a query between quotation marks or backticks, in any case and spacing."""
    quoted = (r"\s+".join(map(re.escape, "".join(found).split())) for found in _QUOTED.findall(query))
    return [re.compile(rf"(?<!\w){phrase}(?!\w)", re.IGNORECASE) for phrase in quoted if phrase]


def with_phrases_first(ranked: SessionRanking, phrases: Sequence[re.Pattern[str]], read: ReadEntries) -> SessionRanking:
    """Return the ranking with the messages first that have most of the phrases, counted in characters."""
    numbers = {log: [one.number for one in ranked.messages if one.session == log] for log in _logs(ranked.messages)}
    texts = {
        (log, number): text_of_entry(entry)
        for log, some in numbers.items()
        for number, entry in read(log, some).items()
    }

    def shared(one: SessionScore) -> int:
        found = (phrase.search(texts.get((one.session, one.number), "")) for phrase in phrases)
        return sum(len(match.group()) for match in found if match)

    return replace(ranked, messages=tuple(sorted(ranked.messages, key=lambda one: -shared(one))))


def shown_hits(
    ranked: SessionRanking, limit: int, key_of: Callable[[int], str], read: ReadEntries
) -> list[SearchHit] | None:
    """Return the ranked messages, at most ``limit``; None if one is not in its log, which was replaced.

    A tool call and its result are one hit, at the place of the better one.
    """
    shown: list[SearchHit] = []
    seen: dict[int, set[str]] = {}
    for at in range(0, len(ranked.messages), limit):
        some = ranked.messages[at : at + limit]
        entries = {log: read(log, [one.number for one in some if one.session == log]) for log in _logs(some)}
        for hit in some:
            entry = entries[hit.session].get(hit.number)
            if entry is None:
                return None
            called, before = called_in(entry), seen.setdefault(hit.session, set())
            if len(shown) == limit:
                return shown
            if called and before.issuperset(called):
                continue
            near = range(max(0, hit.number - _NEAR), hit.number + _NEAR + 1) if called else ()
            exchanges = Exchanges(read(hit.session, near).values())
            line = exchanges.excerpt(entry, ranked.words, _SNIPPET_CHARS, seen=frozenset(before))
            before.update(called)
            found = entry.time, line, round(hit.score, 4)
            _, project, session = key_of(hit.session).split("/", 2)
            who = entry.kind, speaker_of(entry) or ("tool" if answered_in(entry) else "")
            shown.append(SearchHit(session.removesuffix(".jsonl"), project, entry.uuid, *who, *found))
    return shown


def _logs(some: Iterable[SessionScore]) -> set[int]:
    return {one.session for one in some}


class Exchanges:
    """The calls and results of some messages, by the id of the call."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._calls: dict[str, dict[str, Any]] = {}
        self._results: dict[str, dict[str, Any]] = {}
        for entry in entries:
            for block in _blocks(entry):
                if block.get("type") == "tool_use":
                    self._calls[str(block.get("id"))] = block
                elif block.get("type") == "tool_result":
                    self._results[str(block.get("tool_use_id"))] = block

    def excerpt(
        self,
        entry: Entry,
        wanted: Mapping[str, float],
        max_chars: int,
        cut: Cut = snippet,
        seen: Set[str] = frozenset(),
    ) -> str:
        """Return the text or the exchange of a message that has most of the wanted stems, cut around them.

        A result begins with its call and a call ends with its result; those in ``seen`` are left out.
        """
        shown = [self._exchange(called, wanted, max_chars, cut) for called in called_in(entry) if called not in seen]
        if not shown:
            return cut(text_of_entry(entry), wanted, max_chars=max_chars)
        said = "\n".join(str(block.get("text") or "") for block in _blocks(entry) if block.get("type") == "text")
        shown += [cut(said, wanted, max_chars=max_chars)] if (said := without_our_text(said)).strip() else []
        return max(shown, key=lambda part: weight(part, wanted))

    def _exchange(self, called: str, wanted: Mapping[str, float], max_chars: int, cut: Cut) -> str:
        call, result = self._calls.get(called), self._results.get(called)
        if call is None:
            return cut(text_of(result or {}), wanted, max_chars=max_chars)
        done = "\n".join([call_line(call), *list(strings_of(call.get("input")))[1:]])
        if result is None:
            return _with_head(done, wanted, max_chars, cut)
        ended = cut(text_of(result), {}, max_chars=100_000)
        ended = f"failed: {ended}" if result.get("is_error") is True else ended
        first = _with_head(done, wanted, max(max_chars // 2, max_chars - len(ended) - 4), cut)
        rest = max(_LEAST_RESULT_CHARS, max_chars - len(first) - 4)
        return f"{first} -> {cut(ended, wanted, max_chars=rest)}"


def called_in(entry: Entry) -> list[str]:
    """Return the ids of the calls that a message makes or answers."""
    ids = (block.get("id") or block.get("tool_use_id") for block in _blocks(entry) if _is_tool(block))
    return [str(one) for one in ids]


def answered_in(entry: Entry) -> list[str]:
    """Return the ids of the calls whose results a message has."""
    return [str(block.get("tool_use_id")) for block in _blocks(entry) if block.get("type") == "tool_result"]


def call_line(call: Mapping[str, Any], max_chars: int = 100_000) -> str:
    """Return the name of a tool and the first text given to it, most often a path or a command, on one line."""
    given = next(iter(strings_of(call.get("input"))), "")
    return snippet(f"{call.get('name') or ''} {given}", {}, max_chars=max_chars)


def _with_head(done: str, wanted: Mapping[str, float], max_chars: int, cut: Cut) -> str:
    """Return a call around the wanted stems; its beginning, which names the file or command, always stays."""
    whole = cut(done, wanted, max_chars=max_chars)
    if not whole.startswith("…"):
        return whole
    head = snippet(done, {}, max_chars=min(_HEAD_CHARS, max_chars // 2))
    return f"{head} {cut(done[len(head) - 1 :], wanted, max_chars=max_chars - len(head) - 1)}"


def _blocks(entry: Entry) -> list[dict[str, Any]]:
    return rows_of((entry.message or {}).get("content"))


def _is_tool(block: Mapping[str, Any]) -> bool:
    return block.get("type") in ("tool_use", "tool_result")
