"""The work of each kind of job, on the storage of the job's tenant.

A job may run twice, because its worker died or was paused: each commits its result by compare-and-set, on the log's
size or a document's version, so that a repeated run changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from typing import Final

import anyio

from ...errors import InputError, SessionBusy, SessionNotFound
from ...ports import Model, Storage
from ...settings import Settings
from ...text.counts import counted
from ...values import replace
from ..deletion.selection import SessionFilter
from ..deletion.session import SessionDeletion, retained_since
from ..dream.dreams import Dreams
from ..library import Library
from ..memory.extract.budget import DailyBudget
from ..memory.extract.extraction_vectors import settings_vectors
from ..memory.extract.extractor import Extractor, ExtractorOptions
from ..memory.extract.past_sessions import PastSessions
from ..memory.memory import Memory
from ..memory.shared_journal import StoredJournal
from ..places.storage import key_if_encrypted, storage_of
from ..search.shared_words import index_logs, words_of
from ..session.parts import SessionOptions
from ..session.session import Session
from .queue import JobArguments, JobQueue, Kind

MODEL: Final = "worker"
"""The alias that names the model of background work; without it no model is asked."""


def run_job(job: JobArguments, url: str, settings: Settings) -> str:
    """Do the work of a job and return a sentence about its result; this may block."""
    home = settings.home / "tenants" / sha256(job.tenant.encode()).hexdigest()[:16]  # projects may have one name
    own = replace(settings, home=home, database=url, tenant=job.tenant)
    own = replace(own, encryption_key=key_if_encrypted(own))  # of the tenants that a worker serves, only some may be
    work = _WORK.get(job.kind)
    if work is None:
        raise InputError(f"this version knows no job {job.kind!r}; upgrade the worker")
    with closing(storage_of(own)) as storage:
        try:
            return anyio.run(work, job, storage, own)
        except SessionNotFound:
            return "there is no such session"  # it was deleted


@asynccontextmanager
async def _opened(
    job: JobArguments, storage: Storage, settings: Settings
) -> AsyncGenerator[tuple[Session, Model | None]]:
    """Open the job's session, under its lease, and the model of background work."""
    from ...models import open_model

    named = settings.model_aliases.get(MODEL)
    model = open_model(named, aliases=settings.model_aliases) if named else None
    try:
        options = SessionOptions(
            job.session, storage=storage, project=job.project, settings=settings, model=model, is_known=True
        )
        async with Session(options) as session:
            yield session, model
    finally:
        if model is not None:
            await model.aclose()


async def _write_notes(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Update the notes of a session: one append at the size that was read, so a second run finds nothing new."""
    async with _opened(job, storage, settings) as (session, model):
        made = await session.parts.notes.update(local=model is None)
    return "nothing new" if made is None else f"updated {counted(len(made.sections), 'section')} of the notes"


async def _extract(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Extract memories from the messages after the session's cursor, which a decision in its log moves."""
    memory = _memory(job, storage, settings)
    options = ExtractorOptions(
        policy=settings.extract,
        past=PastSessions(storage, job.project, without=job.session, embed=settings_vectors(settings)),
        daily_logs=settings.daily_logs,
        budget=DailyBudget(settings=settings),
    )
    async with _opened(job, storage, settings) as (session, model):
        extractor = Extractor(session.parts.host, memory, options, model=model)
        await extractor.after_query()
    ran = extractor.last
    return "nothing new" if ran is None else f"saved {counted(len(ran.saved), 'memory')}, by {ran.by}"


async def _dream(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Consolidate the memories of a project without its files: each change is one line of the shared journal."""
    memory = _memory(job, storage, settings)
    if not memory.list():
        return "no memories"

    dreams = Dreams(memory, settings, project=memory.path, remote=job.project)
    report = await dreams.run()
    return f"changed {counted(len(report.changes), 'memory')}, {counted(len(report.questions), 'question')}"


async def _index(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Add the words of all new lines of logs, which another worker or a search may do at the same time."""
    words = words_of(storage)
    if words is None:
        return "encrypted sessions are not indexed"
    count = await anyio.to_thread.run_sync(lambda: index_logs(storage, words, at_all=True))
    return f"indexed {counted(count, 'log')}"


async def _retain(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Delete the sessions that the setting ``retention_days`` no longer keeps, except those that are open."""

    def delete() -> str:
        before = retained_since(settings, storage)
        library = Library(storage)
        keys = SessionFilter(before=before, project=job.project or None).keys(library, storage)
        removed = still_open = 0
        queue = JobQueue(settings.database or "", job.tenant)
        with closing(queue), SessionDeletion(settings, storage, [_forget_jobs(queue)], why="expired") as deletion:
            for key in keys:
                try:
                    deletion.run(key)
                    removed += 1
                except SessionBusy:
                    still_open += 1
        return f"deleted {counted(removed, 'session')}" + (f", {still_open} are open" if still_open else "")

    return await anyio.to_thread.run_sync(delete)


def _forget_jobs(queue: JobQueue) -> Callable[[Sequence[str], bool], int]:
    return lambda logs, dry_run: queue.forget(logs, dry_run=dry_run)


def _memory(job: JobArguments, storage: Storage, settings: Settings) -> Memory:
    """Return the memories of the job's project, in a working copy on this machine."""
    folder = f"projects/{job.project}/memory"
    return Memory(settings.home / folder, shared=StoredJournal(storage, folder, job.tenant))


_WORK: Final[Mapping[Kind, Callable[[JobArguments, Storage, Settings], Awaitable[str]]]] = {
    "notes": _write_notes,
    "extract": _extract,
    "dream": _dream,
    "index": _index,
    "retain": _retain,
}
