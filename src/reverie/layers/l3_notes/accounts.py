"""The account of each request: the agent's words and the work that followed it, chosen within a token budget. Pure.

Sentences of the agent compete for the budget: each is worth the words it adds that other sentences repeat, but not
all of them, and a word counts once. So no list says which words matter, and nothing is said twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from math import log
from typing import Final

from ...conversation.tokens.estimate import estimate_text
from ...text.stems import stems
from ...text.words import words
from ...values import record
from .activity import Activity, Failure, UserRequest
from .tool_effects import one_line

_WORK_SHARE: Final = 0.5  # of the budget, for the work; the agent's words get the rest
_SENTENCE_CHARS: Final = 400  # about four lines; one long sentence must not take the room of several
_LEAST_CHARS: Final = 24  # a shorter text is a heading or "Done."
_LEAST_WORDS: Final = 4  # a text of fewer different words states nothing
_LEAST_TOKENS: Final = 12  # the shortest sentence worth a place; with less room the search ends
_RUNS: Final = 12  # of one request, so that a long test loop does not push out other requests
_SHORT_WORDS: Final = 8  # a message of at most so many words may answer a question
_PICKING_WORDS: Final = 40  # a message of at most so many words may pick items of a list
_QUESTION_TOKENS: Final = 160  # two long questions, or a list of choices
_WORKING_WEIGHT: Final = 0.5  # of words between calls; the last reply tells the result
_SPLIT: Final = re.compile(r"(?<=[.!?])(?<!\d\.)[\"')\]*`]*\s+(?=[\"'(\[*`]*[A-Z0-9])")
_FENCE: Final = re.compile(r"^```.*?^```[^\n]*$", re.DOTALL | re.MULTILINE)
_MARKS: Final = re.compile(r"\s*(?:#+ |[-*+] |\|[\s|:-]*\|?\s*\Z)")
_ITEM: Final = re.compile(r"\s*(?:[-*+]\s+)?(?:\*\*)?(\d{1,2}|[A-Za-z])[.):]\s")
_PICKED: Final = re.compile(r"(?<![\w.])(?:\d{1,2}|[A-Za-z])(?![\w'])")


@record
class _Sentence:
    """A sentence of the agent: its request, its place, its tokens and its words."""

    request: str
    at: tuple[int, int]
    text: str
    tokens: int
    terms: tuple[str, ...]
    weight: float


def request_accounts(activity: Activity, tokens: int, visible: Container[str] = ()) -> dict[str, str]:
    """Return the account of each request by its handle, all together within so many tokens.

    Requests and replies whose handle is ``visible`` are left out, and the last reply, which the current state quotes.
    """
    work = _chosen_work(activity, int(tokens * _WORK_SHARE), visible)
    left = tokens - sum(estimate_text(line) + 2 for lines in work.values() for line in lines)
    said = request_words(activity, left, visible)
    # The work gets the room that the words leave.
    spoken = sum(estimate_text(" ".join(sentences)) + 6 for sentences in said.values())
    work = _chosen_work(activity, tokens - spoken, visible)
    for handle, sentences in said.items():
        work[handle] = [f"=> The agent: {' '.join(sentences)}", *work.get(handle, ())]
    order = (asked.uuid for asked in activity.requests)
    return {handle: "\n".join(work[handle]) for handle in dict.fromkeys((*order, *work)) if handle in work}


def account_lines(activity: Activity, asked: UserRequest, names: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the lines about the work for a request, each with its rank: the lowest is the most important.

    ``names`` are the short names of files by path.
    """
    if asked.refused:
        yield 0, f"- With these words the user refused {asked.refused}"
    for decision in asked.decisions:
        yield 0, f"- Decided: {decision}"
    for line, failure in activity.failures.items():
        if failure.request == asked.uuid:
            yield 1, f"- {failure_line(line, failure, names)}"
    for commit in asked.commits:
        yield 2, f"- Commit {commit}"
    if asked.edits:
        yield 3, f"- Changed {_changes(asked.edits, names)}"
    again = {command for command, use in activity.commands.items() if use.runs > 1}
    telling = [item for item in asked.runs.items() if item[1] != "ok" or item[0] in again]
    for command, outcome in telling[-_RUNS:]:
        yield 4, f"- Ran `{one_line(command, 100)}`: {outcome}"


def failure_line(line: str, failure: Failure, names: Mapping[str, str]) -> str:
    """Return a failure as one line: the error, its tests, the command, the changes that followed, and the success."""
    often = f" ({failure.count}x)" if failure.count > 1 else ""
    tests = [name for name in failure.tests if name not in line][-3:]
    named = f" in {', '.join(tests)}" if tests else ""
    head = f"`{one_line(failure.after, 80)}` failed{often}{named}: {line}"
    done = f"changed {_changes(failure.edits, names)}" if failure.edits else ""
    if failure.fixed:
        done += f"{', then ' if done else ''}`{one_line(failure.fixed, 80)}` succeeded"
    return f"{head} -> {'fixed: ' if failure.fixed and failure.edits else ''}{done or 'no success seen yet'}"


