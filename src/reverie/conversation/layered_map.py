"""An immutable mapping whose changed copies share most of their data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


class LayeredMap(Mapping[str, T]):
    """An immutable mapping in layers of dicts, the newest on top, each less than a quarter the size of the next.

    There are therefore few layers, and a change copies only a few entries on average. The value None in a layer hides
    the key in the layers below.
    """

    __slots__ = ("_layers",)

    def __init__(self, layers: tuple[dict[str, T | None], ...] = ()) -> None:
        self._layers = layers

    def changed(self, changes: Mapping[str, T | None]) -> LayeredMap[T]:
        """Return a new mapping with these values set; a value of None removes its key."""
        top, below = dict(changes), self._layers
        while below and 4 * len(top) >= len(below[0]):
            top, below = below[0] | top, below[1:]
        if not below:
            for key in [key for key, value in top.items() if value is None]:
                del top[key]
        return LayeredMap((top, *below) if top else below)

    def get(self, key: str, default: Any = None, /) -> Any:
        """Return the value of this key, or the default if the key is missing or hidden."""
        for layer in self._layers:
            if key in layer:
                found = layer[key]
                return default if found is None else found
        return default

    def __getitem__(self, key: str) -> T:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return cast(T, found)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        whole: dict[str, T | None] = {}
        for layer in reversed(self._layers):
            whole |= layer
        return (key for key, value in whole.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        # The lowest layer hides nothing and is larger than all others together, so some key of it is always visible.
        return bool(self._layers)
