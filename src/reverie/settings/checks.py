"""One check a setting: what it must be, and an error that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NoReturn, cast

import msgspec

from ..errors import SettingsError
from ..layers.l2_trim.policy import TrimPolicy
from .records import SWITCHES

_TRIM: Final = tuple(TrimPolicy.__dataclass_fields__)
__all__ = ["CHECKS", "read_switches", "read_word", "refuse_unknown"]


def read_switches(value: object, where: str) -> dict[str, bool]:
    """Check a table of switches."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a table of switches, each true or false")
    switches: dict[str, bool] = {}
    for name, state in cast(Mapping[str, object], value).items():
        if name not in SWITCHES:
            refuse_unknown(name, SWITCHES, where)
        if not isinstance(state, bool):
            raise SettingsError(f"{where}.{name} is {state!r}; say true or false")
        switches[name] = state
    return switches


def read_limits(value: object, where: str) -> dict[str, int]:
    """Check a table of limits in characters."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be given by tool, for example Bash=60000")
    limits = cast(Mapping[str, object], value)
    return {tool: read_whole(limit, f"{where}.{tool}") for tool, limit in limits.items()}


def read_whole(value: object, where: str) -> int:
    """Check a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise SettingsError(f"{where} is {value!r}; give a whole number above 0")
    return value


def read_percent(value: object, where: str) -> float:
    """Check a percent above 0 and at most 100."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise SettingsError(f"{where} is {value!r}; give a number above 0 and at most 100")
    return float(value)


def read_durability(value: object, where: str) -> str:
    """Check the name of a durability."""
    if value not in ("always", "second"):
        raise SettingsError(f"{where} is {value!r}; say always or second")
    return cast(str, value)


def read_provider(value: object, where: str) -> str:
    """Check the form ``package.module:callable``."""
    module_name, _, attribute = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not (module_name and attribute.isidentifier()):
        raise SettingsError(f"{where} is {value!r}; write package.module:callable")
    return cast(str, value)


def read_trim(value: object, where: str) -> dict[str, object]:
    """Check the settings of layer 2."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a table, for example keep_priced=5")
    given = cast(Mapping[str, object], value)
    for name in given:
        if name not in _TRIM:
            refuse_unknown(name, _TRIM, where)
    try:
        policy = msgspec.convert(given, TrimPolicy)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: {error}") from None
    if min(policy.keep_cold, policy.keep_priced, policy.keep_budget, policy.edit_keep) < 1 or not 0 < policy.need < 1:
        raise SettingsError(f"{where}: at least one result is always kept, and need is a share between 0 and 1")
    return {name: getattr(policy, name) for name in given}


def read_word(text: str, where: str) -> bool:
    """Read a switch as people write one in an environment variable."""
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
    "durability": read_durability,
    "window_tokens": read_whole,
    "compact_percent": read_percent,
    "flag_provider": read_provider,
}


def refuse_unknown(key: str, known: Iterable[str], source: str) -> NoReturn:
    """Raise an error that names the nearest key there is."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    raise SettingsError(f"{source}: unknown setting {key}; {hint}")
