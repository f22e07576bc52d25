"""``reverie doctor --model NAME``: the facts of a model, the source of its window, and its prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, ModelError
from ...values import record

if TYPE_CHECKING:
    from ...settings import Settings

# The facts in the order of a reader's questions; every fact is in one group.
_GROUPS = {
    "limits": ("window_tokens", "max_output_tokens", "tokens_per_text"),
    "thinking": (
        *("thinking", "thinking_by_default", "prefix_check", "binding_fields", "keeps_thinking"),
        *("reads_thinking_of", "account_bound_thinking", "thinking_display"),
        *("default_effort", "message_effort", "efforts", "efforts_with_thinking"),
    ),
    "cache": ("least_cached_tokens", "cache_read", "cache_write_5m", "cache_write_1h", "output_price"),
    "requests": (
        *("forced_tool_choice", "sampling", "prefill", "strict_output", "refused_tools", "system_messages"),
        *("turn_scoped_messages", "tool_changes", "api", "chat_tools", "reasoning_field", "foreign_call"),
    ),
    "by the provider": ("compaction", "context_editing"),
    "images": (
        *("max_images", "max_image_bytes", "max_image_side", "many_images", "many_images_side"),
        *("image_tokens", "image_side", "documents_are_images", "max_body_bytes"),
    ),
}
_FRAME = ("name", "match", "source", "date", "strict", "platforms")
_SOURCES = {
    "suffix": "the suffix [1m]",
    "provider": "the provider's list of models",
    "facts": "the model facts",
    "environment": "the environment",
    "prices": "the price list",
    "strict": "assumed: no source names it",
}
_CHECKS = {"none": "no", "new": "on new accounts", "all": "on all accounts"}
_DOLLARS = "dollars for a million tokens"


@record
class ModelRow:
    """The facts of a model for people and programs."""

    model: str
    family: str
    is_known: bool
    """Whether the table names the model; otherwise it has the strict row of its family."""
    source: str
    date: str
    window_tokens: int
    window_source: str
    usd_per_million_tokens: dict[str, Any] | None
    facts: dict[str, Any]
    corrected: list[str]
    """The names of facts that the settings correct."""
    near: str = ""
    """The known name that is most like that of an unknown model; empty if none is."""
    problem: str = ""
    """Why the provider's list of models could not be asked."""


def model_row(name: str, *, ask: bool = False) -> ModelRow:
    """Return the row of a model, with the corrections in the settings; ``ask`` asks the provider for its window."""
    import os

    import msgspec

    from ...cache.prices import listed_window
    from ...conversation.tokens.window import window_for
    from ...model_facts import facts_of, near_model
    from ...settings import load_settings

    settings = load_settings()
    model = _resolved(name, settings.model_aliases)
    facts, table = facts_of(model, settings.models), facts_of(model)
    reported, problem = _reported(model) if ask else (None, "")
    window = window_for(model, facts=facts, reported=reported, lookup=listed_window, environment=os.environ)
    shown, before = msgspec.to_builtins(facts), msgspec.to_builtins(table)
    lower = {"the setting window_tokens": settings.window_tokens, "a refusal": _learned(settings, model)}
    limits = {why: limit for why, limit in lower.items() if limit is not None and limit < window.tokens}
    tokens = min(limits.values(), default=window.tokens)
    return ModelRow(
        model,
        facts.name,
        not table.strict,
        facts.source,
        facts.date,
        tokens,
        min(limits, key=limits.__getitem__, default=_SOURCES[window.source]),
        _prices(model),
        {fact: value for fact, value in shown.items() if fact not in _FRAME},
        sorted(fact for fact, value in shown.items() if value != before[fact] and fact not in _FRAME),
        near_model(model) if table.strict else "",
        problem,
    )


def show_row(row: ModelRow) -> None:
    """Print the row of a model as tables: identity, prices, and its facts by group."""
    from ..output import say, table

    family = f"family {row.family}" if row.is_known else f"not in the table, so the strict rules of {row.family!r} hold"
    say(f"{row.model}: {family}")
    say(f"source: {row.source}, {row.date}")
    if row.near:
        say(f"Did you mean {row.near}?")
    if not row.is_known:
        say(f'If you know better, set window_tokens and other facts in config.toml under [models."{row.model}"]')
    if row.problem:
        say(f"The provider's list of models was not asked: {row.problem}")
    say()
    lines: list[tuple[str, str, str]] = [("window", f"{row.window_tokens:,} tokens", row.window_source)]
    prices = row.usd_per_million_tokens
    lines.append(("price", _price_line(prices), _DOLLARS) if prices is not None else ("price", "unknown", ""))
    for step in (prices or {}).get("steps", ()):
        lines.append(("", _price_line(step), f"above {step['above_tokens']:,} input tokens"))
    table(["", "", ""], lines)
    for group, facts in _GROUPS.items():
        say()
        marks = {fact: "  (settings)" for fact in row.corrected}
        table([group, ""], [(_words(fact), f"{_shown(fact, row.facts[fact])}{marks.get(fact, '')}") for fact in facts])


def _resolved(name: str, aliases: Any) -> str:
    asked = name.strip()
    if not asked:
        raise InputError("--model needs the name of a model, such as anthropic:MODEL")
    return str(aliases.get(asked, asked))


def _learned(settings: Settings, model: str) -> int | None:
    """Return the window that a refusal taught for a model; None if there is none."""
    from contextlib import closing

    from ...runtime.places.storage import storage_of
    from ...runtime.session.recovery import KEY, learned_windows

    if settings.database is None and not (settings.home / KEY).exists():
        return None
    with closing(storage_of(settings)) as storage:
        return learned_windows(storage).get(model.partition(":")[2] or model)


def _reported(model: str) -> tuple[int | None, str]:
    """Return the window that the provider reports, or None and the reason why it was not asked."""
    import anyio

    from ...models import open_model
    from ...models.anthropic import AnthropicModel

    async def ask() -> int | None:
        opened = open_model(model)
        try:
            return await opened.ask_limits() if isinstance(opened, AnthropicModel) else None
        finally:
            await opened.aclose()

    try:
        found = anyio.run(ask)
    except ModelError as error:
        return None, str(error)
    return found, "" if found is not None else "it names no window for this model"


def _prices(model: str) -> dict[str, Any] | None:
    from ...cache.prices import DollarRates, prices_for
    from ...values import fields_of

    prices = prices_for(model)
    if prices is None:
        return None

    def plain(rates: DollarRates) -> dict[str, float]:
        return {name: getattr(rates, name) for name in fields_of(DollarRates)}

    steps = [{"above_tokens": above, **plain(rates)} for above, rates in prices.tiers]
    return {**plain(prices.base), "steps": steps, "source": prices.source}


def _price_line(prices: dict[str, Any]) -> str:
    kinds = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h")
    return ", ".join(f"{_words(kind)} {prices[kind]:g}" for kind in kinds)


def _words(fact: str) -> str:
    return fact.replace("_", " ")


def _shown(fact: str, value: Any) -> str:
    if fact == "prefix_check":
        return _CHECKS.get(value, str(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast("list[object]", value))) or "none"
    return str(value) if value else "none"
