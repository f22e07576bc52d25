"""Take and release one dream's lock, with the process killed or a call failing at each step.

Run as ``python dream_steps.py SOURCE SITE FOLDER ACT BEFORE FAULT KIND``; prints the state after each step as JSON. A
step is a system call of the lock, detected with the interpreter's own profiling hook. ACT is ``succeed`` or ``fail``,
BEFORE ``stamped`` or ``new``, FAULT ``kill`` or an error's name, KIND ``ours`` or ``in_place`` for a stamp whose file
is written over and then given its time.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = sys.argv[1:3]

from reverie.errors import StorageError  # noqa: E402
from reverie.runtime.dream.lock import DreamLock  # noqa: E402

FOLDER, (ACT, BEFORE, FAULT, KIND) = Path(sys.argv[3]), sys.argv[4:8]
ROOT = FOLDER / "memory"
STAMP = ROOT / ".consolidate-lock"
INSIDE = ("fspath", "_path_normpath", "getpid")  # never leave the process, or never fail
EARLIER, START, NEXT = 1_700_000_000.25, 1_800_000_000.5, 1_800_100_000.0


class InPlace(DreamLock):
    """The known-bad twin: between the writing and the setting of the time, the time is now."""

    def write_stamp(self, holder) -> None:  # type: ignore[no-untyped-def]
        descriptor = os.open(self.stamp_path, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, holder.note)
        os.close(descriptor)
        os.utime(self.stamp_path, (holder.began, holder.began))


LOCK = {"ours": DreamLock, "in_place": InPlace}[KIND]


def prepare() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    (ROOT / ".journal").mkdir(parents=True)
    if BEFORE == "stamped":
        STAMP.write_text("{}")
        os.utime(STAMP, (EARLIER, EARLIER))


def act() -> None:
    held = LOCK(ROOT).take(START)
    assert held is not None
    held.succeed() if ACT == "succeed" else held.fail()


def faulty(step: int) -> None:
    """Do the act in this process with the fault at this step; end with 3 where it has none left to go wrong."""
    seen = 0

    def watch(_frame: object, event: str, called: Any) -> None:
        nonlocal seen
        is_call = getattr(called, "__module__", "") in ("posix", "fcntl") and called.__name__ not in INSIDE
        if event != "c_call" or not is_call:
            return
        seen += 1
        if seen == step:
            if FAULT == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(getattr(errno, FAULT), os.strerror(getattr(errno, FAULT)))

    code = 0
    sys.setprofile(watch)
    try:
        act()
    except StorageError as error:
        code = 1 if str(ROOT) in str(error) else 2
    except BaseException:
        code = 2
    sys.setprofile(None)
    if FAULT != "kill" and seen >= step:
        again = LOCK(ROOT).take(NEXT)  # whoever met the fault has let go of the lock
        code = 4 if again is None else code
        if again is not None:
            again.fail()
    os._exit(code if seen >= step else 3)


def found(status: int, step: int) -> dict[str, object]:
    """Look at what the next process finds, and let it dream."""
    lock = LOCK(ROOT)
    last = lock.last()
    held = lock.take(NEXT)
    row = {"step": step, "status": status, "last": last, "taken": held is not None}
    if held is None:
        return row
    held.fail()
    row["failed"] = lock.last()
    row["stamp"] = STAMP.exists()
    again = lock.take(NEXT)
    if again is not None:
        again.succeed()
    row["succeeded"] = lock.last()
    row["left"] = sorted(path.name for path in ROOT.rglob("*") if path.is_file())
    return row


def main() -> None:
    rows: list[dict[str, object]] = []
    for step in range(1, 1_000):
        prepare()
        pid = os.fork()
        if pid == 0:
            faulty(step)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        rows.append(found(status, step))
        if status == 3:  # past the last step: nothing went wrong
            break
    print(json.dumps(rows))


main()
