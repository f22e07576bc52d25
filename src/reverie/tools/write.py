"""Write: create a file, or replace one that was read before."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, Final

import anyio.to_thread

from ..errors import InputError, StorageError
from ..text.counts import counted
from ..values import record
from .context import ToolContext
from .files.read_state import FileRead, version_of
from .files.readable import read_scope
from .files.text_files import TextFile, encoded_text, load, replace_text
from .files.workspace import access_to, needs_grant, resolved_path
from .read import not_found, path_output
from .tool import Access, Output, object_schema

_INPUT: Final = object_schema(
    ("file_path", "content"),
    file_path={"type": "string", "description": "Path of the file"},
    content={"type": "string", "description": "All of its text"},
)
_CONTEXT: Final = 3
_MAX_COMPARED: Final = 2_000
_NO_NEWLINE: Final = "\\ No newline at end of file"


@record
class FileChange:
    """A change that passed every check: the file to replace, None for a new one, and the text to write."""

    path: str
    before: TextFile | None
    text: str
    places: tuple[tuple[int, int, int], ...] = ()
    """The line ranges that an edit replaces, as in ``TextEdit``."""


class FileChanger:
    """The common part of the tools Write and Edit, which differ in the change they make to a file."""

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return write access to the file."""
        return access_to("write", str(input.get("file_path", "")), context)

    async def check(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return why the change cannot be made, as ``run`` would say it; '' if it can."""
        return str(await anyio.to_thread.run_sync(self._checked, input, context, False))

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return a diff of the whole change; empty if it cannot be made."""
        return str(await anyio.to_thread.run_sync(self._checked, input, context, True))

    def _checked(self, input: Mapping[str, Any], context: ToolContext, preview: bool) -> str:
        path = str(input["file_path"])
        try:
            change = self._change(input, context)
            encoded_text(change.text, change.before)
        except (InputError, StorageError) as error:
            return "" if preview else str(error)
        except OSError as error:
            return "" if preview else _missing(path, error, context)
        before = change.before.text if change.before is not None else ""
        return unified_diff(before, change.text, path) if preview else ""

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Change the file completely or not at all, and note the new content in ``context.reads``."""
        return await path_output(lambda: self._run(input, context), str(input["file_path"]), context)

    def _run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        change = self._change(input, context)
        data = encoded_text(change.text, change.before)
        before = context.keep_version(change.before.data if change.before is not None else None)
        target = replace_text(change.path, data, context, before=change.before)
        return self._output(change, FileRead(target, version_of(data), before=before), context)

    def _change(self, input: Mapping[str, Any], context: ToolContext) -> FileChange:
        """Check the whole input and return the change, without changing the file; raise if it cannot be made.

        Check first that the agent has read the file, so that no error tells it about content it has not seen.
        """
        raise NotImplementedError

    def _output(self, change: FileChange, reading: FileRead, context: ToolContext) -> Output:
        raise NotImplementedError


class Write(FileChanger):
    """The tool Write: creates a file, or replaces all of one that was read before."""

    name = "Write"
    max_chars: float | None = None
    description = (
        "Write a file whole, and the directories it needs. One that exists must have been read before (all of it) "
        "and is replaced. Encoding, line ends and rights of a file are kept."
    )
    beside: Mapping[str, str] = {"Edit": "To change a part of a file use Edit."}
    input_schema = _INPUT

    def _change(self, input: Mapping[str, Any], context: ToolContext) -> FileChange:
        path, text = str(input["file_path"]), str(input["content"])
        refuse_notebook(path)
        before = _existing_file(path, context)
        if before is not None:
            _check_read(before, context)
            check_writable(before)
            text = text.replace("\r\n", "\n") if before.newline == "\r\n" else text
        return FileChange(path, before, text)

    def _output(self, change: FileChange, reading: FileRead, context: ToolContext) -> Output:
        text = change.text
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        verb = "replaced" if change.before is not None else "created"
        return Output(f"{reading.path} was {verb}: {counted(lines, 'line')}.", wrote=(reading.path,), files=(reading,))


def _existing_file(path: str, context: ToolContext) -> TextFile | None:
    if os.path.lexists(resolved_path(path, context).target):
        refuse_unread(path, context)
    try:
        return load(path, context)
    except FileNotFoundError:
        return None


def refuse_unread(path: str, context: ToolContext) -> None:
    """Raise ``InputError`` for a path that needs permission and that the agent has not read, without opening it."""
    target = resolved_path(path, context).target
    if target and context.reads.get(target) is None and needs_grant(target, context):
        raise _unread(target)


def _unread(target: str) -> InputError:
    return InputError(f"you have not read {target} yet: read it first, then change it")


def _missing(path: str, error: OSError, context: ToolContext) -> str:
    """Return the message for a file that cannot be opened; without the names around it if it needs a grant."""
    target = resolved_path(path, context).target
    outside = not read_scope(context).is_inside(target)
    return f"{target}: {error.strerror or error}; read it first" if outside else not_found(path, error, context)


def _check_read(before: TextFile, context: ToolContext) -> None:
    reading = load_read(before, context)
    total = before.text.count("\n") + 1
    if before.text and not reading.shows(1, total - before.text.endswith("\n")):
        raise InputError(
            f"you have read only parts of {before.target}: read the rest before you replace it, or use Edit"
        )


def load_read(before: TextFile, context: ToolContext) -> FileRead:
    """Return the agent's read of a file; raise if it has not read the file, or the file changed since."""
    reading = context.reads.get(before.target)
    if reading is None:
        raise _unread(before.target)
    if reading.version != before.version:
        raise InputError(f"{before.target} changed on disk since you read it: read it again, then change it")
    return reading


def refuse_notebook(path: str) -> None:
    """Raise ``InputError`` for a notebook (``.ipynb``), because its file differs from the text a person sees."""
    if path.lower().endswith(".ipynb"):
        raise InputError(f"{path} is a notebook; change it with Bash (a few lines of Python and nbformat or json)")


def check_writable(before: TextFile) -> None:
    """Raise ``InputError`` for a write-protected file, because replacing it would bypass the protection."""
    if not before.stat.st_mode & 0o222 or not os.access(before.target, os.W_OK):
        raise InputError(f"{before.target} is write-protected; ask the user whether to change that")


def unified_diff(before: str, after: str, path: str) -> str:
    """Return a unified diff of two texts with ``path`` in its header; '' if they are equal.

    A passage of very many lines is shown as removed and added as a whole.
    """
    old, new = _lines(before), _lines(after)
    start = _shared_line_count(old, new)
    end = _shared_line_count(old[start:][::-1], new[start:][::-1])
    first, last = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if max(len(removed), len(added)) > _MAX_COMPARED:
        above, below = old[: start - first], old[len(old) - (end - last) :]
        spans = (f"{first + bool(lines)},{len(lines)}" for lines in (old, new))
        rows = ["@@ -{} +{} @@".format(*spans), *_marked(" ", above)]
        rows += [*_marked("-", removed), *_marked("+", added), *_marked(" ", below)]
    else:
        rows = _hunks(old, new, first)
    if not rows:
        return ""
    return "\n".join([f"--- {path}", f"+++ {path}", *rows]) + "\n"


def _lines(text: str) -> list[str]:
    """Return the lines of a text; a last line without a newline is followed by git's mark for that."""
    *lines, last = text.split("\n")
    return [*lines, f"{last}\n{_NO_NEWLINE}"] if last else lines


def _marked(mark: str, lines: list[str]) -> list[str]:
    return [mark + line for line in lines]


def _hunks(old: list[str], new: list[str], first: int) -> list[str]:
    rows = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]
    return [_moved(row, first) if row.startswith("@@ ") else row for row in rows]


def _moved(header: str, lines: int) -> str:
    """Return a hunk header (``@@``) with ``lines`` added to its line numbers."""
    _, old, new, _ = header.split(" ")
    return f"@@ -{_later(old[1:], lines)} +{_later(new[1:], lines)} @@"


def _later(span: str, lines: int) -> str:
    start, comma, count = span.partition(",")
    return f"{int(start) + lines}{comma}{count}"


def _shared_line_count(old: list[str], new: list[str]) -> int:
    count = 0
    for one, two in zip(old, new, strict=False):
        if one != two:
            break
        count += 1
    return count
