"""The ledger records the expected and the actual usage and the loss of each cache break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.cache.ledger import Ledger, Totals, expected_usage
from reverie.cache.prices import Prices
from reverie.cache.usage import Usage
from reverie.conversation.decisions import CallRecorded, Cause, Compacted, Decision, PrefixRendered, body_of
from reverie.conversation.entries import DECISION, USER, Entry, iso

PRICES = Prices(10, 50, 1, 12.5, 20)
NOON = 1_763_208_000.0  # 2025-11-15 12:00 UTC


def priced(model: str) -> Prices | None:
    return None if model == "unheard-of" else PRICES


def ledger_of(entries: list[Entry], prices: Callable[[str], Prices | None], session: str = "") -> Ledger:
    ledger = Ledger(session)
    for entry in entries:
        ledger = ledger.fold(entry, prices)
    return ledger


def used(read: int = 0, write: int = 0, uncached: int = 0, output: int = 100) -> dict[str, Any]:
    return {
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "input_tokens": uncached,
        "output_tokens": output,
    }


def log(*decisions: tuple[float, Decision]) -> list[Entry]:
    return [
        Entry(f"e{number}", None, iso(NOON + at), "s", DECISION, body_of(decision))
        for number, (at, decision) in enumerate(decisions)
    ]


def call(usage: dict[str, Any], *, layer: str = "request", source: str = "main", **rest: Any) -> CallRecorded:
    return CallRecorded(Cause(layer, "turn"), rest.pop("model", "m"), usage, source=source, **rest)


@pytest.mark.requirement("C6")
def test_a_break_is_priced_as_what_was_paid_anew_less_what_reading_it_costs() -> None:
    ledger = ledger_of(log((0, call(used(write=100_000))), (400, call(used(write=101_000)))), priced, session="s")
    assert ledger.totals.breaks == 1
    broken = ledger.broken[0]
    assert broken.broke == "idle over 5 min"
    assert broken.actual == Usage(0, 101_000, 0, 0, 100)
    assert broken.expected == Usage(100_000, 1_000, 0, 0, 100)
    assert broken.lost_tokens == 100_000
    assert broken.lost_usd == pytest.approx(100_000 * (12.5 - 1) / 1e6)
    assert ledger.totals.lost_by_reason == {"idle over 5 min": pytest.approx(1.15)}


@pytest.mark.requirement("C6", "C5")
def test_an_announced_break_is_no_loss() -> None:
    compacted = Compacted(Cause("compact", "window", moves_prefix=True), "auto", "full", "s", 1, None, None)
    entries = log((0, call(used(write=100_000))), (9, compacted), (10, call(used(write=20_000))))
    ledger = ledger_of(entries, priced)
    assert ledger.totals.breaks == 0
    assert ledger.last is not None
    assert ledger.last.expected == ledger.last.actual
    assert ledger_of([entries[0], entries[2]], priced).totals.breaks == 1


@pytest.mark.requirement("C6", "C4")
def test_a_change_of_tools_that_the_log_records_is_named() -> None:
    tools = [{"name": name, "description": "d", "input_schema": {"type": "object"}} for name in ("Read", "Bash")]
    other = [tools[0], {**tools[1], "description": "changed"}]
    first, second = (
        PrefixRendered(Cause("request", "x", moves_prefix=True), "m", "Be kind.", one) for one in (tools, other)
    )
    entries = log((0, first), (1, call(used(write=90_000))), (2, second), (3, call(used(write=90_000))))
    assert [one.broke for one in ledger_of(entries, priced).broken] == ["tools[1].description changed"]


@pytest.mark.requirement("C6")
def test_a_fork_is_expected_to_read_what_the_main_conversation_left() -> None:
    entries = log(
        (0, call(used(write=50_000))),
        (1, call(used(read=50_000, write=500), layer="notes", source="session_memory")),
        (2, call(used(uncached=3_000), layer="agents", source="explorer")),
        (3, call(used(read=50_000, write=1_000))),
    )
    ledger = ledger_of(entries, priced)
    assert ledger.totals.breaks == 0
    assert set(ledger.layers) == {"request", "notes", "agents"}
    assert ledger.layers["notes"].expected.read == 50_000
    assert ledger.layers["agents"].expected == Usage(uncached=3_000, output=100)
    assert ledger.totals.calls == 4


@pytest.mark.requirement("C6", "B7")
def test_totals_give_the_hit_rate_the_breaks_and_the_money() -> None:
    entries = log(
        (0, call(used(write=100_000, output=0))),
        (5, call(used(read=100_000, output=0))),
        (10, call(used(write=100_000, output=0))),
    )
    found = ledger_of(entries, priced).totals
    assert found.hit_rate == pytest.approx(1 / 3)
    assert found.expected_hit_rate == pytest.approx(2 / 3)
    assert found.usd == pytest.approx(1.25 + 0.1 + 1.25)
    assert found.expected_usd == pytest.approx(1.25 + 0.1 + 0.1)
    assert found.lost_usd == pytest.approx(1.15)


@pytest.mark.requirement("C6")
def test_a_model_without_a_price_counts_its_tokens_and_no_money() -> None:
    ledger = ledger_of(log((0, call(used(write=5_000), model="unheard-of"))), priced)
    assert (ledger.totals.usd, ledger.totals.unpriced, ledger.totals.actual.write) == (0.0, 1, 5_000)


@pytest.mark.requirement("C6")
def test_what_was_billed_stands_before_what_the_table_says() -> None:
    entries = log((0, call(used(write=100_000), cost_usd=3.0)), (9, call(used(write=100_000), cost_usd=3.0)))
    ledger = ledger_of(entries, priced)
    assert ledger.totals.usd == 6.0
    assert ledger.broken[0].expected_usd == pytest.approx(3.0 - 1.15)


@given(*(st.integers(0, 10**6) for _ in range(6)))
def test_expecting_more_reads_changes_no_sum(
    read: int, short: int, long: int, rest: int, output: int, left: int
) -> None:
    actual = Usage(read, short, long, rest, output)
    expected = expected_usage(actual, left)
    assert expected.input == actual.input
    assert expected.read == max(actual.read, min(left, actual.input))
    assert min(expected.write_5m, expected.write_1h, expected.uncached) >= 0
    assert PRICES.cost_of(expected) <= PRICES.cost_of(actual) + 1e-9


def test_messages_and_decisions_without_a_call_cost_nothing() -> None:
    entry = Entry("u", None, iso(NOON), "s", USER, {"message": {"role": "user", "content": "hi"}})
    assert Ledger("s").fold(entry, priced) == Ledger("s")
    assert Totals().hit_rate == 0.0
