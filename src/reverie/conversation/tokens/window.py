"""The context window of a model, and the thresholds derived from it.

The first source that gives a window size wins: the model's ``[1m]`` suffix, a one-million beta header, the provider,
the model facts; for a model that they do not name the environment variable, the price list, the strict side of its
family. Settings and a limit learned from a refusal may only lower it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from ...errors import InputError
from ...model_facts import ModelFacts, bare_model, facts_of
from ...values import record

MILLION: Final = 1_000_000
MILLION_BETA: Final = "context-1m"
WINDOW_VARIABLE: Final = "REVERIE_MODEL_WINDOW_TOKENS"

Level = Literal["fine", "warning", "error", "compact", "blocked"]
Source = Literal["suffix", "beta", "provider", "facts", "environment", "prices", "strict"]
Lookup = Callable[[str], int | None]


@record
class Window:
    """A model's window, the source of that number, and the model's largest output if known."""

    tokens: int
    source: Source
    max_output_tokens: int | None = None


@record
class WindowPolicy:
    """The constants behind thresholds; a pair is a token count and its upper limit as a share.

    The share is of the effective window (the window without the output reserve), for ``output_reserve`` of the
    whole window.
    """

    output_reserve: tuple[int, float] = (20_000, 0.25)
    auto_compact_buffer: tuple[int, float] = (13_000, 0.08)
    warning_buffer: tuple[int, float] = (20_000, 0.12)
    error_buffer: tuple[int, float] = (20_000, 0.12)
    blocking_buffer: tuple[int, float] = (3_000, 0.02)
    auto_compact: bool = True
    window_tokens: int | None = None
    compact_percent: float | None = None


_POLICY: Final = WindowPolicy()


@record
class Thresholds:
    """The thresholds of one window in tokens; a count equal to a threshold has reached it.

    ``effective`` is the window without the output reserve, ``compacts`` says whether auto-compact is on.
    """

    window: int
    effective: int
    auto_compact: int
    blocking: int
    warning: int
    error: int
    compacts: bool = True

    @property
    def base(self) -> int:
        """The base of percentages: the auto-compact threshold, or the effective window if auto-compact is off."""
        return self.auto_compact if self.compacts else self.effective

    def percent_left(self, used: float) -> int:
        """Return the whole percentage of ``base`` that is left after ``used`` tokens, at least 0."""
        return max(0, round((self.base - used) / self.base * 100)) if self.base > 0 else 0

    def should_compact(self, used: float) -> bool:
        """Say whether auto-compact is on and ``used`` tokens have reached its threshold."""
        return self.compacts and used >= self.auto_compact

    def level(self, used: float) -> Level:
        """Return the level of the highest threshold that ``used`` tokens have reached; ``fine`` if none."""
        if used >= self.blocking:
            return "blocked"
        if self.should_compact(used):
            return "compact"
        return "error" if used >= self.error else "warning" if used >= self.warning else "fine"


def window_for(
    model: str,
    *,
    facts: ModelFacts | None = None,
    reported: int | None = None,
    lookup: Lookup | None = None,
    betas: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Window:
    """Return a model's window from the first source that has it: see the top of this module.

    ``facts`` are those of the model's name by default, ``reported`` is the window that the provider names, ``lookup``
    finds a model in a price list. Raise ``InputError`` if the environment variable is no valid number.
    """
    bare = bare_model(model)
    known = facts or facts_of(model)
    output = known.max_output_tokens
    if bare != model.strip():
        return Window(MILLION, "suffix", output)
    if any(part.strip().startswith(MILLION_BETA) for beta in betas for part in beta.split(",")):
        return Window(MILLION, "beta", output)
    if reported is not None:
        return Window(reported, "provider", output)
    if not known.strict:
        return Window(known.window_tokens, "facts", output)
    said = _said(environment or {})
    listed = lookup(bare) if lookup and said is None else None
    if said is not None:
        return Window(said, "environment", output)
    return Window(listed, "prices", output) if listed else Window(known.window_tokens, "strict", output)


def _said(environment: Mapping[str, str]) -> int | None:
    said = environment.get(WINDOW_VARIABLE, "").strip().replace("_", "")
    if not said:
        return None
    if not (said.isascii() and said.isdigit() and 0 < int(said) <= 10**9):
        raise InputError(f"{WINDOW_VARIABLE} is {said[:40]!r}: give a whole number of tokens above 0, or unset it")
    return int(said)


def capped(tokens: int, share: float, window: int) -> int:
    """Return a number of tokens, at most this share of a window (T8)."""
    return max(0, min(tokens, int(window * share)))


def _effective(window: Window, max_output_tokens: int | None, policy: WindowPolicy) -> tuple[int, int]:
    tokens = window.tokens
    if policy.window_tokens is not None:
        if policy.window_tokens <= 0:
            raise InputError(f"window_tokens is {policy.window_tokens}: give a whole number above 0, or leave it out")
        tokens = min(tokens, policy.window_tokens)
    output = max_output_tokens if max_output_tokens is not None else window.max_output_tokens
    reserve = capped(*policy.output_reserve, tokens)
    return tokens, tokens - (reserve if output is None else max(0, min(output, reserve)))


def thresholds(window: Window, max_output_tokens: int | None = None, policy: WindowPolicy = _POLICY) -> Thresholds:
    """Return the thresholds of a window; ``max_output_tokens`` replaces the window's own value if given.

    Raise ``InputError`` if a number of the policy is invalid.
    """
    tokens, effective = _effective(window, max_output_tokens, policy)
    compact = effective - capped(*policy.auto_compact_buffer, effective)
    percent = policy.compact_percent
    if percent is not None:
        if not 0 < percent <= 100:
            raise InputError(f"compact_percent is {percent}: give a number above 0 and up to 100, or leave it out")
        compact = min(compact, int(effective * percent / 100))
    base = compact if policy.auto_compact else effective
    return Thresholds(
        window=tokens,
        effective=effective,
        auto_compact=compact,
        blocking=effective - capped(*policy.blocking_buffer, effective),
        warning=max(0, base - capped(*policy.warning_buffer, effective)),
        error=max(0, base - capped(*policy.error_buffer, effective)),
        compacts=policy.auto_compact,
    )
