"""Vectors by which memories and messages are found: the embedder of the settings, and the likeness of two vectors."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import mul

from ...errors import ModelError
from ...ports import Embedder
from ...settings import Settings


def settings_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder of the settings, whose weights are loaded on first use; None without one."""
    if settings.embedder is None:
        return None
    from ...models.embedders import open_embedder  # most homes have none

    return open_embedder(settings.embedder)


def settings_vectors(settings: Settings) -> Callable[[Sequence[str]], list[array[float]]] | None:
    """Return a function from texts to vectors by the settings, None without an embedder.

    If the embedder fails, the vectors are empty and like no other, so that words alone decide.
    """
    embedder = settings_embedder(settings)
    if embedder is None:
        return None

    def vectors(texts: Sequence[str]) -> list[array[float]]:
        try:
            return embedder.vectors(texts)
        except ModelError:
            return [array("f") for _ in texts]

    return vectors


def vector_of(data: bytes) -> array[float]:
    """Return the vector that was stored as these bytes."""
    vector: array[float] = array("f")
    vector.frombytes(data)
    return vector


def likeness(one: array[float], other: array[float]) -> float:
    """Return the cosine of two vectors of length 1; 0 if they come from different models."""
    return sum(map(mul, one, other)) if len(one) == len(other) else 0.0
