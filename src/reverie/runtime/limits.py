"""What settings amount to for a model: its window, where it compacts, how it trims."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

from ..cache.prices import capabilities_of
from ..conversation.window import Window, WindowPolicy, thresholds, window_for
from ..layers.l1_offload import OffloadPolicy
from ..layers.l2_trim import TrimPolicy
from ..settings import Settings
from ..values import replace

__all__ = ["DEFAULT_MODEL", "compact_at", "offload_policy", "trim_policy", "window_tokens"]

DEFAULT_MODEL: Final = ""


@lru_cache(maxsize=64)
def _window(model: str) -> Window:
    return window_for(model, lookup=capabilities_of if model else None, environment=os.environ)


@lru_cache(maxsize=256)
def _compact_at(model: str, window: int | None, percent: float | None) -> int:
    policy = WindowPolicy(window_tokens=window, compact_percent=percent)
    return thresholds(_window(model), policy=policy).auto_compact


def window_tokens(model: str, settings: Settings) -> int:
    """Return the model's window, or the smaller one that was asked for."""
    tokens = _window(model).tokens
    return min(tokens, settings.window_tokens) if settings.window_tokens is not None else tokens


def compact_at(model: str, settings: Settings) -> int:
    """Return the count at which the past becomes a summary."""
    return _compact_at(model, settings.window_tokens, settings.compact_percent)


def trim_policy(settings: Settings) -> TrimPolicy:
    """Return layer 2's policy with what the switches leave of it."""
    switches, policy = settings.switches, settings.trim
    if policy.mode == "cache_edit" and not switches.cache_edit:
        policy = replace(policy, mode="off")
    return replace(policy, idle=policy.idle and switches.idle_trim, priced=policy.priced and switches.priced_trim)


def offload_policy(settings: Settings) -> OffloadPolicy:
    """Return layer 1's policy; a result is not shown by reference where the provider may have cleared the first."""
    policy = OffloadPolicy(override_chars=settings.offload_limits)
    return replace(policy, duplicate_max_bytes=0) if settings.trim.mode == "provider" else policy
