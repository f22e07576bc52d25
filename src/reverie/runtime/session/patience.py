"""How long a closing session waits for side questions: as long as one of them is answering, else 5 seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

SILENT_SECONDS: Final = 5.0
LEFT: Final = "not finished when the session closed, because the model was silent; the next session does it"


class Patience:
    """Ends the wait for side questions 5 seconds after the closing began or the last piece of an answer arrived."""

    def __init__(self) -> None:
        self._since: float | None = None

    def hear(self) -> None:
        """Take note that a piece of an answer arrived."""
        if self._since is not None:
            self._since = anyio.current_time()

    async def wait(self, wait: Callable[[float], Awaitable[bool]], most_seconds: float) -> bool:
        """Wait by a function that takes seconds and returns whether the work is done; return that in the end.

        All waits of one closing share the same patience. A function that returns early, with no piece
        heard, gave the work up.
        """
        if self._since is None:
            self._since = anyio.current_time()
        deadline = anyio.current_time() + most_seconds
        while True:
            now, since = anyio.current_time(), self._since
            until = min(since + SILENT_SECONDS, deadline)
            if await wait(max(0.0, until - now)):
                return True
            gave_up = self._since == since and anyio.current_time() < until
            if gave_up or now >= until:
                return False
