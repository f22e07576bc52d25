"""The watch detects every cache break, names its reason down to the block, and ignores announced breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixes import extends
from reverie.cache.prefix import Prefix
from reverie.cache.usage import Usage
from reverie.cache.watch import INERT_OPTIONS, CacheBreak, CacheWatch, changes, registered_by, restarts
from reverie.conversation.decisions import (
    CacheEdits,
    Cause,
    Compacted,
    PrefixRendered,
    ResultsCleared,
    ResultsKept,
    Unknown,
)
from reverie.conversation.wire.canonical import canonical

Request = dict[str, Any]
BASE = 1_700_000_000.0


def request() -> Request:
    tools = [
        {"name": name, "description": f"{name}s a file.", "input_schema": {"type": "object", "properties": {}}}
        for name in ("Read", "Write", "Edit", "Grep")
    ]
    said = [{"role": ("user", "assistant")[at % 2], "content": [{"type": "text", "text": f"{at}"}]} for at in range(20)]
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 8000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "system": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}],
        "tools": tools,
        "messages": said,
    }


def warm(first: Request | None = None, *, written: int = 100_000, ttl: str = "5m") -> CacheWatch:
    """Return a watch that has seen one call, which left so many tokens to be read."""
    used = Usage(write_5m=written) if ttl == "5m" else Usage(write_1h=written)
    return CacheWatch().before(first or request(), BASE).after(used, BASE + 2)[0]


def verdict(watch: CacheWatch, later: Request, *, read: int = 0, idle: float = 10.0, **given: Any) -> CacheBreak | None:
    diagnostics = given.pop("diagnostics", None)
    used = Usage(read=read, write_5m=100_000 - read)
    return watch.before(later, BASE + idle, **given).after(used, BASE + idle + 1, diagnostics)[1]


def changed(change: Callable[[Request], Any]) -> Request:
    later = copy.deepcopy(request())
    change(later)
    return later


def turn_keys(later: Request) -> None:
    later["tools"][0] = dict(reversed(later["tools"][0].items()))


CLIENT_CHANGES: dict[str, Callable[[Request], Any]] = {
    "tools[3].description changed": lambda later: later["tools"][3].update(description="Other."),
    "tools[1].input_schema changed": lambda later: later["tools"][1]["input_schema"].update(required=[]),
    "tools[0].strict changed": lambda later: later["tools"][0].update(strict=True),
    "tools[0] changed": turn_keys,
    "tools[2] added": lambda later: later["tools"].insert(2, {"name": "New", "input_schema": {"type": "object"}}),
    "tools[4] added": lambda later: later["tools"].append({"name": "New", "input_schema": {"type": "object"}}),
    "tools[2] removed": lambda later: later["tools"].pop(2),
    "tools[0] moved": lambda later: later["tools"].insert(0, later["tools"].pop(3)),
    "system[1] changed": lambda later: later["system"][1].update(text="Be long."),
    "system[1] removed": lambda later: later["system"].pop(),
    "system[2] added": lambda later: later["system"].append({"type": "text", "text": "Also this."}),
    "model changed": lambda later: later.update(model="claude-opus-4-5"),
    "options.thinking changed": lambda later: later["thinking"].update(budget_tokens=4000),
    "options.thinking removed": lambda later: later.pop("thinking"),
    "options.tool_choice added": lambda later: later.update(tool_choice={"type": "any"}),
    "messages[12].content[0] changed": lambda later: later["messages"][12]["content"][0].update(text="rewritten"),
    "messages[19].content[0] changed": lambda later: later["messages"][19]["content"][0].update(text="rewritten"),
    "messages[18] removed": lambda later: later.update(messages=later["messages"][:18]),
}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("reason", CLIENT_CHANGES)
def test_a_change_of_the_clients_is_named_to_the_block(reason: str) -> None:
    found = verdict(warm(), changed(CLIENT_CHANGES[reason]))
    assert found is not None
    assert (found.reason, found.tokens) == (reason, 100_000)
    assert found.changes == (reason,)


@pytest.mark.requirement("C4")
def test_the_first_change_in_the_providers_order_is_the_reason_and_all_are_listed() -> None:
    names = ["messages[12].content[0] changed", "options.thinking changed", "system[1] changed", "model changed"]

    def all_of_them(later: Request) -> None:
        for name in names:
            CLIENT_CHANGES[name](later)

    found = verdict(warm(), changed(all_of_them))
    assert found is not None
    assert found.reason == "model changed"
    assert found.changes == (names[3], names[2], names[1], names[0])


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("idle", "ttl", "reason"),
    [
        (10, "5m", "server"),
        (299, "5m", "server"),
        (301, "5m", "idle over 5 min"),
        (3_599, "5m", "idle over 5 min"),
        (3_601, "5m", "idle over 1 h"),
        (301, "1h", "server"),
        (3_601, "1h", "idle over 1 h"),
    ],
)
def test_without_a_change_the_reason_is_idleness_by_the_lifetime_in_use_or_the_server(
    idle: float, ttl: str, reason: str
) -> None:
    found = verdict(warm(ttl=ttl), request(), idle=idle)
    assert found is not None
    assert found.reason == reason


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("readable", "read", "broke"),
    [
        (100_000, 95_000, False),
        (100_000, 94_999, True),
        (30_000, 28_001, False),
        (30_000, 28_000, True),
        (2_000, 0, True),
        (1_999, 0, False),
    ],
)
def test_a_break_is_below_95_percent_and_2_000_tokens_lower(readable: int, read: int, broke: bool) -> None:
    assert (verdict(warm(written=readable), request(), read=read) is not None) is broke


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("as_object", [False, True])
def test_what_the_provider_says_is_used(as_object: bool) -> None:
    later = changed(CLIENT_CHANGES["system[1] changed"])
    CLIENT_CHANGES["messages[12].content[0] changed"](later)

    class Reason:
        type = "messages_changed"

    class Diagnostics:
        cache_miss_reason = Reason

    said: Any = Diagnostics() if as_object else {"cache_miss_reason": {"type": "messages_changed"}}
    found = verdict(warm(), later, diagnostics=said)
    assert found is not None
    assert (found.reason, found.said) == ("messages[12].content[0] changed", "messages_changed")


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("tools_changed", "tools changed"),
        ("unavailable", "idle over 5 min"),
        ("previous_message_not_found", "idle over 5 min"),
        (None, "idle over 5 min"),
    ],
)
def test_a_diagnosis_that_says_nothing_leaves_our_own(said: str | None, reason: str) -> None:
    diagnostics = {"cache_miss_reason": {"type": said} if said else None}
    found = verdict(warm(), request(), idle=400, diagnostics=diagnostics)
    assert found is not None
    assert found.reason == reason


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("name", sorted(INERT_OPTIONS))
def test_an_option_the_cache_does_not_go_by_is_no_reason(name: str) -> None:
    found = verdict(warm(), {**request(), name: 77})
    assert found is not None
    assert found.reason == "server"


@pytest.mark.requirement("C5")
def test_an_announced_break_is_not_reported_and_the_next_one_is() -> None:
    later = changed(CLIENT_CHANGES["messages[12].content[0] changed"])
    watch, broke = warm().before(later, BASE + 10, registered=["compacted"]).after(Usage(write_5m=40_000), BASE + 11)
    assert broke is None
    assert watch.readable == 40_000
    assert verdict(watch, request(), idle=20) is not None


@pytest.mark.requirement("C5")
def test_what_was_announced_survives_a_call_that_failed() -> None:
    tried = warm().before(request(), BASE + 5, registered=["results_cleared"])
    assert verdict(tried, request(), idle=9) is None


@pytest.mark.requirement("C5")
def test_decisions_that_move_the_prefix_announce_it_and_a_rendered_prefix_does_not() -> None:
    moves, stays = Cause("test", "why", moves_prefix=True), Cause("test", "why")
    made = [
        Compacted(moves, "auto", "full", "s", 1, None, None),
        ResultsCleared(moves, []),
        ResultsCleared(stays, []),
        ResultsKept(stays, []),
        PrefixRendered(moves, "m"),
        Unknown("future", {}),
    ]
    assert registered_by(made) == ["compacted", "results_cleared"]


@pytest.mark.requirement("C5")
def test_a_deletion_by_cache_edit_skips_exactly_one_check() -> None:
    announced = registered_by([CacheEdits(Cause("trim", "count"), ["toolu_1"], "anchor")])
    watch, broke = warm().before(request(), BASE + 5, registered=announced).after(Usage(read=60_000), BASE + 6)
    assert broke is None
    assert verdict(watch, request(), read=10_000) is not None


def test_nothing_is_expected_of_a_first_call() -> None:
    assert CacheWatch().before(request(), BASE).after(Usage(uncached=50_000), BASE)[1] is None


def test_what_a_call_wrote_is_expected_of_the_next() -> None:
    watch = warm(written=0)
    watch, _ = watch.before(request(), BASE + 5).after(Usage(read=0, write_5m=50_000), BASE + 6)
    assert watch.readable == 50_000
    assert verdict(watch, request(), read=0) is not None
    assert verdict(watch, request(), read=50_000) is None


def random_change(rng: Random, later: Request) -> None:
    """Change something a provider caches by, or nothing it does."""
    CLIENT_CHANGES[rng.choice(list(CLIENT_CHANGES))](later)


def names_what_differs(name: Callable[[Request, Request], list[str]], earlier: Request, later: Request) -> bool:
    """Say whether something is named exactly where a provider would see a difference."""
    inert = {"model", "tools", "system", "messages"} | INERT_OPTIONS
    options = [{key: repr(value) for key, value in one.items() if key not in inert} for one in (earlier, later)]
    same = earlier["model"] == later["model"] and options[0] == options[1]
    boundary = [len(canonical({"tools": one["tools"], "system": one["system"]})) for one in (earlier, later)]
    same = same and boundary[0] == boundary[1] and extends(canonical(earlier), canonical(later))
    return bool(name(earlier, later)) is not same


def named(earlier: Request, later: Request) -> list[str]:
    first = Prefix().next(earlier)
    return changes(first, first.next(later))


def named_by_equality(earlier: Request, later: Request) -> list[str]:
    """The known-bad twin: dicts are equal whatever the order of their keys, requests are not."""
    return [key for key in earlier if key not in INERT_OPTIONS and earlier[key] != later.get(key)]


@pytest.mark.requirement("C4")
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_change_is_named_exactly_where_the_provider_sees_one(seed: int, count: int) -> None:
    rng, earlier = Random(seed), request()
    later = copy.deepcopy(earlier)
    for _ in range(count):
        before = copy.deepcopy(later)
        try:
            random_change(rng, later)
        except (KeyError, IndexError):
            later = before
    assert names_what_differs(named, earlier, later)


def test_naming_by_equality_is_caught() -> None:
    later = changed(turn_keys)
    assert names_what_differs(named, request(), later)
    assert not names_what_differs(named_by_equality, request(), later)


@pytest.mark.parametrize("losses", [20, 1_030, 5_000])
def test_losses_at_new_prompts_are_told_from_chance_however_many_there_are(losses: int) -> None:
    calls = range(10 * losses)
    prompted = set(calls[::10])
    assert restarts(set(calls[: 10 * losses : 10]), prompted, len(calls)) == set(calls[: 10 * losses : 10])
    assert restarts(set(calls[:losses]), prompted, len(calls)) == set()  # as many at prompts as chance gives
    assert restarts(set(calls), set(calls), len(calls)) == set()
