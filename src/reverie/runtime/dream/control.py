"""Start a dream in a process of its own, stop one, and take the lock of a memory directory.

The child leads its own session and shares no terminal and no pipe with its parent, so neither waits for the other: the
child may outlive the parent, is reaped while the parent lives, and ends at its time limit in any case.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from ...errors import InputError, ModelUnknown
from ...layers.l6_dream import DreamPolicy
from ...memories.store.journal_files import JOURNAL
from ...models.names import full_name
from ...paths import explained, open_file
from ...settings import Settings
from ...values import record
from ..places.processes import end
from .lock import DreamLock, HeldLock, LockHolder

DREAM_ALIAS: Final = "dream"
"""The alias of the model for dreams, if it is not the one in use."""

STDERR: Final = "dream-stderr"
"""The journal file that receives the standard error of a child."""
_MAX_STDERR_BYTES: Final = 64_000
_GRACE_SECONDS: Final = 5.0
_FREED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.01


@record
class StoppedDream:
    """A dream whose process received a signal to end; ``gone`` says whether the process has ended."""

    holder: LockHolder
    gone: bool


def dream_model(settings: Settings, in_use: str = "") -> str | None:
    """Return the full name of the model for a dream; None if there is none.

    The alias ``dream`` comes first, then the model in use (that of a session), the configured one, and the default one
    by the keys in the environment.
    """
    set_here = settings.model_aliases.get(DREAM_ALIAS) or settings.model
    names = [settings.model_aliases.get(DREAM_ALIAS), in_use, settings.model]
    for asked in (*filter(None, names), None):
        try:
            return full_name(asked, aliases=settings.model_aliases)
        except ModelUnknown:
            if asked and asked == set_here:
                raise
    return None


def start(
    project: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str],
    memory_dir: str | os.PathLike[str],
    model: str | None = None,
    local: bool = False,
    confirmed: bool = False,
    only_if_due: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Start a dream over a project's memories in a process of its own and return the process id.

    ``model`` is the name of the model in use, ``local`` uses none; ``confirmed`` allows more deletions than the
    policy does; ``only_if_due`` ends the process if another dream ran first.
    """
    if not sys.executable:
        raise InputError("the path of the Python interpreter is unknown; run 'reverie dream --now' instead")
    command = [sys.executable, "-P", "-m", "reverie.runtime.dream.process"]  # -P: import no module of the project
    directory = os.path.abspath(memory_dir)
    command += ["--project", os.path.abspath(project), "--home", os.path.abspath(home), "--memory-dir", directory]
    command += ["--model", model] if model else []
    wanted = {"--local": local, "--confirmed": confirmed, "--only-if-due": only_if_due}
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
    """Open the file for a child's standard error, emptied if too large, and return its descriptor."""
    with explained("write", os.path.join(root, JOURNAL, STDERR)):
        descriptor = open_file(root, f"{JOURNAL}/{STDERR}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(descriptor).st_size > _MAX_STDERR_BYTES:
            os.ftruncate(descriptor, 0)
    return descriptor


def stop(directory: str | os.PathLike[str], *, grace_seconds: float = _GRACE_SECONDS) -> StoppedDream | None:
    """Stop the dream over a directory by SIGTERM, then SIGKILL, and return it; None if no dream is running."""
    return _stopped(DreamLock(directory).holder(), grace_seconds)


def stop_hung(directory: str | os.PathLike[str], policy: DreamPolicy) -> StoppedDream | None:
    """Stop the dream over a directory if it has held the lock for too long; return None if no dream is hung."""
    holder = DreamLock(directory).holder()
    return _stopped(holder, _GRACE_SECONDS) if holder and holder.is_hung(policy.hung_minutes * 60.0) else None


def _stopped(holder: LockHolder | None, grace_seconds: float) -> StoppedDream | None:
    if holder is None:
        return None
    if holder.pid == os.getpid():
        raise InputError("the dream runs in this process; cancel it here instead of stopping the process")
    return StoppedDream(holder, end(holder.who, grace_seconds=grace_seconds))


def take_lock(directory: str | os.PathLike[str], policy: DreamPolicy, now: float) -> HeldLock | None:
    """Take the lock of a directory, stopping a hung dream that holds it; return None if a dream is running."""
    lock = DreamLock(directory)
    held = lock.take(now)
    holder = lock.holder() if held is None else None
    if holder is None or holder.pid == os.getpid():
        return held
    ended = stop_hung(directory, policy)
    deadline = time.monotonic() + _FREED_SECONDS
    while held is None and ended is not None and ended.gone and time.monotonic() < deadline:
        held = lock.take(now)  # the last thread of the stopped process may still be ending
        if held is None:
            time.sleep(_POLL_SECONDS)
    return held
