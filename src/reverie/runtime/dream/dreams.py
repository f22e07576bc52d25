"""Layer 6 at work: memories are put in order on a copy, and what is sound of it becomes one change that can be undone.

The local dreamer goes first and does what is mechanical; where there is a model, it goes on with the copy. Whatever
happens to the model, to this process or to the disk, the directory is as it was before or as it is after.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
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
    OpenQuestion,
    Question,
    Support,
    changes_between,
    lowered,
    records_of,
)
from ...layers.l6_dream import dream as dream_locally
from ...memories.store.journal_files import read_plain
from ...memories.store.store import MemoryStore, stamp, utc_now
from ...ports import Model
from ...settings import Settings
from ...values import record, replace
from ..memory.daily_logs import log_files
from ..memory.memory import Memory
from ..places.projects import project_slug
from ..search.sessions import SessionSearch
from ..session.accounts import Accounts
from ..session.ledger import LedgerStore
from .facts import facts_for, unwieldy
from .lock import DreamLock
from .model_run import Asking
from .process import take_lock
from .progress import Progress, followed, read_progress
from .reports import Reports, open_questions, settled
from .status import DreamStatus, status_of
from .tools import DreamTools, Transcripts
from .transaction import Applying, Snapshot, Undone, snapshot_of, undo_dream

__all__ = ["DreamReport", "DreamStatus", "Dreams", "Undone"]

_TAG_BYTES: Final = 8
_MAX_LOGS: Final = 60
"""Daily logs a model may read, the newest."""
_KEPT_SHARE: Final = 0.2
"""The share of the time limit that is kept for checking and writing."""


class Dreams:
    """Dreams over the private memories of one project; what is shared with a team is left alone."""

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        project: str | os.PathLike[str],
        model: Model | None = None,
        search: Transcripts | None = None,
        session: str = "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Dream over a memory; without a model the local dreamer does all. ``session`` is named in events."""
        self._root = str(memory.path)
        self._settings = settings
        self._policy = settings.dream
        self._project = Path(project)
        self._slug = project_slug(self._project)
        self._model = model
        self._search = search
        self._session = session
        self._clock = clock
        self._shelf = MemoryStore(self._root, clock=clock)
        self._reports = Reports(self._root, keep=self._policy.kept_reports)

    # -- dreaming

    async def run(
        self,
        *,
        dry_run: bool = False,
        confirmed: bool = False,
        tell: Callable[[DreamChanged], None] | None = None,
    ) -> DreamReport:
        """Dream once and return the report; ``confirmed`` allows more deletions than a dream may make by itself.

        A dry run asks and checks like any other, takes no lock and changes nothing. Raises ``SessionBusy`` where
        another dream goes on.
        """
        began = self._clock()
        if not os.path.isdir(self._root):
            raise InputError(f"there are no memories in {self._root} yet, so there is nothing to dream about")
        if dry_run:
            return await self._dreamt(began, _Way(dry_run, confirmed, tell))
        held = await to_thread.run_sync(take_lock, self._root, self._policy, began.timestamp())
        if held is None:
            who = await to_thread.run_sync(DreamLock(self._root).holder)
            raise SessionBusy(f"a dream goes on already ({who or 'in another process'}); watch it or wait for it")
        try:
            await to_thread.run_sync(self._settle)
            report = await self._dreamt(began, _Way(dry_run, confirmed, tell))
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(held.succeed)
            return report
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(held.fail)  # does nothing after a success

    async def _dreamt(self, began: datetime, way: _Way) -> DreamReport:
        dream = f"d{began.strftime('%Y%m%dT%H%M%S%f')[:-3]}-{secrets.token_hex(3)}"
        at = began.timestamp()
        progress = Progress(self._root, dream, began=at, session=self._session, tell=way.tell, written=not way.dry_run)
        started = time.monotonic()
        report = DreamReport(dream, "failed", stamp(began), dry_run=way.dry_run)
        try:
            report = await self._phases(report, progress, way, started)
        except BaseException as error:
            killed = isinstance(error, anyio.get_cancelled_exc_class())
            await self._gave_up(report, progress, killed=killed, problem="" if killed else str(error))
            raise
        progress.change("completed", _summed(report))
        return report

    async def _phases(self, report: DreamReport, progress: Progress, way: _Way, started: float) -> DreamReport:
        before = await to_thread.run_sync(lambda: snapshot_of(self._shelf, notice=not way.dry_run))
        old = await to_thread.run_sync(records_of, before.files, before.trusts)
        local = await to_thread.run_sync(lambda: lowered(self._locally(before), old))
        if local.changes:
            progress.did("local", [change.file for change in local.changes], tools=0)
        dreams, spent, tools = [local], ModelUsage(), None
        if self._model is not None and before.files:
            support = await to_thread.run_sync(Support, old)
            with SessionSearch(self._settings.home) as search:
                tools = self._tools(before, local, support, self._search or search)
                spent = await self._asked(self._model, tools, report.dream, progress, started)
            copy, told, asked = tools.files, tools.told, tuple(tools.questions)
            kept, made = await to_thread.run_sync(
                lambda: changes_between(before.files, copy, told, local, old=old, now=_day(before), support=support)
            )
            dreams = [replace(local, changes=kept), DreamProposal(made, asked, by="model")]
        report = replace(
            report,
            by="model" if self._model is not None and not spent.ended.startswith("the model failed") else "local",
            spent=spent,
            not_done=tuple(tools.refused) if tools is not None else (),
            paths=tuple(dict.fromkeys((*progress.paths, *(one.file for one in local.changes)))),
        )
        applying = Applying(self._shelf, self._reports, self._policy, before)
        report = await to_thread.run_sync(lambda: applying.planned(report, dreams, confirmed=way.confirmed))
        if way.dry_run:
            return replace(report, state="completed", seconds=round(time.monotonic() - started, 3))
        if report.changes and progress.state == "starting":
            progress.did("local", list(report.paths), tools=progress.tools)
        with anyio.CancelScope(shield=True):  # from here on it is done or it is not
            report = await to_thread.run_sync(lambda: self._finished(applying, report, dreams, way, started))
        return report

    def _finished(
        self, applying: Applying, report: DreamReport, dreams: list[DreamProposal], way: _Way, started: float
    ) -> DreamReport:
        done = applying.carry_out(report, dreams, confirmed=way.confirmed)
        done = replace(done, seconds=round(time.monotonic() - started, 3))
        with suppress(StorageError):  # the next look finds the first half of it, and the journal
            self._reports.save(done)
        return done

    def _locally(self, before: Snapshot) -> DreamProposal:
        aside = unwieldy(before.files)
        files = {file: data for file, data in before.files.items() if file not in aside}
        facts = facts_for(
            self._root,
            files,
            home=self._settings.home,
            slug=self._slug,
            project=self._project,
            dreamt=DreamLock(self._root).last(),
            aside=aside,
        )
        dreamed = dream_locally(files, now=self._clock(), policy=self._policy, facts=facts)
        questions = [Question("unreadable", (file,), f"{file} is left as it is: {why}.") for file, why in aside.items()]
        return replace(dreamed, questions=(*dreamed.questions, *questions))

    async def _gave_up(self, report: DreamReport, progress: Progress, *, killed: bool, problem: str) -> None:
        """Say that nothing came of it; what cannot be written is told by the journal and the lock."""
        with anyio.CancelScope(shield=True):
            over = replace(report, state="killed" if killed else "failed", problem=problem)
            if not report.dry_run:
                with suppress(StorageError):
                    await to_thread.run_sync(self._note_failure, over)
            progress.change("killed" if killed else "failed", problem)

    def _note_failure(self, report: DreamReport) -> None:
        said = self._reports.read(report.dream)
        told = settled(said, self._shelf.history()) if said is not None else report
        self._reports.save(told if told.entry else report)

    # -- with a model

    def _tools(self, before: Snapshot, local: DreamProposal, support: Support, search: Transcripts) -> DreamTools:
        copy = dict(before.files)
        for change in local.changes:
            if change.after is None:
                copy.pop(change.file, None)
            else:
                copy[change.file] = change.after
        return DreamTools(
            copy,
            root=self._root,
            policy=self._policy,
            tag=secrets.token_hex(_TAG_BYTES),
            now=self._clock(),
            support=support,
            logs={name: partial(read_plain, self._root, name) for name in self._logs()},
            transcripts=search,
            project=self._slug,
        )

    def _logs(self) -> list[str]:
        return log_files(Path(self._root))[-_MAX_LOGS:]

    async def _asked(
        self, model: Model, tools: DreamTools, dream: str, progress: Progress, started: float
    ) -> ModelUsage:
        policy = self._policy
        left = policy.timeout_seconds * (1 - _KEPT_SHARE) - (time.monotonic() - started)
        with LedgerStore(self._settings.home) as ledger:
            accounts = Accounts(ledger, session=dream, project=self._slug, clock=time.time)
            asking = Asking(
                model,
                tools,
                policy,
                dream=dream,
                accounts=accounts,
                heard=progress,
                logs=self._logs(),
                clock=self._clock,
            )
            return await asking.run(secrets.token_hex(_TAG_BYTES), seconds=left)

    # -- what was dreamt

    def undo(self, dream: str | None = None, *, dry_run: bool = False, author: str = "user") -> Undone:
        """Bring back what a dream changed, byte for byte, the last dream where none is named.

        What was saved since stays; a file of the dream that was changed since stays too and is named.
        """
        return undo_dream(self._shelf, self._reports, dream, author=author, dry_run=dry_run)

    def reports(self) -> list[DreamReport]:
        """Return the reports of the last dreams, the newest first."""
        return [self._true(report) for report in self._reports.all()]

    def report(self, dream: str) -> DreamReport:
        """Return the report of one dream."""
        return self._true(self._reports.get(dream))

    def _true(self, report: DreamReport) -> DreamReport:
        """Return a report as it is: one whose writer is gone is told by the journal."""
        running = read_progress(self._root)
        if report.state != "applying" or (running and running.dream == report.dream and not running.is_over):
            return report
        return settled(report, self._shelf.history())

    def questions(self) -> list[OpenQuestion]:
        """Return what dreams asked and nobody has answered."""
        return open_questions(self._root, keep=self._policy.kept_reports)

    def status(self) -> DreamStatus:
        """Return how it stands: the last dream, the gate, the one that runs, the last report."""
        last = self._reports.last()
        report = self._true(last) if last is not None else None
        return status_of(self._root, self._settings, self._slug, now=self._clock().timestamp(), report=report)

    async def watch(self) -> AsyncIterator[DreamChanged]:
        """Yield how the dream that runs goes on, in whatever process, until it ends."""
        async for change in followed(self._root, session=self._session):
            yield change

    def _settle(self) -> None:
        """Finish what killed dreams left: reports half written, and one for a dream that had none yet."""
        found = read_progress(self._root)
        history = self._shelf.history()
        self._reports.settle(history)
        if found is not None and found.state == "killed" and self._reports.read(found.dream) is None:
            began = stamp(datetime.fromtimestamp(found.began, tz=self._clock().tzinfo))
            lost = DreamReport(found.dream, "killed", began, paths=tuple(found.paths))
            with suppress(StorageError):
                self._reports.save(lost)


@record
class _Way:
    """How a dream was asked for."""

    dry_run: bool
    confirmed: bool
    tell: Callable[[DreamChanged], None] | None


def _day(before: Snapshot) -> str:
    return f"{before.time[:19]}Z"


def _summed(report: DreamReport) -> str:
    acts = [change.act for change in report.changes]
    counts = [f"{acts.count(act)} {act}" for act in dict.fromkeys(acts)]
    return ", ".join(counts) or "nothing to change"
