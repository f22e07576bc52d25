"""``reverie doctor``: check the interpreter, the home directory, the kernel and optional packages."""

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

from ...errors import InputError
from ...extras import install_command
from ...paths import resolver
from ...settings import default_home
from ...values import record
from ..output import emit_json, say, table

Status = Literal["ok", "fallback", "absent", "failed"]

# extra -> the module that it installs
EXTRAS = {
    "acp": "acp",
    "anthropic": "anthropic",
    "codex": "zstandard",
    "images": "PIL",
    "flags": "openfeature",
    "local": "xllamacpp",
    "mcp": "mcp",
    "langchain": "langchain",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
    "openai": "openai",
    "otel": "opentelemetry.sdk",
    "postgres": "psycopg",
    "s3": "obstore",
    "testing": "starlette",
    "web": "httpx2",
}
SLOW_SYNC_MS = 20.0
_SYNCS = 21


@record
class Finding:
    """The result of one check: ok, a fallback in use, a missing optional package, or a failure to fix."""

    name: str
    status: Status
    detail: str


@click.command()
@click.option("--model", metavar="NAME", help="Print the rules, limits and prices of a model instead.")
@click.option("--ask", is_flag=True, help="With --model: ask the provider for the model's window.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(model: str | None, ask: bool, as_json: bool) -> int:
    """Check this machine and report missing features and their fallbacks.

    Exits with 1 if a check failed. Leaves no files behind.
    """
    if model is not None:
        from .model_row import model_row, show_row

        row = model_row(model, ask=ask)
        emit_json(row) if as_json else show_row(row)
        return 0
    if ask:
        raise InputError("--ask needs --model NAME")
    findings = examine(default_home())
    failed = any(finding.status == "failed" for finding in findings)
    if as_json:
        emit_json({"ok": not failed, "findings": findings})
    else:
        table(["", "", ""], [(finding.status, finding.name, finding.detail) for finding in findings])
        say("Fix the failed checks above." if failed else "Ready.")
    return 1 if failed else 0


def examine(home: Path) -> list[Finding]:
    """Run all checks (interpreter, home, settings, kernel features, ripgrep, extras) and return their findings."""
    return [
        python_version(),
        *home_findings(home),
        settings_file(home),
        *stored_files(home),
        *database(home),
        openat2(),
        sandbox(),
        denied_files(),
        ripgrep(),
        usable_model(home),
        *map(extra, EXTRAS),
    ]


def database(home: Path) -> list[Finding]:
    """Check the configured database: reachable, migrated, and its role bound to a tenant; nothing without one."""
    from ...errors import ReverieError, SettingsError
    from ...settings import load_settings

    try:
        settings = load_settings(home=home)
        if settings.database is None:
            return []
        from ...storage.postgres.migrate import status

        found = status(settings.database)
    except ImportError:
        return [Finding("database", "failed", f"the extra is missing: {install_command('postgres')}")]
    except SettingsError:
        return []  # the check of the settings reports it
    except ReverieError as error:
        return [Finding("database", "failed", str(error))]
    problems = [
        "set a tenant (REVERIE_TENANT)" if not settings.tenant else "",
        "run 'reverie db migrate'" if found.pending else "",
        f"the role {found.role} sees the rows of every tenant: use one without SUPERUSER and BYPASSRLS"
        if found.bypasses_tenants
        else "",
    ]
    problem = "; ".join(filter(None, problems))
    return [Finding("database", "failed" if problem else "ok", problem or f"{found.database}, {found.server}")]


def usable_model(home: Path) -> Finding:
    """Report the model that an agent would ask, or the ways to one."""
    from ...errors import ReverieError
    from ...models import open_model
    from ...models.names import how_to_get_a_model
    from ...settings import load_settings

    try:
        settings = load_settings(home=home)
        return Finding("model", "ok", open_model(settings.model, aliases=settings.model_aliases).name)
    except (ReverieError, ValueError) as error:
        reason = str(error).removesuffix(how_to_get_a_model()).partition("\n")[0].rstrip(" .")
        return Finding("model", "absent", f"{reason}; 'reverie' says how to get one")


def python_version() -> Finding:
    """Report the Python version and platform; the check fails below Python 3.11."""
    status: Status = "ok" if sys.version_info >= (3, 11) else "failed"
    return Finding("python", status, f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def settings_file(home: Path) -> Finding:
    """Check that the settings in a home directory can be loaded; the finding names their file."""
    from ...errors import SettingsError
    from ...settings import load_settings
    from ...settings.load import open_flags

    try:
        open_flags(load_settings(home=home))
    except SettingsError as error:
        return Finding("settings", "failed", str(error))
    there = (home / "config.toml").exists()
    return Finding("settings", "ok", f"{home / 'config.toml'}" if there else "defaults; no config.toml")


def stored_files(home: Path) -> list[Finding]:
    """Check the journals of all projects and the ledger for damage."""
    from ...errors import StorageError
    from ...memories.store.journal_files import JournalFiles
    from ...runtime.session.ledger import FILE_NAME, is_damaged

    found: list[Finding] = []
    for folder in sorted(home.glob("projects/*/memory/.journal")):
        try:
            problems = JournalFiles(str(folder.parent)).problems()
        except StorageError as error:
            problems = [str(error)]
        if problems:
            found.append(Finding("journal", "failed", f"{folder / 'journal.jsonl'}: {'; '.join(problems[:3])}"))
    if (home / FILE_NAME).exists() and is_damaged(home / FILE_NAME):
        found.append(Finding("ledger", "failed", f"{home / FILE_NAME} is damaged; 'reverie stats' rebuilds it"))
    return found


def home_findings(home: Path) -> list[Finding]:
    """Check writing, locking and syncing in a temporary folder in the home directory or its nearest parent."""
    ground = home
    while not ground.exists() and ground != ground.parent:
        ground = ground.parent
    try:
        with tempfile.TemporaryDirectory(dir=ground, prefix=".reverie-doctor-") as folder:
            scratch = Path(folder, "scratch")
            state = "writable" if ground == home else "does not exist yet; it is created on first use"
            return [Finding("home", "ok", f"{home}: {state}"), lock(scratch), sync_time(scratch)]
    except OSError as error:
        reads = "commands that only read still work; " if os.access(home, os.R_OK | os.X_OK) else ""
        detail = f"{home}: {error.strerror}; {reads}set REVERIE_HOME to a directory you can write to"
        return [Finding("home", "failed", detail)]


def lock(scratch: Path) -> Finding:
    """Check that a lock held on a scratch file blocks a second holder."""
    import fcntl

    with open(scratch, "wb") as first, open(scratch, "rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Finding("flock", "failed", f"{error.strerror}: move REVERIE_HOME to a local file system")
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Finding("flock", "ok", "locks work")
    return Finding("flock", "failed", "a lock does not block a second holder: move REVERIE_HOME to a local file system")


def sync_time(scratch: Path) -> Finding:
    """Measure the median time of a sync, which every durable append waits for; always ok, with advice if slow."""
    name = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
    sync: Callable[[int], None] = getattr(os, name)
    spent: list[float] = []
    with open(scratch, "ab", buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(b"x" * 1_000)
            start = time.perf_counter()
            sync(file.fileno())
            spent.append((time.perf_counter() - start) * 1_000)
    middle = median(spent)
    advice = (
        '; slow: with durability = "second" in config.toml a crash may lose the last second, but appends do not wait'
    )
    slow = advice if middle > SLOW_SYNC_MS else ""
    return Finding(name, "ok", f"{middle:.2f} ms per append (median of {_SYNCS}){slow}")


def openat2() -> Finding:
    """Report whether the kernel confines paths to their root directory (openat2), or the fallback is used."""
    if resolver() == "openat2":
        return Finding("openat2", "ok", "the kernel confines paths to their root directory")
    fallback = "each directory of a path is opened separately, without following links"
    return Finding("openat2", "fallback", f"not available; {fallback}")


def sandbox() -> Finding:
    """Report the sandbox for read-only commands, or its fallback."""
    from ...tools.shell.sandbox import available

    found = available()
    return Finding("sandbox", "ok" if found.works else "fallback", found.detail)


def denied_files() -> Finding:
    """Report whether a rule that denies a file also holds for programs that run in bypass mode."""
    from ...tools.shell.sandbox import can_hide

    if can_hide():
        return Finding("denied files", "ok", "they are hidden from every command in bypass mode (a mount namespace)")
    advice = "a program that does more than read can open them in bypass mode; use another mode or a container"
    return Finding("denied files", "fallback", f"this system allows no mount namespace; {advice}")


def ripgrep() -> Finding:
    """Report whether ripgrep is available for searches, or the fallback is used."""
    from shutil import which

    path = which("rg") or which("rg", path=str(Path(sys.executable).parent))
    if path:
        return Finding("ripgrep", "ok", path)
    return Finding("ripgrep", "fallback", f"not installed; Grep uses slower Python code; {install_command('ripgrep')}")


def extra(name: str) -> Finding:
    """Report whether an optional extra is installed, without importing it."""
    try:
        present = find_spec(EXTRAS[name]) is not None
    except ModuleNotFoundError:
        present = False
    if present:
        return Finding(f"extra {name}", "ok", EXTRAS[name])
    return Finding(f"extra {name}", "absent", install_command(name))
