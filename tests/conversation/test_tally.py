"""Tokens are counted on demand, and the result does not depend on when."""

from __future__ import annotations

from random import Random

import pytest

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, Replacement, ResultOffloaded, ResultsCleared
from reverie.conversation.entries import Entry
from reverie.conversation.tokens.estimate import estimate_message
from reverie.conversation.view import View
from reverie.conversation.wire import flatten

BECAUSE = Cause("test", "because")


def numbers(view: View) -> tuple[int, int, bool]:
    return view.tokens, view.token_count.tokens, view.token_count.known


@pytest.mark.requirement("K5", "T1")
def test_asking_after_every_entry_gives_what_asking_once_gives() -> None:
    for seed in range(200):
        log = random_log(Random(seed))
        asked = View()
        for entry in log:
            asked = asked.fold(entry)
            numbers(asked)
        assert numbers(asked) == numbers(View().fold_all(log))


@pytest.mark.requirement("K12")
def test_a_snapshot_asked_late_counts_what_it_shows_and_not_what_came_later() -> None:
    for seed in range(200):
        rng = Random(seed)
        log = random_log(rng)
        at = rng.randint(0, len(log))
        early = View().fold_all(log[:at])
        early.fold_all(log[at:])
        early.fold_all(reversed(log[at:]))  # a second future, so that one of them copies
        assert numbers(early) == numbers(View().fold_all(log[:at]))


def measured_while(monkeypatch: pytest.MonkeyPatch, entries: list[Entry], ask: bool) -> int:
    calls = 0
    measure = flatten.measure_message

    def counting(message: dict[str, object]) -> object:
        nonlocal calls
        calls += 1
        return measure(message)

    monkeypatch.setattr(flatten, "measure_message", counting)
    view = View().fold_all(entries)
    if ask:
        numbers(view)
        numbers(view)
    return calls


@pytest.mark.requirement("K5")
@pytest.mark.parametrize(("ask", "measured"), [(False, 0), (True, 4)])
def test_each_message_is_measured_once_and_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, ask: bool, measured: int
) -> None:
    script = Script()
    script.user("read it")
    script.reply(call("t1", file_path="/a"))
    script.result("t1", "A" * 900)
    script.reply(text("done"))
    assert measured_while(monkeypatch, script.entries, ask) == measured


@pytest.mark.requirement("K5")
def test_a_cut_starts_the_total_over_with_what_is_left() -> None:
    script = Script()
    script.user("words " * 300)
    script.reply(text("more words " * 100))
    script.decide(Compacted(BECAUSE, "auto", "full", "Summary.", 900, None, None))
    assert script.view.tokens == pytest.approx(estimate_message({"role": "user", "content": "Summary."}), abs=1)
    assert not script.view.token_count.known


@pytest.mark.requirement("K12")
def test_a_later_offload_or_clearing_of_the_same_result_is_not_seen_by_a_snapshot() -> None:
    script = Script()
    script.user("read it")
    script.reply(call("t1", file_path="/a"))
    script.result("t1", "A" * 900)
    script.reply(call("t2", file_path="/b"))
    script.result("t2", "B" * 900)
    script.decide(ResultOffloaded(BECAUSE, "t1", "<first>", "tool-results/t1.txt", "00", 900))
    snapshot = script.view
    later = snapshot
    for number, decision in enumerate(
        [
            ResultOffloaded(BECAUSE, "t1", "<second>", "tool-results/t1-2.txt", "01", 900),
            ResultsCleared(BECAUSE, [Replacement("t1", "[cleared]")]),
        ]
    ):
        other = Script()
        other.decide(decision)
        entry = other.entries[0]
        later = later.fold(Entry(f"later {number}", None, entry.time, entry.session, entry.kind, entry.body))
    kept, moved = snapshot.offloaded("t1"), later.offloaded("t1")
    assert kept is not None
    assert moved is not None
    assert (kept.path, moved.path) == ("tool-results/t1.txt", "tool-results/t1-2.txt")
    assert snapshot.messages()[2]["content"][0]["content"] == "<first>"
    assert later.messages()[2]["content"][0]["content"] == "[cleared]"
