"""Window, thresholds and layer policies that follow from settings and a model name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

from ...cache.prices import limits_of_model
from ...conversation.tokens.window import MILLION_BETA, Thresholds, Window, WindowPolicy, thresholds, window_for
from ...layers.l1_offload import OffloadPolicy
from ...layers.l2_trim import TrimPolicy
from ...settings import Settings
from ...values import replace

__all__ = [
    "DEFAULT_MODEL",
    "betas_of",
    "compact_at",
    "max_output_tokens",
    "offload_policy",
    "thresholds_for",
    "trim_policy",
    "window_tokens",
]

DEFAULT_MODEL: Final = ""


@lru_cache(maxsize=64)
def _window(model: str, betas: tuple[str, ...]) -> Window:
    # A beta header asks for a larger window than the look-up knows, so it goes first.
    lookup = None if not model or any(MILLION_BETA in beta for beta in betas) else limits_of_model
    return window_for(model, lookup=lookup, betas=betas, environment=os.environ)


@lru_cache(maxsize=256)
def _thresholds(model: str, window: int | None, percent: float | None, betas: tuple[str, ...]) -> Thresholds:
    return thresholds(_window(model, betas), policy=WindowPolicy(window_tokens=window, compact_percent=percent))


def betas_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the beta features a call asks for, by the option ``betas`` or the header ``anthropic-beta``."""
    headers: Any = options.get("extra_headers")
    named: list[Any] = list(options.get("betas") or ())
    for name, value in cast("Mapping[str, Any]", headers).items() if isinstance(headers, Mapping) else ():
        if name.lower() == "anthropic-beta":
            named += str(value).split(",")
    return tuple(str(beta).strip() for beta in named)


def window_tokens(model: str, settings: Settings, betas: tuple[str, ...] = ()) -> int:
    """Return the model's window in tokens, or the window in the settings if that is smaller."""
    tokens = _window(model, betas).tokens
    return min(tokens, settings.window_tokens) if settings.window_tokens is not None else tokens


def max_output_tokens(model: str) -> int | None:
    """Return the largest output of a model in tokens, or None where it is unknown."""
    return _window(model, ()).max_output_tokens


def compact_at(model: str, settings: Settings, betas: tuple[str, ...] = ()) -> int:
    """Return the token count at which a session with this model is compacted automatically."""
    return thresholds_for(model, settings, betas).auto_compact


def thresholds_for(model: str, settings: Settings, betas: tuple[str, ...] = ()) -> Thresholds:
    """Return the token counts at which a model's window warns, compacts and blocks."""
    return _thresholds(model, settings.window_tokens, settings.compact_percent, betas)


def trim_policy(settings: Settings) -> TrimPolicy:
    """Return layer 2's policy from the settings, with the parts turned off that a switch turns off."""
    switches, policy = settings.switches, settings.trim
    if policy.mode == "cache_edit" and not switches.cache_edit:
        policy = replace(policy, mode="off")
    return replace(policy, idle=policy.idle and switches.idle_trim, priced=policy.priced and switches.priced_trim)


def offload_policy(settings: Settings) -> OffloadPolicy:
    """Return layer 1's policy; with clearing by the provider, duplicates are not replaced by a reference."""
    policy = OffloadPolicy(override_chars=settings.offload_limits)
    return replace(policy, duplicate_max_bytes=0) if settings.trim.mode == "provider" else policy
