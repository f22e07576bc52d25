"""``reverie keep``: keep the sessions of all agents on this machine in the library."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from ...errors import InputError, SessionBusy
from ...importers import usual_places
from ...runtime.archive import Keeper, KeepReport
from ...runtime.archive.keeper import SOON_DAYS
from ...settings import load_settings
from ..output import counted, emit_json, say, table, tracked, warn
from ..timers import Timer, change_timer, timer_state
from .import_sessions import index_imported
from .recordings import opened_storage

_COUNTS = ("kept", "added", "grown", "gone", "due")


@click.command(short_help="Keep the sessions of all agents on this machine in the library.")
@click.option("--install-timer", "install", is_flag=True, help="Keep them every hour, by a systemd user timer or cron.")
@click.option("--remove-timer", "remove", is_flag=True, help="Remove that timer.")
@click.option("--dry-run", is_flag=True, help="Show the result and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(install: bool, remove: bool, dry_run: bool, as_json: bool) -> int:
    """Keep the sessions of all agents on this machine in the library.

    Finds the sessions of Claude Code, Codex, Gemini CLI, Qwen Code, opencode, Copilot CLI, Kimi Code and pi, with
    sub-agents and stored results, and files each under the project in which it ran. A session that grew is
    extended; none is ever shortened, also if its agent deletes it. Prompts of sessions that are gone already are
    recovered from history files. Everything kept is foreign: memories from it wait for your approval, and 'chat
    --continue' does not choose it. Unchanged files are not read again, so run it as often as you like.
    """
    if install and remove:
        raise InputError("use only one of --install-timer and --remove-timer")
    settings = load_settings()
    timer = keep_timer(settings.home)
    if install or remove:
        return change_timer(timer, install=install, dry_run=dry_run, as_json=as_json)
    with opened_storage(settings) as storage:
        keeper = Keeper(storage, settings.home, usual_places(Path.home(), os.environ), dry_run=dry_run)
        try:
            report = keeper.keep(time.time(), lambda files: tracked(files, "keeping"))
        except SessionBusy:
            raise InputError("another 'reverie keep' is running; it keeps the same sessions") from None
    if not dry_run:
        index_imported(len(report.keys))
    if as_json:
        emit_json(as_json_report(report, dry_run))
    else:
        draw(report, dry_run, timer_state(timer))
    for path, error in report.failed:
        warn(error if path in error else f"{path}: {error}")
    for path, error in () if as_json else report.failed_before:
        warn(f"still not kept: {error if path in error else f'{path}: {error}'}")
    return 2 if report.failed else 0


def keep_timer(home: Path) -> Timer:
    """Return the hourly pass as a timer."""
    about, words = "Keep the sessions of coding agents", ("keep", "--json")
    times = ("every hour", "hourly", "10m", "23 * * * *")
    return Timer("reverie-keep", "# reverie keep", about, words, Path.home(), home, "keep-timer.log", *times)


def as_json_report(report: KeepReport, dry_run: bool) -> dict[str, Any]:
    """Return the report of a pass as a dict for JSON."""
    return {
        "dry_run": dry_run,
        **{
            name: sum(getattr(one, name) for one in report.agents) for name in ("kept", "added", "grown", "gone", "due")
        },
        "due_days": SOON_DAYS,
        "lost": report.lost,
        "recovered_prompts": report.prompts,
        "agents": report.agents,
        "files": report.files,
        "files_read": report.read,
        "logs": report.keys,
        "failed": [{"path": path, "error": error} for path, error in report.failed],
        "failed_before": [{"path": path, "error": error} for path, error in report.failed_before],
    }


def draw(report: KeepReport, dry_run: bool, timer: dict[str, Any]) -> None:
    """Print one screen: the kept sessions by agent, those that agents delete soon, and recovered prompts."""
    if not report.agents and not report.lost:
        say("Found no sessions of Claude Code, Codex, Gemini CLI, Qwen Code, opencode, Copilot CLI, Kimi Code or pi.")
        return
    kept = sum(one.kept for one in report.agents)
    verb = "would be kept" if dry_run else "kept"
    say(f"{counted(kept, 'session')} of {counted(len(report.agents), 'agent')} {verb}.")
    rows = [
        (one.title, f"{one.kept:,}", f"{one.added:,}", f"{one.grown:,}", f"{one.gone:,}", f"{one.due:,}", after(one))
        for one in report.agents
    ]
    soon = f"due in {SOON_DAYS:.0f} days"
    if rows:
        table(["agent", "kept", "new", "grown", "deleted", soon, "its agent deletes"], rows, right=(1, 2, 3, 4, 5))
    due = sum(one.due for one in report.agents)
    if due:
        first = min(one.first_due_days for one in report.agents if one.first_due_days is not None)
        when = "the first at their next start" if first < 1 else f"the first in {counted(int(first), 'day')}"
        days = f"in the next {SOON_DAYS:.0f} days"
        say(f"Their agents delete {counted(due, 'session')} {days}, {when}; the copies here stay.")
    if report.lost:
        found = f"{counted(report.prompts, 'prompt')} of yours recovered from history files"
        say(f"Deleted before they could be kept: {counted(report.lost, 'session')}; {found}.")
    if not timer["installed"] and not dry_run:
        say("'reverie keep --install-timer' keeps them every hour; 'reverie search WORDS' finds them.")
    if timer["error"]:
        say(f"last error of the timer: {timer['error']}")


def after(agent: Any) -> str:
    """Return after how long an agent deletes sessions, as text."""
    return "never by itself" if agent.days_kept is None else f"after {agent.days_kept:g} days"
