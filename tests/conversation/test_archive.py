"""A view whose past is in the log alone equals one that keeps all of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from random_logs import random_log
from reverie.conversation.cuts import Item
from reverie.conversation.decisions import Cause, Compacted, CompactionUndone, body_of
from reverie.conversation.entries import DECISION, Entry, encode_entry, new_uuid
from reverie.conversation.log import LoggedEntries, LogScan, Read
from reverie.conversation.shared_lists import EntryHistory, IdSet
from reverie.conversation.view import View
from reverie.conversation.wire.request import build_request
from reverie.errors import LogLost

CAUSE = Cause("test", "because")


def cut_log(rng: Random) -> list[Entry]:
    """Make a random log with cuts in it, some of which are undone later."""
    view, out = View(), list[Entry]()
    cuts: list[str] = []
    for entry in random_log(rng, entries=rng.randint(8, 60), disorder=0.2):
        steps = [entry]
        items = view.items_in_view()
        if items and rng.random() < 0.12:
            kept = rng.choice([None, rng.choice(items).uuid])
            steps.append(decided(Compacted(CAUSE, "auto", "full", f"summary {len(out)}", 10, None, kept)))
            cuts.append(steps[-1].uuid)
        if cuts and rng.random() < 0.05:
            steps.append(decided(CompactionUndone(CAUSE, cuts.pop(rng.randrange(len(cuts))))))
        out += steps
        view = view.fold_all(steps)
    return out


def decided(decision: Any) -> Entry:
    return Entry(new_uuid(), None, "", "s", DECISION, body_of(decision))


def reader(entries: list[Entry]) -> Read:
    data = b"".join(encode_entry(entry) + b"\n" for entry in entries)
    return lambda start, size: data[start : start + size]


def archived(read: Read) -> Iterator[tuple[View, LogScan]]:
    """Yield the view after each entry of a log that has only the lines so far."""
    scan = LogScan(read)
    view = View(scan.entries)
    for place, entry in scan:
        view = view.fold(entry, place)
        yield view, scan


def shown(view: View) -> tuple[Any, ...]:
    """Return everything that requests and layers read from a view."""
    called = [result.tool_use_id for result in view.results]
    return (
        build_request(view),
        view.tokens,
        view.token_count,
        view.last,
        view.facts,
        [(one.message, one.tokens) for one in view.results],
        [(one, view.is_kept(one), view.offloaded(one)) for one in called],
        dict(view.overrides.results),
        view.overrides.thinking,
        dict(view.overrides.images),
        view.images,
        view.history,
        [type(one).__name__ for one in view.history_from(0)],
        [entry.uuid for entry in view.latest()][::-1],
    )


def differs(seed: int, one: Callable[[View], Any] = shown) -> bool:
    """Say whether a log folds to another view with its past in the log than with its past in memory."""
    entries = cut_log(Random(seed))
    whole, rng = View(), Random(seed)
    for (view, _), entry in zip(archived(reader(entries)), entries, strict=True):
        whole = whole.fold(entry)
        if rng.random() < 0.2 and one(view) != one(whole):
            return True
    return False


@pytest.mark.requirement("K4")
def test_a_past_that_is_in_the_log_alone_gives_the_same_view(torture: bool) -> None:
    assert not [seed for seed in range(2_000 if torture else 60) if differs(seed)]


def test_the_comparison_notices_a_past_that_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryHistory, "each", lambda self, start, stop: (one for one in self.items[start:stop] if one))
    assert any(differs(seed) for seed in range(40))


@pytest.mark.requirement("K4")
def test_a_branch_of_an_older_view_goes_its_own_way() -> None:
    for seed in range(40):
        entries = cut_log(Random(seed))
        views = [view for view, _ in archived(reader(entries))]
        rng = Random(seed)
        for at in rng.sample(range(len(views)), min(4, len(views))):
            again = views[at].fold_all(entries[at + 1 :])
            assert shown(again) == shown(views[-1])


def test_messages_before_the_last_cut_are_not_in_memory() -> None:
    for seed in range(40):
        entries = cut_log(Random(seed))
        for view, _ in archived(reader(entries)):
            history = view._history  # pyright: ignore[reportPrivateUsage]
            held = [one for one in history.items if isinstance(one, Item)]
            assert len(held) <= len(history.items) - view.visible_items.count


@pytest.mark.requirement("K3")
def test_entries_are_read_in_any_order_and_by_parts() -> None:
    entries = cut_log(Random(5))
    scan = LogScan(reader(entries))
    assert [entry for _, entry in scan] == entries
    logged = scan.entries
    assert list(logged) == entries == list(logged.at(logged.places))
    assert list(reversed(logged)) == entries[::-1]
    assert list(logged[3:9]) == entries[3:9]
    assert (logged[-1], logged[0], len(logged)) == (entries[-1], entries[0], len(entries))


def test_a_log_that_changed_under_the_view_is_noticed() -> None:
    entries = cut_log(Random(6))
    read = reader(entries)
    logged = LogScan(read).entries
    for _ in (scan := LogScan(read)):
        pass
    shifted = LoggedEntries(lambda start, size: read(start + 7, size), scan.entries.places)
    assert not logged.places
    with pytest.raises(LogLost, match="changed at byte"):
        list(shifted)


def test_a_set_of_ids_holds_exactly_its_ids() -> None:
    rng = Random(3)
    ids = [str(rng.random()) for _ in range(3_000)]
    found = IdSet()
    for start in range(0, 2_000, 37):
        found = found.with_ids(ids[start : min(start + 37, 2_000)])
    assert all(one in found for one in ids[:2_000])
    assert not any(one in found for one in ids[2_000:])
    assert "x" not in IdSet()
