"""Install or remove a nightly dream: a systemd user timer if systemd runs, else a line in the crontab."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...runtime.places.projects import project_slug

_MARK = "# reverie dream"
_HOUR, _MINUTE = 3, 17
_LOG = "dream-timer.log"
"""The file of Reverie's home to which timers append errors."""
_SERVICE = """\
[Unit]
Description=Consolidate the memories of {project}

[Service]
Type=oneshot
WorkingDirectory={project}
Environment={home}
ExecStart={command}
StandardError=append:{log}
Nice=10
"""
_TIMER = """\
[Unit]
Description=Consolidate the memories of {project} every night

[Timer]
OnCalendar=*-*-* {hour:02}:{minute:02}:00
RandomizedDelaySec=30m
Persistent=true

[Install]
WantedBy=timers.target
"""


def install_timer(project: Path, home: Path, *, dry_run: bool = False) -> dict[str, Any]:
    """Install the nightly dream of a project; return a dict of files or the crontab line, and lines to print."""
    if _has_systemd():
        files = _units(project, home)
        if not dry_run:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            _run(["systemctl", "--user", "daemon-reload"])
            _run(["systemctl", "--user", "enable", "--now", f"{_unit(project)}.timer"])
        written = {str(path): text for path, text in files.items()}
        verb = "would be written" if dry_run else "written"
        said = [line for path, text in written.items() for line in (f"{path} ({verb}):", *text.splitlines(), "")]
        return {"kind": "systemd", "files": written, "said": said}
    line = _cron_line(project, home)
    if shutil.which("crontab") is None:
        raise InputError(f"found neither a systemd user session nor cron; run this every night yourself: {line}")
    before = _crontab()
    if not dry_run:
        _write_crontab([*_others(before, project), line])
    return {
        "kind": "cron",
        "line": line,
        "said": [f"{'would be added to' if dry_run else 'added to'} your crontab:", line],
    }


def remove_timer(project: Path, home: Path, *, dry_run: bool = False) -> dict[str, Any]:
    """Remove the timer of a project from systemd and cron; return a dict of removed files and lines to print."""
    gone: list[str] = []
    files = [path for path in _units(project, home) if path.exists()]
    if files:
        if not dry_run and _has_systemd():
            _run(["systemctl", "--user", "disable", "--now", f"{_unit(project)}.timer"])
        for path in files:
            gone.append(str(path))
            if not dry_run:
                path.unlink()
        if not dry_run and _has_systemd():
            _run(["systemctl", "--user", "daemon-reload"])
    if shutil.which("crontab") is not None:
        before = _crontab()
        kept = _others(before, project)
        if kept != before:
            gone.append("the line in your crontab")
            if not dry_run:
                _write_crontab(kept)
    verb = "would remove" if dry_run else "removed"
    return {"removed": gone, "said": [f"{verb}: {name}" for name in gone] or ["This project has no timer."]}


def timer_state(project: Path, home: Path) -> dict[str, Any]:
    """Return the installed timers of a project, and the last error that one wrote; both empty if there is none."""
    found = [str(path) for path in _units(project, home) if path.suffix == ".timer" and path.exists()]
    if shutil.which("crontab") is not None:
        lines = _crontab()
        found += ["a line in your crontab"] if _others(lines, project) != lines else []
    log = home / _LOG
    said = log.read_text("utf-8", "replace").strip().splitlines() if log.is_file() else []
    return {"installed": found, "error": said[-1] if said and found else ""}


def _program() -> list[str]:
    script = Path(sys.executable).with_name("reverie")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "reverie.cli.start"]


def _unit(project: Path) -> str:
    return f"reverie-dream-{project_slug(project)}"


def _units(project: Path, home: Path) -> dict[Path, str]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    escaped = str(project).replace("%", "%%")
    command = " ".join(_quoted(word) for word in [*_program(), "dream", "--json"])
    kept = _quoted(f"REVERIE_HOME={home}")
    log = str(home / _LOG).replace("%", "%%")
    service = _SERVICE.format(project=escaped, command=command, home=kept, log=log)
    timer = _TIMER.format(project=escaped, hour=_HOUR, minute=_MINUTE)
    return {folder / f"{_unit(project)}.service": service, folder / f"{_unit(project)}.timer": timer}


def _quoted(word: str) -> str:
    """Return a word quoted for a systemd unit file."""
    plain = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if any(sign in plain for sign in " \t'\"\\;") else plain


def _cron_line(project: Path, home: Path) -> str:
    words = shlex.join(["env", f"REVERIE_HOME={home}", *_program(), "dream", "--json"])
    command = f"cd {shlex.quote(str(project))} && {words} >/dev/null 2>>{shlex.quote(str(home / _LOG))}"
    return f"{_MINUTE} {_HOUR} * * * {command.replace('%', chr(92) + '%')} {_MARK} {project_slug(project)}"


def _has_systemd() -> bool:
    """Return whether a systemd user session is running."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return bool(runtime) and shutil.which("systemctl") is not None and os.path.isdir(os.path.join(runtime, "systemd"))


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if ran.returncode != 0:
        raise InputError(f"'{shlex.join(command)}' failed: {ran.stderr.strip() or ran.stdout.strip()}")


def _crontab() -> list[str]:
    ran = subprocess.run(["crontab", "-l"], capture_output=True, text=True, timeout=30)
    return ran.stdout.splitlines() if ran.returncode == 0 else []


def _others(lines: list[str], project: Path) -> list[str]:
    return [line for line in lines if not line.rstrip().endswith(f"{_MARK} {project_slug(project)}")]


def _write_crontab(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(["crontab", "-"], input=text, capture_output=True, text=True, timeout=30)
    if ran.returncode != 0:
        raise InputError(f"crontab refused the line: {ran.stderr.strip()}")
