"""A provider's cache, rule by rule, by hand and against a twin that stores every prefix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.cache.simulator import CacheRules, CacheSimulator, Mark, SimBlock, positions
from reverie.cache.usage import Usage
from reverie.errors import InputError
from reverie.replay.play import SimulatedProvider

MODEL = "claude-sonnet-4-5"


def blocks(names: str, tokens: int = 1000) -> list[SimBlock]:
    return [SimBlock(name.encode(), tokens) for name in names]


def numbered(count: int, tokens: int = 1000) -> list[SimBlock]:
    return [SimBlock(str(index).encode(), tokens) for index in range(count)]


class Provider:
    """A simulator with a clock, to write examples in few words."""

    def __init__(self, rules: CacheRules | None = None) -> None:
        self.cache = CacheSimulator(rules)
        self.now = 0.0

    def send(self, names: Sequence[SimBlock] | str, *marks: Mark | int, model: str = MODEL, **more: Any) -> Usage:
        given = blocks(names) if isinstance(names, str) else names
        placed = [Mark(mark) if isinstance(mark, int) else mark for mark in marks]
        return self.cache.request(given, placed, model=model, now=self.now, **more)


def test_without_breakpoints_nothing_is_cached() -> None:
    provider = Provider()
    for _ in range(2):
        assert provider.send("abc") == Usage(uncached=3000)


def test_the_first_request_writes_to_the_last_breakpoint_and_the_second_reads() -> None:
    provider = Provider()
    assert provider.send("abcd", 2) == Usage(write_5m=3000, uncached=1000)
    assert provider.send("abcd", 2) == Usage(read=3000, uncached=1000)


def test_a_growing_conversation_reads_what_it_wrote_and_writes_what_is_new() -> None:
    provider = Provider()
    provider.send("ab", 1)
    assert provider.send("abcd", 3) == Usage(read=2000, write_5m=2000)
    assert provider.send("abcdef", 4) == Usage(read=4000, write_5m=1000, uncached=1000)


def test_entries_are_written_at_breakpoints_only() -> None:
    provider = Provider()
    provider.send("abcd", 3)
    assert provider.send("abcx", 2) == Usage(write_5m=3000, uncached=1000)


def test_an_edit_before_the_breakpoint_loses_all_of_it() -> None:
    provider = Provider()
    provider.send("abcd", 3)
    assert provider.send("xbcd", 3) == Usage(write_5m=4000)


def test_tools_come_first_so_that_changing_one_loses_the_system_prompt_and_messages_too() -> None:
    provider = Provider()
    provider.send(blocks("TSm", 2000), 0, 1, 2)
    assert provider.send(blocks("tSm", 2000), 0, 1, 2) == Usage(write_5m=6000)
    assert provider.send(blocks("Tsm", 2000), 0, 1, 2) == Usage(read=2000, write_5m=4000)


def test_a_cache_belongs_to_one_model() -> None:
    provider = Provider()
    provider.send("ab", 1)
    assert provider.send("ab", 1, model="claude-sonnet-5") == Usage(write_5m=2000)
    assert provider.send("ab", 1) == Usage(read=2000)


@pytest.mark.parametrize(("ttl", "seconds"), [("5m", 300.0), ("1h", 3600.0)])
def test_an_entry_is_gone_at_the_end_of_its_lifetime(ttl: str, seconds: float) -> None:
    for age, read in ((seconds - 0.001, 2000), (seconds, 0)):
        provider = Provider()
        provider.send("ab", Mark(1, ttl))
        provider.now = age
        assert provider.send("ab", Mark(1, ttl)).read == read


def test_a_read_starts_the_lifetime_anew() -> None:
    provider = Provider()
    provider.send("ab", 1)
    for provider.now in (299.0, 598.0, 897.0):
        assert provider.send("ab", 1).read == 2000
    provider.now = 1197.0
    assert provider.send("ab", 1).read == 0


def test_a_read_keeps_alive_the_entries_within_the_prefix_each_by_its_own_lifetime() -> None:
    provider = Provider()
    provider.send(blocks("abc", 2000), Mark(0, "1h"), Mark(1), Mark(2))
    provider.now = 200.0
    assert provider.send(blocks("abc", 2000), 2).read == 6000
    provider.now = 499.0
    assert provider.send(blocks("abx", 2000), 1).read == 4000
    provider.now = 4098.0
    assert provider.send(blocks("ay", 2000), 0).read == 2000


def test_a_read_of_a_short_prefix_does_not_keep_a_longer_one() -> None:
    provider = Provider()
    provider.send("abc", 1, 2)
    provider.now = 200.0
    assert provider.send("abx", 1).read == 2000
    provider.now = 301.0
    assert provider.send("abc", 1, 2) == Usage(read=2000, write_5m=1000)


def test_a_request_that_is_not_read_keeps_nothing() -> None:
    provider = Provider()
    provider.send("ab", 1)
    provider.now = 200.0
    provider.send("abc")
    provider.now = 300.0
    assert provider.send("ab", 1).read == 0


def test_the_look_back_reaches_twenty_positions_the_breakpoint_counted_first() -> None:
    for count, read in ((10 + 19, 10_000), (10 + 20, 0)):
        provider = Provider()
        provider.send(numbered(10), 9)
        assert provider.send(numbered(count), count - 1).read == read


def test_a_second_breakpoint_extends_the_look_back() -> None:
    provider = Provider()
    provider.send(numbered(10), 9)
    assert provider.send(numbered(40), 20, 39) == Usage(read=10_000, write_5m=30_000)


def test_the_longest_prefix_found_is_read() -> None:
    provider = Provider()
    provider.send("abcd", 0, 1, 3)
    assert provider.send("abcde", 0, 1, 4) == Usage(read=4000, write_5m=1000)


def test_a_prefix_below_the_minimum_is_not_cached_and_says_nothing() -> None:
    provider = Provider()
    short = [SimBlock(b"a", 1023)]
    enough = [SimBlock(b"b", 1024)]
    assert provider.send(short, 0) == provider.send(short, 0) == Usage(uncached=1023)
    assert provider.send(enough, 0) == Usage(write_5m=1024)
    assert provider.send(enough, 0) == Usage(read=1024)


def test_the_minimum_counts_the_whole_prefix_not_the_block() -> None:
    provider = Provider()
    assert provider.send(numbered(11, 100), 5, 10) == Usage(write_5m=1100)
    assert provider.send(numbered(11, 100)[:6], 5) == Usage(uncached=600)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512),
        ("claude-opus-5-5", 512),
        ("claude-sonnet-5-5", 512),
        ("claude-haiku-5-5", 512),
        ("claude-fable-5-2", 512),
        ("claude-3-5-haiku-latest", 2048),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-4-5-20250929", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-5-20251101", 4096),
        ("claude-haiku-4-5", 4096),
        ("some-other-model", 1024),
    ],
)
def test_the_minimum_depends_on_the_model(model: str, minimum: int) -> None:
    provider = Provider()
    assert provider.send([SimBlock(b"a", minimum - 1)], 0, model=model).write == 0
    assert provider.send([SimBlock(b"a", minimum)], 0, model=model).write == minimum


def test_mixed_lifetimes_are_billed_long_up_to_the_last_long_mark_and_short_after_it() -> None:
    provider = Provider()
    marks = (Mark(0, "1h"), Mark(1, "1h"), Mark(3, "5m"))
    assert provider.send("abcde", *marks) == Usage(write_1h=2000, write_5m=2000, uncached=1000)
    provider.now = 400.0
    assert provider.send("abcde", *marks) == Usage(read=2000, write_5m=2000, uncached=1000)
    provider.now = 500.0
    assert provider.send("abcde", *marks) == Usage(read=4000, uncached=1000)


def test_a_long_mark_on_a_prefix_already_read_costs_nothing_and_changes_no_lifetime() -> None:
    provider = Provider()
    provider.send("ab", Mark(1, "5m"))
    assert provider.send("ab", Mark(1, "1h")) == Usage(read=2000)
    provider.now = 300.0
    assert provider.send("ab", Mark(1, "1h")) == Usage(write_1h=2000)


def test_an_entry_is_readable_once_the_reply_that_wrote_it_streams() -> None:
    provider = Provider()
    assert provider.send("ab", 1, readable_at=2.0) == Usage(write_5m=2000)
    provider.now = 1.0
    assert provider.send("ab", 1, readable_at=3.0) == Usage(write_5m=2000)
    provider.now = 2.0
    assert provider.send("ab", 1) == Usage(read=2000)


def test_a_request_given_without_its_start_is_readable_once_told() -> None:
    cache = CacheSimulator()
    given, how = blocks("ab"), dict[str, Any](model=MODEL, now=0.0)
    cache.request(given, [Mark(1)], readable_at=math.inf, **how)
    assert cache.request(given, [Mark(1)], readable_at=math.inf, **how).read == 0
    cache.streaming_began(cache.chain(block.digest for block in given), [Mark(1)], model=MODEL, at=0.0)
    assert cache.request(given, [Mark(1)], **how).read == 2000


def test_a_request_with_no_blocks_costs_nothing() -> None:
    assert Provider().send("") == Usage()


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ([Mark(index) for index in range(5)], "at most 4"),
        ([Mark(9)], "count blocks from 0"),
        ([Mark(-1)], "count blocks from 0"),
        ([Mark(0, "2h")], "use 5m or 1h"),
        ([Mark(0, "5m"), Mark(1, "1h")], "longer lifetimes first"),
    ],
)
def test_marks_a_provider_refuses_are_refused_with_advice(marks: list[Mark], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Provider().send("abcdef", *marks)


class Twin:
    """The same rules the slow way: whole prefixes in a list, no hashes, no early exits."""

    def __init__(self, look_back: int, minimum: int) -> None:
        self.look_back = look_back
        self.minimum = minimum
        self.held: list[dict[str, Any]] = []

    def send(
        self, given: list[SimBlock], marks: list[Mark], *, model: str, now: float, readable_at: float
    ) -> tuple[int, int, int, int]:
        names = [block.digest for block in given]
        totals = list(accumulate(block.tokens for block in given))

        def live(entry: dict[str, Any]) -> bool:
            return entry["model"] == model and entry["readable"] <= now < entry["dies"]

        reach = {
            position
            for mark in marks
            for position in range(mark.index + 1)
            if mark.index - position < self.look_back
            for entry in self.held
            if live(entry) and entry["prefix"] == names[: position + 1]
        }
        hit = max(reach, default=-1)
        for entry in self.held:
            if live(entry) and len(entry["prefix"]) <= hit + 1 and entry["prefix"] == names[: len(entry["prefix"])]:
                entry["dies"] = max(entry["dies"], now + entry["ttl"])
        written = [mark for mark in marks if mark.index > hit and totals[mark.index] >= self.minimum]
        for mark in written:
            ttl = {"5m": 300.0, "1h": 3600.0}[mark.ttl]
            prefix = names[: mark.index + 1]
            same = [
                entry
                for entry in self.held
                if entry["model"] == model and entry["prefix"] == prefix and now < entry["dies"]
            ]
            for entry in same:
                ttl, readable_at = max(ttl, entry["ttl"]), min(readable_at, entry["readable"])
            self.held = [entry for entry in self.held if entry["prefix"] != prefix or entry["model"] != model]
            dies = max([now + {"5m": 300.0, "1h": 3600.0}[mark.ttl], *[entry["dies"] for entry in same]])
            self.held.append({"model": model, "prefix": prefix, "ttl": ttl, "dies": dies, "readable": readable_at})
        read = sum(block.tokens for block in given[: hit + 1])
        last_long = max([mark.index for mark in written if mark.ttl == "1h"], default=hit)
        last = max([mark.index for mark in written], default=hit)
        return (
            read,
            sum(block.tokens for block in given[last_long + 1 : last + 1]),
            sum(block.tokens for block in given[hit + 1 : last_long + 1]),
            sum(block.tokens for block in given[last + 1 :]),
        )


@st.composite
def traffic(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw requests that mostly extend, sometimes edit or cut, what was sent before."""
    now, said, sent = 0.0, list[str](), list[dict[str, Any]]()
    for _ in range(draw(st.integers(1, 12))):
        act = draw(st.sampled_from(["extend", "extend", "extend", "repeat", "cut", "edit"]))
        if act == "extend" or not said:
            said = said + draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
        elif act == "cut":
            said = said[: draw(st.integers(0, len(said)))]
        elif act == "edit":
            place = draw(st.integers(0, len(said) - 1))
            said = [*said[:place], draw(st.sampled_from("xyz")), *said[place + 1 :]]
        indexes = draw(st.sets(st.integers(0, len(said) - 1), max_size=4)) if said else set[int]()
        long_until = draw(st.integers(0, 4))
        marks = [Mark(index, "1h" if rank < long_until else "5m") for rank, index in enumerate(sorted(indexes))]
        now += draw(st.sampled_from([0.0, 1.0, 100.0, 299.0, 300.0, 301.0, 3599.0, 3600.0]))
        wait = draw(st.sampled_from([0.0, 0.0, 0.0, 2.0]))
        model = draw(st.sampled_from([MODEL, MODEL, MODEL, "claude-sonnet-5"]))
        sent.append({"said": said, "marks": marks, "now": now, "readable_at": now + wait, "model": model})
    return sent


