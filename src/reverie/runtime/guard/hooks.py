"""Hooks: commands and callables that run at an event and may change its effect.

All hooks of one event run at the same time, each with its own time limit. Their answers are merged in the order of
declaration, commands first. A hook that fails is reported as ``HookRan`` and has no effect.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from ...conversation.entries import clean
from ...events import Event, HookRan
from ...settings import HookCommand
from ...values import record
from .hook_answers import HookAnswer, HookOutcome, fenced_outcome, merged_outcome, read_answer, read_output

__all__ = ["HookOutcome", "Hooks"]

_SHOWN_CHARS: Final = 200
_TAG_BYTES: Final = 8
_OWN: Final = ("/", "~", "$", '"', "'")
"""How the path of a program begins that is not in the working directory."""
_ADVICE: Final = "write the whole path of the program, or trust the directory ('reverie trust')"
_NO_COMMANDS: Final[Mapping[str, tuple[HookCommand, ...]]] = {}
_NO_CALLABLES: Final[Mapping[str, Sequence[Callable[..., Any]]]] = {}
MAX_READ_BYTES: Final = 1_000_000
"""The most bytes kept of each of a command's stdout and stderr; the rest is dropped."""
_GRACE_SECONDS: Final = 1.0
_SHELL: Final = ("/bin/sh", "-c")


class Hooks:
    """Runs the hooks of one session, commands and callables by event name, and emits ``HookRan`` for each."""

    def __init__(
        self,
        commands: Mapping[str, tuple[HookCommand, ...]] = _NO_COMMANDS,
        callables: Mapping[str, Sequence[Callable[..., Any]]] = _NO_CALLABLES,
        *,
        session: str,
        cwd: str,
        emit: Callable[[Event], None],
        callable_seconds: float = 60.0,
        is_trusted: bool = True,
    ) -> None:
        """Run hooks in ``cwd``; if it is not trusted, no command with a relative path, which is a file there."""
        self._commands = commands
        self._callables = callables
        self._session = session
        self._cwd = cwd
        self._emit = emit
        self._callable_seconds = callable_seconds
        self._is_trusted = is_trusted

    def wants(self, event: str) -> bool:
        """Return whether any hook is declared for this event."""
        return bool(self._commands.get(event) or self._callables.get(event))

    async def run(self, event: str, payload: Mapping[str, Any], *, tool: str = "") -> HookOutcome:
        """Run all hooks of an event at the same time and return their merged outcome; cancelling ends them.

        ``tool`` is the called tool's name, which a command's matcher must accept. A failing hook has no effect.
        """
        if not self.wants(event):
            return HookOutcome()
        tag = os.urandom(_TAG_BYTES).hex()
        given = _encoded({"hook_event_name": event, "session_id": self._session, "cwd": self._cwd, **payload})
        answers: dict[int, HookOutcome] = {}
        commands = len(self._commands.get(event, ()))

        async def ask(place: int, name: str, answer: Callable[[], Awaitable[HookAnswer]]) -> None:
            found = await answer()
            self._report(name, event, found)
            source = _program(name) if place < commands else name
            answers[place] = fenced_outcome(found.outcome, hook=source, event=event, tag=tag)

        async with anyio.create_task_group() as group:
            for place, command in enumerate(self._commands.get(event, ())):
                if self._matches(command, event, tool):
                    asked = partial(self._ask_command, command, event, given)
                    group.start_soon(ask, place, command.command, asked)
            for place, called in enumerate(self._callables.get(event, ()), start=commands):
                group.start_soon(ask, place, _name_of(called), partial(self._ask_callable, called, event, given))
        return merged_outcome([answers[place] for place in sorted(answers)])

    def _matches(self, command: HookCommand, event: str, tool: str) -> bool:
        """Return whether a command hook's matcher accepts the tool; without a tool every command runs.

        An invalid matcher is reported and accepts nothing.
        """
        if not tool or command.matcher in ("", "*"):
            return True
        try:
            return re.fullmatch(command.matcher, tool) is not None
        except re.error as error:
            problem = f"the matcher {command.matcher!r} is not a regular expression: {error}"
            self._report(command.command, event, HookAnswer(HookOutcome(), problem))
            return False

    def _report(self, name: str, event: str, answer: HookAnswer) -> None:
        shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}..."
        self._emit(HookRan(self._session, shown, event, answer.outcome.message, answer.problem))

    async def _ask_command(self, command: HookCommand, event: str, given: bytes) -> HookAnswer:
        environment = {
            "REVERIE_HOOK_EVENT": event,
            "REVERIE_HOOK_SESSION": self._session,
            "REVERIE_HOOK_CWD": self._cwd,
        }
        limit = command.timeout_seconds
        program = _program(command.command)
        if not self._is_trusted and "/" in program and not program.startswith(_OWN):
            return HookAnswer(HookOutcome(), f"not run: {program} is in a directory that is not trusted; {_ADVICE}")
        try:
            ran = await run_command(
                command.command, given, cwd=self._cwd, environment=environment, timeout_seconds=limit
            )
        except (OSError, ValueError) as error:
            return HookAnswer(HookOutcome(), f"it cannot be run: {error}")
        if ran.code is None:
            return HookAnswer(HookOutcome(), f"it did not finish in {limit:g} s and was ended")
        return read_output(event, ran.code, ran.out, ran.err)

    async def _ask_callable(self, called: Callable[..., Any], event: str, given: bytes) -> HookAnswer:
        try:
            with anyio.fail_after(self._callable_seconds):
                return read_answer(event, await _call_hook(called, msgspec.json.decode(given)))
        except TimeoutError as error:
            own = f": {error}" if str(error) else ""
            return HookAnswer(HookOutcome(), f"it did not finish in {self._callable_seconds:g} s{own}")
        except Exception as error:
            return HookAnswer(HookOutcome(), f"{type(error).__name__}: {error}")


