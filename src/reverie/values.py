"""How this package spells an immutable record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, dataclass_transform

__all__ = ["field", "record", "replace"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=False, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen, slotted dataclass."""
    make: Any = dataclass(frozen=True, slots=True)
    return make(cls)
