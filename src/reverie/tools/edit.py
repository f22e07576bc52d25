"""Edit: replace a passage of a file that was read before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import InputError
from ..values import replace
from .context import ToolContext
from .files.read_state import FileRead
from .files.replacement import text_edit
from .files.text_files import load
from .tool import Output, object_schema
from .write import FileChange, FileChanger, check_writable, load_read, refuse_notebook, refuse_unread

_INPUT: Final = object_schema(
    ("file_path", "old_string", "new_string"),
    file_path={"type": "string", "description": "Path of the file"},
    old_string={"type": "string", "minLength": 1, "description": "The passage, exactly as it is in the file"},
    new_string={"type": "string", "description": "The passage that replaces it"},
    replace_all={"type": "boolean", "description": "Replace every occurrence"},
)


class Edit(FileChanger):
    """The tool Edit: replaces one passage in a file, or every occurrence of it with ``replace_all``."""

    name = "Edit"
    max_chars: float | None = None
    description = (
        "Replace a passage of a file. Read the file first, at least the part that is changed. old_string must be "
        "exactly the text in the file, white space included, without line numbers, and must be unique: add "
        "lines around it until it is, or set replace_all to change every place (renaming). An empty new_string "
        "deletes."
    )
    beside: Mapping[str, str] = {"Write": "To make a new file use Write."}
    input_schema = _INPUT

    def _change(self, input: Mapping[str, Any], context: ToolContext) -> FileChange:
        path, old, new = str(input["file_path"]), str(input["old_string"]), str(input["new_string"])
        refuse_notebook(path)
        if old == new:
            raise InputError(
                "old_string and new_string are the same: nothing would change; give the text that should replace it"
            )
        if not old:
            raise InputError("old_string is empty; quote the passage to change, or make a new file with Write")
        refuse_unread(path, context)
        before = load(path, context)
        known = load_read(before, context)
        if before.newline == "\r\n":
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        edit = text_edit(before.text, old, new, everywhere=bool(input.get("replace_all")), path=before.target)
        check_writable(before)
        unseen = [(first, last) for first, last, _ in edit.places if not known.shows(first, last)]
        if unseen:
            first, last = unseen[0]
            raise InputError(
                f"you have not read lines {first} to {last} of {before.target}: "
                f"read them first (offset={first}), then edit"
            )
        return FileChange(path, before, edit.text, edit.places)

    def _output(self, change: FileChange, reading: FileRead, context: ToolContext) -> Output:
        known = context.reads.get(reading.path)
        if known is not None and known.spans is not None:
            reading = replace(reading, spans=_moved_spans(known.spans, change.places))
        count = len(change.places)
        places = f"{count} places" if count > 1 else f"line {change.places[0][0]}"
        return Output(f"{reading.path} was changed: {places}.", wrote=(reading.path,), files=(reading,))


def _moved_spans(
    spans: tuple[tuple[int, int], ...], places: tuple[tuple[int, int, int], ...]
) -> tuple[tuple[int, int], ...]:
    """Return the line spans that the agent has seen, as they are after the edit; inserted lines count as seen."""
    moved: list[tuple[int, int]] = []
    for first, last in spans:
        before = sum(more for _, end, more in places if end < first)
        until = sum(more for start, _, more in places if start <= last)
        if last + until >= first + before:
            moved.append((first + before, last + until))
    return tuple(moved)
