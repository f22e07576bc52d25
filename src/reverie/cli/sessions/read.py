"""``reverie read``: print content that was removed from a session's view, by its handle."""

from __future__ import annotations

from typing import Any

import click

from ...conversation.view import View
from ...errors import InputError
from ...runtime.library import Library
from ...runtime.session.offload.read_back import ReadBack, StoredContent
from ...values import replace
from ..options import number_option
from ..output import emit_json, say
from .export import pour, text_or_base64
from .recordings import SESSION, found_key, opened_storage


@click.command()
@click.argument("session", type=SESSION)
@click.argument("handle")
@number_option("--offset", "First line, counted from 1; with --bytes, bytes to skip.", 0)
@number_option("--limit", "Maximum number of lines, or with --bytes of bytes.", 0)
@click.option("--bytes", "by_bytes", is_flag=True, help="Count --offset and --limit in bytes and write raw bytes.")
@click.option("--search", "pattern", metavar="PATTERN", help="Only matching lines, with line numbers.")
@click.option("--expand", is_flag=True, help="Of a summary only the list of the messages it replaced, with handles.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    session: str,
    handle: str,
    offset: int | None,
    limit: int | None,
    by_bytes: bool,
    pattern: str | None,
    expand: bool,
    as_json: bool,
) -> None:
    """Show content that was removed from a session's view, completely or in part.

    HANDLE is the id of a tool call, the path of a stored result, or the uuid of a message or a compaction. A pipe gets
    the exact bytes; with --offset, --limit or --search the output is lines of text.
    """
    if by_bytes and pattern is not None:
        raise InputError("--search and --bytes exclude each other: use one of them")
    with opened_storage() as storage:
        library = Library(storage)
        key = found_key(library, session)
        view = library.view(key) if storage.load(key, 0, 1) is not None else View()  # a host's session before its end
        found = ReadBack(storage, key.removesuffix(".jsonl"), view).find(handle)
    if expand and found.listing:
        found = replace(found, data=found.listing.encode(), text=found.listing)
    if by_bytes or (offset, limit, pattern) == (None, None, None):
        start = offset or 0
        data = found.data[start:] if limit is None else found.data[start : start + limit]
        if as_json:
            emit_json({**report(found), **text_or_base64(data, "text", "base64")})
        else:
            pour(data)
        return
    lines = [line for line in found.search(pattern) if line.number >= (offset or 1)][:limit]
    if as_json:
        emit_json({**report(found), "lines": lines})
        return
    for line in lines:
        say(line.text if pattern is None else f"{line.number}:{line.text}")


def report(found: StoredContent) -> dict[str, Any]:
    """Return a dict for JSON that describes the found content, without the content itself."""
    return {
        "handle": found.handle,
        "source": found.source,
        "path": found.path,
        "bytes": len(found.data),
        "sha256": found.sha256,
        "total_lines": len(found.lines),
    }
