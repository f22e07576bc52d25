"""The local dreamer: memories put in order without a model. Pure and deterministic.

It merges what says the same, makes dates absolute, mends links, lets expired memories go, and asks where two memories
contradict each other. What memories say is data to it: nothing in them is followed. It goes on until nothing is left to
do, so a second dream on the outcome of the first changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from ...errors import InputError
from ...memories.rules.taxonomy import description_for
from ...memories.store.frontmatter import Value
from ...memories.store.records import MemoryRecord, revised_text
from .changes import Dreamed, Question
from .contradictions import is_weak
from .dates import redated
from .desk import Desk, day_of
from .differences import Difference
from .facts import DreamFacts
from .hooks import shortened
from .links import relinked
from .merging import merged_text
from .pairs import likely_pairs
from .policy import DreamPolicy
from .questions import contradiction, doubtful, undated
from .similar import Comparison, compared

__all__ = ["DreamFacts", "Similar", "dream"]

Similar = Callable[[str, str], float]
"""How alike two texts are in meaning, between 0 and 1: an embedding's word. It brings up questions, never a merge."""

_ROUNDS: Final = 12


def dream(
    files: Mapping[str, bytes],
    *,
    now: datetime,
    policy: DreamPolicy,
    facts: DreamFacts | None = None,
    similar: Similar | None = None,
) -> Dreamed:
    """Return what should change in these memory files, and what a person should decide.

    ``files`` are the private memories by their path beneath the directory. The time is only held against expiry dates;
    relative dates are those of the file. Deletions never pass the caps of the policy.
    """
    known = facts or DreamFacts()
    desk = Desk(files, known)
    questions = [
        Question("unreadable", (file,), f"{file} cannot be read: {problem}. It is left as it is; mend it by hand.")
        for file, problem in desk.unreadable.items()
    ]
    questions += _let_go(desk, now, policy)
    verdicts = _Verdicts(desk, policy)
    tidied: dict[str, bytes] = {}
    last: frozenset[str] | None = None
    for _ in range(_ROUNDS):
        before = dict(desk.files)
        there = frozenset(desk.files) | known.known_paths
        for file in desk.ours:
            if tidied.get(file) != desk.files[file] or there != last:
                _tidy(desk, file, policy, known, there)
                tidied[file] = desk.files[file]
        last = there
        _merge(desk, verdicts, policy)
        if desk.files == before:
            break
    questions += verdicts.questions(similar)
    questions += [undated(desk.record(file), said) for file, said in _undated(desk)]
    return Dreamed(desk.changes(), tuple(questions))


# -- one file at a time


def _tidy(desk: Desk, file: str, policy: DreamPolicy, facts: DreamFacts, there: frozenset[str]) -> None:
    """Make a memory's dates absolute, its links lead somewhere and its description fit its line."""
    memory = desk.record(file)
    day, one_off = day_of(memory), memory.type in ("project", "")
    name, body = redated(memory.name, day, one_off=one_off), redated(memory.body, day, one_off=one_off)
    hook = redated(memory.description, day, one_off=one_off)
    links = relinked(file, body.text, there=there, moved=desk.moved, gone=facts.missing_paths)
    said = hook.text or (_described(links.text) if memory.version and _has_front_matter(desk, file) else "")
    description, text = shortened(said, links.text)
    why: list[str] = []
    if changed := (*name.dates, *hook.dates, *body.dates):
        shown = ", ".join(dict.fromkeys(f"'{old}' is {new}" for old, new in changed[:5]))
        why.append(f"dates made absolute by the day it was written, {day}: {shown}")
    if links.dead:
        why.append(f"links to {', '.join(dict.fromkeys(links.dead))} led nowhere and are plain text")
    if links.led_on:
        why.append(f"links to {', '.join(dict.fromkeys(links.led_on))} lead to where these were merged into")
    if description != hook.text:
        why.append("the description fits a line of the index" if hook.text else "a description, taken from its text")
    fields: dict[str, Value | None] = {}
    if name.dates:
        fields["name"] = name.text
    if description != memory.description:
        fields["description"] = description
    if fields or text != memory.body:
        _write(desk, memory, fields, text, "; ".join(why), policy)


def _has_front_matter(desk: Desk, file: str) -> bool:
    return desk.files[file].startswith(b"---")


def _described(body: str) -> str:
    return shortened(description_for(body.split("\n\n", 1)[0]), body)[0]


def _write(
    desk: Desk, memory: MemoryRecord, fields: Mapping[str, Value | None], body: str, why: str, policy: DreamPolicy
) -> None:
    old = desk.text(memory.file)
    try:
        text = revised_text(old, fields, None if body == memory.body else body)
    except InputError:
        return
    size = len(text.encode())
    if text != old and (size <= policy.max_file_bytes or size <= len(old.encode())):
        desk.write(memory.file, text, why)


# -- expired memories


