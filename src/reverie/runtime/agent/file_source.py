"""The files that an agent used last, as standing context: after a cut they are said as they are on disk now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from anyio import to_thread

from ...conversation.file_reads import FileRead
from ...conversation.reads import files_in_view, whole_reads
from ...conversation.standing_context import StandingItem, digest_of
from ...conversation.view import View
from ...errors import ReverieError
from ...tools.context import ToolContext
from ...tools.files.read_state import version_of
from ...tools.files.workspace import open_plain_file, resolved_path

_READ_CHARS: Final = 60_000
_READ_LINES: Final = 200_000
_TAG_BYTES: Final = 8
"""The size of the random part of the tag around a file, which its content cannot know and so cannot close."""
_INSTRUCTIONS: Final = frozenset({"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"})
"""Names of instruction files, which a source of their own says."""


class FileSource:
    """The files read or written last that the view no longer shows whole."""

    name = "files"
    only_after_cuts = True

    def __init__(self, context: ToolContext, most_files: int) -> None:
        self._context = context
        self._most = most_files

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return an item for each file, the one used last first; leave out those that may no longer be read."""
        return await to_thread.run_sync(lambda: list(islice(self._items(view), self._most)))

    def _items(self, view: View) -> Iterator[StandingItem]:
        shown = {resolved_path(path, self._context).target for path in files_in_view(view)}
        standing, calls = view.facts.standing, whole_reads(view)
        for read in view.facts.files.newest_first():
            path = Path(read.path)
            is_standing = path.name in _INSTRUCTIONS or f"instructions:{read.path}" in standing
            if read.path in shown or is_standing or self._is_ours(path):
                continue
            text, version = self._text(read)
            if text:
                called = calls.get((read.path, version))
                tag = f"file-{os.urandom(_TAG_BYTES).hex()}"
                yield StandingItem(
                    f"file:{read.path}",
                    self.name,
                    f"the file {read.path}",
                    f"<{tag}>\n{text}\n</{tag}>",
                    digest=digest_of(text),
                    shown_by=(called,) if called else (),
                    budget="files",
                    read_with=f"read {read.path} with the Read tool",
                )

    def _is_ours(self, path: Path) -> bool:
        """Say whether a file belongs to the user's Reverie directory, such as the plan, notes and memories."""
        return self._context.home is not None and path.is_relative_to(self._context.home)

    def _text(self, read: FileRead) -> tuple[str, str]:
        """Return the start of a file from the first line that was read, and its version where this is the whole file.

        The text is empty if the file cannot be read or has no text.
        """
        first = read.spans[0][0] if read.spans else 1
        try:
            opened = open_plain_file(read.path, self._context)
            with os.fdopen(opened.descriptor, "rb") as file:
                for _ in islice(file, min(first - 1, _READ_LINES)):
                    pass
                data = file.read(4 * _READ_CHARS)
        except (OSError, ReverieError):
            return "", ""  # the file was removed or may no longer be read
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        version = version_of(data) if first == 1 and len(text) < _READ_CHARS else ""
        text = text[:_READ_CHARS]
        if not text.strip() or "\0" in text:
            return "", ""
        start = f" from line {first}" if first > 1 else ""
        return f"{read.path}{start}, as it is on disk now:\n\n{text}", version
