"""What is made when it is first used: names of a package, and patterns; a door costs only what goes through it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["lazily", "pattern"]


def lazily(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: its names by the module each lives in, written relative to it."""
    found = {name: home for home, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:
        home = found.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f".{home}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a regular expression that is compiled when it is first used: most runs use few of a module's."""
    late: Any = _Late(text, flags)
    return late


class _Late:
    """A pattern before its first use. What was asked of it once is its own from then on, and costs nothing more."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # nobody asks a pattern for those, but copying and pickling do
            raise AttributeError(name)
        import re

        value = getattr(re.compile(*self._given), name)  # which keeps what it compiled
        setattr(self, name, value)
        return value
