"""One check per setting; its error names the values that are allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from ..errors import InputError, SettingsError
from ..layers.l2_trim import TrimPolicy
from ..layers.l3_notes import NotesPolicy
from ..layers.l4_compact import CompactPolicy
from ..layers.l5_extract import ExtractPolicy
from ..layers.l6_dream import DreamPolicy
from ..layers.l7_relay import RelayPolicy
from ..memories.recall.policy import RecallPolicy
from .records import HOOK_EVENTS, PRESETS, SWITCHES, AgentPolicy, HookCommand, McpServer, PermissionRules

_KINDS: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "array": "a list",
    "object": "a table",
}
"""Types of the validator, in words."""


def _table(value: object, problem: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise SettingsError(problem)
    return cast(Mapping[str, object], value)


def read_switches(value: object, where: str) -> dict[str, bool]:
    """Return a table of switches as a dict; raise ``SettingsError`` for unknown names and values not boolean."""
    switches: dict[str, bool] = {}
    for name, state in _table(value, f"{where} must be a table of switches, each true or false").items():
        if name not in SWITCHES:
            refuse_unknown(name, SWITCHES, where)
        if not isinstance(state, bool):
            raise SettingsError(f"{where}.{name} is {state!r}; say true or false")
        switches[name] = state
    return switches


def read_limits(value: object, where: str) -> dict[str, int]:
    """Return a table of limits in characters by tool; raise ``SettingsError`` unless all are whole and above 0."""
    limits = _table(value, f"{where} must be given by tool, for example Bash=60000")
    return {tool: read_whole(limit, f"{where}.{tool}") for tool, limit in limits.items()}


def read_whole(value: object, where: str) -> int:
    """Return a whole number above 0; raise ``SettingsError`` for any other value."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise SettingsError(f"{where} is {value!r}; give a whole number above 0")
    return value


def read_percent(value: object, where: str) -> float:
    """Return a percentage as a float; raise ``SettingsError`` unless it is above 0 and at most 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise SettingsError(f"{where} is {value!r}; give a number above 0 and at most 100")
    return float(value)


def read_database(value: object, where: str) -> str:
    """Return the URL of a database; raise ``SettingsError`` for any other value, without repeating a password."""
    if not isinstance(value, str) or not value.startswith(("postgresql://", "postgres://")):
        raise SettingsError(f"{where} is no URL of a database; write postgresql://USER@HOST:PORT/NAME")
    return value


def read_key_place(value: object, where: str) -> str:
    """Return where a key is found, ``env:NAME`` or ``file:PATH``; raise ``SettingsError`` for any other value."""
    if not isinstance(value, str) or not value.startswith(("env:", "file:")):
        raise SettingsError(f"{where} must say where the key is, not the key itself: env:NAME or file:/PATH")
    return value


def one_of(words: Collection[str]) -> Callable[[object, str], str]:
    """Return a check that returns one of these words; it raises ``SettingsError`` for any other value."""

    def read(value: object, where: str) -> str:
        if value not in words:
            raise SettingsError(f"{where} is {value!r}; say {(', ' if len(words) > 2 else ' or ').join(words)}")
        return cast(str, value)

    return read


def read_provider(value: object, where: str) -> str:
    """Return a text of the form ``package.module:callable``; raise ``SettingsError`` for any other value."""
    module_name, _, attribute = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not (module_name and attribute.isidentifier()):
        raise SettingsError(f"{where} is {value!r}; write package.module:callable")
    return cast(str, value)


def read_policy(value: object, where: str, kind: type[Any], example: str) -> tuple[Any, dict[str, object]]:
    """Return a table of settings as a policy of the class ``kind``, and a dict of only the given fields.

    Raise ``SettingsError`` for unknown names and wrong types; ``where`` names the setting in the error.
    """
    given = _table(value, f"{where} must be a table, for example {example}")
    for name in given:
        if name not in kind.__dataclass_fields__:
            refuse_unknown(name, kind.__dataclass_fields__, where)
    import msgspec  # slow to load, and most runs have no table

    try:
        policy = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}{_in_words(str(error))}") from None
    return policy, {name: getattr(policy, name) for name in given}


def _in_words(problem: str) -> str:
    """Return a problem that the validator found as words about the field, such as ``.patience: give a number``."""
    said, _, place = problem.partition(" - at `$")
    wanted = re.match(r"Expected `(\w+)", said)
    words = f"give {_KINDS[wanted[1]]}" if wanted and wanted[1] in _KINDS else said
    return f"{place.rstrip('`')}: {words}"


def read_trim(value: object, where: str) -> dict[str, object]:
    """Return the given fields of layer 2's settings; raise ``SettingsError`` if they are invalid."""
    policy, given = read_policy(value, where, TrimPolicy, "keep_priced=5")
    kept = (policy.keep_cold, policy.keep_priced, policy.keep_budget, policy.edit_keep)
    if min(kept) < 1 or not 0 < policy.need < 1:
        raise SettingsError(f"{where}: set keep_* and edit_keep to at least 1, and need between 0 and 1")
    return given


def table_of(kind: type[Any], example: str) -> Callable[[object, str], dict[str, object]]:
    """Return a check that returns the given fields of a ``kind`` table, whose numbers must be at least 0."""

    def read(value: object, where: str) -> dict[str, object]:
        _, given = read_policy(value, where, kind, example)
        for name, number in given.items():
            if isinstance(number, int | float) and not isinstance(number, bool) and not 0 <= number < float("inf"):
                finite = "" if isfinite(number) else "finite "
                raise SettingsError(f"{where}.{name} is {number!r}; give a {finite}number that is at least 0")
        return given

    return read


