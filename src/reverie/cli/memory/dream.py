"""``reverie dream``: consolidate memories, and watch, stop, report or undo a dream."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from ...errors import InputError, SessionBusy
from ...events import DreamChanged
from ...layers.l6_dream import DreamReport, markdown
from ...runtime.dream.control import STDERR, dream_model, start, stop
from ...runtime.dream.dreams import Dreams
from ...runtime.dream.gate import gate_of
from ...runtime.dream.lock import DreamLock
from ...runtime.dream.progress import read_progress
from ...runtime.memory.memory import Memory
from ...runtime.places.projects import canonical_root, project_slug
from ...settings import Settings, load_settings
from ...values import picked
from ..output import counted, emit_json, paint, printable, say, warn
from ..timers import Timer, change_timer, timer_state

if TYPE_CHECKING:
    from ...runtime.dream.gate import DreamStatus

_BEGIN_SECONDS = 20.0
_STYLES = {"+": "green", "-": "red", "@": "cyan", "#": "bold"}


@click.command()
@click.option("--now", "at_once", is_flag=True, help="Dream now, even if none is due.")
@click.option("--dry-run", is_flag=True, help="Show the changes and apply none.")
@click.option("--status", is_flag=True, help="Show the last dream, the running one, and when the next is due.")
@click.option("--watch", is_flag=True, help="Follow the running dream.")
@click.option("--kill", "ending", is_flag=True, help="Stop the running dream and discard its changes.")
@click.option("--undo", is_flag=False, flag_value="last", metavar="[DREAM]", help="Undo the last dream, or DREAM.")
@click.option(
    "--report",
    is_flag=False,
    flag_value="last",
    metavar="[DREAM]",
    help="Show the report of the last dream, or of DREAM.",
)
@click.option("--confirmed", is_flag=True, help="Allow more deletions than an automatic dream may make.")
@click.option("--local", is_flag=True, help="Use no model, even if one is set.")
@click.option("--install-timer", is_flag=True, help="Dream every night, with a systemd user timer or cron.")
@click.option("--remove-timer", is_flag=True, help="Remove that timer.")
@click.option("--project", metavar="DIR", default=".", help="The project; default: the current directory.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    at_once: bool,
    dry_run: bool,
    status: bool,
    watch: bool,
    ending: bool,
    undo: str | None,
    report: str | None,
    confirmed: bool,
    local: bool,
    install_timer: bool,
    remove_timer: bool,
    project: str,
    as_json: bool,
) -> int:
    """Consolidate the memories of a project: merge equal memories, make dates absolute, handle dead links and
    expired memories, and ask you about similar and contradicting ones.

    Without an option, dream if one is due. A dream works on a copy; its valid results are applied as one change, which
    --undo reverts byte for byte. It uses the model that 'reverie chat' would use (or the alias 'dream'), within its
    budget, and no model if there is none.
    """
    asked = [status, watch, ending, undo is not None, report is not None, install_timer, remove_timer]
    if sum(asked) > 1:
        raise InputError(
            "use only one of --status, --watch, --kill, --undo, --report, --install-timer and --remove-timer"
        )
    if not os.path.isdir(project):
        raise InputError(f"--project {project} is not a directory")
    actions = _DreamCommand(Path(project).resolve(), as_json)
    if install_timer or remove_timer:
        timer = _timer(actions.project, actions.settings.home)
        return change_timer(timer, install=install_timer, dry_run=dry_run, as_json=as_json)
    if status:
        return actions.status()
    if watch:
        return actions.watch()
    if ending:
        return actions.stop(dry_run)
    if undo is not None:
        return actions.undo(None if undo == "last" else undo, dry_run)
    if report is not None:
        return actions.report(None if report == "last" else report)
    if dry_run:
        return actions.dry_run(confirmed, local)
    return actions.dream(at_once, confirmed, local)


class _DreamCommand:
    """The actions of ``reverie dream`` for one project; each returns the exit code."""

    def __init__(self, project: Path, as_json: bool) -> None:
        self.project = project
        self.settings: Settings = load_settings(project=canonical_root(project))
        self.memory = Memory.open(project, settings=self.settings)
        self.root = str(self.memory.path)
        self.json = as_json

    def _dreams(self) -> Dreams:
        return Dreams(self.memory, self.settings, project=self.project)

    # -- start a dream

    def dream(self, at_once: bool, confirmed: bool, local: bool) -> int:
        if not self.settings.switches.dream:
            raise InputError("dreams are switched off: set switches.dream to true")
        if not os.path.isdir(self.root):
            return self._no_memories()
        if (holder := DreamLock(self.root).holder()) is not None:
            raise SessionBusy(f"a dream is already running: {holder}; --watch follows it, --kill stops it")
        if not at_once:
            slug = project_slug(self.project)
            if (closed := gate_of(self.root, self.settings, slug).check()) is not None:
                return self._not_due(closed.reason, closed.detail, closed.wait_seconds)
        before = read_progress(self.root)
        pid = start(self.project, home=self.settings.home, memory_dir=self.root, local=local, confirmed=confirmed)
        return anyio.run(self._follow, before.dream if before else "", pid)

    def _no_memories(self) -> int:
        return self._not_due("no_memories", f"nothing is in {self.root} yet", None)

    def _not_due(self, reason: str, detail: str, wait_seconds: float | None) -> int:
        if self.json:
            emit_json({"dreamt": False, "reason": reason, "detail": detail, "wait_seconds": wait_seconds})
        else:
            said = {
                "few_sessions": f"few sessions since the last dream ({detail})",
                "just_scanned": "few sessions since the last dream when they were last counted",
            }.get(reason, f"{reason.replace('_', ' ')}{f' ({detail})' if detail else ''}")
            # Waiting alone brings no sessions and no memories.
            when = {"too_soon": "the next is due", "just_scanned": "they are counted again"}.get(reason)
            end = f"; {when} in {_duration(wait_seconds)}" if when and wait_seconds else ""
            say(f"No dream is due: {said}{end}.")
            if reason != "no_memories":
                say("'reverie dream --now' starts one anyway; 'reverie dream --dry-run' shows its changes.")
        return 0

    async def _follow(self, before: str, pid: int) -> int:
        """Wait for a dream whose id is not ``before``, print its progress and report, and return the exit code."""
        deadline = time.monotonic() + _BEGIN_SECONDS
        while (now := read_progress(self.root)) is None or now.dream == before:
            is_over = not _is_there(pid) and ((now := read_progress(self.root)) is None or now.dream == before)
            if is_over or time.monotonic() > deadline:
                raise InputError(f"the dream did not start: {_last_error(self.root)}")
            await anyio.sleep(0.05)
        async for change in self._dreams().watch():
            self._print_progress(change)
        report = next((one for one in self._dreams().reports() if one.dream == now.dream), None)
        if report is None:  # it is written before the first change
            raise InputError(f"the dream {now.dream} was killed before it changed anything")
        self._show(report)
        return 0 if report.state == "completed" else 1

    def dry_run(self, confirmed: bool, local: bool) -> int:
        """Print the changes of the local rules, which need no model, and apply none."""
        if not os.path.isdir(self.root):
            return self._no_memories()

        async def run() -> DreamReport:
            return await self._dreams().run(dry_run=True, confirmed=confirmed, listener=self._print_progress)

        self._show(anyio.run(run))
        named = None if local else dream_model(self.settings)
        if named and not self.json:
            say(f"A dry run calls no model. 'reverie dream --now' asks {named} as well and may change more.")
        return 0

    # -- the running dream

    def watch(self) -> int:
        async def follow() -> None:
            async for change in self._dreams().watch():
                if self.json:
                    emit_json(change)
                else:
                    self._print_progress(change, loud=True)

        running = read_progress(self.root)
        if running is None or running.is_over:
            if self.json:
                emit_json(None)
            else:
                say("No dream is running.")
            return 0
        anyio.run(follow)
        return 0

    def stop(self, dry_run: bool) -> int:
        running = self._dreams().status().running
        ended = None if dry_run else stop(self.root)
        if self.json:
            emit_json({"dry_run": dry_run, "running": running, "killed": ended is not None and ended.gone})
        elif ended is None:
            say(f"Would stop the dream {running.dream}." if running is not None else "No dream is running.")
        else:
            say("Stopped the dream and discarded its changes." if ended.gone else "The dream's process does not stop.")
        return 0 if ended is None or ended.gone else 1

    def status(self) -> int:
        status, timer = self._dreams().status(), timer_state(_timer(self.project, self.settings.home))
        if self.json:
            questions = self._dreams().questions()
            emit_json({"directory": self.root, "questions": questions, **_status_object(status), "timer": timer})
        else:
            self._describe(status)
            where = ", ".join(timer["installed"])
            say(f"timer: every night, {where}" if where else "timer: none; --install-timer dreams every night")
            if timer["error"]:
                say(f"last error of the timer: {printable(timer['error'])}")
        return 0

    def _describe(self, status: DreamStatus) -> None:
        last = "never" if status.last is None else f"{_duration(time.time() - status.last)} ago"
        say(f"last dream: {last}")
        if status.running is not None:
            running = status.running
            say(f"running: {running.dream}, {running.state} for {_duration(time.time() - running.began)}")
            work = f"{counted(running.tools, 'tool call')}, {counted(len(running.paths), 'file')}"
            say(f"  {work}: {printable(running.text)}" if running.text else f"  {work}")
        else:
            when = f"not due ({status.gate.replace('_', ' ')})" if status.gate else "after the next query"
            say(f"next dream: {when}")
        if status.report is not None:
            say(f"last report: {status.report.dream}, {status.report.state}: {_summary(status.report)}")
        if status.ended is not None and (status.report is None or status.report.dream != status.ended.dream):
            say(f"without a report: {status.ended.dream}, {status.ended.state}")
        questions = self._dreams().questions()
        if questions:
            say(f"{counted(len(questions), 'open question')}: 'reverie memory review' asks them")

    # -- past dreams

    def report(self, dream: str | None) -> int:
        dreams = self._dreams()
        for problem in dreams.report_problems():
            warn(problem)
        reports = dreams.reports()
        if dream is None and not reports:
            raise InputError("there is no report to show: 'reverie dream --now' creates one")
        found = reports[0] if dream is None else dreams.report(dream)
        self._show(found)
        return 0

    def undo(self, dream: str | None, dry_run: bool) -> int:
        undone = self._dreams().undo(dream, dry_run=dry_run)
        if self.json:
            emit_json(undone)
            return 0
        verb = "would restore" if dry_run else "restored"
        say(f"{undone.dream}: {verb} {counted(len(undone.restored), 'file')}.")
        if undone.stayed:
            say(f"Not restored, because they changed since: {', '.join(map(printable, undone.stayed))}")
        return 0

    # -- output

    def _print_progress(self, change: DreamChanged, *, loud: bool = False) -> None:
        if self.json or not (loud or sys.stderr.isatty()):
            return
        text = printable(" ".join(change.text.split()))[:100]
        line = f"{change.state}: {counted(change.tools, 'call')}, {counted(len(change.paths), 'file')} {text}".rstrip()
        if loud:
            say(line)
        else:
            warn(f"dream {line}")

    def _show(self, report: DreamReport) -> None:
        if self.json:
            emit_json(report)
            return
        paint((line, _STYLES.get(line[:1], "")) for line in markdown(report).splitlines(keepends=True))
        if report.entry and not report.undone:
            say(f"'reverie dream --undo {report.dream}' undoes all of it.")


def _timer(project: Path, home: Path) -> Timer:
    """Return the nightly dream of a project as a timer."""
    slug = project_slug(project)
    about, words = f"Consolidate the memories of {project}", ("dream", "--json")
    log, times = f"dream-timer-{slug}.log", ("every night", "*-*-* 03:17:00", "30m", "17 3 * * *")
    return Timer(f"reverie-dream-{slug}", f"# reverie dream {slug}", about, words, project, home, log, *times)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _last_error(root: str) -> str:
    path = os.path.join(root, ".journal", STDERR)
    with suppress(OSError):
        lines = Path(path).read_text("utf-8", "replace").strip().splitlines()
        if lines:
            return lines[-1]
    return f"see {path}"


def _summary(report: DreamReport) -> str:
    acts = [change.act for change in report.changes]
    counts = [f"{acts.count(act)} {act}" for act in dict.fromkeys(acts)]
    return ", ".join(counts) or "no changes"


def _status_object(status: DreamStatus) -> dict[str, Any]:
    last = None if status.last is None else datetime.fromtimestamp(status.last, UTC).isoformat()
    return {"last": last, **picked(status, "gate running ended report")}


def _duration(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(0, seconds):.0f} seconds"
