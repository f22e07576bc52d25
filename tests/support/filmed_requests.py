"""Requests made again from the data of the inspector's page, as its script makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from reverie.cache.breakpoints import BlockPosition, BreakpointPlan, CacheState, with_marks
from reverie.servers.inspector.tables import joined


def request_at(session: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the request with this number, counted from 0, from the data of a session, as it was sent."""
    ids: list[int] = []
    for row in session["requests"][: number + 1]:
        ids = joined(ids, row["splice"])
    row = session["requests"][number]
    blocks, request = session["blocks"], dict[str, Any]()
    for key, refs in session["heads"][row["head"]]:
        request[key] = [_message(session, id) for id in ids] if key == "messages" else _looked_up(blocks, refs)
    marks = row["marks"]
    if marks is None:
        return request
    places = tuple((BlockPosition(message, block), ttl) for message, block, ttl in marks["at"])
    plan = BreakpointPlan(places, marks["ttl"], marks["system"], marks["tools"], CacheState("5m", None, 0.0))
    return with_marks(request, plan)


def _message(session: Mapping[str, Any], id: int) -> dict[str, Any]:
    message = session["messages"][id]
    return {**message, "content": _looked_up(session["blocks"], message["content"])}


def _looked_up(blocks: Sequence[Any], refs: Any) -> Any:
    return [blocks[ref] for ref in cast("list[int]", refs)] if isinstance(refs, list) else blocks[refs]
