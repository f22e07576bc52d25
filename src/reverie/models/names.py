"""Find a model by name: ``anthropic:...``, ``openai:...``, ``local:...``, ids that imply their provider, aliases.

Opening a model makes no connection and loads no provider's library; the first request does both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ..arguments import check_text
from ..errors import ModelError, ModelUnknown
from ..extras import install_command
from ..model_facts import ModelFacts, default_model, facts_of, near_model
from ..ports import Model

if TYPE_CHECKING:
    from .openai import OpenAIModel

DEFAULT_ANTHROPIC: Final = default_model("anthropic")
DEFAULT_OPENAI: Final = default_model("openai")
_DECIDING: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)
"""The variables that decide about the provider of the default model; the first that is set does."""
_IDS: Final = (
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"(?:gpt|chatgpt|codex)-|o\d+(?:-|$)"), "openai"),
    (re.compile(r".*\.gguf$", re.IGNORECASE | re.DOTALL), "local"),
)
_PACKAGES: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "local": "xllamacpp",
}
_EXTRAS: Final = {"openai-chat": "openai", "openai-responses": "openai"}


async def usable_models(aliases: Mapping[str, str], environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of models that can be used now: aliases, then the models that each provider with a key lists."""
    known = os.environ if environ is None else environ
    found = list(aliases)
    for provider in ("anthropic", "openai"):
        is_set_up = any(known.get(f"{provider.upper()}_{key}") for key in ("API_KEY", "AUTH_TOKEN", "BASE_URL"))
        if not is_set_up or find_spec(_PACKAGES[provider]) is None:
            continue
        model: Any = open_model(provider, environ=known)
        try:
            found += [f"{provider}:{name}" for name in await model.listed()]
        except ModelError:
            continue  # a provider without a list is no reason to show none
        finally:
            await model.aclose()
    return found


def how_to_get_a_model() -> str:
    """Return the three ways to a model, each command on a line, without the steps that are done on this machine."""
    ways = {
        "anthropic": (f"Anthropic ({DEFAULT_ANTHROPIC} by default)", "export ANTHROPIC_API_KEY=..."),
        "openai": (
            "OpenAI, or a server such as vLLM, Ollama, llama.cpp or LM Studio",
            "export OPENAI_API_KEY=...   (or OPENAI_BASE_URL=http://...)",
            "reverie --model openai:MODEL",
        ),
        "local": ("A GGUF file on this machine", "reverie --model local:/path/to/model.gguf"),
    }
    lines = ["Choose one:"]
    for extra, (title, *steps) in ways.items():
        install = [] if find_spec(_PACKAGES[extra]) is not None else [install_command(extra)]
        lines += [f"{title}:", *(f"  {step}" for step in (*install, *steps))]
    return "\n".join(lines)


def open_model(
    name: str | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    corrections: Mapping[str, Mapping[str, Any]] | None = None,
) -> Model:
    """Return the model of a name, or the default one; raise ``ModelUnknown``, which says how to get a model.

    ``corrections`` are the user's corrections of model facts.
    """
    known = os.environ if environ is None else environ
    full = full_name(name, aliases=aliases, environ=known)
    provider, _, model_id = full.partition(":")
    package = _PACKAGES[provider]
    if find_spec(package) is None:
        extra = _EXTRAS.get(provider, provider)
        raise ModelUnknown(f"{full} needs the package {package}: {install_command(extra)}")
    facts = facts_of(model_id, corrections or {})
    if provider == "anthropic":
        from .anthropic import AnthropicModel

        return AnthropicModel(model_id, facts=facts, environ=known)
    if package == "openai":
        return _openai_model(provider, facts, known)(model_id, facts=facts, environ=known)
    from .local import LocalModel

    return LocalModel(model_id)


def _openai_model(provider: str, facts: ModelFacts, environ: Mapping[str, str]) -> type[OpenAIModel]:
    """Return the adapter for a model of OpenAI: Responses where the model needs them, unless the name decides.

    Servers of others speak chat completions.
    """
    from .openai import OpenAIModel, is_openai

    needed = facts.api == "responses" and is_openai(environ.get("OPENAI_BASE_URL") or None)
    if provider == "openai-chat" or (provider == "openai" and not needed):
        return OpenAIModel
    from .responses import ResponsesModel

    return ResponsesModel


def full_name(
    name: str | None = None,
    *,
    aliases: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return a model's name as ``provider:id``, aliases resolved; raise ``ModelUnknown`` if it implies no provider."""
    known = os.environ if environ is None else environ
    if name is not None:
        check_text("the model's name", name)
    asked = _resolved((name or "").strip(), aliases or {}) or default_name(known)
    provider, colon, model_id = asked.partition(":")
    if provider in _PACKAGES and (colon or provider == asked):
        return f"{provider}:{model_id.strip() or _unnamed(provider, known)}"
    for pattern, owner in _IDS:
        if pattern.match(asked):
            return f"{owner}:{asked}"
    meant = f" Did you mean {near}?" if (near := near_model(asked)) else ""
    raise ModelUnknown(f"{asked!r} names no model here.{meant} {how_to_get_a_model()}")


def unlisted_notice(
    full: str, corrections: Mapping[str, Mapping[str, Any]] | None = None, environ: Mapping[str, str] | None = None
) -> str:
    """Return a notice about a provider's model, by its full name, that neither facts nor prices list; else nothing.

    The names of models on servers at another address and on this machine are in no list.
    """
    provider, _, model_id = full.partition(":")
    known = os.environ if environ is None else environ
    facts = facts_of(model_id, corrections or {})
    owner = _EXTRAS.get(provider, provider)
    if not facts.strict or owner == "local" or known.get(f"{owner.upper()}_BASE_URL"):
        return ""
    from ..cache.prices import prices_for

    if prices_for(model_id) is not None:
        return ""
    meant = f" Did you mean {near}?" if (near := near_model(model_id)) else ""
    return (
        f"{model_id} is in no list of models.{meant} If its provider has it, its window counts as "
        f"{facts.window_tokens:,} tokens unless the provider reports another, and its cost is not counted, so that "
        "budgets in dollars do not hold."
    )


def default_name(environ: Mapping[str, str]) -> str:
    """Return the provider of the default model by the keys in the environment: ``anthropic`` before ``openai``.

    Raise ``ModelUnknown`` if neither is set up; the local model is never the default.
    """
    if variable := deciding_variable(environ):
        return variable.partition("_")[0].lower()
    raise ModelUnknown(f"No model is set up yet. {how_to_get_a_model()}")


def deciding_variable(environ: Mapping[str, str]) -> str:
    """Return the variable that decides about the provider of the default model; empty if none is set."""
    return next((name for name in _DECIDING if environ.get(name)), "")


def _unnamed(provider: str, environ: Mapping[str, str]) -> str:
    """Return the id of a provider's default model; ``default`` is the only one of the server at ``OPENAI_BASE_URL``."""
    if provider == "local":
        return "smollm2"
    if provider == "anthropic":
        return DEFAULT_ANTHROPIC
    return "default" if environ.get("OPENAI_BASE_URL") else DEFAULT_OPENAI


def _resolved(name: str, aliases: Mapping[str, str]) -> str:
    """Return the name at the end of a chain of aliases; raise ``ModelUnknown`` if the chain is a circle."""
    way = [name]
    while way[-1] in aliases:
        following = aliases[way[-1]].strip()
        if following in way:
            # An alias may have the same name as its model.
            if following == way[-1]:
                break
            raise ModelUnknown(f"the aliases of models go round in a circle: {' -> '.join([*way, following])}")
        way.append(following)
    return way[-1]
