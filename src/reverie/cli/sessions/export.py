"""``reverie export``: write a session's log to a file or stdout, byte for byte."""

from __future__ import annotations

import hashlib
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import click

from ...errors import InputError
from ...paths import replace_file, write_file
from ...runtime.deletion.selection import SessionFilter, documents_about
from ...runtime.library import Library
from ...runtime.places.projects import session_of
from ...runtime.places.storage import database_of
from ...settings import load_settings
from ..options import subject_option
from ..output import counted, emit_json, printable, say, size
from .recordings import SESSION, found_key, newest_session, opened_library, opened_storage


@click.command()
@click.argument("session", metavar="[SESSION]", type=SESSION, required=False)
@subject_option("All sessions about a person, into the new folder that --output names.")
@click.option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--dry-run", is_flag=True, help="Print the size and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; without --output it contains the log.")
def command(
    session: str | None, subject: str | None, output: str | None, force: bool, dry_run: bool, as_json: bool
) -> None:
    """Export a session's log, byte for byte, including damaged lines.

    A file or pipe gets the exact bytes; a terminal gets the text without control characters. With --subject, all
    documents of all sessions about a person, their agents, and the memories that came from them are written.
    """
    if subject is not None:
        if session is not None:
            raise InputError("name one session, or a person by --subject, but not both")
        return _export_subject(subject, output, dry_run=dry_run, as_json=as_json)
    session = newest_session() if session is None else session
    with opened_library() as library:
        key = found_key(library, session)
        data = library.export(key)
    report: dict[str, Any] = {
        "session": session_of(key),
        "key": key,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "output": output,
        "dry_run": dry_run,
    }
    if output is not None:
        write(Path(output), data, force=force, dry_run=dry_run)
    if as_json:
        emit_json(report if output is not None or dry_run else {**report, **text_or_base64(data, "log", "log_base64")})
    elif output is not None or dry_run:
        say(f"{'would write' if dry_run else 'wrote'} {size(len(data))} to {output or 'stdout'}")
    else:
        pour(data)


def _export_subject(subject: str, output: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Write everything about a person into a new folder, under the keys of the storage."""
    if output is None:
        raise InputError("--subject needs --output with the name of a new folder")
    folder = Path(output)
    if folder.exists():
        raise InputError(f"{folder} exists; name a new folder")
    settings = load_settings()
    with opened_storage(settings) as storage:
        logs = SessionFilter(subject=subject).keys(Library(storage), storage)
        documents = documents_about(settings, storage, logs)
        database = database_of(storage)
        if database is not None and not dry_run:
            about = {"subject": hashlib.sha256(subject.encode()).hexdigest()[:16], "keys": len(documents)}
            database.records.enter_audit("export", about)
    if not dry_run:
        for key, data in documents.items():
            replace_file(str(folder), key, data)
    total = sum(map(len, documents.values()))
    if as_json:
        emit_json({"output": str(folder), "documents": sorted(documents), "bytes": total, "dry_run": dry_run})
    else:
        say(
            f"{'would write' if dry_run else 'wrote'} {counted(len(documents), 'document')}, {size(total)}, to {folder}"
        )


def write(path: Path, data: bytes, *, force: bool, dry_run: bool) -> None:
    """Write a file that only its owner can read; with ``force``, replace an existing file atomically.

    Raise InputError for a path that cannot be written to; with ``dry_run``, only check that.
    """
    if path.is_dir():
        raise InputError(f"{path} is a directory; --output needs a file")
    if path.exists() and not force:
        raise InputError(f"{path} exists; --force replaces it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; create it first")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; use another --output")
    if dry_run:
        return
    try:
        write_file(str(path), data, replaces=force)
    except FileExistsError:
        raise InputError(f"{path} exists; --force replaces it") from None


def pour(data: bytes) -> None:
    """Write bytes to stdout: unchanged to a pipe, without control characters to a terminal."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None or sys.stdout.isatty():
        sys.stdout.write(printable(data.decode("utf-8", "replace")))
    else:
        sys.stdout.flush()
        rest = memoryview(data)
        while rest:  # an unbuffered stdout may accept only part of one write
            rest = rest[stream.write(rest) or 0 :]
        stream.flush()


def text_or_base64(data: bytes, text_key: str, base64_key: str) -> dict[str, str]:
    """Return bytes as text under one key, or in base64 under the other if they are not UTF-8."""
    try:
        return {text_key: data.decode()}
    except UnicodeDecodeError:
        return {base64_key: b64encode(data).decode()}