async def _call_hook(called: Callable[..., Any], given: dict[str, Any]) -> object:
    """Call a hook with the event and return its answer; a synchronous hook runs in a thread, as it may block."""
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(getattr(called, "__call__", None)):  # noqa: B004 - is it async?
        return await called(given)
    found: object = await to_thread.run_sync(called, given, abandon_on_cancel=True)
    return await cast("Awaitable[object]", found) if inspect.isawaitable(found) else found


def _encoded(given: Mapping[str, Any]) -> bytes:
    """Return the event as one line of JSON; convert values that JSON cannot hold to the nearest form."""
    try:
        return msgspec.json.encode(given) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.json.encode(clean(dict(given))) + b"\n"


def _program(command: str) -> str:
    """Return the program that a command starts with; the rest may hold a secret that is not for the model."""
    return next((word for word in command.split() if "=" not in word), "command")[:_SHOWN_CHARS]


def _name_of(called: Callable[..., Any]) -> str:
    module, name = getattr(called, "__module__", ""), getattr(called, "__qualname__", "")
    return f"{module}.{name}" if module and name else type(called).__qualname__


@record
class HookCommandResult:
    """The exit code and output of a hook command."""

    code: int | None
    """The exit code, negative for a signal; None if the command exceeded its time limit."""
    out: str
    err: str


class _Output:
    """The beginning of a command's output stream, up to ``MAX_READ_BYTES``."""

    def __init__(self) -> None:
        self.ended = False
        self._data = bytearray()

    async def read(self, stream: ByteReceiveStream | None) -> None:
        """Read a stream to its end, keep the first ``MAX_READ_BYTES`` and set ``ended``."""
        if stream is not None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for chunk in stream:
                    self._data += chunk[: MAX_READ_BYTES - len(self._data)]
        self.ended = True

    def text(self) -> str:
        """Return the kept bytes as text, with replacement characters for invalid bytes."""
        return self._data.decode("utf-8", "replace")


async def run_command(
    command: str, given: bytes, *, cwd: str, environment: Mapping[str, str], timeout_seconds: float
) -> HookCommandResult:
    """Run a command with ``/bin/sh -c`` and ``given`` as its stdin; kill its process group at the time limit."""
    process = await _start(command, cwd, environment)
    out, err = _Output(), _Output()
    over = False
    try:
        with anyio.move_on_after(timeout_seconds):
            await _talk(process, given, out, err)
            over = True
    finally:
        # A process that still holds the output is in the group, so the group's number is still valid.
        if not (over and out.ended and err.ended):
            kill_group(process.pid)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return HookCommandResult(process.returncode if over else None, out.text(), err.text())


async def _start(command: str, cwd: str, environment: Mapping[str, str]) -> Process:
    """Start a command in a process group of its own, shielded from cancellation, and return its process.

    A command that is cancelled during its start would keep running.
    """
    with anyio.CancelScope(shield=True):
        return await anyio.open_process(
            [*_SHELL, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    raise AssertionError("a shielded scope does not swallow anything")


async def _talk(process: Process, given: bytes, out: _Output, err: _Output) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_feed, process.stdin, given)
        group.start_soon(out.read, process.stdout)
        group.start_soon(err.read, process.stderr)
        await process.wait()
        group.cancel_scope.deadline = anyio.current_time() + _GRACE_SECONDS


async def _feed(stream: ByteSendStream | None, given: bytes) -> None:
    """Write the input to a command's stdin and close it; ignore a command that does not read its input."""
    if stream is not None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await stream.send(given)
        with suppress(OSError):
            await stream.aclose()


def kill_group(leader: int) -> None:
    """Kill a process and all others of its group; one that has ended is no error."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