def _let_go(desk: Desk, now: datetime, policy: DreamPolicy) -> list[Question]:
    """Remove expired memories if all of them together keep to the caps, else ask about each.

    All or none: were some removed today and some tomorrow, the caps would only slow a mass deletion down.
    """
    today = now.date().isoformat()
    expired = [one for one in desk.ours.values() if _is_day(one.expires) and one.expires[:10] < today]
    most = min(policy.max_deleted_files, int(policy.max_deleted_share * len(desk.before)))
    if len(expired) <= most:
        for memory in expired:
            desk.remove(memory.file, f"expired on {memory.expires[:10]}")
        return []
    desk.aside |= {memory.file for memory in expired}
    return [
        Question(
            "expired",
            (memory.file,),
            f"{memory.file} expired on {memory.expires[:10]}. {len(expired)} memories have, and a dream may delete "
            f"{most}: forget it, or give it another date.",
        )
        for memory in expired
    ]


def _is_day(said: str) -> bool:
    try:
        datetime.fromisoformat(said[:10])
    except ValueError:
        return False
    return len(said) >= len("2026-01-01")


# -- memories held against each other


class _Verdicts:
    """What memories are to each other; a pair is looked at again only when one of the two has changed."""

    def __init__(self, desk: Desk, policy: DreamPolicy) -> None:
        self._desk = desk
        self._similar = policy.similar
        self._pairs: tuple[dict[str, bytes], list[tuple[str, str]]] | None = None
        self._known: dict[tuple[str, str], tuple[bytes, bytes, Comparison]] = {}

    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs that are worth a look."""
        if self._pairs is None or self._pairs[0] != self._desk.files:
            found = likely_pairs({file: self._desk.profile(file) for file in self._desk.ours})
            self._pairs = dict(self._desk.files), found
        return self._pairs[1]

    def of(self, one: str, other: str) -> Comparison:
        """Return what two memories are to each other."""
        data = self._desk.files[one], self._desk.files[other]
        known = self._known.get((one, other))
        if known is not None and known[:2] == data:
            return known[2]
        found = compared(self._desk.profile(one), self._desk.profile(other), similar=self._similar)
        self._known[one, other] = (*data, found)
        return found

    def questions(self, similar: Similar | None) -> list[Question]:
        """Return what a person should decide about pairs."""
        pairs = [(pair, self.of(*pair)) for pair in self.pairs()]
        against = [(pair, one.difference) for pair, one in pairs if one.verdict == "contradicts" and one.difference]
        weak: dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]] = defaultdict(set)
        for pair, one in against:
            mine, theirs = _what_differs(pair, one)
            if is_weak(one):
                weak[mine].add(theirs[1])
                weak[theirs].add(mine[1])
        found = [
            contradiction(self._desk.record(one), self._desk.record(other), difference)
            for (one, other), difference in against
            # Said in one way of three things, it is a pattern and the word that differs is what it is said of.
            if not is_weak(difference) or max(len(weak[key]) for key in _what_differs((one, other), difference)) == 1
        ]
        for (one, other), verdict in pairs if similar is not None else ():
            first, second = self._desk.record(one), self._desk.record(other)
            if verdict.verdict != "differs" or verdict.difference is None or first.type != second.type:
                continue
            if similar is not None and similar(first.body, second.body) >= self._similar:
                found.append(doubtful(first, second, verdict.difference))
        return found


def _what_differs(pair: tuple[str, str], difference: Difference) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (pair[0], difference.words), (pair[1], difference.others)


def _merge(desk: Desk, verdicts: _Verdicts, policy: DreamPolicy) -> None:
    """Merge what says the same, the most alike first; what was changed by that is looked at again in the next round."""
    touched: set[str] = set()
    same = [(verdicts.of(*pair), pair) for pair in verdicts.pairs()]
    order = sorted((-found.alike, pair) for found, pair in same if found.verdict == "same")
    for _, pair in order:
        if touched & set(pair):
            continue
        kept, gone = _richer(desk, *pair)
        text = merged_text(desk.record(kept), desk.text(kept), desk.record(gone))
        if text is None or len(text.encode()) > policy.max_file_bytes:
            continue
        if text != desk.text(kept):
            desk.write(kept, text, f"holds what {gone} said too")
        desk.merge(gone, kept)
        touched |= set(pair)


def _richer(desk: Desk, one: str, other: str) -> tuple[str, str]:
    """Return the file whose text is kept, and the other: what was there before a draft, then what says more."""

    def rank(file: str) -> tuple[bool, float, int, str]:
        profile = desk.profile(file)
        weight = sum(statement.weight for statement in (*profile.claims, *profile.reasons))
        return file in desk.drafts, -weight, -len(desk.record(file).body), file

    kept, gone = sorted((one, other), key=rank)
    return kept, gone


def _undated(desk: Desk) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for file, memory in desk.ours.items():
        if memory.type == "project" and day_of(memory) is None:
            said = redated(memory.body, None).unknown
            found += [(file, said[0])] if said else []
    return found
