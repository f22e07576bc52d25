"""Every drop in recorded cache reads has a reason that fits the billed tokens and times."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from reverie.cache.prices import Prices
from reverie.cache.usage import Usage
from reverie.cache.watch import REMOVED, RESTARTED, REWRITTEN, UNSEEN
from reverie.conversation.decisions import Cause, Compacted, PrefixRendered, body_of
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, iso
from reverie.importers import read_session
from reverie.replay.drops import CacheDrop, drops
from reverie.replay.recording import BlockSizes, RecordedRequest, Recording, recording_of
from reverie.replay.run import billed_outcome
from reverie.values import replace

START = 1_763_208_000.0


def entry(kind: str, at: float) -> Entry:
    body = {"message": {"role": "user" if kind == USER else ASSISTANT, "content": "x"}}
    return Entry(f"{kind}{at}", None, iso(START + at), "s", kind, body)


def step(
    number: int, at: float, billed: Usage | None, *decided: Entry, removed: bool = False, model: str = "m"
) -> RecordedRequest:
    return RecordedRequest(
        number, START + at, (*decided, entry(USER, at)), (entry(ASSISTANT, at),), model, 10, billed, removed
    )


def recorded(*steps: RecordedRequest) -> Recording:
    return Recording("r", "s", "test", "", "m", steps, BlockSizes(), (0,), True, True)


def compacted() -> Entry:
    decision = Compacted(Cause("compact", "recorded"), "auto", "recorded", "s", 1, None, None)
    return Entry("c", None, iso(START), "s", DECISION, body_of(decision))


def rendered(tool: str) -> Entry:
    tools = [{"name": tool, "input_schema": {"type": "object"}}]
    return Entry(
        f"p{tool}", None, iso(START), "s", DECISION, body_of(PrefixRendered(Cause("request", "x"), "m", None, tools))
    )


def only(recording: Recording) -> CacheDrop:
    found = drops(recording)
    assert len(found) == 1
    return found[0]


FIRST = Usage(read=10_000, write_5m=90_000)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (step(1, 400, Usage(write_5m=101_000)), "idle over 5 min"),
        (step(1, 400, Usage(read=10_000, write_5m=91_000)), "idle over 5 min"),
        (step(1, 4_000, Usage(write_5m=101_000)), "idle over 1 h"),
        (step(1, 4_000, Usage(write_5m=70_000), removed=True), "idle over 1 h"),
        (step(1, 9, Usage(read=10_000, write_5m=60_000), removed=True), REMOVED),
        (step(1, 9, Usage(read=10_000, write_5m=60_000)), REMOVED),
        (step(1, 9, Usage(read=10_000, write_5m=91_000)), "server"),
        (step(1, 9, Usage(write_5m=101_000)), UNSEEN),
        (step(1, 9, Usage(uncached=101_000)), "server"),
        (step(1, 9, Usage(write_5m=101_000), model="other"), "model changed"),
    ],
)
def test_a_drop_gets_the_reason_that_fits_what_was_billed(second: RecordedRequest, reason: str) -> None:
    found = only(recorded(step(0, 0, FIRST), second))
    assert (found.reason, found.registered, found.number, found.expected) == (reason, False, 1, 100_000)


@pytest.mark.requirement("C5")
def test_a_recorded_compaction_is_a_registered_drop_and_loses_no_money() -> None:
    found = only(recorded(step(0, 0, FIRST), step(1, 9, Usage(read=10_000, write_5m=9_000), compacted())))
    assert (found.reason, found.registered, found.usd) == ("compaction (registered)", True, None)


def test_an_end_that_was_rewritten_still_reads_all_that_is_older() -> None:
    steps = (
        step(0, 0, Usage(write_5m=50_000)),
        step(1, 9, Usage(read=50_000, write_5m=30_000)),
        step(2, 18, Usage(read=50_000, write_5m=31_000)),
    )
    assert only(recorded(*steps)).reason == REWRITTEN


@pytest.mark.requirement("C4")
def test_a_log_of_our_own_names_the_tool_that_changed() -> None:
    steps = (step(0, 0, FIRST, rendered("Read")), step(1, 9, Usage(write_5m=101_000), rendered("Write")))
    assert only(recorded(*steps)).reason in ("tools[0] added", "tools[0] removed")


def test_steps_without_a_bill_and_small_falls_are_no_drops() -> None:
    steps = (step(0, 0, FIRST), step(1, 9, None), step(2, 18, Usage(read=98_500, write_5m=3_000)))
    assert drops(recorded(*steps)) == []


def test_the_price_of_a_drop_is_known_where_the_model_is() -> None:
    steps = [step(number, 400 * number, Usage(write_5m=100_000), model="claude-sonnet-4-5") for number in range(2)]
    found = only(recorded(*steps))
    assert found.usd is not None
    assert found.usd > 0
    assert only(recorded(step(0, 0, FIRST), step(1, 400, Usage(write_5m=100_000)))).usd is None


@pytest.mark.requirement("U5")
def test_a_bill_at_the_prices_of_another_model_has_its_breaks_at_the_same_prices() -> None:
    steps = [step(number, 400 * number, Usage(write_5m=100_000), model="claude-sonnet-4-5") for number in range(2)]
    other = Prices(input=7.0, output=9.0, cache_read=1.0, cache_write_5m=8.0, cache_write_1h=14.0)
    outcome = billed_outcome(recorded(*steps), other)
    assert outcome is not None
    assert [one.usd for one in outcome.breaks] == [pytest.approx(0.1 * (8.0 - 1.0))]
    own = only(recorded(*steps)).usd
    assert own is not None
    assert own != pytest.approx(outcome.breaks[0].usd)


@pytest.mark.requirement("C4", "C5")
def test_every_drop_of_the_corpus_has_a_reason(corpus: Path) -> None:
    files = sorted((corpus / "claude-code").glob("*.jsonl"))
    if not files:
        pytest.skip("no Claude Code sessions in this corpus")
    requests, found = 0, list[CacheDrop]()
    for file in files:
        for imported in read_session(file):
            recording = recording_of(imported, file.name)
            requests += len(recording.steps)
            billed = [one.billed for one in recording.steps if one.billed is not None]
            fallen = sum(
                later.read < 0.95 * (left := earlier.read + earlier.write_5m + earlier.write_1h)
                and left - later.read >= 2_000
                for earlier, later in pairwise(billed)
            )
            named = drops(recording)
            assert len(named) == fallen, file.name
            found += named
    assert requests
    assert all(one.reason for one in found)
    for one in found:
        assert (one.reason == "idle over 1 h") <= (one.idle_seconds >= 3_600)
        assert (one.reason == "idle over 5 min") <= (300 <= one.idle_seconds < 3_600)
        assert (one.reason == "server") <= (one.idle_seconds < 3_600)


def test_losses_of_the_whole_prefix_only_at_new_prompts_are_the_clients() -> None:
    """A server that loses the cache does so anywhere; losses spread over a query, or a single one, prove nothing."""
    lost, kept = Usage(write_5m=100_000), Usage(read=99_000, write_5m=1_000)

    def reasons(losses: set[int], prompts: set[int]) -> set[str]:
        result = Entry(
            "r",
            None,
            iso(START),
            "s",
            USER,
            {"message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}},
        )
        steps = [step(number, 9.0 * number, lost if number in losses else kept) for number in range(40)]
        loops = [one if one.number in prompts else replace(one, entries=(result,)) for one in steps]
        return {one.reason for one in drops(recorded(*loops))}

    prompts = {0, 8, 16, 24, 32}
    assert reasons({8, 24}, prompts) == {RESTARTED}
    assert reasons({8, 20, 28, 36}, prompts) == {UNSEEN}
    assert reasons({8}, set(range(0, 40, 2))) == {UNSEEN}
    assert reasons({8, 16, 24, 27}, prompts) == {RESTARTED, UNSEEN}


def test_a_new_level_of_thinking_is_the_cause_of_the_loss_after_it() -> None:
    first, second = step(0, 0, FIRST), step(1, 9, Usage(write_5m=101_000))
    changed = replace(
        second, reply=(replace(second.reply[0], body={**second.reply[0].body, "reply": {"thinking_level": "high"}}),)
    )
    assert only(recorded(first, changed)).reason == "options.thinking added"
