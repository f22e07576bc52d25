"""What stands before and beside the messages, as a caller gives it: refused where a provider would refuse it."""

from __future__ import annotations

from ..conversation.decisions import PrefixRendered
from ..conversation.options import options_of, tools_of
from ..errors import InputError

__all__ = ["refuse_unusable"]


def refuse_unusable(prefix: PrefixRendered) -> None:
    """Refuse tools and options that a provider would refuse, before anything is logged."""
    usable = tools_of(prefix)
    if len(usable) != len(prefix.tools):
        kept = [tool["name"] for tool in usable]
        wrong = next(tool for tool in prefix.tools if tool.get("name") not in kept or prefix.tools.count(tool) > 1)
        raise InputError(
            f"tool {wrong.get('name')!r} cannot be declared: a tool has a unique name of letters, digits, '_' and '-', "
            "and an input_schema of type object"
        )
    taken = options_of(prefix, usable)
    for key, value in prefix.options.items():
        if value is not None and taken.get(key) != value:
            raise InputError(f"option {key}={value!r} would be refused by the provider")
