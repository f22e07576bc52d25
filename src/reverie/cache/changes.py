"""The differences between two requests that should share a prefix, named to the block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from .prefix import Part, Prefix

INERT_OPTIONS: Final = frozenset(
    {
        *("max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "metadata", "service_tier"),
        *("diagnostics", "timeout", "extra_headers"),
    }
)
"""Request options that do not affect a provider's cache."""


def changes(earlier: Prefix, later: Prefix) -> list[str]:
    """Return a list of texts such as ``tools[1] added``, one for each change of model, tools, system and options.

    The first changed message comes last; messages added at the end are no change.
    """
    found = ["model changed"] if earlier.model != later.model else []
    if earlier.tools is not later.tools:
        found += _tools(earlier.tools, later.tools)
    if earlier.system is not later.system:
        found += _system(earlier.system, later.system)
    found += _options(earlier.options, later.options)
    position = later.message_difference(earlier)
    if position is not None:
        message, block = later.message_at(position)
        gone = position >= later.blocks - len(later.tools) - len(later.system)
        found.append(f"messages[{message}] removed" if gone else f"messages[{message}].content[{block}] changed")
    return found


def _tools(earlier: Sequence[Part], later: Sequence[Part]) -> list[str]:
    """Return texts that name the tools added, removed, moved or changed, by their index in the later list.

    A removed tool is named by its index in the earlier list.
    """
    if [part.digest for part in earlier] == [part.digest for part in later]:
        return []
    before = {_name(part, at): (at, part) for at, part in enumerate(earlier)}
    after = {_name(part, at): (at, part) for at, part in enumerate(later)}
    found = [(at, f"tools[{at}] removed") for name, (at, _) in before.items() if name not in after]
    for name, (at, part) in after.items():
        if name not in before:
            found.append((at, f"tools[{at}] added"))
        elif before[name][1].digest != part.digest:
            found += [(at, f"tools[{at}]{field} changed") for field in _fields(before[name][1].value, part.value)]
    stayed = [name for name in before if name in after]
    order = [name for name in after if name in before]
    if stayed != order:
        moved = next(name for name, other in zip(order, stayed, strict=True) if name != other)
        found.append((after[moved][0], f"tools[{after[moved][0]}] moved"))
    return [said for _, said in sorted(found)] or [f"tools[{min(len(earlier), len(later))}] changed"]


def _name(part: Part, at: int) -> str:
    value: Any = part.value
    name: Any = cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else f"#{at}"


def _fields(earlier: Any, later: Any) -> list[str]:
    """Return the fields of a tool that differ, as ``.name``; one empty text if only their order differs."""
    if not (isinstance(earlier, dict) and isinstance(later, dict)):
        return [""]
    one, other = cast("dict[str, Any]", earlier), cast("dict[str, Any]", later)
    names = [name for name in dict.fromkeys([*one, *other]) if name != "cache_control"]
    return [f".{name}" for name in names if _unlike(one, other, name)] or [""]


def _unlike(earlier: Mapping[str, Any], later: Mapping[str, Any], name: str) -> bool:
    return (name in earlier) != (name in later) or repr(earlier.get(name)) != repr(later.get(name))


def _system(earlier: Sequence[Part], later: Sequence[Part]) -> list[str]:
    both = enumerate(zip(earlier, later, strict=False))
    found = [f"system[{at}] changed" for at, (one, other) in both if one.digest != other.digest]
    found += [f"system[{at}] removed" for at in range(len(later), len(earlier))]
    return found + [f"system[{at}] added" for at in range(len(earlier), len(later))]


def _options(earlier: Mapping[str, Part], later: Mapping[str, Part]) -> list[str]:
    found: list[str] = []
    for name in sorted({*earlier, *later} - INERT_OPTIONS):
        one, other = earlier.get(name), later.get(name)
        if one is None or other is None:
            found.append(f"options.{name} {'added' if one is None else 'removed'}")
        elif one.digest != other.digest:
            found.append(f"options.{name} changed")
    return found
