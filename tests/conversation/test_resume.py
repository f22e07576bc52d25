"""Resume returns the same bytes: a view loaded from the log equals the live view."""

from __future__ import annotations

from random import Random

import pytest

from prefixes import extends
from reverie.conversation.entries import ASSISTANT, Entry, encode_entry
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request


def sendable(entries: list[Entry]) -> list[int]:
    """Return the points at which a request was made: before each reply's first piece."""
    seen: set[str] = set()
    points: list[int] = []
    for at, entry in enumerate(entries):
        if entry.kind == ASSISTANT:
            id = str(entry.reply.get("id") or entry.uuid)
            if id not in seen:
                points.append(at)
            seen.add(id)
    return points


@pytest.mark.requirement("K11")
@pytest.mark.slow
def test_resume_gives_byte_identical_prefixes_on_all_recorded_sessions(corpus_sessions: list[list[Entry]]):
    rng = Random(11)
    for entries in corpus_sessions:
        points = sendable(entries)
        lines = [encode_entry(entry) + b"\n" for entry in entries]
        live, folded = View(), 0
        for point in sorted(rng.sample(points, min(20, len(points)))):
            live = live.fold_all(entries[folded:point])
            folded = point
            sent = canonical(build_request(live))
            resumed = View().fold_all(parse_log(b"".join(lines[:point])).entries)
            assert canonical(build_request(resumed)) == sent
            assert (resumed.tokens, resumed.token_count.tokens) == (live.tokens, live.token_count.tokens)


@pytest.mark.requirement("K11", "C1")
@pytest.mark.slow
def test_requests_of_recorded_sessions_extend_each_other_unless_a_decision_moved_the_prefix(
    corpus_sessions: list[list[Entry]],
):
    moved = 0
    for entries in corpus_sessions:
        live, folded = View(), 0
        before: list[bytes] = []
        for point in sendable(entries):
            added = entries[folded:point]
            live = live.fold_all(added)
            folded = point
            now = canonical(build_request(live))
            decided = any(entry.kind == "decision" for entry in added)
            if not extends(before, now):
                moved += 1
                assert decided or not live.facts.prefix, entries[0].body.get("title")
            before = now
    assert moved > 0
