"""What layer 1 goes by, and how long a tool's result may be before it moves to disk."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType

from ...values import field, record

__all__ = ["OffloadPolicy", "limit_chars"]


def _limits(**chars: int) -> Mapping[str, float]:
    return MappingProxyType[str, float](chars)


@record
class OffloadPolicy:
    """The numbers of layer 1."""

    default_limit_chars: int = 50_000
    never: frozenset[str] = frozenset({"Read"})
    """Tools that limit themselves: their results are never offloaded."""
    declared_chars: Mapping[str, float] = field(default_factory=lambda: _limits(Bash=30_000, Grep=20_000))
    """What tools say of themselves; it counts where it is below the default."""
    ceiling_chars: Mapping[str, float] = field(default_factory=lambda: _limits(Bash=150_000))
    """How far an override may raise a tool's limit."""
    override_chars: Mapping[str, float] = field(default_factory=_limits)
    """What settings or flags say instead, by tool."""
    preview_bytes: int = 2_000
    aggregate_chars: int = 200_000
    """Characters that the results of one API message may have together."""
    duplicate_min_bytes: int = 256
    duplicate_max_bytes: int = 50_000
    """A repeat of these sizes is shown as a reference; a maximum of 0 shows every repeat whole."""


def limit_chars(policy: OffloadPolicy, tool: str, declared: float | None = None) -> int | None:
    """Return how many characters a result of this tool may have, or None where it is never offloaded.

    ``declared`` is what the tool says of itself, where the policy does not know; infinity means never.
    """
    own = policy.declared_chars.get(tool) if declared is None else declared
    if tool in policy.never or own == float("inf"):
        return None
    override = policy.override_chars.get(tool)
    if override is not None and _counts(override):
        return max(1, int(min(override, policy.ceiling_chars.get(tool, override))))
    if own is not None and _counts(own):
        return max(1, int(min(own, policy.default_limit_chars)))
    return policy.default_limit_chars


def _counts(limit: float) -> bool:
    return isfinite(limit) and limit > 0
