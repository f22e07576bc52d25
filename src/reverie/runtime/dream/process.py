"""A dream in a process of its own: starting one, ending one that hangs or is not wanted, and being one.

The child leads a session of its own and holds no terminal and no pipe of whoever started it, so that neither waits for
the other: it may outlive them, is reaped while they live, and ends by its own time limit whatever it is doing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...errors import InputError, ReverieError
from ...layers.l6_dream import DreamPolicy, seconds_until_due
from ...memories.store.journal_files import JOURNAL
from ...paths import explained, open_file
from ...settings import Settings, load_settings
from ...values import record
from ..memory.scopes import memory_directory
from ..places.processes import end
from ..places.projects import canonical_root
from .lock import DreamLock, Held, Holder

__all__ = ["STDERR", "Ended", "end_after", "end_hung", "kill", "main", "start", "take_lock"]

STDERR: Final = "dream-stderr"
"""The file of the journal that gets what a child says on its way down."""
_MAX_STDERR_BYTES: Final = 64_000
_GRACE_SECONDS: Final = 5.0
_OVERTIME_SECONDS: Final = 60.0  # a dream ends itself at its time limit; this is for one that does not
_FREED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01
_FAILED: Final = 1
_TOLD_TO_END: Final = 128 + signal.SIGTERM


@record
class Ended:
    """A dream that was told to end; ``gone`` says whether its process is."""

    holder: Holder
    gone: bool


def start(
    project: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str],
    memory_dir: str | os.PathLike[str],
    model: str | None = None,
    local: bool = False,
    dry_run: bool = False,
    confirmed: bool = False,
    only_if_due: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Start a dream over a project's memories in a process of its own and return its number.

    With ``local`` no model is asked, even where one is set; with ``only_if_due`` it does nothing where another dream
    came first.
    """
    if not sys.executable:
        raise InputError("this program does not know its Python, so it cannot start a dream; run 'reverie dream --now'")
    command = [sys.executable, "-P", "-m", "reverie.runtime.dream.process"]  # -P: nothing of the project is imported
    directory = os.path.abspath(memory_dir)
    command += ["--project", os.path.abspath(project), "--home", os.path.abspath(home), "--memory-dir", directory]
    command += ["--model", model] if model else []
    wanted = {"--local": local, "--dry-run": dry_run, "--confirmed": confirmed, "--only-if-due": only_if_due}
    command += [name for name, on in wanted.items() if on]
    errors = _stderr(directory)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env=None if environ is None else dict(environ),
        )
    finally:
        os.close(errors)
    threading.Thread(target=process.wait, name=f"dream {process.pid}", daemon=True).start()
    return process.pid


def _stderr(root: str) -> int:
    """Open what a child may say before it can write a report; old words go when they are too many."""
    with explained("write", os.path.join(root, JOURNAL, STDERR)):
        descriptor = open_file(root, f"{JOURNAL}/{STDERR}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(descriptor).st_size > _MAX_STDERR_BYTES:
            os.ftruncate(descriptor, 0)
    return descriptor


def kill(directory: str | os.PathLike[str], *, grace_seconds: float = _GRACE_SECONDS) -> Ended | None:
    """End the dream over a directory, first by asking; None where nobody is dreaming."""
    return _ended(DreamLock(directory).holder(), grace_seconds)


def end_hung(
    directory: str | os.PathLike[str], policy: DreamPolicy, *, grace_seconds: float = _GRACE_SECONDS
) -> Ended | None:
    """End the dream over a directory if it has held the lock for too long; None where none has."""
    holder = DreamLock(directory).holder()
    return _ended(holder, grace_seconds) if holder and holder.is_hung(policy.hung_minutes * 60.0) else None


def _ended(holder: Holder | None, grace_seconds: float) -> Ended | None:
    if holder is None:
        return None
    if holder.pid == os.getpid():
        raise InputError("this very process is dreaming; cancel the dream here instead of ending the process")
    return Ended(holder, end(holder.who, grace_seconds=grace_seconds))


def take_lock(directory: str | os.PathLike[str], policy: DreamPolicy, now: float) -> Held | None:
    """Take the lock of a directory, ending a hung dream that is in the way; None where a dream is going on."""
    lock = DreamLock(directory)
    held = lock.take(now)
    holder = lock.holder() if held is None else None
    if holder is None or holder.pid == os.getpid():
        return held
    ended = end_hung(directory, policy)
    deadline = time.monotonic() + _FREED_SECONDS
    while held is None and ended is not None and ended.gone and time.monotonic() < deadline:
        held = lock.take(now)  # the last of its threads may still be on its way out
        if held is None:
            time.sleep(_POLL_SECONDS)
    return held


# -- being one


def end_after(seconds: float) -> None:
    """Let the system end this process after so long, whatever it is doing then."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Dream once, as told on the command line, and return the exit code."""
    options = _options(arguments)
    end_after(_OVERTIME_SECONDS)
    try:
        given = {"memory_dir": options.memory_dir} if options.memory_dir else {}
        settings = load_settings(home=options.home, project=canonical_root(options.project), arguments=given)
        end_after(settings.dream.timeout_seconds + _OVERTIME_SECONDS)
        last = DreamLock(memory_directory(options.project, settings)).last()
        if options.only_if_due and seconds_until_due(time.time(), last, settings.dream) > 0.0:
            return 0
        return asyncio.run(_dream(options, settings))
    except ReverieError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return _FAILED


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reverie.runtime.dream.process", description=__doc__)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--memory-dir", default=None)
    parser.add_argument("--model", default=None)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--confirmed", action="store_true")
    parser.add_argument("--only-if-due", action="store_true")
    return parser.parse_args(arguments)


async def _dream(options: argparse.Namespace, settings: Settings) -> int:
    from ...models import open_model
    from ..memory.memory import Memory
    from .dreams import Dreams

    name = None if options.local else options.model or settings.model
    model = open_model(name, aliases=settings.model_aliases) if name else None
    try:
        memory = Memory.open(options.project, settings=settings)
        dreams = Dreams(memory, settings, project=options.project, model=model)
        with _ended_by_signals():
            await dreams.run(dry_run=options.dry_run, confirmed=options.confirmed)
    except asyncio.CancelledError:
        return _TOLD_TO_END
    finally:
        if model is not None:
            await model.aclose()
    return 0


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """Turn being told to end into the cancellation of what runs, which then leaves things as they should be."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


if __name__ == "__main__":
    sys.exit(main())
