"""The quality figures follow from the log, and each of them can change."""

from __future__ import annotations

import pytest

from log_script import Script, call, text
from reverie.cache.prices import Prices
from reverie.conversation.decisions import (
    CallRecorded,
    Cause,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    MemoriesSurfaced,
)
from reverie.conversation.entries import marked_imported
from reverie.runtime.reports.measures import Measures, measure, total_of

PRICES = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write_5m=3.75, cache_write_1h=6.0)


def no_price(model: str) -> Prices | None:
    """Know no price."""
    return None


def one_price(model: str) -> Prices | None:
    """Price every model alike."""
    return PRICES


def spent(source: str, *, read: int = 0, uncached: int = 0, usd: float | None = None) -> CallRecorded:
    """Return a call that was recorded."""
    usage = {"input_tokens": uncached, "cache_read_input_tokens": read, "output_tokens": 0}
    return CallRecorded(Cause("model", "reply"), "m", usage, usd, source)


def test_a_log_without_calls_has_rates_of_nothing() -> None:
    found = measure(Script().entries, no_price)
    assert (found.hit_rate, found.facts.share, found.pollution.rate, found.background_share) == (None,) * 4
    assert found.compactions_per_session == 0.0
    assert Measures().compactions_per_session is None


@pytest.mark.requirement("B7")
def test_the_hit_rate_and_the_spend_behind_the_conversation_come_from_recorded_calls() -> None:
    script = Script()
    script.user("go")
    script.decide(spent("main", read=0, uncached=1_000, usd=0.5))
    script.decide(spent("main", read=3_000, uncached=0, usd=0.25))
    script.decide(spent("session_memory", read=900, uncached=100, usd=0.25))
    found = measure(script.entries, one_price)
    assert found.hit_rate == pytest.approx(3_900 / 5_000)
    assert (found.background_calls, found.background_usd) == (1, 0.25)
    assert found.background_share == pytest.approx(0.25)
    assert found.calls == 3


@pytest.mark.requirement("B7")
def test_a_recording_without_recorded_calls_is_measured_by_what_its_replies_report() -> None:
    script = Script()
    script.user("go")
    for piece in ("one", "two"):  # two pieces of the same reply are one call
        script.reply(text(piece), id="m1", usage={"input_tokens": 10, "cache_read_input_tokens": 30})
    found = measure(script.entries, no_price)
    assert (found.calls, found.hit_rate) == (1, 0.75)


def compacted(script: Script, summary: str) -> str:
    """Let everything so far become a summary."""
    return script.decide(
        Compacted(Cause("compact", "full", moves_prefix=True), "auto", "notes", summary, 1_000, None, None)
    )


@pytest.mark.requirement("B7")
def test_facts_kept_are_weighted_by_use_and_looked_for_literally() -> None:
    script = Script()
    script.user("Mend src/harbour/berths.py please, not src/harbour/tides.py")
    script.reply(text("Reading src/harbour/berths.py"), call("t1", file_path="src/harbour/berths.py"))
    script.result("t1", "ok")
    compacted(script, "Work on src/harbour/berths.py goes on.")
    found = measure(script.entries, no_price)
    assert found.compactions == 1
    assert (found.facts.used, found.facts.kept) == (4, 3)
    assert found.facts.per_1000_tokens is not None
    worse = Script()
    worse.user("Mend src/harbour/berths.py please, not src/harbour/tides.py")
    compacted(worse, "Work on some files goes on.")
    assert measure(worse.entries, no_price).facts.kept == 0


@pytest.mark.requirement("B7")
def test_compactions_that_another_program_made_are_counted_apart() -> None:
    script = Script()
    script.user("Mend src/harbour/berths.py please, not src/harbour/tides.py")
    compacted(script, "Work on some files goes on.")
    entries = marked_imported(script.entries, "s")
    script.user("Mend src/harbour/locks.py now")
    compacted(script, "Work on src/harbour/locks.py goes on.")
    found = measure([*entries, *script.entries[len(entries) :]], no_price)
    assert (found.compactions, found.imported) == (2, 1)


@pytest.mark.requirement("B7")
def test_undone_and_failed_compactions_and_openings_of_the_breaker_are_counted() -> None:
    script = Script()
    script.user("go")
    made = compacted(script, "So far.")
    script.decide(CompactionUndone(Cause("compact", "asked"), made))
    for _ in range(7):
        script.decide(CompactionFailed(Cause("compact", "no reply"), "no reply"))
    found = measure(script.entries, no_price)
    assert (found.compactions, found.undone, found.failed, found.breaker_openings) == (1, 1, 7, 2)
    assert measure(script.entries, no_price, failures_open=8).breaker_openings == 0


@pytest.mark.requirement("B7")
def test_a_memory_that_nothing_takes_up_pollutes() -> None:
    script = Script()
    script.user("How do we deploy?")
    shown = Cause("recall", "looks right")
    script.decide(MemoriesSurfaced(shown, ["deploy.md"], "Deploy with scripts/ship_it.sh"))
    script.decide(MemoriesSurfaced(shown, ["lunch.md", "tea.md"], "The menu is in docs/lunch_menu.md"))
    script.reply(text("Running scripts/ship_it.sh now."))
    found = measure(script.entries, no_price).pollution
    assert (found.surfaced, found.unused) == (3, 2)


@pytest.mark.requirement("B7", "W6")
def test_a_memory_that_is_shown_again_after_it_left_the_view_counts_once() -> None:
    script = Script()
    script.user("How do we deploy?")
    for _ in range(2):
        script.decide(MemoriesSurfaced(Cause("recall", "fits"), ["deploy.md"], "Deploy with scripts/ship_it.sh"))
    found = measure(script.entries, no_price).pollution
    assert (found.surfaced, found.unused) == (1, 1)
    script.reply(text("Running scripts/ship_it.sh now."))
    found = measure(script.entries, no_price).pollution
    assert (found.surfaced, found.unused) == (1, 0)


def test_what_was_said_before_a_memory_does_not_count_as_its_use() -> None:
    script = Script()
    script.user("Run scripts/ship_it.sh")
    script.decide(MemoriesSurfaced(Cause("recall", "looks right"), ["deploy.md"], "Deploy with scripts/ship_it.sh"))
    script.reply(text("Running scripts/ship_it.sh now."))
    assert measure(script.entries, no_price).pollution.rate == 1.0


def test_sums_add_up() -> None:
    script = Script()
    script.user("Look at src/a.py")
    compacted(script, "src/a.py")
    one = measure(script.entries, no_price)
    two = total_of([one, one])
    assert (two.sessions, two.compactions, two.facts.used) == (2, 2, 2 * one.facts.used)
    assert two.compactions_per_session == one.compactions_per_session
