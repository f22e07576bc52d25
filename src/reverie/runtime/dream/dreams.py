"""Layer 6: consolidate memories on a copy, and apply the valid changes as one change that can be undone.

The local dreamer makes the mechanical changes first; a model, if there is one, continues on the copy. If the model,
the process or the disk fails, the directory holds either all changes or none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing, nullcontext, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from ...errors import InputError, SessionBusy, StorageError
from ...events import DreamChanged
from ...layers.l6_dream import (
    DreamProposal,
    DreamReport,
    ModelUsage,
    Question,
    Support,
    changes_between,
    lowered,
    records_of,
)
from ...layers.l6_dream import dream as dream_locally
from ...memories.store.store import MemoryStore, stamp, utc_now
from ...model_facts import facts_of
from ...ports import Model
from ...settings import Settings
from ...text.counts import counted
from ...values import record, replace
from ..memory.daily_logs import log_files
from ..memory.memory import Memory
from ..places.projects import project_slug
from ..places.storage import storage_of
from ..search.sessions import opened_search
from ..session.accounts import Accounts
from ..session.ledger import open_ledger
from .control import take_lock
from .facts import facts_for, has_session, oversized
from .gate import DreamStatus, status_of
from .lock import DreamLock, pull_stamp, push_stamp
from .model_run import DreamModelRun
from .progress import ProgressWriter, progress_events, read_progress
from .project_reader import ProjectReader
from .reports import ReportFiles, open_questions, settled_report
from .tools import DreamSources, DreamTools, Transcripts
from .transaction import DreamApplication, DreamUndo, Snapshot, files_after, snapshot_of, undo_dream

__all__ = ["DreamReport", "DreamStatus", "DreamUndo", "Dreams"]

_TAG_BYTES: Final = 8
_MAX_LOGS: Final = 60
"""The number of newest daily logs a model may read."""
_RESERVED_SHARE: Final = 0.2
"""The share of the time limit that is reserved for checking and writing."""


class Dreams:
    """Runs dreams over the private memories of one project; team memories are never changed."""

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        project: str | os.PathLike[str],
        model: Model | None = None,
        clock: Callable[[], datetime] = utc_now,
        remote: str = "",
    ) -> None:
        """Prepare dreams over a project's memories, local ones without ``model``.

        ``remote`` is the slug of a project whose files are not on this machine.
        """
        self._root = str(memory.path)
        self._vectors = memory.vectors
        self._settings = settings
        self._policy = settings.dream
        self._project = Path(project)
        self._remote = remote
        self._slug = remote or project_slug(self._project)
        self._model = model
        self._clock = clock
        self._store = MemoryStore(self._root, clock=clock, shared=memory.shared)
        self._shared = memory.shared
        self._reports = ReportFiles(self._store.files, keep=self._policy.kept_reports)

    # -- dreaming

    async def run(
        self,
        *,
        dry_run: bool = False,
        confirmed: bool = False,
        listener: Callable[[DreamChanged], None] | None = None,
    ) -> DreamReport:
        """Run one dream and return its report; ``confirmed`` allows more deletions than the policy does.

        A dry run uses the model and checks the changes too, but takes no lock and changes no memory. Raise
        ``SessionBusy`` if another dream is running, and ``InputError`` if there is no memory directory.
        """
        began = self._clock()
        if not os.path.isdir(self._root):
            raise InputError(f"there are no memories in {self._root} yet, so a dream has nothing to do")
        if dry_run:
            return await self._run(began, _RunOptions(dry_run, confirmed, listener))
        with self._shared.dreaming() if self._shared is not None else nullcontext():
            return await self._run_locked(began, _RunOptions(dry_run, confirmed, listener))

    async def _run_locked(self, began: datetime, options: _RunOptions) -> DreamReport:
        await to_thread.run_sync(pull_stamp, self._store)
        held = await to_thread.run_sync(take_lock, self._root, self._policy, began.timestamp())
        if held is None:
            who = await to_thread.run_sync(DreamLock(self._root).holder)
            raise SessionBusy(f"a dream is already running ({who or 'in another process'}); watch it or wait for it")
        try:
            await to_thread.run_sync(self._settle)
            report = await self._run(began, options)
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(held.succeed)
                await to_thread.run_sync(push_stamp, self._store)
            return report
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(held.fail)  # has no effect after a success

    async def _run(self, began: datetime, options: _RunOptions) -> DreamReport:
        dream = f"d{began.strftime('%Y%m%dT%H%M%S%f')[:-3]}-{secrets.token_hex(3)}"
        at = began.timestamp()
        progress = ProgressWriter(self._root, dream, began=at, listener=options.listener, to_file=not options.dry_run)
        started = time.monotonic()
        report = DreamReport(dream, "failed", stamp(began), dry_run=options.dry_run)
        try:
            report = await self._phases(report, progress, options, started)
        except BaseException as error:
            killed = isinstance(error, anyio.get_cancelled_exc_class())
            report = replace(report, seconds=round(time.monotonic() - started, 3))
            await self._report_failure(report, progress, killed=killed, problem="" if killed else str(error))
            raise
        progress.change("completed", _summary(report), [change.file for change in report.changes])
        return report

    async def _phases(
        self, report: DreamReport, progress: ProgressWriter, options: _RunOptions, started: float
    ) -> DreamReport:
        before = await to_thread.run_sync(lambda: snapshot_of(self._store, notice=not options.dry_run))
        old = await to_thread.run_sync(records_of, before.files, before.trusts)
        local = await to_thread.run_sync(lambda: lowered(self._local_proposal(before), old))
        if local.changes:
            progress.on_tool("local", [change.file for change in local.changes], tools=0)
        dreams, spent, tools = [local], ModelUsage(), None
        if self._model is not None and before.files:
            support = await to_thread.run_sync(Support, old)
            with opened_search(self._settings) as search:
                tools = self._tools(before, local, support, search)
                spent = await self._run_model(self._model, tools, report.dream, progress, started)
            copy, statements, asked = tools.files, tools.statements, tuple(tools.questions)
            kept, made = await to_thread.run_sync(
                lambda: changes_between(
                    before.files, copy, statements, local, old=old, now=_day(before), support=support
                )
            )
            dreams = [replace(local, changes=kept), DreamProposal(made, asked, by="model")]
        report = replace(
            report,
            by="model" if self._model is not None and not spent.ended.startswith("the model failed") else "local",
            spent=spent,
            not_done=tuple(tools.refused) if tools is not None else (),
            paths=tuple(dict.fromkeys((*progress.paths, *(one.file for one in local.changes)))),
        )
        application = DreamApplication(self._store, self._reports, self._policy, before)
        report = await to_thread.run_sync(lambda: application.planned(report, dreams, confirmed=options.confirmed))
        if options.dry_run:
            return replace(report, state="completed", seconds=round(time.monotonic() - started, 3))
        if report.changes and progress.state == "starting":
            progress.on_tool("local", list(report.paths), tools=progress.tools)
        with anyio.CancelScope(shield=True):  # a cancellation must not interrupt the write
            report = await to_thread.run_sync(lambda: self._apply(application, report, dreams, options, started))
        return report

    def _apply(
        self,
        application: DreamApplication,
        report: DreamReport,
        dreams: list[DreamProposal],
        options: _RunOptions,
        started: float,
    ) -> DreamReport:
        done = application.carry_out(report, dreams, confirmed=options.confirmed)
        done = replace(done, seconds=round(time.monotonic() - started, 3))
        with suppress(StorageError):  # the journal and the report in state "applying" are enough to finish it later
            self._reports.save(done)
        return done

    def _local_proposal(self, before: Snapshot) -> DreamProposal:
        excluded = oversized(before.files)
        files = {file: data for file, data in before.files.items() if file not in excluded}
        with closing(storage_of(self._settings)) as storage:
            facts = facts_for(
                self._store,
                files,
                project=None if self._remote else self._project,
                has_session=lambda name: has_session(storage, self._slug, name),
                dreamt=DreamLock(self._root).last(),
                excluded=excluded,
                vectors=self._vectors,
            )
        facts = replace(facts, restored=before.restored)
        dreamed = dream_locally(files, now=self._clock(), policy=self._policy, facts=facts)
        questions = [
            Question("unreadable", (file,), f"{file} was not changed: {why}.") for file, why in excluded.items()
        ]
        return replace(dreamed, questions=(*dreamed.questions, *questions))

    async def _report_failure(
        self, report: DreamReport, progress: ProgressWriter, *, killed: bool, problem: str
    ) -> None:
        """Emit that the dream failed or was killed; unless it is a dry run, try to save its report first."""
        with anyio.CancelScope(shield=True):
            over = replace(report, state="killed" if killed else "failed", problem=problem)
            if not report.dry_run:
                with suppress(StorageError):
                    await to_thread.run_sync(self._save_failure, over)
            progress.change("killed" if killed else "failed", problem)

    def _save_failure(self, report: DreamReport) -> None:
        saved = self._reports.read(report.dream)
        settled = settled_report(saved, self._store.history()) if saved is not None else report
        self._reports.save(settled if settled.entry else report)

    # -- with a model

    def _tools(self, before: Snapshot, local: DreamProposal, support: Support, search: Transcripts) -> DreamTools:
        return DreamTools(
            files_after(before.files, local.changes),
            root=self._root,
            policy=self._policy,
            tag=secrets.token_hex(_TAG_BYTES),
            now=self._clock(),
            support=support,
            sources=DreamSources(
                {name: partial(self._store.files.read, name) for name in self._logs()},
                search,
                self._slug,
                ProjectReader(self._project, self._settings.permissions),
                before.restored,
            ),
        )

    def _logs(self) -> list[str]:
        return log_files(self._store.files)[-_MAX_LOGS:]

    async def _run_model(
        self, model: Model, tools: DreamTools, dream: str, progress: ProgressWriter, started: float
    ) -> ModelUsage:
        policy = self._policy
        left = policy.timeout_seconds * (1 - _RESERVED_SHARE) - (time.monotonic() - started)
        with open_ledger(self._settings) as ledger:
            accounts = Accounts(ledger, session=dream, project=self._slug, clock=time.time)
            model_run = DreamModelRun(
                model,
                tools,
                policy,
                facts_of(model.model_id, self._settings.models),
                dream=dream,
                accounts=accounts,
                listener=progress,
                clock=self._clock,
            )
            return await model_run.run(secrets.token_hex(_TAG_BYTES), self._logs(), seconds=left)

    # -- past dreams

    def undo(self, dream: str | None = None, *, dry_run: bool = False, author: str = "user") -> DreamUndo:
        """Undo a dream, by default the last one, byte for byte, and return its restored files.

        Later memories stay; a file of the dream that was changed later stays too and is named in the result.
        """
        return undo_dream(self._store, self._reports, dream, author=author, dry_run=dry_run)

    def reports(self) -> list[DreamReport]:
        """Return a list of the stored reports of dreams, newest first."""
        return [self._completed(report) for report in self._reports.all()]

    def report_problems(self) -> list[str]:
        """Return a sentence for each report that is damaged or was written by a newer Reverie."""
        return [self._reports.problem(name) for name in self._reports.damaged()]

    def report(self, dream: str) -> DreamReport:
        """Return the report of one dream; raise ``InputError`` if there is none."""
        return self._completed(self._reports.get(dream))

    def _completed(self, report: DreamReport) -> DreamReport:
        """Return a report, completed from the journal if the process that wrote it was killed."""
        running = read_progress(self._root)
        if report.state != "applying" or (running and running.dream == report.dream and not running.is_over):
            return report
        return settled_report(report, self._store.history())

    def questions(self) -> list[Question]:
        """Return a list of the questions of dreams that the user has not answered, newest first."""
        return open_questions(self._store, keep=self._policy.kept_reports)

    def status(self) -> DreamStatus:
        """Return the time of the last dream, the state of the gate, the running dream and the last report."""
        pull_stamp(self._store)
        last = self._reports.last()
        report = self._completed(last) if last is not None else None
        return status_of(self._root, self._settings, self._slug, now=self._clock().timestamp(), report=report)

    async def watch(self) -> AsyncIterator[DreamChanged]:
        """Yield the changes of the running dream until it ends; if none is running, the last dream's end, once."""
        async for change in progress_events(self._root):
            yield change

    def _settle(self) -> None:
        """Complete the reports of killed dreams, and write one for a killed dream without a report."""
        found = read_progress(self._root)
        history = self._store.history()
        self._reports.settle(history)
        if found is not None and found.state == "killed" and self._reports.read(found.dream) is None:
            began = stamp(datetime.fromtimestamp(found.began, tz=self._clock().tzinfo))
            lost = DreamReport(found.dream, "killed", began, paths=tuple(found.paths))
            with suppress(StorageError):
                self._reports.save(lost)


@record
class _RunOptions:
    """The options of one run of a dream."""

    dry_run: bool
    confirmed: bool
    listener: Callable[[DreamChanged], None] | None


def _day(before: Snapshot) -> str:
    return f"{before.time[:19]}Z"


def _summary(report: DreamReport) -> str:
    acts = [change.act for change in report.changes]
    counts = [f"{acts.count(act)} {act}" for act in dict.fromkeys(acts)]
    asked = f", {counted(len(report.questions), 'question')} in 'reverie memory review'" if report.questions else ""
    return (", ".join(counts) or "nothing to change") + asked
