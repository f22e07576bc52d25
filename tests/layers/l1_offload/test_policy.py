"""The limit of a result: the tool, then settings, then the declared limit, then the default."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l1_offload.policy import OffloadPolicy, limit_chars

POLICY = OffloadPolicy()


@pytest.mark.requirement("L1.2")
@pytest.mark.parametrize(
    ("tool", "override", "declared", "limit"),
    [
        ("Read", None, None, None),
        ("Read", 10, None, None),
        ("Read", None, 10, None),
        ("Bash", None, None, 30_000),
        ("Bash", 150_000, None, 150_000),
        ("Bash", 500_000, None, 150_000),
        ("Bash", 1_000, None, 1_000),
        ("Bash", inf, None, 30_000),
        ("Bash", nan, None, 30_000),
        ("Bash", 0, None, 30_000),
        ("Bash", -5, None, 30_000),
        ("Grep", None, None, 20_000),
        ("Grep", 90_000, None, 90_000),
        ("Glob", None, None, 50_000),
        ("mcp__x__y", None, None, 50_000),
        ("mcp__x__y", None, 100_000, 50_000),
        ("mcp__x__y", None, 7_000, 7_000),
        ("mcp__x__y", None, inf, None),
        ("mcp__x__y", 9_000, inf, None),
        ("mcp__x__y", None, nan, 50_000),
        ("mcp__x__y", None, 0, 50_000),
        ("mcp__x__y", 80_000, 7_000, 80_000),
        ("Grep", 0.5, None, 1),
    ],
)
def test_the_limit_of_a_result(tool: str, override: float | None, declared: float | None, limit: int | None) -> None:
    policy = OffloadPolicy(override_chars={} if override is None else {tool: override})
    assert limit_chars(policy, tool, declared) == limit


@pytest.mark.requirement("L1.2")
@given(
    tool=st.sampled_from(["Read", "Bash", "Grep", "Glob", "other"]),
    override=st.none() | st.floats() | st.integers(),
    declared=st.none() | st.floats() | st.integers(),
)
def test_whatever_is_said_the_limit_is_a_number_above_zero_or_never(
    tool: str, override: float | None, declared: float | None
) -> None:
    policy = OffloadPolicy(override_chars={} if override is None else {tool: override})
    limit = limit_chars(policy, tool, declared)
    assert limit is None or (isinstance(limit, int) and limit > 0)
    assert (limit is None) == (tool == "Read" or declared == inf)
