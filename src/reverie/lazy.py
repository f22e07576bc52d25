"""Lazy loading: names of a package are imported, and regular expressions compiled, on first use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports a name from its module on first use.

    ``homes`` maps module paths relative to the package to the names they define.
    """
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


def lazily_from(package: str, *modules: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that finds a name in the first of its modules that has the name.

    A module is imported only where those before it lack the name, so modules that must load alone come first.
    """

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        this = sys.modules[package]
        for module in () if name in modules or name.startswith("_") else modules:
            found = vars(import_module(f".{module}", package))
            if name in found:
                setattr(this, name, found[name])
                return found[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a stand-in for a regular expression, compiled on first use, since most runs use few patterns."""
    late: Any = _LazyPattern(text, flags)
    return late


class _LazyPattern:
    """A regular expression that is compiled on first use; each of its methods is stored here on first access."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = (text, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # patterns have none, but copying and pickling look for them
            raise AttributeError(name)
        import re

        value = getattr(re.compile(*self._given), name)  # re caches compiled patterns
        setattr(self, name, value)
        return value