TOKENS = {"a": 100, "b": 700, "c": 1500, "x": 100, "y": 700, "z": 1500}


def disagreement(simulator: CacheSimulator, twin: Twin, sent: list[dict[str, Any]]) -> str | None:
    for item in sent:
        given = [SimBlock(name.encode(), TOKENS[name]) for name in item["said"]]
        how = {"model": item["model"], "now": item["now"], "readable_at": item["readable_at"]}
        usage = simulator.request(given, item["marks"], **how)
        assert usage.input == sum(block.tokens for block in given)
        expected = twin.send(given, item["marks"], **how)
        if (usage.read, usage.write_5m, usage.write_1h, usage.uncached) != expected:
            return f"{item}: {usage} is not {expected}"
    return None


@pytest.mark.requirement("C8")
@given(traffic())
@settings(max_examples=400)
@pytest.mark.slow
def test_the_simulator_agrees_with_a_twin_that_keeps_every_prefix_whole(sent: list[dict[str, Any]]) -> None:
    assert disagreement(CacheSimulator(CacheRules(look_back_positions=5)), Twin(5, 1024), sent) is None


@pytest.mark.requirement("C8")
@pytest.mark.parametrize(("look_back", "minimum"), [(6, 1024), (5, 1000)])
def test_a_twin_with_one_rule_wrong_is_caught(look_back: int, minimum: int) -> None:
    sent = [
        {"said": list(said), "marks": [Mark(len(said) - 1)], "now": 0.0, "readable_at": 0.0, "model": MODEL}
        for said in ("c", "caaaaa", "aaaaaaaaaa", "aaaaaaaaaa")
    ]
    assert disagreement(CacheSimulator(CacheRules(look_back_positions=5)), Twin(5, 1024), sent) is None
    assert disagreement(CacheSimulator(CacheRules(look_back_positions=5)), Twin(look_back, minimum), sent) is not None