def read_truth(value: object, where: str) -> bool:
    """Return a boolean, also from a word such as ``on``; raise ``SettingsError`` for any other value."""
    if isinstance(value, str):
        return read_word(value, where)
    if not isinstance(value, bool):
        raise SettingsError(f"{where} is {value!r}; say true or false")
    return value


def read_name(value: object, where: str) -> str:
    """Return a name without surrounding spaces; raise ``SettingsError`` if it is empty or no text."""
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{where} is {value!r}; give a name")
    return value.strip()


def read_directory(value: object, where: str) -> Path:
    """Return a directory as an absolute path; raise ``SettingsError`` if it is relative or contains ``..``."""
    path = Path(value).expanduser() if isinstance(value, str | Path) and str(value).strip() else Path()
    if not path.is_absolute() or ".." in path.parts:
        raise SettingsError(f"{where} is {str(value)!r}; give an absolute path without '..', or one that begins with ~")
    return path


def read_aliases(value: object, where: str) -> dict[str, str]:
    """Return a table of model aliases as a dict; raise ``SettingsError`` unless each maps to a name."""
    aliases = _table(value, f'{where} must be a table, for example fast = "anthropic:MODEL"')
    return {alias: read_name(name, f"{where}.{alias}") for alias, name in aliases.items()}


def read_models(value: object, where: str) -> dict[str, dict[str, object]]:
    """Return corrections of model facts by name or pattern; raise ``SettingsError`` if a field is invalid."""
    models = _table(value, f'{where} must be a table of models, for example [models."my-model*"]')
    from ..model_facts import ModelFacts, corrected, facts_of  # slow to load, and most runs have no table

    fields = ModelFacts.__dataclass_fields__.keys() - {"match", "name", "strict"}
    found: dict[str, dict[str, object]] = {}
    for pattern, table in models.items():
        given = dict(_table(table, f"{where}.{pattern} must be a table of facts, for example window_tokens = 32000"))
        for name, fact in given.items():
            if name not in fields:
                refuse_unknown(name, fields, f"{where}.{pattern}")
            if isinstance(fact, int | float) and not isinstance(fact, bool) and not 0 < fact < float("inf"):
                raise SettingsError(f"{where}.{pattern}.{name} is {fact!r}; give a number above 0")
        try:
            corrected(facts_of(pattern), given, pattern)
        except InputError as error:
            raise SettingsError(str(error)) from None
        found[pattern] = given
    return found


def read_hooks(value: object, where: str) -> dict[str, tuple[HookCommand, ...]]:
    """Return the hook commands of each event; raise ``SettingsError`` for unknown events and invalid commands."""
    found: dict[str, tuple[HookCommand, ...]] = {}
    for event, commands in _table(value, f"{where} must be a table of events, each with a list of commands").items():
        if event not in HOOK_EVENTS:
            refuse_unknown(event, HOOK_EVENTS, where)
        listed: list[object] = list(cast("list[object]", commands)) if isinstance(commands, list) else [commands]
        tables = [{"command": one} if isinstance(one, str) else one for one in listed]
        found[event] = tuple(read_policy(one, f"{where}.{event}", HookCommand, 'command="..."')[0] for one in tables)
    return found


def read_servers(value: object, where: str) -> dict[str, McpServer]:
    """Return the MCP servers by name; raise ``SettingsError`` unless each has either a command or a URL."""
    servers: dict[str, McpServer] = {}
    for name, table in _table(value, f"{where} must be a table of servers by name").items():
        server: McpServer = read_policy(table, f"{where}.{name}", McpServer, 'command="..."')[0]
        if bool(server.command) == bool(server.url):
            raise SettingsError(f"{where}.{name}: give either a command or a url")
        servers[name] = server
    return servers


def read_word(text: str, where: str) -> bool:
    """Return the boolean that a word such as ``on`` or ``0`` means; raise ``SettingsError`` for other words."""
    match text.strip().lower():
        case "1" | "true" | "on" | "yes":
            return True
        case "0" | "false" | "off" | "no":
            return False
        case _:
            raise SettingsError(f"{where} is {text!r}; say on or off")


CHECKS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "switches": read_switches,
    "offload_limits": read_limits,
    "trim": read_trim,
    "notes": table_of(NotesPolicy, "step_tokens=5000"),
    "compact": table_of(CompactPolicy, "tail_tokens=10000"),
    "extract": table_of(ExtractPolicy, "every_turns=2"),
    "recall": table_of(RecallPolicy, "most=5"),
    "dream": table_of(DreamPolicy, "every_hours=24"),
    "relay": table_of(RelayPolicy, "max_alive=8"),
    "daily_logs": read_truth,
    "model": read_name,
    "fallback_model": read_name,
    "model_aliases": read_aliases,
    "models": read_models,
    "agent": table_of(AgentPolicy, "max_turns=50"),
    "permissions": table_of(PermissionRules, 'allow=["Bash(git status)"]'),
    "hooks": read_hooks,
    "mcp_servers": read_servers,
    "memory_dir": read_directory,
    "team_memory": read_directory,
    "embedder": read_name,
    "durability": one_of(("always", "second")),
    "database": read_database,
    "tenant": read_name,
    "blobs": read_name,
    "encryption_key": read_key_place,
    "retention_days": read_whole,
    "window_tokens": read_whole,
    "compact_percent": read_percent,
    "preset": one_of(PRESETS),
    "keep_warm": read_truth,
    "vim_keys": read_truth,
    "flag_provider": read_provider,
}


def refuse_unknown(key: str, known: Iterable[str], source: str) -> NoReturn:
    """Raise ``SettingsError`` for an unknown key, with the most similar known key or a list of all."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}"
    raise SettingsError(f"{source}: unknown setting {key}; {hint}")
