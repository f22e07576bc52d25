"""Settings of layer 1, and the size limit of each tool's results."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from types import MappingProxyType

from ...conversation.reads import READS
from ...values import field, record, replace


def _limits(**chars: int) -> Mapping[str, float]:
    return MappingProxyType[str, float](chars)


@record
class OffloadPolicy:
    """Settings of layer 1: size limits of results by tool and by message, and which duplicates are replaced."""

    default_limit_chars: int = 50_000
    never: frozenset[str] = READS
    """Tools that limit their own output; their results are never offloaded for their size."""
    declared_chars: Mapping[str, float] = field(
        default_factory=lambda: _limits(Bash=30_000, bash=30_000, Grep=20_000, grep=20_000)
    )
    """Limits that tools declare, by tool; one above ``default_limit_chars`` is lowered to it."""
    ceiling_chars: Mapping[str, float] = field(default_factory=lambda: _limits(Bash=150_000, bash=150_000))
    """The highest limit that an override may set, by tool."""
    override_chars: Mapping[str, float] = field(default_factory=_limits)
    """Limits from settings or flags, by tool; they replace the declared and the default limit."""
    preview_bytes: int = 2_000
    aggregate_chars: int = 200_000
    """The most characters that the results of one API message may have together."""
    window_chars: float = inf
    """The most characters that any result may have in a small window: also of tools in ``never``, also by override.

    Where this is finite, dense text counts as four characters a token.
    """
    duplicate_min_bytes: int = 256
    duplicate_max_bytes: int = 50_000
    """A duplicate between these two sizes is replaced by a reference; a maximum of 0 turns that off."""


def fitted_policy(policy: OffloadPolicy, tokens: int) -> OffloadPolicy:
    """Return the policy with each limit at most its share of a window of ``tokens``, at four characters a token.

    That is a quarter of the window for a result, three tenths for the results of one message, so that a compaction
    keeps them until the model has seen them, and a fortieth for a preview.
    """
    is_small = tokens < policy.default_limit_chars
    return replace(
        policy,
        default_limit_chars=min(policy.default_limit_chars, tokens),
        aggregate_chars=min(policy.aggregate_chars, tokens * 6 // 5),
        preview_bytes=min(policy.preview_bytes, tokens // 10),
        window_chars=tokens * 6 // 5 if is_small else inf,
    )


def limit_chars(policy: OffloadPolicy, tool: str, declared: float | None = None) -> int | None:
    """Return the most characters that a result of this tool may have; None if it is never offloaded for size.

    ``declared`` is the limit that the tool itself declares and replaces the policy's; infinity means never.
    """
    own = policy.declared_chars.get(tool) if declared is None else declared
    if tool in policy.never or own == inf:
        return None if policy.window_chars == inf else int(policy.window_chars)
    override = policy.override_chars.get(tool)
    if override is not None and _counts(override):
        return max(1, int(min(override, policy.ceiling_chars.get(tool, override), policy.window_chars)))
    if own is not None and _counts(own):
        return max(1, int(min(own, policy.default_limit_chars)))
    return policy.default_limit_chars


def _counts(limit: float) -> bool:
    return isfinite(limit) and limit > 0
