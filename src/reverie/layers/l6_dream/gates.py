"""Decide whether a dream may start automatically; cheap checks come first, and each runs only if needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from ...values import record
from .policy import DreamPolicy

Reason: TypeAlias = Literal["off", "not_main", "too_soon", "no_memories", "just_scanned", "few_sessions", "running"]

_SECONDS_AN_HOUR: Final = 3_600.0
_SECONDS_A_MINUTE: Final = 60.0


@record
class GateOpen:
    """The answer that a dream may start automatically."""

    since: float
    """The time of the last dream, in seconds since 1970; 0 if unknown."""
    sessions: int
    """The number of sessions touched since then; counting stops at the required number."""


@record
class GateClosed:
    """The answer that no dream may start; ``wait_seconds`` is when to check again, None if that is no use."""

    reason: Reason
    wait_seconds: float | None = None
    detail: str = ""


Gate: TypeAlias = GateOpen | GateClosed


@record
class GateFacts:
    """The facts that ``gate_state`` asks for one by one, each only if no earlier one closed the gate."""

    disabled_reason: Callable[[], Reason | None]
    """Returns why no dream may start here at all (switched off, or not the main agent); None if one may."""
    last_dream_at: Callable[[], float | None]
    last_scan_at: Callable[[], float | None]
    """These return a time in seconds since 1970; None if there was none."""
    has_memories: Callable[[], bool]
    touched_sessions: Callable[[float], int]
    """Returns how many other sessions were touched since a time; it stops at the required number."""
    running_dream: Callable[[], str]
    """Returns a text naming the process that is dreaming and not hung; empty if there is none."""


def seconds_until_due(now: float, dreamt: float | None, policy: DreamPolicy) -> float:
    """Return the seconds until the next dream may start; 0 if it may now or ``dreamt`` is in the future."""
    if dreamt is None or dreamt > now:
        return 0.0
    left = dreamt + policy.every_hours * _SECONDS_AN_HOUR - now
    return left if left > 0.0 else 0.0


def gate_state(facts: GateFacts, policy: DreamPolicy, now: float) -> Gate:
    """Return whether a dream may start; check one fact after another until one closes the gate."""
    off = facts.disabled_reason()
    if off is not None:
        return GateClosed(off)
    dreamt = facts.last_dream_at()
    left = seconds_until_due(now, dreamt, policy)
    if left > 0.0:
        return GateClosed("too_soon", left)
    pause = policy.scan_minutes * _SECONDS_A_MINUTE
    scanned = facts.last_scan_at()
    if scanned is not None and 0.0 <= now - scanned < pause:
        return GateClosed("just_scanned", pause - (now - scanned))
    if not facts.has_memories():
        return GateClosed("no_memories", pause)
    since = 0.0 if dreamt is None or dreamt > now else max(dreamt, 0.0)  # a time in the future is invalid
    sessions = facts.touched_sessions(since)
    if sessions < policy.min_sessions:
        return GateClosed("few_sessions", pause, f"{sessions} of {policy.min_sessions} sessions")
    running = facts.running_dream()
    if running:
        return GateClosed("running", pause, running)
    return GateOpen(since, sessions)
