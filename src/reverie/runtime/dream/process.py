"""The child process of a dream: run one dream by command line options, within a time limit.

``control.start`` starts this module with ``python -m``.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...errors import ModelUnknown, ReverieError
from ...models import open_model
from ...settings import Settings, load_settings
from ...values import replace
from ..memory.memory import Memory
from ..memory.scopes import memory_directory
from ..places.projects import canonical_root
from .control import DREAM_ALIAS, dream_model
from .dreams import Dreams
from .lock import DreamLock, pull_stamp

_OVERTIME_SECONDS: Final = 60.0  # a dream ends itself at its time limit; the alarm ends one that does not
_FAILED: Final = 1
_STOPPED_BY_SIGNAL: Final = 128 + signal.SIGTERM


def end_after(seconds: float) -> None:
    """Make the system end this process after so many seconds, even if it hangs."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGTERM})
    signal.setitimer(signal.ITIMER_REAL, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one dream by command line options and return the exit code."""
    options = _options(arguments)
    end_after(_OVERTIME_SECONDS)
    try:
        settings = load_settings(home=options.home, project=canonical_root(options.project))
        if options.memory_dir and options.memory_dir != memory_directory(options.project, settings).absolute():
            settings = replace(settings, memory_dir=options.memory_dir)  # which is never a copy of shared memories
        end_after(settings.dream.timeout_seconds + _OVERTIME_SECONDS)
        if settings.database is not None:
            pull_stamp(Memory.open(options.project, settings=settings).store)
        last = DreamLock(memory_directory(options.project, settings)).last()
        if options.only_if_due and settings.dream.seconds_until_due(time.time(), last) > 0.0:
            return 0
        return asyncio.run(_dream(options, settings))
    except ReverieError as error:
        print(" ".join(f"{type(error).__name__}: {error}".split()), file=sys.stderr)
        return _FAILED


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reverie.runtime.dream.process", description=__doc__)
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--memory-dir", type=Path, default=None)
    parser.add_argument("--model", default=None)
    parser.add_argument("--local", action="store_true")
    parser.add_argument("--confirmed", action="store_true")
    parser.add_argument("--only-if-due", action="store_true")
    return parser.parse_args(arguments)


async def _dream(options: argparse.Namespace, settings: Settings) -> int:
    name = None if options.local else dream_model(settings, options.model or "")
    model = None
    try:
        model = open_model(name, aliases=settings.model_aliases, corrections=settings.models) if name else None
    except ModelUnknown as error:
        if options.model or settings.model or DREAM_ALIAS in settings.model_aliases:
            raise
        print(f"the dream uses no model: {error}", file=sys.stderr)  # the default one, without its package
    try:
        memory = Memory.open(options.project, settings=settings)
        dreams = Dreams(memory, settings, project=options.project, model=model)
        with _cancelled_by_signals():
            await dreams.run(confirmed=options.confirmed)
    except asyncio.CancelledError:
        return _STOPPED_BY_SIGNAL
    finally:
        if model is not None:
            await model.aclose()
    return 0


@contextmanager
def _cancelled_by_signals() -> Generator[None]:
    """Cancel the current task on SIGTERM, SIGINT or SIGHUP inside the context, so that the dream cleans up."""
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
