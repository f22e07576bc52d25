"""The background worker: it extracts memories from sessions that hooks queued, writes notes, and starts a dream.

One worker runs per home, and it ends when the queue is empty. Without a model it costs nothing; it asks a model only
where the user names one (the alias ``worker``) or for a session of Reverie itself, with its model, within the daily
budget of layer 5.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from ..conversation.entries import ASSISTANT, META, USER, Entry, encode_entry
from ..conversation.log import parse_log
from ..conversation.view import View
from ..errors import InputError, ReverieError, SessionBusy
from ..importers import ImportedSession, read_session
from ..importers.import_result import RecordSource, SessionDraft
from ..layers.l5_extract import CURSOR, after_cursor, wrote_memories
from ..runtime.memory.extract.candidates import CandidateWriter, ExtractionRun
from ..runtime.memory.extract.extraction_vectors import settings_vectors
from ..runtime.memory.extract.past_sessions import PastSessions
from ..runtime.memory.memory import Memory
from ..runtime.memory.scopes import memory_directory
from ..runtime.places.projects import canonical_root, log_key, project_slug, session_key
from ..runtime.places.storage import storage_of
from ..settings import Settings, load_settings
from ..values import record, replace
from .queue import OWN, Job, Queue
from .session_state import overheard_messages
from .shared_memory import is_shared

MODEL: Final = "worker"
"""The alias that names the worker's model."""
_MAX_SECONDS: Final = 600.0
_MAX_DEATHS: Final = 3
"""After this many workers died at a job, the job is skipped."""
_MAX_ENTRIES: Final = 400
"""A model is shown at most this many entries of a session at a time; the local extractor reads all."""


@record
class JobResult:
    """The result of one job: the saved memories, the other work done, or the problem that stopped it."""

    session: str
    host: str
    saved: tuple[str, ...] = ()
    refused: int = 0
    by: str = ""
    notes: bool = False
    filed: bool = False
    """Whether the session went into the library."""
    dream: bool = False
    problem: str = ""


def work(home: Path, *, clock: Callable[[], float] = time.monotonic) -> list[JobResult]:
    """Run the queued jobs, for ten minutes at most, and return their results; return at once beside another worker."""
    queue = Queue(home)
    done: list[JobResult] = []
    tried: set[tuple[str, bytes]] = set()
    until = clock() + _MAX_SECONDS
    while True:
        with queue.worker_lock() as mine:
            if not mine:
                return done
            queue.sweep(time.time())
            while clock() < until and (fresh := _untried_jobs(queue, tried)):
                for name, job, data in fresh:
                    if clock() >= until:
                        break
                    tried.add((name, data))
                    done.append(_run_job(queue, job))
                    queue.remove(name, data)
        # A hook that queued a job while the lock was held started no worker: check once more without the lock.
        if clock() >= until or not _untried_jobs(queue, tried):
            return done


def _untried_jobs(queue: Queue, tried: set[tuple[str, bytes]]) -> list[tuple[str, Job, bytes]]:
    todo = [(name, found) for name in queue.waiting_names() if (found := queue.read(name)) is not None]
    return [(name, job, data) for name, (job, data) in todo if (name, data) not in tried]


def _run_job(queue: Queue, job: Job) -> JobResult:
    """Run one job and return its result, also of a failure; skip a job at which three workers died."""
    state = queue.load_state(job)
    died = int(state.get("begun") or 0)
    if died >= _MAX_DEATHS:
        queue.save_state(job, {**state, "begun": 0})
        return JobResult(
            job.session, job.host, problem=f"{died} workers died at this session; it is skipped until it continues"
        )
    try:
        if not os.path.isdir(job.cwd):
            return JobResult(job.session, job.host, problem=f"its directory {job.cwd} does not exist")
        settings = load_settings(home=Path(queue.home), project=canonical_root(Path(job.cwd)))
        if not settings.switches.memory:
            return JobResult(job.session, job.host, problem="memories are switched off")
        queue.save_state(job, {**state, "begun": died + 1})
        if job.host == OWN:
            ran, later = _extract(queue, job, _own_entries(job), settings)
            queue.save_state(job, {**later, "begun": 0})
            return JobResult(job.session, job.host, _names(ran), len(ran.refused), ran.by)
        found = _read_recording(queue, job)
        ran, later = _extract(queue, job, found.entries, settings)
        _index_memories_of_host(job, settings)
        notes = _write_notes(job, found, settings)
        filed = job.ended and _file_in_library(job, found, settings)
        queue.save_state(job, {**later, "begun": 0})
        dream = _start_dream(job, settings)
        return JobResult(job.session, job.host, _names(ran), len(ran.refused), ran.by, notes, filed, dream)
    except Exception as error:  # an unexpected session must not block all others
        with suppress(ReverieError, OSError):
            queue.save_state(job, {**state, "begun": 0})
        return JobResult(job.session, job.host, problem=f"{type(error).__name__}: {error}")


