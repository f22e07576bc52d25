"""Vectors by which memories and messages are found: the embedder of the settings, and the likeness of two vectors."""

from __future__ import annotations

from array import array
from operator import mul

from ...ports import Embedder
from ...settings import Settings


def settings_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder of the settings, whose weights are loaded on first use; None without one."""
    if settings.embedder is None:
        return None
    from ...models.embedders import open_embedder  # most homes have none

    return open_embedder(settings.embedder)


def vector_of(data: bytes) -> array[float]:
    """Return the vector that was stored as these bytes."""
    vector: array[float] = array("f")
    vector.frombytes(data)
    return vector


def likeness(one: array[float], other: array[float]) -> float:
    """Return the cosine of two vectors of length 1; 0 if they come from different models."""
    return sum(map(mul, one, other)) if len(one) == len(other) else 0.0
