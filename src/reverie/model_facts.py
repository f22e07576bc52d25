"""The rules and limits of models, read from ``model_facts.toml``: one row for each family.

No other module holds a model's name. A row has the page and the date it was taken from; settings add and correct rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from .errors import InputError
from .values import field, fields_of, record

MILLION_SUFFIX: Final = "[1m]"
"""The suffix of a model's name that asks for a window of a million tokens."""
_FILE: Final = Path(__file__).with_name("model_facts.toml")
_ROUTE: Final = re.compile(r"^@?(?:[a-z0-9_-]+[:/])*", re.IGNORECASE)
_REGION: Final = re.compile(r"^(?:[a-z-]+\.)?anthropic\.", re.IGNORECASE)
_VERSION: Final = re.compile(r"(?:@.*|-v\d+(?::\d+)?|-latest|-20\d\d-?\d\d-?\d\d)$")
_NONE: Final[Mapping[str, Mapping[str, Any]]] = {}


@record
class ModelFacts:
    """The rules and limits of one family of models."""

    name: str
    match: tuple[str, ...]
    """Patterns of the bare names in this family; the first row with a match is used."""
    source: str
    date: str
    strict: bool = False
    """Whether the row is for models that the table does not name: it has the strictest rules of their family."""
    window_tokens: int = 200_000
    max_output_tokens: int = 64_000
    cache_read: float = 0.1
    """The price of a token read from the cache, relative to an input token; so are the next three."""
    cache_write_5m: float = 1.25
    cache_write_1h: float = 2.0
    output_price: float = 5.0
    least_cached_tokens: int = 1_024
    """The smallest prefix that is cached."""
    prefix_check: Literal["none", "new", "all"] = "none"
    """Accounts on which a thinking block is refused once content before it has changed: none, newer ones, all."""
    binding_fields: tuple[str, ...] = ("prefix_mismatch_behavior",)
    """The fields of ``thinking.block_binding``; the first says whether such a block is refused or dropped."""
    reads_thinking_of: tuple[str, ...] = ()
    """Families whose thinking this one reads; the thinking of others is dropped without an error."""
    keeps_thinking: bool = True
    """Whether the thinking of earlier turns stays in context; otherwise only that of the last turn does."""
    account_bound_thinking: bool = False
    """Whether its thinking is dropped in every account but the one that made it."""
    thinking: tuple[str, ...] = ("adaptive", "enabled", "disabled")
    """The accepted values of ``thinking.type``."""
    thinking_by_default: bool = False
    """Whether the model thinks if the request does not say."""
    thinking_display: Literal["summarized", "omitted"] = "summarized"
    """How thinking is returned if the request does not say; ``omitted`` returns a signature without words."""
    forced_tool_choice: Literal["yes", "no", "without_thinking"] = "without_thinking"
    """Whether ``tool_choice`` may name a tool; ``without_thinking``: not while thinking is on."""
    sampling: bool = True
    """Whether temperature, top_p and top_k may be set."""
    prefill: bool = True
    """Whether the last message may be the start of a reply."""
    system_messages: bool = False
    """Whether messages may have the role ``system``."""
    turn_scoped_messages: bool = False
    tool_changes: bool = False
    """Whether a system message may add and remove tools."""
    compaction: bool = False
    """Whether the provider writes a signed summary on request."""
    context_editing: bool = False
    message_effort: bool = False
    default_effort: str = "high"
    efforts: tuple[str, ...] = ("low", "medium", "high", "xhigh", "max")
    """The accepted values of ``output_config.effort``."""
    efforts_with_thinking: tuple[str, ...] = ()
    """Values that are refused while thinking is turned off."""
    strict_output: bool = True
    """Whether a request may ask for output in a JSON schema."""
    refused_tools: tuple[str, ...] = ()
    api: Literal["messages", "chat", "responses"] = "messages"
    """The API of the model's own provider that has all of its features: Messages, Chat Completions or Responses."""
    chat_tools: Literal["yes", "no", "without_thinking"] = "yes"
    """Whether Chat Completions take tools; ``without_thinking``: only at effort ``none``."""
    reasoning_field: str = ""
    """The field of a chat message with tool calls that must hold its reasoning text, even an empty one."""
    max_images: int = 100
    max_image_bytes: int = 10_000_000
    """The largest image, counted in base64 characters."""
    max_image_side: int = 8_000
    many_images: int = 20
    """The number of images above which each side may have at most ``many_images_side`` pixels."""
    many_images_side: int = 2_000
    documents_are_images: bool = False
    """Whether PDF documents count towards ``many_images``; their pages always count towards ``max_images``."""
    max_body_bytes: int = 32_000_000
    """The largest body of a request."""
    image_tokens: int = 1_568
    image_side: int = 1_568
    """The longest side that the model sees; a larger image is scaled down to it."""
    tokens_per_text: float = 1.0
    """How many tokens a text has, relative to the tokenizer of the older models."""
    foreign_call: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Fields of a chat message's first tool call if another model made it: the model refuses one without them."""
    platforms: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: _NONE)
    """Values that differ on ``bedrock`` and ``google_cloud``."""

    @property
    def checks_thinking(self) -> bool:
        """Whether a provider may refuse a thinking block because content before it has changed."""
        return self.prefix_check != "none"

    def reads(self, other: str) -> bool:
        """Say whether this family reads the thinking of another family; each reads its own."""
        return other == self.name or any(fnmatchcase(other, name) for name in self.reads_thinking_of)

    def reads_model(self, model: str) -> bool:
        """Say whether this family reads the thinking of a model, by the model's name; true if there is no name."""
        return not model or self.reads(facts_of(model).name)


