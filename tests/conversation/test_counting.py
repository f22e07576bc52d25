"""The count before the next request: the last bill plus an estimate of later content, each reply counted once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.tokens import counting
from reverie.conversation.tokens.counting import BilledTokens, TokenCount, billed_tokens, padded
from reverie.conversation.tokens.estimate import NOTHING, estimate_message, measure_message, measure_messages
from reverie.conversation.tokens.learning import Estimator

Said = tuple[dict[str, Any], dict[str, Any] | None]
WORDS = "some words that stand for a result of a tool, with a path/to/file.py and a number 42; "


def user(text: str) -> Said:
    return {"role": "user", "content": text}, None


def result(id: str, text: str) -> Said:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}, None


def piece(id: str, text: str, billed: int, output: int = 1) -> Said:
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 7, "cache_read_input_tokens": billed - 10}
    reply = {"id": id, "model": "claude-x", "usage": {**usage, "output_tokens": output}}
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}, reply


def fold(said: Sequence[Said], counted: TokenCount | None = None) -> TokenCount:
    counted = counted or TokenCount(model="claude-x")
    for message, reply in said:
        counted = (
            counted.after_measure(measure_message(message)) if reply is None else counted.after_reply(message, reply)
        )
    return counted


def count(
    said: Sequence[Said],
    *,
    model: str = "",
    estimator: Estimator | None = None,
) -> int:
    """Count the next request in one pass over all messages: the slow and separate definition of the running count.

    A reply with several tool calls may be stored as pieces that share an id and repeat its usage, with results in
    between: walk back to the first of them; everything from there on is estimated, the reply's own pieces against
    its reported output.
    """
    correction = (estimator or Estimator()).correction(model)
    usages = [billed_tokens(reply) for _, reply in said]
    last = next((at for at in reversed(range(len(said))) if usages[at]), None)
    if last is None:
        return ceil(correction.tokens(measure_messages(message for message, _ in said)))
    id, first = counting._id(said[last][1]), last
    for at in reversed(range(last)):
        if usages[at] is not None:
            if not id or counting._id(said[at][1]) != id:
                break
            first = at
    own, rest, output, billed = NOTHING, NOTHING, 0, 0
    for at in range(first, len(said)):
        message, reply = said[at]
        if at == first or (id and counting._id(reply) == id):
            own += measure_message(message)
            usage = usages[at] or BilledTokens(0, 0)
            output, billed = max(output, usage.output_tokens), billed or usage.input_tokens
        else:
            rest += measure_message(message)
    return ceil(billed + counting._reply_tokens(output, correction.tokens(own)) + correction.tokens(rest))


def turns() -> st.SearchStrategy[list[Said]]:
    text = st.text("abc XYZ 01.\n", max_size=80)
    ids = st.sampled_from(["m1", "m2", "m3", ""])
    replies = st.builds(piece, ids, text, st.integers(11, 200_000), st.integers(0, 500))
    bare = st.builds(
        lambda id, text: ({"role": "assistant", "content": text}, {"id": id, "model": "claude-x"}), ids, text
    )
    return st.lists(st.builds(user, text) | st.builds(result, ids, text) | replies | bare, max_size=14)


def check_running_count(run: Callable[[Sequence[Said]], TokenCount], said: Sequence[Said]) -> None:
    counted = run(said)
    assert counted.tokens == count(said, model="claude-x", estimator=counted.estimator)


@pytest.mark.requirement("T1", "K5")
@given(turns())
def test_the_running_count_is_the_count_over_the_whole_list(said: list[Said]) -> None:
    check_running_count(fold, said)


@pytest.mark.requirement("T1")
def test_the_running_check_catches_a_count_that_forgets_pieces() -> None:
    said = [user("go"), piece("m1", WORDS * 9, 1_000), result("a", WORDS * 30), piece("m1", WORDS * 9, 1_000)]
    with pytest.raises(AssertionError):
        check_running_count(lambda said: fold([said[0], said[-1]]), said)


@pytest.mark.requirement("T1")
def test_a_reply_in_pieces_with_results_between_is_billed_once_and_all_after_its_first_piece_is_counted() -> None:
    pieces = [piece("m1", WORDS, 50_000), result("a", WORDS * 40), piece("m1", WORDS, 50_000), result("b", WORDS * 40)]
    expected = 50_000 + sum(estimate_message(message) for message, _ in pieces)
    for counted in (count([user("go"), *pieces], model="claude-x"), fold([user("go"), *pieces]).tokens):
        assert counted == pytest.approx(expected, abs=5)


@pytest.mark.requirement("T1")
def test_a_finished_output_count_is_believed_and_that_of_a_streams_start_is_not() -> None:
    estimated = estimate_message(piece("m1", WORDS * 20, 50_000)[0])
    assert fold([piece("m1", WORDS * 20, 50_000, output=1)]).tokens == pytest.approx(50_000 + estimated, abs=1)
    assert fold([piece("m1", WORDS * 20, 50_000, output=estimated + 70)]).tokens == 50_000 + estimated + 70
    late = [piece("m1", WORDS * 20, 50_000, output=2), piece("m1", "", 50_000, output=estimated + 70)]
    assert fold(late).tokens == 50_000 + estimated + 70


@pytest.mark.requirement("T1")
def test_a_reply_without_usage_is_estimated_after_the_last_one_that_has_it() -> None:
    synthetic: Said = ({"role": "assistant", "content": "interrupted"}, {"id": "s", "usage": {"input_tokens": 0}})
    said = [user("go"), piece("m1", "done", 9_000), synthetic, user("more")]
    assert 9_000 < count(said) < 9_100
    assert billed_tokens(synthetic[1]) is None
    assert billed_tokens({"usage": {"prompt_tokens": 12, "completion_tokens": 3}}) == BilledTokens(12, 3)
    assert billed_tokens({"usage": ["odd"]}) is None
    assert billed_tokens({"usage": {"input_tokens": "12", "output_tokens": True}}) is None


@pytest.mark.requirement("T2")
def test_only_a_count_that_rests_on_no_usage_is_padded_for_thresholds() -> None:
    before = fold([user(WORDS * 100)])
    after = fold([user(WORDS * 100), piece("m1", "done", 4_000)])
    assert before.threshold_tokens == pytest.approx(padded(before.tokens), abs=2)
    assert padded(300) == 400
    assert after.threshold_tokens == after.tokens


@pytest.mark.requirement("T1")
def test_after_a_cut_the_overhead_seen_before_stays_and_the_old_bill_does_not() -> None:
    first = [user(WORDS * 10), piece("m1", "done", 30_000)]
    overhead = 30_000 - estimate_message(first[0][0])
    counted = fold([*first, user(WORDS * 900), piece("m2", "more", 60_000)])
    kept = [{"role": "user", "content": WORDS * 20}]
    cut = counted.after_cut(measure_messages(kept))
    assert not cut.known
    assert cut.tokens == pytest.approx(overhead + estimate_message(kept[0]), rel=0.01)
    assert cut.threshold_tokens < overhead + 2 * estimate_message(kept[0])


@pytest.mark.requirement("T1")
def test_what_a_decision_freed_is_taken_off_until_the_next_reply_reports() -> None:
    counted = fold([user("go"), piece("m1", "done", 50_000)])
    assert counted.freed(20_000).tokens == pytest.approx(counted.tokens - 20_000, abs=1)
    assert counted.freed(10**9).tokens == 0
    told = fold([piece("m2", "next", 31_000)], counted.freed(20_000))
    assert told.tokens == pytest.approx(31_000, abs=50)
    assert told.estimator == counted.estimator


def clearing_provider(*, is_blind: bool) -> tuple[TokenCount, int]:
    """Return the count after a session in which the provider clears 30,000 tokens half-way, and the true raw size."""
    said: list[Said] = [user("go")]
    raw = 40_000
    for turn in range(12):
        cleared = 30_000 if turn >= 6 else 0
        message, reply = piece(f"m{turn}", WORDS, raw - cleared)
        assert reply is not None
        edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": cleared}]
        report = {} if is_blind else {"context_management": {"applied_edits": edits if cleared else []}}
        said += [(message, {**reply, **report}), result("t", WORDS * 20)]
        raw += round(sum(estimate_message(message) for message, _ in said[-2:]) * 1.3)
    return fold(said), raw


@pytest.mark.requirement("L2.4", "T1")
def test_a_provider_that_clears_bills_less_than_was_sent_and_both_sizes_are_known() -> None:
    counted, raw = clearing_provider(is_blind=False)
    assert counted.cleared_tokens == 30_000
    assert counted.raw_tokens - counted.tokens == 30_000
    assert counted.raw_tokens == pytest.approx(raw, rel=0.01)
    assert counted.estimator.correction("claude-x").replies == 11
    assert counted.after_cut().cleared_tokens == 0
    blind, _ = clearing_provider(is_blind=True)
    assert blind.raw_tokens < raw - 25_000


@pytest.mark.requirement("T1", "T2")
def test_it_learns_as_it_counts() -> None:
    said: list[Said] = [user("go")]
    billed, grown = 10_000, 0
    for turn in range(12):
        said += [piece(f"m{turn}", WORDS, billed), result("t", WORDS * (20 + turn))]
        grown = sum(estimate_message(message) for message, _ in said[-2:]) * 1.3
        billed += round(grown)
    taught = fold(said)
    untaught = count(said, model="claude-x")
    assert abs(taught.tokens - billed) < 0.05 * grown < abs(untaught - billed)
    assert taught.estimator.correction("claude-x").replies == 11


@pytest.mark.requirement("T1", "T2")
@pytest.mark.slow
def test_recorded_sessions_come_out_within_the_promised_errors(corpus: Path) -> None:
    folder = str(Path(__file__).resolve().parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import estimator
    finally:
        sys.path.remove(folder)
    targets = estimator.run(corpus)["targets"]
    assert set(targets) == set(estimator.TARGETS)
    assert all(target["met"] for target in targets.values()), targets
