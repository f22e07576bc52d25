"""What stands before and beside the messages, as a caller gives it: refused where a provider would refuse it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...conversation.decisions import PrefixRendered
from ...conversation.entries import DECISION, Entry, Message, seconds
from ...conversation.view import View
from ...conversation.wire.options import options_of, tools_of
from ...conversation.wire.request import build_request
from ...errors import InputError
from ...layers.l2_trim import provider_edits

__all__ = ["clearing_asked", "last_sent", "refuse_unusable"]


def last_sent(entries: Sequence[Entry], view: View) -> dict[str, Any]:
    """Return a request that begins as the last answered one did, given a log and the view of all of it."""
    moved = False
    for at in range(len(entries) - 1, -1, -1):
        body = entries[at].body if entries[at].kind == DECISION else {}
        if body.get("decision") == "call_recorded" and body.get("source") == "main":
            return build_request(View().fold_all(entries[:at]) if moved else view)
        moved = moved or body.get("moves_prefix") is True
    return {"messages": list[Message]()}


def clearing_asked(view: View, thinking: Any, *, now: float, compact_at: int) -> dict[str, object]:
    """Return what a provider that clears by itself is asked to clear."""
    kind = cast(Mapping[str, Any], thinking).get("type") if isinstance(thinking, Mapping) else None
    idle = now - seconds(view.last_reply_time) if view.last_reply_time else 0.0
    return provider_edits(compact_at=compact_at, idle_seconds=idle, thinking=kind in ("enabled", "adaptive"))


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
