"""A session that is closed and opened again between any two steps does exactly what one process would do."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

import anyio
import pytest

from reverie.runtime.session import cache_plan
from reverie.runtime.session import log as session_log
from twin_runs import TwinRun

STEPS = 12


def pair(seed: int, steps: int = STEPS) -> tuple[TwinRun, TwinRun]:
    runs = TwinRun(seed, resumes=False), TwinRun(seed, resumes=True)
    for run in runs:
        anyio.run(run.play, steps)
    return runs


def difference(seed: int) -> str:
    """Return the first difference between the two runs of a seed; empty if there is none."""
    one, other = pair(seed)
    found = zip(("request", "entry", "break"), zip(one.seen(), other.seen(), strict=True), strict=True)
    for name, (first, second) in found:
        for at, (left, right) in enumerate(zip_longest(first, second, fillvalue="nothing")):
            if left != right:
                where = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), 0)
                part = slice(max(0, where - 150), where + 150)
                return f"seed {seed}, {name} {at}: ...{left[part]}\n-- resumed: ...{right[part]}"
    return ""


@pytest.mark.requirement("W5", "K2", "C5")
@pytest.mark.slow
def test_a_resume_between_any_two_steps_changes_no_request_no_decision_and_no_reason_of_a_break(
    torture: bool, seed: int
) -> None:
    seeds = range(seed, seed + (2_000 if torture else 6))
    print(f"seeds {seeds}, {STEPS} prompts each")
    found = [one for one in map(difference, seeds) if one]
    assert not found, "\n".join(found[:3])


@pytest.mark.slow
def test_the_runs_have_everything_that_a_resume_could_lose(seed: int) -> None:
    seen: Counter[str] = Counter()
    for one in range(seed, seed + 20):
        run = TwinRun(one, resumes=False)
        anyio.run(run.play, STEPS)
        seen.update(str(entry.body.get("decision")) for entry in run.entries() if entry.kind == "decision")
        seen.update(f"break: {reason.split(':')[0]}" for reason in run.breaks())
    print(seen)
    for name in ("results_cleared", "compacted", "snipped", "compaction_undone", "reload_asked", "prefix_amended"):
        assert seen[name], name
    assert seen["break: idle over 1 h"]
    assert seen["break: model changed"]


@pytest.mark.requirement("W5", "C5")
@pytest.mark.slow
@pytest.mark.parametrize("lost", ["announced breaks", "older cache entries"])
def test_known_bad_state_that_is_not_in_the_log_is_found(lost: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    if lost == "announced breaks":
        monkeypatch.setattr(session_log, "decisions_since_call", lambda entries: [])
    else:
        after = getattr(cache_plan, "_cache_after")  # noqa: B009 - a private function of another module
        monkeypatch.setattr(cache_plan, "_cache_after", lambda _, found: after(None, found))
        monkeypatch.setattr(
            cache_plan.SessionBill, "lifetime", lambda _, tokens, life, rates: "1h" if tokens % 2 else "5m"
        )
    assert any(map(difference, range(seed, seed + 60)))