@pytest.mark.requirement("C8")
@given(traffic())
@settings(max_examples=100)
@pytest.mark.slow
def test_requests_given_as_chained_digests_are_billed_the_same(sent: list[dict[str, Any]]) -> None:
    plain, chained = CacheSimulator(), CacheSimulator()
    for item in sent:
        given = [SimBlock(name.encode(), TOKENS[name]) for name in item["said"]]
        how = {"model": item["model"], "now": item["now"], "readable_at": item["readable_at"]}
        half = len(given) // 2
        head = chained.chain(block.digest for block in given[:half])
        tail = chained.chain((block.digest for block in given[half:]), after=head[-1] if head else b"")
        totals = list(accumulate(block.tokens for block in given))
        assert chained.request_chained(head + tail, totals, item["marks"], **how) == plain.request(
            given, item["marks"], **how
        )


def test_expired_entries_are_forgotten_and_live_ones_are_not() -> None:
    cache = CacheSimulator()
    big = 5000
    for index in range(big):
        cache.request([SimBlock(str(index).encode(), 2000)], [Mark(0)], model=MODEL, now=float(index))
    found = cache.request([SimBlock(str(big - 1).encode(), 2000)], [Mark(0)], model=MODEL, now=float(big))
    assert found == Usage(read=2000)
    gone = cache.request([SimBlock(b"0", 2000)], [Mark(0)], model=MODEL, now=float(big))
    assert gone == Usage(write_5m=2000)