def bare_model(model: str) -> str:
    """Return a model's name without the suffix that asks for a window of a million tokens."""
    name = model.strip()
    return name[: -len(MILLION_SUFFIX)].rstrip() if name.lower().endswith(MILLION_SUFFIX) else name


def facts_of(model: str, corrections: Mapping[str, Mapping[str, Any]] = _NONE) -> ModelFacts:
    """Return the facts of a model; one that is not in the table gets the strict row of its family.

    The name may carry a provider (``anthropic:``, ``openrouter/``), a region, a date or ``[1m]``. ``corrections``
    are fields by name or pattern; raise ``InputError`` for a field that does not exist or has another type.
    """
    found = _facts_of(model)
    names = (model, _plain(model), found.name)
    for pattern, changes in corrections.items():
        if any(fnmatchcase(name, pattern) for name in names):
            # A window that the user gives is no guess.
            strict = {"strict": False} if "window_tokens" in changes else {}
            found = corrected(found, {**strict, **changes}, pattern)
    return found


@lru_cache(maxsize=256)
def _facts_of(model: str) -> ModelFacts:
    name = _plain(model)
    found = next(row for row in known_facts() if any(fnmatchcase(name, pattern) for pattern in row.match))
    platform = _platform(model)
    return corrected(found, found.platforms[platform], platform) if platform in found.platforms else found


@lru_cache(maxsize=1)
def known_facts() -> tuple[ModelFacts, ...]:
    """Return the rows of the table, in the order in which they are tried; the last one fits every name."""
    table = _table()
    return tuple(_row(table["kinds"].get(row.get("kind", ""), {}), row) for row in table["models"])


def near_model(model: str) -> str:
    """Return the known name that is most like a model's name, for a hint about a typing error; empty if none is."""
    known = {_joined(name): name for row in known_facts() for name in row.match if "*" not in name}
    return next((known[near] for near in get_close_matches(_joined(_plain(model)), known, 1, 0.7)), "")


def _joined(name: str) -> str:
    """Return a model's name without the marks between its parts, which few people type right."""
    return name.replace("-", "").replace(".", "")


def default_model(owner: Literal["anthropic", "openai", "unnamed", "demo", "chat"] = "unnamed") -> str:
    """Return the name of the model that is used where none is named, by provider or by use."""
    return _table()["defaults"][owner]


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _row(kind: Mapping[str, Any], row: Mapping[str, Any]) -> ModelFacts:
    platforms = {**kind.get("platforms", {}), **row.get("platforms", {})}
    return msgspec.convert({**kind, **row, "platforms": platforms}, ModelFacts)


def corrected(facts: ModelFacts, changes: Mapping[str, Any], where: str) -> ModelFacts:
    """Return the facts with some fields changed; raise ``InputError`` if a field is unknown or has another type."""
    unknown = sorted(changes.keys() - set(fields_of(ModelFacts)))
    if unknown:
        raise InputError(f"models.{where}: there is no field {unknown[0]!r}; `reverie doctor --model` lists them")
    try:
        return msgspec.convert({**msgspec.to_builtins(facts), **changes}, ModelFacts)
    except msgspec.ValidationError as error:
        said, _, name = str(error).partition(" - at `$.")
        raise InputError(f"models.{where}.{name.rstrip('`')}: {said}") from error


def _plain(model: str) -> str:
    """Return a model's name in lower case, without provider, region, date and suffix."""
    name = _REGION.sub("", _ROUTE.sub("", bare_model(model)).lower())
    while (shorter := _VERSION.sub("", name)) != name:
        name = shorter
    return name.replace(".", "-") if name.startswith("claude") else name


def _platform(model: str) -> str:
    name = _ROUTE.sub("", bare_model(model)).lower()
    if model.lower().startswith("bedrock") or _REGION.match(name):
        return "bedrock"
    return "google_cloud" if model.lower().startswith("vertex") or "@" in name else ""
