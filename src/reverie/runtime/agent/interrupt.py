"""Interrupt a running query from outside, with one cancel scope per step."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from anyio import CancelScope

__all__ = ["Interrupt", "QueryInterrupted"]

T = TypeVar("T")


class QueryInterrupted(Exception):
    """Raised when the user stopped the query; the runtime catches it itself."""


class Interrupt:
    """Cancels the step that a running query is waiting for.

    A query is an async generator, and a cancel scope must not stay open while a generator is suspended. Each step
    that may take long therefore runs in a scope of its own.
    """

    def __init__(self) -> None:
        self._is_requested = False
        self._scope: CancelScope | None = None

    def request(self) -> None:
        """Cancel the guarded step that runs now and every later one, until ``reset``."""
        self._is_requested = True
        if self._scope is not None:
            self._scope.cancel()

    def reset(self) -> None:
        """Forget an earlier request; call this before a new query."""
        self._is_requested = False

    async def guard(self, step: Awaitable[T]) -> T:
        """Await a step and return its result; on an interrupt request cancel it and raise ``QueryInterrupted``."""
        with CancelScope() as scope:
            self._scope = scope
            if self._is_requested:
                scope.cancel()
            try:
                return await step
            finally:
                self._scope = None
        raise QueryInterrupted
