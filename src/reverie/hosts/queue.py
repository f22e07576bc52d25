"""Work that hooks leave for the worker: one small file per job in ``<home>/queue``; a new job replaces an older one of
its session.

A job is written to a temporary file and renamed, so it is complete or absent. Running a job twice changes nothing, so
the next worker repeats the job of one that died.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

from ..digests import hex_of
from ..errors import SessionBusy, StorageError
from ..paths import open_no_follow, replace_file
from ..schemas import JOB, is_newer
from ..values import cast, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

FOLDER: Final = "queue"
OWN: Final = "reverie"
"""The host of a job for a session of Reverie itself; its transcript is the session's log."""
_WORKER: Final = f"{FOLDER}/worker"
_MAX_BYTES: Final = 64_000
_KEPT_SECONDS: Final = 90 * 86_400.0
"""The state of a session is deleted this long after its last hook."""


@record
class Job:
    """A session for the worker to process, named by its host, its id and its transcript."""

    host: str
    session: str
    cwd: str
    transcript: str
    ended: bool = False
    """Whether the session is over, so that its transcript can go into the library."""
    model: str = ""
    """The model of the session, for a session of Reverie itself."""

    @property
    def identity(self) -> str:
        """The text that tells its session from all others of its host: projects may have sessions of one name."""
        return "/".join(self.transcript.split("/")[-2:]) if self.host == OWN else self.session


class Queue:
    """The job files, the worker's lock and the session states of one home directory."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.home = os.fspath(home)
        self.folder = os.path.join(self.home, FOLDER)

    def put(self, job: Job) -> None:
        """Write a job in place of a waiting one of the same session; a session marked as ended stays so."""
        name = _job_file(job)
        before = self._read(name)
        if before is not None and before.ended and not job.ended:
            job = Job(job.host, job.session, job.cwd, job.transcript, True, job.model)
        body = {field: getattr(job, field) for field in ("host", "session", "cwd", "transcript", "ended", "model")}
        body["schema"] = JOB
        body["put"] = time.time_ns()  # so that a worker sees that this job is not the one it read
        replace_file(self.home, f"{FOLDER}/{name}", json.dumps(body).encode())

    def waiting_names(self) -> list[str]:
        """Return the file names of the waiting jobs, the oldest first."""
        found: list[tuple[float, str]] = []
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                if entry.name.startswith("job-") and entry.is_file(follow_symlinks=False):
                    with suppress(OSError):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
        return [name for _, name in sorted(found)]

    def read(self, name: str) -> tuple[Job, bytes] | None:
        """Return a job and the bytes of its file; None if the file is gone or is not a job."""
        data = self._bytes(name)
        job = _job(data) if data is not None else None
        return (job, data) if job is not None and data is not None else None

    def remove(self, name: str, data: bytes) -> None:
        """Delete the file of a job if it still holds these bytes, so that a newer job stays."""
        if self._bytes(name) == data:
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, name))

    def sweep(self, now: float) -> None:
        """Delete job files that cannot be read, and session states, word caches and names not written for 90 days."""
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.name.startswith("job-"):
                        data = self._bytes(entry.name) if entry.is_file(follow_symlinks=False) else None
                        gone = data is not None and _job(data) is None and not _is_newer_job(data)
                    else:
                        known = entry.name.startswith(("seen-", "state-", "words-", "names-"))
                        gone = known and entry.stat(follow_symlinks=False).st_mtime < now - _KEPT_SECONDS
                    if gone:
                        os.unlink(entry.path)

    @contextmanager
    def worker_lock(self) -> Generator[bool]:
        """Try to hold the lock of this home's only worker during a ``with`` block; yield whether it is held."""
        from ..storage.lock_files import take_lease

        try:
            lease = take_lease(self.home, _WORKER, f"process {os.getpid()}")
        except SessionBusy:
            yield False
            return
        try:
            yield True
        finally:
            lease.release()

    def has_worker(self) -> bool:
        """Return whether a worker is running now."""
        from ..storage.lock_files import find_holder

        return find_holder(self.home, _WORKER) is not None

    def is_at(self, log: str, hosts: Sequence[str]) -> bool:
        """Return whether a worker runs a job of the session with this log now, of one of these hosts."""
        return any(self.load_state(job).get("begun") for job in _jobs_of(log, hosts)) and self.has_worker()

    def forget(self, logs: Sequence[str], hosts: Sequence[str], *, dry_run: bool = False) -> int:
        """Delete the jobs, states and stored words of the sessions with these logs; return the number of files."""
        digests = {_digest(job) for log in logs for job in _jobs_of(log, hosts)}
        count = 0
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.folder) as entries:
            for entry in entries:
                kind, _, rest = entry.name.partition("-")
                if kind in ("job", "state", "seen") and rest.partition(".")[0] in digests:
                    count += 1
                    if not dry_run:
                        os.unlink(entry.path)
        return count

    # -- state of a session between jobs

    def load_state(self, job: Job) -> dict[str, Any]:
        """Return the state that earlier jobs of a session stored; an empty dict if there is none."""
        with suppress(OSError, ValueError, StorageError):
            found: Any = json.loads(self._bytes(_state_file(job)) or b"{}")
            return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {}

    def save_state(self, job: Job, state: dict[str, Any]) -> None:
        """Store the state for the next job of a session."""
        replace_file(self.home, f"{FOLDER}/{_state_file(job)}", json.dumps(state).encode())

    def _read(self, name: str) -> Job | None:
        data = self._bytes(name)
        return _job(data) if data is not None else None

    def _bytes(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.folder, name), "rb", opener=open_no_follow) as stream:
                return stream.read(_MAX_BYTES)
        except OSError:
            return None


def _is_newer_job(data: bytes) -> bool:
    """Return whether a newer Reverie wrote a job; its worker will run it."""
    try:
        found: Any = json.loads(data)
    except ValueError:
        return False
    return isinstance(found, dict) and is_newer(cast("dict[str, Any]", found).get("schema"), JOB)


def _job_file(job: Job) -> str:
    return f"job-{_digest(job)}.json"


def _state_file(job: Job) -> str:
    return f"state-{_digest(job)}.json"


def _digest(job: Job) -> str:
    return session_digest(job.host, job.identity)


def _jobs_of(log: str, hosts: Sequence[str]) -> list[Job]:
    name = log.rpartition("/")[2].removesuffix(".jsonl")
    return [Job(host, name, "", log) for host in hosts]


def session_digest(host: str, session: str) -> str:
    """Return the digest that names the files of a host's session."""
    return hex_of(f"{host}\0{session}".encode())[:32]


def _job(data: bytes) -> Job | None:
    try:
        given: Any = json.loads(data)
        host, session, cwd, transcript = (given[name] for name in ("host", "session", "cwd", "transcript"))
        ended, model = bool(given.get("ended")), given.get("model") or ""
        if is_newer(given.get("schema"), JOB):
            return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    texts = (host, session, cwd, transcript, model)
    return Job(*texts[:4], ended, model) if all(isinstance(one, str) for one in texts) else None