def _changes(edits: Mapping[str, Mapping[str, None]], names: Mapping[str, str]) -> str:
    """Return the last changed files, each with the names changed in it."""
    parts: list[str] = []
    for path, symbols in list(edits.items())[-5:]:
        inside = ", ".join(list(symbols)[-4:])
        parts.append(f"{names.get(path, path)}{f' ({inside})' if inside else ''}")
    return ", ".join(parts)


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return each path by its last part, or its last two if another file has the same last part."""
    last = Counter(path.rpartition("/")[2] for path in paths)
    return {
        path: name if last[name := path.rpartition("/")[2]] == 1 else "/".join(path.split("/")[-2:]) for path in paths
    }


def _chosen_work(activity: Activity, tokens: int, visible: Container[str]) -> dict[str, list[str]]:
    """Return the lines about the work by request, the most important and newest of all that fit."""
    names = short_paths(activity.files)
    ranked = [
        (rank, -number, at, asked.uuid, line)
        for number, asked in enumerate(activity.requests)
        if asked.uuid not in visible
        for at, (rank, line) in enumerate(account_lines(activity, asked, names))
    ]
    taken: list[tuple[int, int, str, str]] = []
    left = tokens
    for _, number, at, handle, line in sorted(ranked):
        cost = estimate_text(line) + 2
        if cost <= left:
            left -= cost
            taken.append((-number, at, handle, line))
    chosen: dict[str, list[str]] = {}
    for _, _, handle, line in sorted(taken):
        chosen.setdefault(handle, []).append(line)
    return chosen


def request_words(activity: Activity, tokens: int, visible: Container[str] = ()) -> dict[str, list[str]]:
    """Return sentences of the agent by request: first those that a short answer needs, then the most telling."""
    last = activity.last_reply
    replies = [reply for reply in activity.replies if reply.text != last and reply.uuid not in visible]
    found = [one for reply in replies for one in _sentences_of(reply.request, reply.at, reply.text, reply.is_last)]
    taken: dict[tuple[int, int], _Sentence] = {}
    left = tokens
    for one in _answered(activity, found):
        if one.tokens <= left:
            left -= one.tokens
            taken[one.at] = one
    for one in _telling(found, left, taken.values(), [asked.text for asked in activity.requests]):
        taken[one.at] = one
    chosen: dict[str, list[str]] = {}
    for _, one in sorted(taken.items()):
        chosen.setdefault(one.request, []).append(one.text)
    return chosen


def _answered(activity: Activity, found: Sequence[_Sentence]) -> Iterator[_Sentence]:
    """Yield the question, or the items of a list, that a short message of the user answers; newest first."""
    by_reply: dict[int, list[_Sentence]] = {}
    for one in found:
        by_reply.setdefault(one.at[0], []).append(one)
    for asked in reversed(activity.requests):
        before = max((at for at in by_reply if at < asked.at), default=None)
        count = len(asked.text.split())
        if before is None or asked.refused or count > _PICKING_WORDS:
            continue
        lines, is_short = by_reply[before], count <= _SHORT_WORDS
        picked = {name.lower() for name in _PICKED.findall(asked.text) if is_short or name.isdigit()}
        wanted = [one for one in lines if (mark := _ITEM.match(one.text)) and mark.group(1).lower() in picked]
        if is_short:
            wanted += [one for one in lines if one.text.rstrip("*_`\"') ").endswith("?")][-2:]
            wanted = wanted or lines[-2:]
        room = _QUESTION_TOKENS
        for one in dict.fromkeys(wanted):
            if one.tokens <= room:
                room -= one.tokens
                yield one


def _telling(
    found: Sequence[_Sentence], tokens: int, taken: Iterable[_Sentence], said: Sequence[str]
) -> Iterator[_Sentence]:
    """Yield the sentences that add the most words others repeat, each word once, until the tokens are spent."""
    used = Counter(term for one in found for term in one.terms)
    asked = {term for text in said for term in _terms(text)}
    worth = {
        term: (1 + log(count)) * log(1 + len(found) / count) * (1.5 if term in asked else 1.0)
        for term, count in used.items()
    }
    covered: set[str] = set()
    for one in taken:
        covered.update(one.terms)

    def gain(one: _Sentence) -> float:
        return one.weight * sum(worth[term] for term in one.terms if term not in covered) / (one.tokens + 4)

    waiting = [(-gain(one), one.at, one) for one in found]
    heapify(waiting)
    left = tokens
    while waiting and left > _LEAST_TOKENS:
        _, at, best = heappop(waiting)
        now = -gain(best)
        if waiting and now > waiting[0][0]:  # another sentence has some of its words by now
            heappush(waiting, (now, at, best))
        elif now == 0.0:
            return
        elif best.tokens <= left:
            left -= best.tokens
            covered.update(best.terms)
            yield best


@lru_cache(maxsize=1_024)
def _sentences_of(request: str, at: int, text: str, is_last: bool) -> tuple[_Sentence, ...]:
    """Return the sentences of a reply without code, headings and sentences that only announce the next one."""
    found: list[_Sentence] = []
    for line in _FENCE.sub("", text).splitlines():
        if not line.strip() or _MARKS.fullmatch(line) or line.lstrip().startswith("#"):
            continue
        for part in _SPLIT.split(line.strip()):
            plain = part.strip("*_ ")
            asks = plain.endswith("?")
            if plain.endswith(":") or not (asks or len(plain) >= _LEAST_CHARS):
                continue
            terms = _terms(plain)
            if asks or len(terms) >= _LEAST_WORDS:
                shown = one_line(part, _SENTENCE_CHARS)
                weight = 1.0 if is_last else _WORKING_WEIGHT
                found.append(_Sentence(request, (at, len(found)), shown, estimate_text(shown) + 1, terms, weight))
    return tuple(found)


def _terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stems(words(text))))  # a set takes several times the memory
