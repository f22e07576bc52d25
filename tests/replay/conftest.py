"""Reports generated from a seed: several policies, sessions, actions and breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from reverie.replay.outcome import LayerAction, Point, ReplayBreak, ReplayOutcome, ReplayReport

POLICIES = ("uncached", "recorded", "append-only", "sliding-window", "clear-every-turn", "balanced")
LAYERS = ("offload", "trim", "compact")
REASONS = (
    "idle over 5 min",
    "tools[3].description changed",
    "results cleared",
    "window slid",
    "compaction, as recorded",
)
START = 1_772_440_860.0


def made_outcome(rng: Random, policy: str, file: str, session: str, times: Sequence[float]) -> ReplayOutcome:
    points: list[Point] = []
    acts: list[LayerAction] = []
    breaks: list[ReplayBreak] = []
    window = 9_000
    limit = {"balanced": 70_000, "sliding-window": 90_000, "clear-every-turn": 100_000}.get(policy, 165_000)
    for number, at in enumerate(times):
        grown = int(rng.expovariate(1 / 1_600)) + 200
        window += grown
        idle = number > 0 and at - times[number - 1] > 300
        broke = idle
        if policy == "balanced" and grown > 4_000:
            acts.append(LayerAction(number, at, "offload", "a result above 20,000 characters", 1, grown - 700))
            window -= grown - 700
        if window > limit:
            layer = "trim" if policy in ("balanced", "clear-every-turn") else "compact"
            freed = int(window * (0.4 if layer == "trim" else 0.8))
            acts.append(LayerAction(number, at, layer, "the window is full", rng.randrange(1, 30), freed))
            window -= freed
            broke = True
        read = 0 if policy == "uncached" else (9_000 if broke else max(0, window - grown))
        written = 0 if policy == "uncached" else window - read - 3
        uncached = window - read - written
        if broke and number and policy != "uncached":
            reason = REASONS[0] if idle else rng.choice(REASONS[1:])
            breaks.append(ReplayBreak(number, at, reason, written, written * 3.45e-6, rng.random() < 0.9))
        usd = (read * 0.3 + written * 3.75 + uncached * 3.0) / 1e6
        points.append(Point(number, at, window, read, written, 0, uncached, 200, usd, 200 * 15 / 1e6))
    mine = policy == "balanced"
    return ReplayOutcome(
        policy,
        file,
        session,
        "claude-sonnet-4-5",
        tuple(points),
        tuple(acts),
        tuple(breaks),
        read_backs=3 if mine else 0,
        read_back_tokens=4_100 if mine else 0,
        read_back_usd=0.021 if mine else 0.0,
        removed_tokens=sum(act.tokens for act in acts),
        needed_tokens=4_100 if mine else 0,
    )


def made_report(
    seed: int = 1,
    *,
    sessions: int = 3,
    requests: int = 160,
    policies: Sequence[str] = POLICIES,
    names: Sequence[str] = (),
    unbilled: Sequence[int] = (),
    skipped: Sequence[str] = (),
) -> ReplayReport:
    """Make a report up; sessions in ``unbilled`` have no ``recorded`` outcome."""
    rng = Random(seed)
    files = [names[at] if at < len(names) else f"{rng.getrandbits(32):08x}.jsonl" for at in range(sessions)]
    outcomes: list[ReplayOutcome] = []
    for at, file in enumerate(files):
        clock, times = START + at * 86_400, []
        for _ in range(requests):
            clock += rng.choice((4, 9, 20, 45)) if rng.random() > 0.02 else rng.choice((400, 1_300, 9_000))
            times.append(clock)
        for policy in policies:
            if policy != "recorded" or at not in unbilled:
                outcomes.append(made_outcome(Random(f"{seed}-{at}-{policy}"), policy, file, f"session-{at}", times))
    return ReplayReport(tuple(files), tuple(policies), tuple(outcomes), "claude-sonnet-4-5", "5m", tuple(skipped))


@pytest.fixture(scope="session")
def made() -> Callable[..., ReplayReport]:
    """Return the maker of reports."""
    return made_report
