"""Requests without their cache breakpoints, whose places and lifetimes change from request to request."""

from __future__ import annotations

from typing import Any, cast


def without_marks(value: Any) -> Any:
    """Return the same value without ``cache_control``."""
    if isinstance(value, list):
        return [without_marks(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: without_marks(one) for key, one in pairs if key != "cache_control"}
    return value
