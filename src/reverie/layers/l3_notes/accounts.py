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
from math import inf, log
from typing import Final, TypeAlias

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
_RANKS: Final = ((0, 1, 2), (3, 4), (5,))  # of lines about the work; the last are commands that ran once and succeeded
_RUNS: Final = 12  # of one request, so that a long test loop does not push out other requests
_SHORT_WORDS: Final = 8  # a message of at most so many words may answer a question
_PICKING_WORDS: Final = 40  # a message of at most so many words may pick items of a list
_QUESTION_TOKENS: Final = 160  # two long questions, or a list of choices
_ANNOUNCED_SHARE: Final = 0.1  # of the sentences before calls; an opening that is as frequent is a formula
_LEAST_ANNOUNCED: Final = 3
_WORKING_WEIGHT: Final = 0.5  # of words between calls; the last reply tells the result
_LEFT_OUT: Final = " … "
_FRAME_TOKENS: Final = 3  # of a sentence, for its speaker or a mark before it
_ANNOUNCING_WEIGHT: Final = 0.25
_SPLIT: Final = re.compile(r"(?<=[.!?])(?<!\d\.)[\"')\]*`]*\s+(?=[\"'(\[*`]*[A-Z0-9])")
_FENCE: Final = re.compile(r"^```.*?^```[^\n]*$", re.DOTALL | re.MULTILINE)
_CODE: Final = "```"
_MARKS: Final = re.compile(r"\s*(?:#+ |[-*+] |\|[\s|:-]*\|?\s*\Z)")
_ITEM: Final = re.compile(r"\s*(?:[-*+]\s+)?(?:\*\*)?(\d{1,2}|[A-Za-z])[.):]\s")
_PICKED: Final = re.compile(r"(?<![\w.])(?:\d{1,2}|[A-Za-z])(?![\w'])")


Edits: TypeAlias = dict[str, Mapping[str, None]]


@record
class SpokenSentence:
    """A sentence of the agent: its request, its place, its tokens and its words."""

    request: str
    at: tuple[int, int]
    text: str
    tokens: int
    terms: tuple[str, ...]
    weight: float


def request_accounts(activity: Activity, tokens: int, visible: Container[str] = ()) -> dict[str, str]:
    """Return the account of each request by its handle, in the order of events, all within so many tokens.

    Requests and replies whose handle is ``visible`` are left out with the work after them, and the last reply, which
    the current state quotes.
    """
    half = int(tokens * _WORK_SHARE)
    said = _spoken_lines(activity, tokens - _tokens_of(_chosen_work(activity, half, visible, _RANKS[:-1])), visible)
    # The work gets the room that the words leave, and its most important lines never less than they had.
    least = _tokens_of(_chosen_work(activity, half, visible, _RANKS[:1]))
    work = _chosen_work(activity, max(least, tokens - _tokens_of(said)), visible, _RANKS)
    order = (asked.uuid for asked in activity.requests)
    handles = dict.fromkeys((*order, *work, *said))
    lines = {handle: sorted((*said.get(handle, ()), *work.get(handle, ()))) for handle in handles}
    return {handle: "\n".join(line for _, line in found) for handle, found in lines.items() if found}


def _tokens_of(lines: Mapping[str, Sequence[tuple[int, str]]]) -> int:
    return sum(estimate_text(line) + 2 for some in lines.values() for _, line in some)


def account_lines(
    activity: Activity, asked: UserRequest, names: Mapping[str, str], told: Container[str] = ()
) -> Iterator[tuple[int, int, str]]:
    """Yield the lines about the work for a request, each with its rank, lowest first, and its place in the session.

    ``names`` are the short names of files by path; ``told`` are failures whose changes need not be said again.
    """
    if asked.refused:
        yield 0, asked.at, f"(with these words the user refused {asked.refused})"
    failures = [item for item in activity.failures.items() if item[1].request == asked.uuid]
    for line, failure in failures:
        yield 1, failure.at, f"agent {failure_line(line, failure, names)}"
    fixes = [one.edits for line, one in failures if line in told and (one.fixed or one.fails_again)]
    failed = {failure.at for _, failure in failures}
    again = {command for command, use in activity.commands.items() if use.runs > 1}
    runs = 0
    for step in reversed(asked.steps):
        match step.kind:
            case "decision":
                yield 0, step.at, f"user decided: {step.text}"
            case "commit":
                yield 2, step.at, f"agent committed {step.text}"
            case "edit":
                if edits := _untold(step.edits, fixes):
                    yield 3, step.at, f"agent edited {_changes(edits, names)}"
            case "run":
                runs += 1
                if runs <= _RUNS and step.at not in failed:
                    rank = 4 if step.outcome != "ok" or step.command in again else 5
                    yield rank, step.at, f"agent ran `{one_line(step.text, 120)}`: {step.outcome}"


