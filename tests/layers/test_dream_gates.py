"""The gates of a dream: checked in order, each only if the ones before are open, and safe against clock changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.gates import Gate, GateClosed, GateFacts, GateOpen, Reason, gate_state, seconds_until_due
from reverie.layers.l6_dream.policy import DreamPolicy

NOW = 1_800_000_000.0
HOUR = 3_600.0
ORDER = ["off", "dreamt", "scanned", "has_memories", "touched", "running"]


class Given:
    """Facts that say which of them were asked for; as they stand, everything is open."""

    def __init__(
        self,
        off: Reason | None = None,
        dreamt: float | None = NOW - 25 * HOUR,
        scanned: float | None = None,
        memories: bool = True,
        touched: int = 5,
        running: str = "",
    ) -> None:
        self._said = (off, dreamt, scanned, memories, touched, running)
        self.asked: list[str] = []
        self.since = -1.0

    def disabled_reason(self) -> Reason | None:
        self.asked.append("off")
        return self._said[0]

    def last_dream_at(self) -> float | None:
        self.asked.append("dreamt")
        return self._said[1]

    def last_scan_at(self) -> float | None:
        self.asked.append("scanned")
        return self._said[2]

    def has_memories(self) -> bool:
        self.asked.append("has_memories")
        return self._said[3]

    def touched_sessions(self, since: float) -> int:
        self.asked.append("touched")
        self.since = since
        return self._said[4]

    def running_dream(self) -> str:
        self.asked.append("running")
        return self._said[5]


@pytest.mark.requirement("L6.1")
@pytest.mark.parametrize(
    ("facts", "reason", "asked"),
    [
        (Given(off="off"), "off", 1),
        (Given(off="not_main"), "not_main", 1),
        (Given(dreamt=NOW - 23.9 * HOUR), "too_soon", 2),
        (Given(scanned=NOW - 599.0), "just_scanned", 3),
        (Given(memories=False), "no_memories", 4),
        (Given(touched=4), "few_sessions", 5),
        (Given(running="process 7"), "running", 6),
    ],
)
def test_a_closed_gate_says_why_and_asks_nothing_more(facts: Given, reason: str, asked: int) -> None:
    found = gate_state(facts, DreamPolicy(), NOW)
    assert isinstance(found, GateClosed)
    assert found.reason == reason
    assert facts.asked == ORDER[:asked]


@pytest.mark.requirement("L6.1")
def test_the_gate_opens_when_nothing_closes_it() -> None:
    facts = Given()
    assert gate_state(facts, DreamPolicy(), NOW) == GateOpen(NOW - 25 * HOUR, 5)
    assert facts.since == NOW - 25 * HOUR


@pytest.mark.requirement("L6.2")
@pytest.mark.parametrize("dreamt", [None, 0.0, NOW + 0.001, NOW + 86_400.0, 1e12])
def test_no_stamp_one_of_1970_and_one_in_the_future_open_the_gate_to_all_sessions(dreamt: float | None) -> None:
    facts = Given(dreamt=dreamt)
    assert isinstance(gate_state(facts, DreamPolicy(), NOW), GateOpen)
    assert facts.since == 0.0


def test_a_scan_in_the_future_keeps_nobody_waiting() -> None:
    assert isinstance(gate_state(Given(scanned=NOW + 60.0), DreamPolicy(), NOW), GateOpen)


times = st.one_of(st.none(), st.floats(-1e11, 1e11), st.floats(NOW - 100 * HOUR, NOW + 100 * HOUR))
situations = st.builds(
    Given,
    st.sampled_from([None, None, None, "off"]),
    times,
    times,
    st.booleans(),
    st.integers(0, 9),
    st.sampled_from(["", "x"]),
)


def assert_cheapest_first(judge, facts: Given) -> None:  # type: ignore[no-untyped-def]
    """Check that facts are asked in order, once each, and that an open gate asked them all."""
    found: Gate = judge(facts, DreamPolicy(), NOW)
    assert facts.asked == ORDER[: len(facts.asked)]
    if isinstance(found, GateOpen):
        assert facts.asked == ORDER
    elif found.wait_seconds is not None:
        assert found.wait_seconds > 0


@given(situations)
def test_facts_are_asked_in_the_order_of_their_cost(facts: Given) -> None:
    assert_cheapest_first(gate_state, facts)


def test_a_judge_that_scans_first_is_caught() -> None:
    def scanning(facts: GateFacts, policy: DreamPolicy, now: float) -> Gate:
        return (
            GateClosed("few_sessions")
            if facts.touched_sessions(0.0) < policy.min_sessions
            else gate_state(facts, policy, now)
        )

    with pytest.raises(AssertionError):
        assert_cheapest_first(scanning, Given())


@given(times)
def test_waiting_as_long_as_one_is_told_opens_the_gate_and_waiting_less_does_not(dreamt: float | None) -> None:
    policy = DreamPolicy()
    left = seconds_until_due(NOW, dreamt, policy)
    assert 0.0 <= left <= 24 * HOUR
    if left > 0.01:
        assert seconds_until_due(NOW + left + 0.001, dreamt, policy) == 0.0
        assert seconds_until_due(NOW + left - 0.001, dreamt, policy) > 0.0
