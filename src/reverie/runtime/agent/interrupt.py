"""Stopping a query from outside, without a cancel scope that outlives one step."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from anyio import CancelScope

__all__ = ["Interrupt", "QueryInterrupted"]

T = TypeVar("T")


class QueryInterrupted(Exception):
    """The user stopped the query; raised and caught within the runtime."""


class Interrupt:
    """Ends whatever step is being waited for.

    A query is an async generator, and a cancel scope must not stay open while a generator is suspended: each step that
    may take long is waited for in a scope of its own.
    """

    def __init__(self) -> None:
        self._asked = False
        self._scope: CancelScope | None = None

    @property
    def asked(self) -> bool:
        """Whether somebody wants the query to end."""
        return self._asked

    def ask(self) -> None:
        """End the query at the step it is in."""
        self._asked = True
        if self._scope is not None:
            self._scope.cancel()

    def reset(self) -> None:
        """Begin a new query."""
        self._asked = False

    async def guard(self, step: Awaitable[T]) -> T:
        """Wait for a step, or raise ``Interrupted`` as soon as somebody asks."""
        with CancelScope() as scope:
            self._scope = scope
            if self._asked:
                scope.cancel()
            try:
                return await step
            finally:
                self._scope = None
        raise QueryInterrupted