def _names(ran: ExtractionRun) -> tuple[str, ...]:
    return tuple(dict.fromkeys(saved.file for saved in ran.saved))


def _own_entries(job: Job) -> Sequence[Entry]:
    """Return the entries of a session's log after those that the session itself looked through."""
    entries = parse_log(Path(job.transcript).read_bytes()).entries
    cursor = View().fold_all(entries).facts.cursors.get(CURSOR)
    return after_cursor(reversed(entries), cursor)[0]


def _read_recording(queue: Queue, job: Job) -> ImportedSession:
    """Return the session from its host's transcript, or else from hooks; raise ``InputError`` if there is neither."""
    try:
        if not os.path.isabs(job.transcript):
            raise InputError("its host names no transcript, and no hook stored a prompt")
        return read_session(job.transcript)[0]
    except InputError:
        heard = overheard_messages(queue.home, job.host, job.session)
        if not heard:
            raise
    draft = SessionDraft("hooks", job.session, RecordSource(f"{job.session} of {job.host}", ()))
    draft.cwd = job.cwd
    for role, words in heard:
        draft.say(USER if role == "user" else ASSISTANT, role, words)
    return draft.done()


# -- memories


def _extract(
    queue: Queue, job: Job, found: Sequence[Entry], settings: Settings
) -> tuple[ExtractionRun, dict[str, Any]]:
    """Extract and save memories from messages since the last job; return the result and the next job's state."""
    state = queue.load_state(job)
    cursor = state.get("cursor")
    entries = [entry for entry in found if entry.kind != META]
    new, _ = after_cursor(reversed(entries), cursor if isinstance(cursor, str) else None)
    later = {**state, "cursor": new[-1].uuid} if new else state
    memory = Memory.open(job.cwd, settings=settings)
    wrote = bool(new) and wrote_memories(new, str(memory.path), cwd=job.cwd)
    if not new or wrote or not settings.switches.extraction:
        return ExtractionRun("skipped" if wrote else "nothing"), later
    named = settings.model_aliases.get(MODEL) or job.model
    with closing(storage_of(settings)) as storage:
        embed = settings_vectors(settings)
        past = PastSessions(storage, project_slug(Path(job.cwd)), without=job.session, embed=embed)
        ran = _extract_with_model(job, named, memory, new, settings, past) if named else None
        if ran is None:
            writer = CandidateWriter(memory, job.session, daily_logs=settings.daily_logs)
            most = settings.extract.max_memories
            ran = writer.save_found(new, past.sayings(), _instructions(job, settings), most)
    return ran, later


def _index_memories_of_host(job: Job, settings: Settings) -> None:
    """Put memories that Claude Code wrote itself into the index, if it shares our directory."""
    if is_shared(job.cwd, str(memory_directory(job.cwd, settings))):
        Memory.open(job.cwd, settings=settings).reindex(author="worker")


