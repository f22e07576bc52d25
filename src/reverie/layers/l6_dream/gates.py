"""Decide whether a dream may begin by itself: the cheapest question first, each asked only if needed."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from ...values import record
from .policy import DreamPolicy

__all__ = ["Gate", "GateClosed", "GateFacts", "GateOpen", "Reason", "gate_state", "seconds_until_due"]

Reason: TypeAlias = Literal["off", "not_main", "too_soon", "no_memories", "just_scanned", "few_sessions", "running"]

_SECONDS_AN_HOUR: Final = 3_600.0
_SECONDS_A_MINUTE: Final = 60.0


@record
class GateOpen:
    """A dream may begin."""

    since: float
    """When the last one was, in seconds since 1970; 0 where that is unknown."""
    sessions: int
    """Sessions touched since, as far as they were counted."""


@record
class GateClosed:
    """No dream begins; after so many seconds it is worth asking again, None where waiting changes nothing."""

    reason: Reason
    wait_seconds: float | None = None
    detail: str = ""


Gate: TypeAlias = GateOpen | GateClosed


class GateFacts(Protocol):
    """The questions of the gates in their order; each answer costs more than the one before."""

    def off(self) -> Reason | None:
        """Say why nothing may begin here at all: switched off, or not the main agent."""
        ...

    def dreamt(self) -> float | None:
        """Return when the last dream was; None where there was none."""
        ...

    def scanned(self) -> float | None:
        """Return when somebody last looked at the sessions."""
        ...

    def has_memories(self) -> bool:
        """Say whether there is anything to dream about."""
        ...

    def touched(self, since: float) -> int:
        """Look at the sessions and count those touched since, without the current one; enough is enough."""
        ...

    def running(self) -> str:
        """Say who is dreaming and not hung; empty where nobody is."""
        ...


def seconds_until_due(now: float, dreamt: float | None, policy: DreamPolicy) -> float:
    """Return how long the last dream keeps the gate closed; 0 where it does not, as with one in the future."""
    if dreamt is None or dreamt > now:
        return 0.0
    left = dreamt + policy.every_hours * _SECONDS_AN_HOUR - now
    return left if left > 0.0 else 0.0


def gate_state(facts: GateFacts, policy: DreamPolicy, now: float) -> Gate:
    """Ask one fact after the other until one of them closes the gate."""
    off = facts.off()
    if off is not None:
        return GateClosed(off)
    dreamt = facts.dreamt()
    left = seconds_until_due(now, dreamt, policy)
    if left > 0.0:
        return GateClosed("too_soon", left)
    pause = policy.scan_minutes * _SECONDS_A_MINUTE
    scanned = facts.scanned()
    if scanned is not None and 0.0 <= now - scanned < pause:
        return GateClosed("just_scanned", pause - (now - scanned))
    if not facts.has_memories():
        return GateClosed("no_memories", pause)
    since = 0.0 if dreamt is None or dreamt > now else max(dreamt, 0.0)  # a stamp in the future says nothing
    sessions = facts.touched(since)
    if sessions < policy.min_sessions:
        return GateClosed("few_sessions", pause, f"{sessions} of {policy.min_sessions} sessions")
    running = facts.running()
    if running:
        return GateClosed("running", pause, running)
    return GateOpen(since, sessions)
