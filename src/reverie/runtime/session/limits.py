"""Window, thresholds and layer policies that follow from settings and a model name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, cast

from ...arguments import check_type
from ...cache.prices import listed_window
from ...conversation.tokens.window import Thresholds, Window, WindowPolicy, thresholds, window_for
from ...layers.l1_offload import OffloadPolicy, fitted_policy
from ...layers.l2_trim import TrimPolicy
from ...model_facts import ModelFacts, facts_of
from ...ports import Model
from ...settings import Settings
from ...values import replace

DEFAULT_MODEL: Final = ""
EDITING_BETA: Final = "context-management-2025-06-27"
"""The beta by which a provider clears results."""


@lru_cache(maxsize=64)
def _table_window(model: str, betas: tuple[str, ...], reported: int | None) -> Window:
    return _window(model, facts_of(model), betas, reported)


def _window(model: str, facts: ModelFacts, betas: tuple[str, ...], reported: int | None) -> Window:
    return window_for(model, facts=facts, reported=reported, lookup=listed_window, betas=betas, environment=os.environ)


@lru_cache(maxsize=256)
def _thresholds(window: Window, limit: int | None, percent: float | None) -> Thresholds:
    return thresholds(window, policy=WindowPolicy(window_tokens=limit, compact_percent=percent))


def betas_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the beta features a call asks for, by the option ``betas`` or the header ``anthropic-beta``."""
    headers: Any = options.get("extra_headers")
    betas = options.get("betas") or ()
    check_type("betas", betas, (list, tuple), "a list of names")
    named: list[Any] = list(betas)
    for name, value in cast("Mapping[str, Any]", headers).items() if isinstance(headers, Mapping) else ():
        if name.lower() == "anthropic-beta":
            named += str(value).split(",")
    return tuple(str(beta).strip() for beta in named)


def window_of(model: str, settings: Settings, betas: tuple[str, ...] = (), reported: int | None = None) -> Window:
    """Return the model's window, its source and its largest output; ``reported`` is the provider's own number."""
    if not settings.models:
        return _table_window(model, betas, reported)
    return _window(model, facts_of(model, settings.models), betas, reported)


def reported_window(model: Model) -> int | None:
    """Return the window that a model reports; None if it is the table's, which settings may correct."""
    given = model.capabilities.window
    return None if given == _table_window(model.model_id, (), None).tokens else given


def thresholds_for(window: Window, settings: Settings, learned: int | None = None) -> Thresholds:
    """Return the token counts at which a window warns, compacts and blocks.

    Settings and the limit that a refusal named may only lower the window.
    """
    limits = [limit for limit in (settings.window_tokens, learned) if limit is not None]
    return _thresholds(window, min(limits, default=None), settings.compact_percent)


def trim_policy(
    settings: Settings, facts: ModelFacts | None = None, betas: tuple[str, ...] = (), *, binds: bool = False
) -> TrimPolicy:
    """Return layer 2's policy from the settings, with the parts turned off that a switch turns off.

    With a model's facts, the mode ``auto`` becomes the mode for that model; ``binds`` says whether the session has
    thinking of a model that checks it.
    """
    switches, policy = settings.switches, settings.trim
    if policy.mode == "auto" and facts is not None:
        policy = replace(policy, mode=_mode_for(facts, betas, binds))
    if policy.mode == "cache_edit" and not switches.cache_edit:
        policy = replace(policy, mode="off")
    idle, priced = policy.idle and switches.idle_trim, policy.priced and switches.priced_trim
    return replace(policy, idle=idle, priced=priced, live=policy.live and settings.preset == "thrifty")


def compact_patience(settings: Settings) -> float:
    """Return how many times its price carrying must cost before layer 4 compacts; 0: never by price."""
    return 0.0 if settings.preset == "faithful" else settings.compact.patience


def _mode_for(facts: ModelFacts, betas: tuple[str, ...], binds: bool) -> Literal["client", "provider", "off"]:
    """Return the mode for a model: one that checks thinking leaves clearing to the provider, if the beta is sent."""
    if not (facts.checks_thinking or binds):
        return "client"
    able = facts.context_editing and EDITING_BETA in betas
    return "provider" if able else "off"


def offload_policy(settings: Settings, at: Thresholds, trim_mode: str) -> OffloadPolicy:
    """Return layer 1's policy for a window; with clearing by the provider, it keeps duplicates as they are."""
    policy = fitted_policy(OffloadPolicy(override_chars=settings.offload_limits), at.effective)
    return replace(policy, duplicate_max_bytes=0) if trim_mode == "provider" else policy