def _extract_with_model(
    job: Job, model: str, memory: Memory, new: Sequence[Entry], settings: Settings, past: PastSessions
) -> ExtractionRun | None:
    """Let the named model extract and save memories; return None if it failed, else the result."""
    import anyio

    from ..models import open_model
    from ..runtime.memory.extract.budget import DailyBudget
    from ..runtime.memory.extract.extractor import Extractor, ExtractorOptions
    from ..runtime.session.parts import SessionOptions
    from ..runtime.session.session import Session
    from ..storage.in_memory import InMemoryStorage

    async def look() -> ExtractionRun | None:
        asked = open_model(model, aliases=settings.model_aliases)
        try:
            storage, slug = InMemoryStorage(), project_slug(Path(job.cwd))
            data = b"".join(encode_entry(entry) + b"\n" for entry in new[-_MAX_ENTRIES:])
            storage.write(log_key(slug, job.session), data)
            # The session owns its storage, so that its cost is in the ledger.
            opened = SessionOptions(job.session, storage=storage, project=slug, settings=settings, owns_storage=True)
            async with Session(opened) as session:
                options = ExtractorOptions(
                    policy=settings.extract,
                    budget=DailyBudget(settings=settings),
                    instructions=lambda: _instructions(job, settings),
                    past=past,
                    daily_logs=settings.daily_logs,
                )
                extractor = Extractor(session.parts.host, memory, options, model=asked)
                await extractor.after_query()
                return extractor.last
        finally:
            await asked.aclose()

    try:
        ran = anyio.run(look)
    except Exception:  # a vendor's package may raise anything: the local extractor takes over
        return None
    return ran if ran is not None and ran.by == "model" else None


def _instructions(job: Job, settings: Settings) -> list[str]:
    from ..runtime.instructions.reader import gather

    return [one.text for one in gather(Path(job.cwd), home=settings.home).files]


# -- notes and the library


def _write_notes(job: Job, found: ImportedSession, settings: Settings) -> bool:
    """Write the notes of a session if it is long enough and notes are on; return whether they were written."""
    from ..layers.l3_notes import render_notes, take_notes, template_of
    from ..paths import replace_file

    view = View().fold_all(found.entries)
    if not settings.switches.notes or view.token_count.tokens < settings.notes.start_tokens:
        return False
    text = render_notes(take_notes(view), template_of(settings.notes))
    folder = session_key(project_slug(Path(job.cwd)), job.session)
    replace_file(str(settings.home), f"{folder}/session-memory/summary.md", text.encode())
    return True


def _file_in_library(job: Job, found: ImportedSession, settings: Settings) -> bool:
    """Put an ended session into the library for search, or extend it there; return whether it was written."""
    from ..runtime.archive.recordings import Recordings
    from ..runtime.library import ADDED, GROWN, Library
    from ..runtime.places.archive_index import load_index

    transcript, project = Path(job.transcript), project_slug(Path(job.cwd))
    with closing(storage_of(settings)) as storage:
        recordings = Recordings(Library(storage), index=load_index(str(settings.home)))
        result = ""
        with suppress(SessionBusy):  # `reverie keep` tries it again
            _, result = recordings.file(replace(found, session_id=job.session), project, transcript)
        agents = transcript.parent / transcript.stem / "subagents"
        for path in sorted(agents.glob("agent-*.jsonl")) if transcript.is_absolute() else ():
            with suppress(ReverieError):  # `reverie keep` tries it again
                for agent in read_session(path):
                    recordings.file(agent, project, path)
    return result in (ADDED, GROWN)


# -- the dream


def _start_dream(job: Job, settings: Settings) -> bool:
    """Start a dream in its own process if its gate is open; return whether it was started."""
    from ..runtime.dream.control import start
    from ..runtime.dream.gate import DreamGate

    if not settings.switches.dream:
        return False
    directory = memory_directory(job.cwd, settings)
    gate = DreamGate(directory, home=settings.home, project=project_slug(Path(job.cwd)), policy=settings.dream)
    if gate.check(job.session) is not None:
        return False
    start(job.cwd, home=settings.home, memory_dir=directory, only_if_due=True)
    return True


def main(arguments: Sequence[str]) -> int:
    """Run the worker for the home that ``--home`` names, or that of the settings, and return 0."""
    given = list(arguments)
    home = Path(given[given.index("--home") + 1]) if "--home" in given[:-1] else load_settings().home
    with suppress(OSError):
        os.nice(10)
    work(home)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
