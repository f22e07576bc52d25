"""The causes of cache breaks: one line a cause, in plain words."""

from __future__ import annotations

import pytest

from reverie.cache.prefix import Prefix
from reverie.cache.watch import (
    IDLE_LONG,
    IDLE_SHORT,
    REMOVED,
    RESTARTED,
    REWRITTEN,
    SERVER,
    UNSEEN,
    cause_of,
    changes,
    losses_by_cause,
)

FIRST = {
    "model": "a",
    "system": "s",
    "thinking": {"type": "enabled", "budget_tokens": 2_000},
    "tools": [{"name": "Read", "description": "r"}],
    "messages": [{"role": "user", "content": "hi"}],
}


@pytest.mark.requirement("U5")
@pytest.mark.parametrize(
    "changed",
    [
        {"model": "b"},
        {"system": "t"},
        {"thinking": {"type": "disabled"}},
        {"tools": []},
        {"messages": [{"role": "user", "content": "ho"}]},
    ],
)
def test_every_change_that_the_watch_names_has_a_cause_with_a_remedy(changed: dict[str, object]) -> None:
    before = Prefix().next(FIRST)
    reasons = changes(before, before.next({**FIRST, **changed}))
    assert reasons
    assert all(cause_of(reason).remedy for reason in reasons)


@pytest.mark.parametrize(
    "reason", [IDLE_LONG, IDLE_SHORT, SERVER, REMOVED, RESTARTED, REWRITTEN, UNSEEN, "tools changed"]
)
def test_every_reason_without_a_block_has_a_remedy(reason: str) -> None:
    assert cause_of(reason).remedy


def test_an_unknown_reason_stands_for_itself() -> None:
    assert cause_of("something new").title == "something new"


@pytest.mark.requirement("U5")
def test_losses_are_summed_by_cause_and_name_the_most_expensive_block() -> None:
    lost = [("tools[3] added", 1.0), ("tools[5] added", 2.0), (IDLE_SHORT, 9.0), ("compaction (registered)", 0.0)]
    rows = losses_by_cause(lost)
    assert [usd for _, usd in rows] == [9.0, 3.0]
    assert rows[1][0].title == "the list of tools changed (tools[5] added)"
