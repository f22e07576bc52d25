"""Write: create a file, or replace one that was read before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import anyio.to_thread

from ..errors import InputError, StorageError
from .context import ToolContext
from .files.diffs import unified_diff
from .files.read_state import FileRead, version_of
from .files.text_files import TextFile, encoded_text, load, replace_text
from .files.workspace import access_to
from .read import not_found
from .tool import Access, Output, error_output

__all__ = ["FileChanger", "Write", "check_writable", "load_read", "refuse_notebook", "write_text"]

_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "Path of the file"},
        "content": {"type": "string", "description": "All of its text"},
    },
    "required": ["file_path", "content"],
    "additionalProperties": False,
}


class FileChanger:
    """The common part of the tools Write and Edit, which differ in the change they make to a file."""

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return write access to the file."""
        return access_to("write", str(input.get("file_path", "")), context)

    async def preview(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """Return a diff of the change, empty if it cannot be computed; ``run`` may still refuse the change."""
        return await anyio.to_thread.run_sync(self._diff, input, context)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Change the file completely or not at all, and note the new content in ``context.reads``."""
        try:
            output = await anyio.to_thread.run_sync(self._change, input, context)
        except (InputError, StorageError) as error:
            return error_output(error)
        except OSError as error:
            return error_output(not_found(str(input["file_path"]), error, context))
        for read in output.files:
            context.reads.note(read)
        return output

    def _diff(self, input: Mapping[str, Any], context: ToolContext) -> str:
        try:
            before, after = self._texts(input, context)
        except (InputError, StorageError, OSError):
            return ""
        return unified_diff(before, after, str(input["file_path"]))

    def _texts(self, input: Mapping[str, Any], context: ToolContext) -> tuple[str, str]:
        """Return the file's text before and after the change, without changing the file."""
        raise NotImplementedError

    def _change(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Change the file and return the output, with a ``FileRead`` of the new content."""
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

    def _texts(self, input: Mapping[str, Any], context: ToolContext) -> tuple[str, str]:
        before = _existing_file(str(input["file_path"]), context)
        return before.text if before is not None else "", str(input["content"])

    def _change(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        path, text = str(input["file_path"]), str(input["content"])
        refuse_notebook(path)
        before = _existing_file(path, context)
        if before is not None:
            _check_read(before, context)
            check_writable(before)
        reading = write_text(path, text, context, before=before)
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        verb = "replaced" if before is not None else "created"
        return Output(f"{reading.path} was {verb}: {lines:,} lines.", wrote=(reading.path,), files=(reading,))


def _existing_file(path: str, context: ToolContext) -> TextFile | None:
    try:
        return load(path, context)
    except FileNotFoundError:
        return None


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
        raise InputError(f"you have not read {before.target} yet: read it first, then change it")
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


def write_text(path: str, text: str, context: ToolContext, *, before: TextFile | None) -> FileRead:
    """Write a text and return a ``FileRead`` of the whole file; ``before`` is the file to replace, or None."""
    data = encoded_text(text, before)
    return FileRead(replace_text(path, data, context, before=before), version_of(data))
