"""``reverie export``: a session's log, byte for byte."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import click

from ...errors import InputError
from ..output import emit_json, printable, say, size
from .recordings import opened_library

__all__ = ["command"]


@click.command(short_help="Write out a session's log, byte for byte.")
@click.argument("session")
@click.option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--dry-run", is_flag=True, help="Say what would be written and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written, and without --output the log, as JSON.")
def command(session: str, output: str | None, force: bool, dry_run: bool, as_json: bool) -> None:
    """Write out a session's log, byte for byte, damage and all.

    Into a file or a pipe every byte is as it is in the library; on a terminal control characters are left out.
    """
    with opened_library() as library:
        key = library.find(session)
        data = library.export(key)
    report: dict[str, Any] = {
        "session": key.rsplit("/", 1)[-1].removesuffix(".jsonl"),
        "key": key,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "output": output,
        "dry_run": dry_run,
    }
    if output is not None:
        write(Path(output), data, force=force, dry_run=dry_run)
    if as_json:
        emit_json(report if output is not None or dry_run else {**report, **as_text(data)})
    elif output is not None or dry_run:
        say(f"{'would write' if dry_run else 'wrote'} {size(len(data))} to {output or 'stdout'}")
    else:
        pour(data)


def write(path: Path, data: bytes, *, force: bool, dry_run: bool) -> None:
    """Write a new file readable by its owner alone, whole or not at all."""
    if path.is_dir():
        raise InputError(f"{path} is a directory; give --output a file")
    if path.exists() and not force:
        raise InputError(f"{path} exists; --force replaces it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a directory; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; give --output another")
    if dry_run:
        return
    if force:
        descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    else:
        try:
            descriptor, written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), str(path)
        except FileExistsError:
            raise InputError(f"{path} exists; --force replaces it") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def pour(data: bytes) -> None:
    """Write to stdout: raw into a pipe, harmless on a terminal."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None or sys.stdout.isatty():
        sys.stdout.write(printable(data.decode("utf-8", "replace")))
    else:
        sys.stdout.flush()
        rest = memoryview(data)
        while rest:  # where stdout is unbuffered, one write may take only a part
            rest = rest[stream.write(rest) or 0 :]
        stream.flush()


def as_text(data: bytes) -> dict[str, str]:
    """Return the log as text, or in base64 where its bytes are no text."""
    try:
        return {"log": data.decode()}
    except UnicodeDecodeError:
        return {"log_base64": b64encode(data).decode()}