def test_the_cost_of_a_request_grows_with_its_blocks(steps_of: Callable[[Callable[[], object]], int]) -> None:
    def steps(blocks: int) -> int:
        cache = CacheSimulator()
        given = numbered(blocks, 600)
        chain = cache.chain(block.digest for block in given)
        totals = list(accumulate(block.tokens for block in given))
        marks = [Mark(1), Mark(blocks - 10), Mark(blocks - 1)]
        cache.request_chained(chain, totals, marks, model=MODEL, now=0.0)
        return steps_of(lambda: cache.request_chained(chain, totals, marks, model=MODEL, now=1.0))

    assert steps(2_000) < 15 * steps(200)


@pytest.mark.requirement("V15", "C8")
def test_a_run_of_calls_and_a_run_of_results_are_one_position_each() -> None:
    turn = [("text", 1), ("tool_use", 8), ("tool_result", 8)]
    kinds = [kind for _ in range(6) for kind, count in turn for _ in range(count)]
    assert positions(kinds)[-1] == 6 * 3 - 1
    typed = [SimBlock(str(at).encode(), 1000, kind) for at, kind in enumerate(kinds)]
    untyped = [SimBlock(block.digest, block.tokens) for block in typed]
    for sent, read in ((typed, 17_000), (untyped, 0)):
        provider = Provider()
        provider.send(sent[:17], 16)
        assert provider.send(sent, len(sent) - 1).read == read


@pytest.mark.requirement("V15", "C8")
@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, True),
        ({"output_config": {"effort": "high"}}, True),
        ({"output_config": {"effort": "low"}}, False),
        ({"thinking": {"type": "disabled"}}, True),
        ({"thinking": {"type": "adaptive"}}, False),
        ({"tool_choice": {"type": "auto"}}, True),
        ({"tool_choice": {"type": "none"}}, False),
        ({"max_tokens": 9, "temperature": 0.5}, True),
    ],
)
def test_effort_and_thinking_move_the_messages_and_explicit_defaults_do_not(
    changes: dict[str, Any], read: bool
) -> None:
    marked = {"type": "text", "text": "word " * 4_000, "cache_control": {"type": "ephemeral"}}
    request = {
        "model": "claude-opus-4-8",
        "system": [{**marked, "text": "rule " * 4_000}],
        "messages": [{"role": "user", "content": [marked]}],
    }
    provider = SimulatedProvider()
    provider.bill(request, 0.0)
    usage = provider.bill({**request, **changes}, 1.0)
    assert (usage["cache_creation_input_tokens"] == 0) is read
    assert usage["cache_read_input_tokens"] > 0  # tools and system prompt stay
