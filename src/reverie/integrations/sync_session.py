"""Reach a session from any place in a host: another thread, another event loop, or no event loop at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from anyio.from_thread import start_blocking_portal

from ..errors import InputError, ReverieError, SessionError
from ..events import FellBack
from ..runtime.session.session import Session

__all__ = ["HostConversations", "SessionBridge", "sync_session"]

T = TypeVar("T")
C = TypeVar("C")
Action = Callable[[], Awaitable[T]]

_ADVICE: Final = "reverie.integrations.sync_session.sync_session(Session.open(...))"
_homes: WeakKeyDictionary[Session, asyncio.AbstractEventLoop] = WeakKeyDictionary()


@contextmanager
def sync_session(session: Session) -> Generator[Session]:
    """Open a session on an event loop in its own thread and yield it; close it when the ``with`` block ends."""
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


class _ExpandInput(msgspec.Struct):
    """The arguments of the tool ``expand`` that it reads; models send others too."""

    handle: str
    offset: int | None = None


class SessionBridge:
    """A way to run operations on the event loop of a session; the ``try_`` methods keep failures from the host."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._home = _homes.get(session) or _loop_here()

    def call(self, action: Action[T]) -> T:
        """Run an operation on the session's event loop from another thread, and wait for its result.

        Raise ``SessionError`` if the session has no open event loop, or if the call would block that loop.
        """
        home = self._home = self._home or _homes.get(self.session)
        if home is None or home.is_closed():
            raise SessionError(
                f"session {self.session.name} has no event loop for synchronous calls: open it with {_ADVICE}"
            )
        if _loop_here() is home:
            raise SessionError(
                f"a synchronous call would block the event loop that session {self.session.name} runs on: call from a "
                f"thread, use the asynchronous client, or open it with {_ADVICE}"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(action), home).result()

    async def acall(self, action: Action[T]) -> T:
        """Run an operation on the session's event loop from any event loop and return its result.

        Raise ``SessionError`` if the session's event loop is closed.
        """
        here = _loop_here()
        self._home = home = self._home or _homes.get(self.session) or here
        if home is None or home is here:
            return await action()
        if home.is_closed():
            raise SessionError(
                f"the event loop that session {self.session.name} was opened on is closed: open it where it is used, "
                f"or with {_ADVICE}"
            )
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(action), home))

    def try_call(self, what: str, action: Action[T]) -> T | None:
        """Run an operation as ``call`` does; on failure emit ``FellBack`` about ``what`` and return None."""
        try:
            return self.call(action)
        except Exception as error:
            self.report_fallback(what, error)
            return None

    async def try_acall(self, what: str, action: Action[T]) -> T | None:
        """Run an operation as ``acall`` does; on failure emit ``FellBack`` about ``what`` and return None."""
        try:
            return await self.acall(action)
        except Exception as error:
            self.report_fallback(what, error)
            return None

    async def expand(self, /, **given: Any) -> str:
        """Return one level of a handle as the tool ``expand`` shows it, or the reason why it cannot be opened."""
        try:
            return await self.acall(self._expansion(given))
        except ReverieError as error:
            return str(error)

    def expand_blocking(self, /, **given: Any) -> str:
        """Do the same as ``expand`` from a thread without an event loop."""
        try:
            return self.call(self._expansion(given))
        except ReverieError as error:
            return str(error)

    def _expansion(self, given: Mapping[str, Any]) -> Action[str]:
        """Return the operation that a model's arguments ask for; raise ``InputError`` if they are not valid."""
        try:
            asked = msgspec.convert(given, _ExpandInput, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"{error}: give a handle as text, and an offset as a whole number") from None
        return lambda: self.session.expand(asked.handle, offset=asked.offset or 0)

    def report_fallback(self, what: str, why: BaseException | str) -> None:
        """Emit ``FellBack``: for the reason ``why`` the host goes on without the part named ``what``."""
        said = why if isinstance(why, str) else str(why) or type(why).__name__
        self.session.log.emit(FellBack(self.session.name, what, said))


class HostConversations(Generic[C]):
    """The conversations of a host, each made once: that of the one session, or one for each id of the host."""

    def __init__(self, session: Session | Callable[[str], Session], make: Callable[[Session], C]) -> None:
        self._session = session
        self._make = make
        self._made: WeakKeyDictionary[Session, C] = WeakKeyDictionary()
        if isinstance(session, Session):
            self.find(str)

    def find(self, id: Callable[[], str]) -> C:
        """Return the conversation with the host's current id, which is asked for only where there are several."""
        session = self._session if isinstance(self._session, Session) else self._session(id())
        found = self._made.get(session)
        if found is None:
            found = self._made[session] = self._make(session)
        return found


async def _awaited(action: Action[T]) -> T:
    return await action()
