"""The circuit breaker of automatic compaction: it opens after failures in a row or windows that refill at once.

Its state is a fold of the log, so a resumed session continues with the same state.
"""

from __future__ import annotations

from ....conversation.decisions import Compacted, CompactionFailed, CompactionUndone, Decision, Unknown
from ....layers.l4_compact import CompactPolicy
from ....values import record, replace


@record
class Breaker:
    """The state of the circuit breaker of automatic compaction, folded from the log."""

    failures: int = 0
    """Failed compactions in a row."""
    refills: int = 0
    """Compactions in a row that freed less than half and followed such a one within a few turns."""
    replies: int | None = None
    """Replies since the last compaction; None before the first."""
    acted_at: float = 0.0
    """The time of the last compaction or failure."""
    probes: int = 0
    """Compactions tried while the breaker was open."""
    freed_most: bool = True
    """Whether the last compaction freed at least half of the window's tokens."""
    declined: bool = False
    """Whether the provider declined to write the next summary, so that it is written here."""
    suspended: bool = False
    """Whether a compaction was undone, so that only the blocking limit, or a person, starts another."""

    def refilling(self, policy: CompactPolicy) -> int:
        """Return the refills in a row, plus one if the window may refill after a compaction that freed little."""
        return self.refills + self._refills(policy)

    def _refills(self, policy: CompactPolicy) -> bool:
        """Return whether few replies have followed the last compaction, and that one freed less than half."""
        return not self.freed_most and self.replies is not None and self.replies <= policy.refill_turns

    def is_open(self, policy: CompactPolicy) -> bool:
        """Return whether the breaker is open, after too many failures or refills in a row."""
        return self.failures >= policy.failures or self.refilling(policy) >= policy.failures

    def why_not(self, policy: CompactPolicy, now: float, *, blocked: bool) -> str | None:
        """Return the reason why automatic compaction may not run now; None where it may, as in a full window."""
        if blocked:
            return None
        if self.suspended:
            return "the last compaction was undone; another waits until the window is full or you ask for it"
        if not self.is_open(policy):
            return None
        if self.probes >= policy.probes:
            return f"compaction was tried {self.probes} times after it kept failing; ask for one to try again"
        if now - self.acted_at < policy.half_open_seconds:
            return f"compaction kept failing or filling again; it is tried again {policy.half_open_seconds:.0f} s later"
        return None

    def replied(self) -> Breaker:
        """Return the breaker's state after one more reply."""
        return self if self.replies is None else replace(self, replies=self.replies + 1)

    def after(self, decision: Decision | Unknown, at: float, policy: CompactPolicy) -> Breaker:
        """Return the breaker's next state after a decision that was made at the time ``at``."""
        probes = self.probes + self.is_open(policy)
        match decision:
            case CompactionFailed():
                declined = self.declined or decision.declined
                return replace(self, failures=self.failures + 1, acted_at=at, probes=probes, declined=declined)
            case Compacted(trigger="manual"):
                return Breaker(replies=0, acted_at=at, probes=self.probes)
            case Compacted():
                freed_most = 2 * decision.tokens_after <= decision.tokens_before
                refills = self.refills + 1 if self._refills(policy) and not freed_most else 0
                return Breaker(0, refills, 0, at, probes, freed_most)
            case CompactionUndone():
                return replace(self, suspended=True, replies=None, refills=0)
            case _:
                return self