def failure_line(line: str, failure: Failure, names: Mapping[str, str]) -> str:
    """Return a failure as one line: the command, its failing tests, the error, the changes after it, the success."""
    often = f" {failure.count} times" if failure.count > 1 else ""
    tests = [name for name in failure.tests if name not in line][-3:]
    named = f" in {', '.join(tests)}" if tests else ""
    done = f"edited {_changes(failure.edits, names)}, then " if failure.edits else ""
    if failure.fixed:
        again = "it" if failure.fixed == failure.after else f"`{one_line(failure.fixed, 120)}`"
        done = f"{'fixed: ' if done else 'later '}{done}{again} succeeded"
    else:
        done = f"{done}it failed again" if failure.fails_again else "no success seen yet"
    return f"ran `{one_line(failure.after, 120)}`: failed{often}{named}: {line} -> {done}"


def _untold(edits: Mapping[str, Mapping[str, None]], told: Iterable[Mapping[str, Mapping[str, None]]]) -> Edits:
    """Return the changes without the files whose names are all among those told with a failure."""
    shown = [(path, symbols) for one in told for path, symbols in _shown(one)]
    return {
        path: symbols
        for path, symbols in edits.items()
        if not any(path == other and set(symbols) <= set(names) for other, names in shown)
    }


def _shown(edits: Mapping[str, Mapping[str, None]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the last changed files, each with the last names changed in it."""
    for path, symbols in list(edits.items())[-5:]:
        yield path, list(symbols)[-4:]


def _changes(edits: Mapping[str, Mapping[str, None]], names: Mapping[str, str]) -> str:
    inside = ((names.get(path, path), ", ".join(symbols)) for path, symbols in _shown(edits))
    return ", ".join(f"{name} ({symbols})" if symbols else name for name, symbols in inside)


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return each path by its last part, or its last two if another file has the same last part."""
    last = Counter(path.rpartition("/")[2] for path in paths)
    return {
        path: name if last[name := path.rpartition("/")[2]] == 1 else "/".join(path.split("/")[-2:]) for path in paths
    }


def _chosen_work(
    activity: Activity, tokens: int, visible: Container[str], ranks: Iterable[Container[int]]
) -> dict[str, list[tuple[int, str]]]:
    """Return the lines about the work by request with their places: the most important and newest of all that fit."""
    names = short_paths(activity.files)
    asked = [one for one in reversed(activity.requests) if one.uuid not in visible]
    end = _first_visible(activity, visible)
    chosen: dict[str, list[tuple[int, str]]] = {}
    left = tokens
    for some in ranks:  # a change that a chosen failure tells is not said again
        shown = "\n".join(line for lines in chosen.values() for _, line in lines)
        told = {line for line in activity.failures if line in shown}
        found = ((one, line) for one in asked for line in account_lines(activity, one, names, told))
        for one, (_, at, line) in sorted((x for x in found if x[1][0] in some), key=lambda item: item[1][0]):
            cost = estimate_text(line) + 2
            if at < end and cost <= left:
                left -= cost
                chosen.setdefault(one.uuid, []).append((at, line))
    return chosen


def _first_visible(activity: Activity, visible: Container[str]) -> float:
    """Return the place of the first text that stays in view after all that do not."""
    places = sorted((one.at, one.uuid in visible) for one in (*activity.requests, *activity.replies))
    last = max((at for at, shown in places if not shown), default=0)
    return next((at for at, shown in places if shown and at > last), inf)


def _spoken_lines(activity: Activity, tokens: int, visible: Container[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the chosen sentences of the agent by request, those of one reply on one line, with their places.

    A mark shows where sentences between two of them are left out.
    """
    lines: dict[str, list[tuple[int, str]]] = {}
    for handle, sentences in request_words(activity, tokens, visible).items():
        by_reply: dict[int, str] = {}
        before = (0, 0)
        for one in sentences:
            reply, number = one.at
            joint = " " if before == (reply, number - 1) else _LEFT_OUT
            by_reply[reply] = f"{by_reply[reply]}{joint}{one.text}" if reply in by_reply else f"agent: {one.text}"
            before = one.at
        lines[handle] = list(by_reply.items())
    return lines


def request_words(activity: Activity, tokens: int, visible: Container[str] = ()) -> dict[str, list[SpokenSentence]]:
    """Return sentences of the agent by request: first those that a short answer needs, then the most telling.

    Sentences that repeat them or only announce a call get the room that is left, the most telling first again.
    """
    last = activity.last_reply
    replies = [reply for reply in activity.replies if reply.text != last and reply.uuid not in visible]
    every = [one for reply in replies for one in _sentences_of(reply.request, reply.at, reply.text, reply.is_last)]
    found = _without_announcements([one for one in every if one.weight >= _WORKING_WEIGHT])
    taken: dict[tuple[int, int], SpokenSentence] = {}
    left = tokens
    for one in _answered(activity, found):
        if one.tokens <= left:
            left -= one.tokens
            taken[one.at] = one
    said = [asked.text for asked in activity.requests]
    for one in _telling(found, left, taken.values(), said):
        left -= one.tokens
        taken[one.at] = one
    for one in _telling([one for one in every if one.at not in taken], left, (), said):
        taken[one.at] = one
    by_request: dict[str, list[SpokenSentence]] = {}
    for _, one in sorted(taken.items()):
        by_request.setdefault(one.request, []).append(one)
    return by_request


def _without_announcements(found: Sequence[SpokenSentence]) -> list[SpokenSentence]:
    """Return the sentences without those that only announce a call, as "Let me look at it" does.

    An announcement opens, between calls, as many of the sentences right before a call do; the call itself stays.
    """
    working = [one for one in found if one.weight == _WORKING_WEIGHT]
    before_call = {one.at[0]: one for one in working}  # the last sentence of each reply
    openings = Counter(map(_opening, before_call.values()))
    most = max(_LEAST_ANNOUNCED, len(before_call) * _ANNOUNCED_SHARE)
    return [one for one in found if one.weight != _WORKING_WEIGHT or openings[_opening(one)] < most]


def _opening(one: SpokenSentence) -> str:
    return " ".join(one.text.lower().split(maxsplit=2)[:2])


def _answered(activity: Activity, found: Sequence[SpokenSentence]) -> Iterator[SpokenSentence]:
    """Yield the question, or the items of a list, that a short message of the user answers; newest first."""
    by_reply: dict[int, list[SpokenSentence]] = {}
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
    found: Sequence[SpokenSentence], tokens: int, taken: Iterable[SpokenSentence], said: Sequence[str]
) -> Iterator[SpokenSentence]:
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

    def gain(one: SpokenSentence) -> float:
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
def _sentences_of(request: str, at: int, text: str, is_last: bool) -> tuple[SpokenSentence, ...]:
    """Return the sentences of a reply without code and headings, and without those that only announce the next one.

    Between calls, a sentence that ends in a colon announces a call. Code and what is left out have numbers too.
    """
    found: list[SpokenSentence] = []
    number = 0
    for line in _FENCE.sub(_CODE, text).splitlines():
        if not line.strip() or _MARKS.fullmatch(line) or line.lstrip().startswith("#"):
            continue
        for part in _SPLIT.split(line.strip()):
            number += 1
            plain = part.strip("*_ ")
            asks = plain.endswith("?")
            announces = plain.endswith(":")
            if (announces and is_last) or not (asks or len(plain) >= _LEAST_CHARS):
                continue
            terms = _terms(plain)
            if asks or len(terms) >= _LEAST_WORDS:
                shown = one_line(part, _SENTENCE_CHARS)
                weight = _ANNOUNCING_WEIGHT if announces else 1.0 if is_last else _WORKING_WEIGHT
                tokens = estimate_text(shown) + _FRAME_TOKENS
                found.append(SpokenSentence(request, (at, number), shown, tokens, terms, weight))
    return tuple(found)


def _terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stems(words(text))))  # a set takes several times the memory
