"""The work of each kind of job, on the storage of the job's tenant.

A job may run twice, because its worker died or was paused: each commits its result by compare-and-set, on the log's
size or a document's version, so that a repeated run changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from ...errors import InputError
from ...ports import Storage
from ...settings import Settings
from ...values import replace
from ..places.storage import storage_of
from .queue import JobArguments, Kind

MODEL: Final = "worker"
"""The alias that names the model of background work; without it no model is asked."""


def run_job(job: JobArguments, url: str, settings: Settings) -> str:
    """Do the work of a job and return a sentence about its result; this may block."""
    own = replace(settings, database=url, tenant=job.tenant)
    work = _WORK.get(job.kind)
    if work is None:
        raise InputError(f"this version knows no job {job.kind!r}; upgrade the worker")
    with closing(storage_of(own)) as storage:
        return work(job, storage, own)


def _write_notes(job: JobArguments, storage: Storage, settings: Settings) -> str:
    """Update the notes of a session: one append at the size that was read, so a second run finds nothing new."""
    import anyio

    from ...models import open_model
    from ..session.parts import SessionOptions
    from ..session.session import Session

    async def update() -> str:
        named = settings.model_aliases.get(MODEL)
        model = open_model(named, aliases=settings.model_aliases) if named else None
        try:
            options = SessionOptions(job.session, storage=storage, project=job.project, settings=settings, model=model)
            async with Session(options) as session:
                made = await session.parts.notes.update(local=model is None)
        finally:
            if model is not None:
                await model.aclose()
        return "nothing new" if made is None else f"updated {len(made.sections)} sections"

    return anyio.run(update)


_WORK: Final[Mapping[Kind, Callable[[JobArguments, Storage, Settings], str]]] = {
    "notes": _write_notes,
}
