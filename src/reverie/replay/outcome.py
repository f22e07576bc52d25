"""The results of a replay: one outcome per policy and session, and their totals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..values import record

AS_RECORDED: Final = "as recorded"
"""The model of a report on recordings of several models."""


@record
class Point:
    """One request: its time, its window in tokens, its tokens by how they were billed, and their cost."""

    number: int
    at: float
    window: int
    read: int
    write_5m: int
    write_1h: int
    uncached: int
    output: int
    input_usd: float
    output_usd: float


@record
class LayerAction:
    """An action of a layer before a request: its reason, the number of changed items, and the freed tokens."""

    number: int
    at: float
    layer: str
    reason: str
    items: int
    tokens: int


@record
class ReplayBreak:
    """A cached part of a prompt that was not read: the reason, the tokens, and the cost of writing them again.

    ``registered`` means that a logged decision explains the break, or, in a simulation, an idle time of five
    minutes.
    """

    number: int
    at: float
    reason: str
    tokens: int
    usd: float
    registered: bool


@record
class ReplayOutcome:
    """The requests, layer actions, breaks and totals of one session under one policy."""

    policy: str
    file: str
    session: str
    model: str
    points: tuple[Point, ...]
    acts: tuple[LayerAction, ...] = ()
    breaks: tuple[ReplayBreak, ...] = ()
    read_backs: int = 0
    read_back_tokens: int = 0
    read_back_usd: float = 0.0
    removed_tokens: int = 0
    needed_tokens: int = 0
    invalid_requests: int = 0
    compactions: int = 0
    summary_usd: float = 0.0
    """The price of the requests for summaries, with their output."""
    pings: int = 0
    ping_usd: float = 0.0
    """The price of renewing the cache, also after the last request."""
    after_usd: float = 0.0
    """The part of the pings and summaries that came after the last request."""
    needing: int = 0
    """The number of requests that needed removed content again."""
    notes: tuple[str, ...] = ()
    program_usd: float | None = None
    """The total that the recording program itself counted for all its calls."""
    priced_usd: float = 0.0
    """The price of the same calls, by their reported usage."""
    other_calls_usd: float = 0.0
    """The part of it for calls that the recording does not hold, such as compactions, titles and agents."""

    @property
    def input_usd(self) -> float:
        """The cost of all input in dollars, with content that was read back, summaries and pings."""
        paid = sum(point.input_usd for point in self.points)
        return paid + self.read_back_usd + self.summary_usd + self.ping_usd

    @property
    def output_usd(self) -> float:
        """The cost of all output in dollars."""
        return sum(point.output_usd for point in self.points)

    @property
    def peak_window(self) -> int:
        """The tokens of the largest request; 0 without requests."""
        return max((point.window for point in self.points), default=0)

    @property
    def mean_window(self) -> int:
        """The mean tokens of a request, rounded; 0 without requests."""
        return round(sum(point.window for point in self.points) / len(self.points)) if self.points else 0


@record
class SimulatorAccuracy:
    """The share of input read from the cache, simulated and billed, and the simulated cost over the billed one."""

    read_share: float
    billed_read_share: float
    cost_ratio: float
    sessions: tuple[tuple[str, float], ...] = ()
    """The simulated cost over the billed one of each file."""
    foreign: tuple[str, ...] = ()
    """The files whose bill follows the cache rules of another provider."""


@record
class ReplayReport:
    """The outcomes of several sessions under several policies, grouped by session; ``skipped`` holds notes."""

    files: tuple[str, ...]
    policies: tuple[str, ...]
    outcomes: tuple[ReplayOutcome, ...]
    model: str
    ttl: str
    skipped: tuple[str, ...] = ()
    simulator: SimulatorAccuracy | None = None
    is_repriced: bool = False
    """Whether a session has the prices of another model than its own."""

    def of(self, *, policy: str | None = None, file: str | None = None) -> list[ReplayOutcome]:
        """Return a list of the outcomes of a policy, of a file, or of both; all outcomes without either."""
        return [
            outcome
            for outcome in self.outcomes
            if (policy is None or outcome.policy == policy) and (file is None or outcome.file == file)
        ]


def totals(outcomes: Iterable[ReplayOutcome]) -> dict[str, Any]:
    """Return a dict with the sums, means and largest values over all given outcomes."""
    found: Sequence[ReplayOutcome] = list(outcomes)
    points = [point for outcome in found for point in outcome.points]
    breaks = [one for outcome in found for one in outcome.breaks]
    removed = sum(outcome.removed_tokens for outcome in found)
    needed = sum(outcome.needed_tokens for outcome in found)
    acts: dict[str, dict[str, int]] = {}
    for outcome in found:
        for act in outcome.acts:
            layer = acts.setdefault(act.layer, {"acts": 0, "items": 0, "tokens": 0})
            layer["acts"] += 1
            layer["items"] += act.items
            layer["tokens"] += act.tokens
    reasons: dict[str, dict[str, float]] = {}
    for one in breaks:
        reason = reasons.setdefault(one.reason, {"count": 0, "tokens": 0, "usd": 0.0})
        reason["count"] += 1
        reason["tokens"] += one.tokens
        reason["usd"] += one.usd
    return {
        "input_usd": sum(outcome.input_usd for outcome in found),
        "output_usd": sum(outcome.output_usd for outcome in found),
        "cache_read": sum(point.read for point in points),
        "cache_write": sum(point.write_5m + point.write_1h for point in points),
        "cache_write_5m": sum(point.write_5m for point in points),
        "cache_write_1h": sum(point.write_1h for point in points),
        "uncached": sum(point.uncached for point in points),
        "output": sum(point.output for point in points),
        "requests": len(points),
        "invalid_requests": sum(outcome.invalid_requests for outcome in found),
        "breaks": len(breaks),
        "breaks_by_reason": reasons,
        "read_backs": sum(outcome.read_backs for outcome in found),
        "read_back_tokens": sum(outcome.read_back_tokens for outcome in found),
        "read_back_usd": sum(outcome.read_back_usd for outcome in found),
        "compactions": sum(outcome.compactions for outcome in found),
        "summary_usd": sum(outcome.summary_usd for outcome in found),
        "pings": sum(outcome.pings for outcome in found),
        "ping_usd": sum(outcome.ping_usd for outcome in found),
        "removed_tokens": removed,
        "needed_share": needed / removed if removed else 0.0,
        "needing_requests": sum(outcome.needing for outcome in found),
        "peak_window": max((outcome.peak_window for outcome in found), default=0),
        "mean_window": round(sum(point.window for point in points) / len(points)) if points else 0,
        "layers": acts,
    }
