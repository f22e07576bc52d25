"""Run a command of Reverie again and again: by a systemd user timer if systemd runs, else by a line in the crontab."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..importers.places import PLACES
from ..values import record
from .output import emit_json, say

_SERVICE = """\
[Unit]
Description={about}

[Service]
Type=oneshot
WorkingDirectory={directory}
Environment={environment}
ExecStart={command}
StandardError=append:{log}
Nice=10
"""
_TIMER = """\
[Unit]
Description={about}, {rhythm}

[Timer]
OnCalendar={calendar}
RandomizedDelaySec={delay}
Persistent=true

[Install]
WantedBy=timers.target
"""


@record
class Timer:
    """A command that runs by itself: its unit, its mark in the crontab, its words, its directory and its rhythm."""

    unit: str
    mark: str
    about: str
    words: tuple[str, ...]
    directory: Path
    home: Path
    log: str
    """The file of Reverie's home to which the timer appends errors."""
    rhythm: str
    calendar: str
    delay: str
    cron: str


def change_timer(timer: Timer, *, install: bool, dry_run: bool, as_json: bool) -> int:
    """Install or remove a timer, print the result, and return the exit code."""
    made = (_install if install else _remove)(timer, dry_run=dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, **made})
    else:
        say("\n".join(made["said"]))
    return 0


def _install(timer: Timer, *, dry_run: bool) -> dict[str, Any]:
    """Install a timer; return a dict of files or the crontab line, and lines to print."""
    if _has_systemd():
        files = _units(timer)
        if not dry_run:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            _run(["systemctl", "--user", "daemon-reload"])
            _run(["systemctl", "--user", "enable", "--now", f"{timer.unit}.timer"])
        written = {str(path): text for path, text in files.items()}
        verb = "would be written" if dry_run else "written"
        said = [line for path, text in written.items() for line in (f"{path} ({verb}):", *text.splitlines(), "")]
        return {"kind": "systemd", "files": written, "said": said}
    line = _cron_line(timer)
    if shutil.which("crontab") is None:
        raise InputError(f"found neither a systemd user session nor cron; run this {timer.rhythm} yourself: {line}")
    before = _crontab()
    if not dry_run:
        _write_crontab([*_others(before, timer), line])
    return {
        "kind": "cron",
        "line": line,
        "said": [f"{'would be added to' if dry_run else 'added to'} your crontab:", line],
    }


def _remove(timer: Timer, *, dry_run: bool) -> dict[str, Any]:
    """Remove a timer from systemd and cron; return a dict of removed files and lines to print."""
    gone: list[str] = []
    files = [path for path in _units(timer) if path.exists()]
    if files:
        if not dry_run and _has_systemd():
            _run(["systemctl", "--user", "disable", "--now", f"{timer.unit}.timer"])
        for path in files:
            gone.append(str(path))
            if not dry_run:
                path.unlink()
        if not dry_run and _has_systemd():
            _run(["systemctl", "--user", "daemon-reload"])
    if shutil.which("crontab") is not None:
        before = _crontab()
        kept = _others(before, timer)
        if kept != before:
            gone.append("the line in your crontab")
            if not dry_run:
                _write_crontab(kept)
    verb = "would remove" if dry_run else "removed"
    return {"removed": gone, "said": [f"{verb}: {name}" for name in gone] or ["There is no such timer."]}


def timer_state(timer: Timer) -> dict[str, Any]:
    """Return where a timer is installed, and the last error that it wrote with its time; both empty if it is not."""
    found = [str(path) for path in _units(timer) if path.suffix == ".timer" and path.exists()]
    if shutil.which("crontab") is not None:
        with suppress(InputError):  # a user who may not use cron has no timer there
            lines = _crontab()
            found += ["a line in your crontab"] if _others(lines, timer) != lines else []
    log = timer.home / timer.log
    said = log.read_text("utf-8", "replace").strip().splitlines() if found and log.is_file() else []
    error = f"{datetime.fromtimestamp(log.stat().st_mtime):%Y-%m-%d %H:%M}: {said[-1]}" if said else ""
    return {"installed": found, "error": error}


def _program() -> list[str]:
    script = Path(sys.executable).with_name("reverie")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "reverie.cli.start"]


def _environment(timer: Timer) -> list[str]:
    """Return the variables that say where Reverie and the agents store their files, as far as they are set."""
    return [f"REVERIE_HOME={timer.home}", *(f"{name}={os.environ[name]}" for name in PLACES if os.environ.get(name))]


def _units(timer: Timer) -> dict[Path, str]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    command = " ".join(_quoted(word) for word in [*_program(), *timer.words])
    log, kept = str(timer.home / timer.log).replace("%", "%%"), " ".join(map(_quoted, _environment(timer)))
    directory, about = (str(value).replace("%", "%%") for value in (timer.directory, timer.about))
    service = _SERVICE.format(about=about, directory=directory, command=command, environment=kept, log=log)
    timed = _TIMER.format(about=about, rhythm=timer.rhythm, calendar=timer.calendar, delay=timer.delay)
    return {folder / f"{timer.unit}.service": service, folder / f"{timer.unit}.timer": timed}


def _quoted(word: str) -> str:
    plain = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if any(sign in plain for sign in " \t'\"\\;") else plain


def _cron_line(timer: Timer) -> str:
    words = shlex.join(["env", *_environment(timer), *_program(), *timer.words])
    log = shlex.quote(str(timer.home / timer.log))
    command = f"cd {shlex.quote(str(timer.directory))} && {words} >/dev/null 2>>{log}"
    return f"{timer.cron} {command.replace('%', chr(92) + '%')} {timer.mark}"


def _has_systemd() -> bool:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return bool(runtime) and shutil.which("systemctl") is not None and os.path.isdir(os.path.join(runtime, "systemd"))


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if ran.returncode != 0:
        raise InputError(f"'{shlex.join(command)}' failed: {ran.stderr.strip() or ran.stdout.strip()}")


def _crontab() -> list[str]:
    ran = subprocess.run(["crontab", "-l"], capture_output=True, text=True, timeout=30)
    if ran.returncode != 0 and "no crontab" not in ran.stderr:
        raise InputError(f"crontab -l failed, so the crontab stays as it is: {ran.stderr.strip()}")
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def _others(lines: list[str], timer: Timer) -> list[str]:
    return [line for line in lines if not line.rstrip().endswith(timer.mark)]


def _write_crontab(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(["crontab", "-"], input=text, capture_output=True, text=True, timeout=30)
    if ran.returncode != 0:
        raise InputError(f"crontab refused the line: {ran.stderr.strip()}")
