"""Use a session without asyncio, and reach one from any place in a host: another thread or another event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import isawaitable
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload
from weakref import WeakKeyDictionary

import msgspec
from anyio.from_thread import start_blocking_portal

from ..errors import InputError, ReverieError, SessionError
from ..events import FellBack, Listener
from ..runtime.memory.session import Session

__all__ = ["HostConversations", "SessionBridge", "SyncSession", "as_async", "run_now", "sync_session"]

T = TypeVar("T")
C = TypeVar("C")
P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)
Action = Callable[[], Awaitable[T]]
Tried: TypeAlias = "Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]]"
"""Runs an operation on a session; after a failure it reports that and returns None."""

_ADVICE: Final = "reverie.integrations.sync_session.sync_session(Session.open(...))"
_NOT_ENTERED: Final = "session {} is not open: enter it with 'with SyncSession.open(...)'"
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


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for no event loop, so that one description serves blocking and other callers."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    raise RuntimeError("a blocking call waited for an event loop")


def as_async(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a function that blocks in the form of one that is awaited."""

    async def call(*args: P.args, **given: P.kwargs) -> T:
        return function(*args, **given)

    return call


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
    about: str | None = None


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

    async def try_now(self, what: str, action: Action[T]) -> T | None:
        """Do as ``try_call``, for a description of the work that is shared with asynchronous callers."""
        return self.try_call(what, action)

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
        return lambda: self.session.expand(asked.handle, offset=asked.offset or 0, about=asked.about or "")

    def report_fallback(self, what: str, why: BaseException | str) -> None:
        """Emit ``FellBack``: for the reason ``why`` the host goes on without the part named ``what``."""
        said = why if isinstance(why, str) else str(why) or type(why).__name__
        self.session.log.emit(FellBack(self.session.name, what, said))


class _Method(Protocol[P, T_co]):
    """A function of a class body, as type checkers see it: a method with these parameters."""

    def __get__(self, instance: SyncSession, owner: type[SyncSession], /) -> Callable[P, T_co]: ...


class _State(Generic[T]):
    """A property that reads the session."""

    def __init__(self, read: Callable[[Session], T]) -> None:
        self._read = read

    def __get__(self, instance: SyncSession, owner: type[SyncSession]) -> T:
        return self._read(instance.session)


@overload
def _blocking(method: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]) -> _Method[P, T]: ...


@overload
def _blocking(method: Callable[Concatenate[Session, P], T]) -> _Method[P, T]: ...


def _blocking(method: Callable[..., Any]) -> Any:
    """Return a method of ``Session`` as one that runs on the event loop of the session and waits for its result."""

    @wraps(method)
    def call(self: SyncSession, *args: Any, **given: Any) -> Any:
        async def act() -> Any:
            found = method(self.session, *args, **given)
            return await found if isawaitable(found) else found

        return self.call(act)

    return call


def _opening(make: Callable[P, Session]) -> Callable[P, SyncSession]:
    """Return a function that makes a session as one that makes the same session without ``await``."""

    @wraps(make)
    def made(*args: P.args, **given: P.kwargs) -> SyncSession:
        return SyncSession(make(*args, **given))

    return made


class SyncSession:
    """A ``Session`` without ``await``: enter it with ``with``; its event loop runs in a thread of its own."""

    EXPAND_TOOL: Final = Session.EXPAND_TOOL
    open = staticmethod(_opening(Session.open))
    post = staticmethod(Session.post)

    name = _State(lambda session: session.name)
    view = _State(lambda session: session.view)
    settings = _State(lambda session: session.settings)
    thresholds = _State(lambda session: session.thresholds)
    model = _State(lambda session: session.model)
    hooks = _State(lambda session: session.hooks)

    attach = _blocking(Session.attach)
    background_reply = _blocking(Session.background_reply)
    background_request = _blocking(Session.background_request)
    compact = _blocking(Session.compact)
    compact_reactively = _blocking(Session.compact_reactively)
    expand = _blocking(Session.expand)
    fork = _blocking(Session.fork)
    observe = _blocking(Session.observe)
    prepare = _blocking(Session.prepare)
    read_back = _blocking(Session.read_back)
    record_ping = _blocking(Session.record_ping)
    recover = _blocking(Session.recover)
    reload = _blocking(Session.reload)
    remove_context = _blocking(Session.remove_context)
    restore = _blocking(Session.restore)
    result = _blocking(Session.result)
    run = _blocking(Session.run)
    say = _blocking(Session.say)
    seconds_to_ping = _blocking(Session.seconds_to_ping)
    set_context = _blocking(Session.set_context)
    set_preset = _blocking(Session.set_preset)
    sync = _blocking(Session.sync)
    trim = _blocking(Session.trim)
    undo = _blocking(Session.undo)
    undo_price = _blocking(Session.undo_price)
    use_model = _blocking(Session.use_model)
    warming_request = _blocking(Session.warming_request)
    when_idle = _blocking(Session.when_idle)

    def __init__(self, session: Session) -> None:
        """Use a session that is not open yet; most callers use ``open``."""
        self.session = session
        self._stack = ExitStack()

    def __enter__(self) -> SyncSession:
        self._stack.enter_context(sync_session(self.session))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def listen(self, listener: Listener) -> None:
        """Call a listener with every event from now on, in the thread of the session's event loop."""
        self.session.listen(listener)

    def call(self, action: Action[T]) -> T:
        """Run an operation on the session's event loop and wait for its result; raise ``SessionError`` if not open."""
        home = _homes.get(self.session)
        if home is None:
            raise SessionError(_NOT_ENTERED.format(self.session.name))
        return SessionBridge(self.session).call(action)


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
