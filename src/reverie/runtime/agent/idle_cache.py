"""Keep an agent's cache warm between two requests, while a tool, an answer or the next prompt takes its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

import anyio
from anyio.abc import TaskGroup

from ...errors import ReverieError
from ...events import BackgroundChanged
from ...ports import Model
from ..session.cache_renewal import KEEP_WARM, keeps_warm
from ..session.session import Session


class IdleCache:
    """Renews the provider's cache between two requests as often as it pays, or compacts while it is cached."""

    def __init__(
        self, session: Session, tasks: TaskGroup, *, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        self._session = session
        self._tasks = tasks
        self._sleep = sleep
        self._scope: anyio.CancelScope | None = None

    def start(self, model: Model, may_spend: Callable[[], bool]) -> None:
        """Begin to wait for the end of the cache's lifetime; do nothing unless the user turned it on.

        ``may_spend`` says whether the budgets allow one more request.
        """
        self.stop()
        if keeps_warm(self._session.parts):
            self._scope = anyio.CancelScope()
            self._tasks.start_soon(self._run, model, may_spend, self._scope)

    def stop(self) -> None:
        """Send no further ping; one under way is given up."""
        if self._scope is not None:
            self._scope.cancel()
        self._scope = None

    async def _run(self, model: Model, may_spend: Callable[[], bool], scope: anyio.CancelScope) -> None:
        session = self._session
        shown = False
        try:
            with scope:
                for pings in count():
                    await self._sleep(session.seconds_to_ping())
                    request = session.warming_request()
                    if request is None or not may_spend() or await session.when_idle(pings) != "ping":
                        return
                    if not shown:
                        shown = True
                        session.log.emit(BackgroundChanged(session.name, KEEP_WARM, "started"))
                    reply = await model.complete(request)
                    await session.record_ping(reply.body)
        except ReverieError:
            return  # the next request pays for the cache again, or fails with the same reason
        finally:
            if shown:
                session.log.emit(BackgroundChanged(session.name, KEEP_WARM, "completed"))
