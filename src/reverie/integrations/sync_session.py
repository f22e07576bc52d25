"""How a host reaches a session from wherever it runs: another thread, another event loop, or no event loop at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from anyio.from_thread import start_blocking_portal

from ..errors import SessionError
from ..events import FellBack
from ..runtime.session.session import Session

__all__ = ["SessionBridge", "sync_session"]

T = TypeVar("T")
Action = Callable[[], Awaitable[T]]

_ADVICE: Final = "reverie.integrations.sync_session.sync_session(Session.open(...))"
_homes: WeakKeyDictionary[Session, asyncio.AbstractEventLoop] = WeakKeyDictionary()


@contextmanager
def sync_session(session: Session) -> Generator[Session]:
    """Keep a session open on a thread of its own, for hosts that have no event loop or several."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(session) as entered:
        _homes[entered] = portal.call(_current_loop)
        try:
            yield entered
        finally:
            del _homes[entered]


async def _current_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class SessionBridge:
    """Runs what a session is to do on the event loop it lives on, and never lets its failure become the host's."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._home = _homes.get(session) or _loop_here()

    def call(self, act: Action[T]) -> T:
        """Do it from a thread that has no event loop, and wait."""
        home = self._home = self._home or _homes.get(self.session)
        if home is None or home.is_closed():
            raise SessionError(
                f"session {self.session.name} runs nowhere that a synchronous call could reach: open it with {_ADVICE}"
            )
        if _loop_here() is home:
            raise SessionError(
                f"a synchronous call would block the event loop that session {self.session.name} runs on: call from a "
                f"thread, use the asynchronous client, or open it with {_ADVICE}"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(act), home).result()

    async def acall(self, act: Action[T]) -> T:
        """Do it from any event loop."""
        here = _loop_here()
        self._home = home = self._home or _homes.get(self.session) or here
        if home is None or home is here:
            return await act()
        if home.is_closed():
            raise SessionError(
                f"the event loop that session {self.session.name} was opened on is closed: open it where it is used, "
                f"or with {_ADVICE}"
            )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(act), home))

    def softly(self, what: str, act: Action[T]) -> T | None:
        """Do it; where that fails, say so to whoever listens and return nothing."""
        try:
            return self.call(act)
        except Exception as error:
            self.fell_back(what, error)
            return None

    async def asoftly(self, what: str, act: Action[T]) -> T | None:
        """Do it from any event loop; where that fails, say so to whoever listens and return nothing."""
        try:
            return await self.acall(act)
        except Exception as error:
            self.fell_back(what, error)
            return None

    def fell_back(self, what: str, why: BaseException | str) -> None:
        """Tell whoever listens that the host goes on without us here."""
        said = why if isinstance(why, str) else str(why) or type(why).__name__
        self.session.emit(FellBack(self.session.name, what, said))


async def _awaited(act: Action[T]) -> T:
    return await act()
