"""Breakpoints: at most four, in a valid order, at allowed places, and found again in the cache."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.cache.breakpoints import (
    MAX_MARKS,
    BlockPosition,
    BreakpointPlan,
    CacheState,
    last_markable,
    plan_marks,
    with_marks,
)
from reverie.cache.simulator import CacheRules, CacheSimulator, Mark, SimBlock
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems

MODEL = "claude-sonnet-4-5"
SYSTEM = "You are careful. " * 300
TOOL: dict[str, Any] = {"name": "Bash", "input_schema": {"type": "object"}}
GAPS = (1.0, 30.0, 299.0, 300.0, 1_000.0, 3_599.0, 3_600.0, 9_000.0)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def exchange(rng: Random, number: int) -> list[dict[str, Any]]:
    """Return a reply and what follows it, of few blocks or of many."""
    ids = [f"t{number}_{at}" for at in range(rng.choice((0, 1, 2, 30)))]
    thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}] if rng.random() < 0.3 else []
    calls = [{"type": "tool_use", "id": one, "name": "Bash", "input": {}} for one in ids]
    results = [{"type": "tool_result", "tool_use_id": one, "content": "x" * rng.randrange(2_000)} for one in ids]
    said = [text(f"message {number}")] if not ids or rng.random() < 0.3 else []
    return [
        {"role": "assistant", "content": [*thought, text(f"reply {number}"), *calls]},
        {"role": "user", "content": [*results, *said]},
    ]


class Talk:
    """A conversation that grows, changes now and then, and is sent to a cache that knows the rules."""

    def __init__(self, seed: int, ttl: str) -> None:
        self.rng = Random(seed)
        self.ttl = ttl
        self.now = 1_000.0
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "begin " * 300}]
        self.placed: CacheState | None = None
        self.near, self.far = CacheSimulator(), CacheSimulator(CacheRules(look_back_positions=10**9))
        self.held = 0

    def grow(self, number: int) -> None:
        self.messages += exchange(self.rng, number)
        self.now += self.rng.choice(GAPS) if self.rng.random() < 0.3 else self.rng.choice(GAPS[:2])

    def change(self) -> BlockPosition | None:
        """Change a result somewhere, as a clearing does, and return where."""
        at = self.rng.randrange(len(self.messages))
        if self.rng.random() > 0.25 or self.messages[at]["role"] != "user" or at == 0:
            return None
        first, *rest = self.messages[at]["content"]
        said = {"text": f"changed {self.now}"} if first["type"] == "text" else {"content": f"cleared {self.now}"}
        self.messages[at] = {"role": "user", "content": [{**first, **said}, *rest]}
        return BlockPosition(at, 0)

    def send(self, changed: BlockPosition | None) -> tuple[BreakpointPlan, dict[str, Any], int, int]:
        ttl = self.rng.choice(("5m", self.ttl))
        planned = plan_marks(self.messages, now=self.now, ttl=ttl, before=self.placed, changed=changed)
        request = with_marks(
            {"model": MODEL, "max_tokens": 9, "system": SYSTEM, "tools": [TOOL], "messages": self.messages}, planned
        )
        blocks = [SimBlock(said, 1 + len(said) // 4) for said in canonical(request)]
        found = marks(request)
        near = self.near.request(blocks, found, model=MODEL, now=self.now)
        far = self.far.request(blocks, found, model=MODEL, now=self.now)
        self.placed = planned.after
        return planned, request, near.read, far.read


def marks(request: dict[str, Any]) -> list[Mark]:
    system = request["system"] if isinstance(request["system"], list) else [request["system"]]
    parts: list[Any] = [*request["tools"], *system]
    for message in request["messages"]:
        parts += message["content"] if isinstance(message["content"], list) else [message["content"]]
    return [
        Mark(at, part["cache_control"].get("ttl", "5m"))
        for at, part in enumerate(parts)
        if isinstance(part, dict) and "cache_control" in part
    ]


@pytest.mark.requirement("C3")
@given(seed=st.integers(0, 2**32), ttl=st.sampled_from(["5m", "1h"]))
@pytest.mark.slow
def test_breakpoints_are_few_in_order_and_where_a_provider_takes_them(seed: int, ttl: str):
    talk = Talk(seed, ttl)
    for number in range(12):
        changed = talk.change()
        planned, request, _, _ = talk.send(changed)
        found = marks(request)
        assert problems(request) == []
        assert 1 <= len(found) <= MAX_MARKS
        assert all(not (one.ttl == "5m" and two.ttl == "1h") for one, two in pairwise(found))
        last = talk.messages[planned.marks[-1][0].message]
        assert last is talk.messages[-1]  # the end of the request is always one
        for place, _ in planned.marks:
            content = talk.messages[place.message]["content"]
            assert isinstance(content, str) or content[place.block]["type"] != "thinking"
        talk.grow(number)


@pytest.mark.requirement("C3")
@given(seed=st.integers(0, 2**32), ttl=st.sampled_from(["5m", "1h"]))
def test_whatever_is_alive_and_unchanged_is_found_however_far_back_it_lies(seed: int, ttl: str):
    talk = Talk(seed, ttl)
    for number in range(15):
        _, _, near, far = talk.send(talk.change())
        assert near == far
        talk.grow(number)


@pytest.mark.requirement("C3", "C7")
@given(seed=st.integers(0, 2**32), ttl=st.sampled_from(["5m", "1h"]))
@pytest.mark.slow
def test_the_prefix_is_not_expected_in_a_cache_that_does_not_have_it_by_itself(seed: int, ttl: str):
    """A pause ends its entry, and the next request reads a longer one, so that nothing writes it again."""
    talk = Talk(seed, ttl)
    for number in range(15):
        planned, request, _, _ = talk.send(talk.change())
        talk.grow(number)
        opening = [SimBlock(said, 1 + len(said) // 4) for said in canonical({**request, "messages": []})]
        marked = [Mark(len(opening) - 1)]
        found = deepcopy(talk.near).request(opening, marked, model=MODEL, now=talk.now)
        is_held = bool(planned.after.prefix_held(talk.now))
        assert found.write == 0 or not is_held
        assert is_held or found.write or ttl == "1h" or planned.after.life(talk.now) != "live"


@pytest.mark.requirement("C3")
@given(seed=st.integers(0, 2**32), ttl=st.sampled_from(["5m", "1h"]))
@pytest.mark.slow
def test_a_conversation_that_only_grows_is_read_to_the_end_of_the_last_request(seed: int, ttl: str):
    talk = Talk(seed, ttl)
    sent, at = 0, 0.0
    for number in range(12):
        idle = talk.now - at
        _, request, near, _ = talk.send(None)
        if number and idle < 300.0:
            assert near == sent
        sent, at = sum(1 + len(said) // 4 for said in canonical(request)), talk.now
        talk.grow(number)


@pytest.mark.requirement("C3")
def test_breakpoints_at_the_end_alone_are_caught():
    talk = Talk(1, "5m")
    missed = False
    for number in range(15):
        place = last_markable(talk.messages, len(talk.messages))
        assert place is not None
        only = BreakpointPlan(((place, "5m"),), "5m", False, False, CacheState("5m", place, talk.now))
        request = with_marks({"system": SYSTEM, "tools": [TOOL], "messages": talk.messages}, only)
        blocks = [SimBlock(said, 1 + len(said) // 4) for said in canonical(request)]
        near = talk.near.request(blocks, marks(request), model=MODEL, now=1.0)
        far = talk.far.request(blocks, marks(request), model=MODEL, now=1.0)
        missed = missed or near.read < far.read
        talk.grow(number)
    assert missed


@pytest.mark.requirement("C3")
def test_a_breakpoint_with_the_long_lifetime_keeps_its_place_until_the_next_one():
    messages: list[dict[str, Any]] = [{"role": "user", "content": "begin"}]
    planned = plan_marks(messages, now=0.0, ttl="1h", before=None)
    assert [ttl for _, ttl in planned.marks] == ["1h"]
    for number in range(6):
        messages = [*messages, *exchange(Random(number), number)]
        planned = plan_marks(messages, now=10.0, ttl="5m", before=planned.after)
        assert planned.marks[0] == (BlockPosition(0, 0), "1h")
        assert planned.marks[-1][1] == "5m"
    again = plan_marks(messages, now=900.0, ttl="5m", before=planned.after)
    assert again.marks[0] == (BlockPosition(0, 0), "1h"), "after a pause it is all that the cache holds"
    moved = plan_marks(messages, now=905.0, ttl="1h", before=again.after)
    assert {ttl for _, ttl in moved.marks} == {"1h"}


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "cache_edits"])
def test_some_blocks_take_no_breakpoint(kind: str):
    messages = [{"role": "user", "content": [text("one"), {"type": kind}]}]
    assert last_markable(messages, 1) == BlockPosition(0, 0)
    assert last_markable([{"role": "user", "content": [{"type": kind}]}], 1) is None


def test_messages_without_a_breakpoint_are_the_same_objects():
    messages = [{"role": "user", "content": "a"}, *exchange(Random(1), 1), *exchange(Random(2), 2)]
    planned = plan_marks(messages, now=0.0, ttl="5m", before=None)
    request = with_marks({"messages": messages}, planned)
    assert [one is two for one, two in zip(messages, request["messages"], strict=True)] == [True] * 4 + [False]
    assert "cache_control" not in str(messages)
