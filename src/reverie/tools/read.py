"""Read: show a file with numbered lines, an image, or a stored tool result."""

from __future__ import annotations

import base64
import difflib
import os
import unicodedata
from collections.abc import Callable, Mapping
from io import BufferedReader
from math import inf
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from ..conversation.tokens.estimate import estimate_text
from ..errors import InputError, StorageError
from ..settings import AgentPolicy
from ..values import record
from .context import ToolContext
from .files.read_state import FileRead, version_of
from .files.stored_results import access_to_text, stored_result
from .files.text_files import MAX_EDIT_BYTES, decoded_text
from .files.workspace import open_plain_file, resolved_path
from .tool import Access, NoPreview, Output, error_output, object_schema

_SCAN_BYTES: Final = 1_048_576
_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_READ_INPUT: Final = object_schema(
    ("file_path",),
    file_path={"type": "string", "description": "Path of the file, or handle of an earlier result"},
    offset={"type": "integer", "minimum": 0, "description": "First line to show, counted from 1"},
    limit={"type": "integer", "minimum": 1, "description": "How many lines to show"},
    byte_offset={
        "type": "integer",
        "minimum": 0,
        "description": "Show raw text from this byte instead, without line numbers: for very long lines",
    },
    byte_limit={"type": "integer", "minimum": 1, "description": "How many bytes, with byte_offset"},
)
MAX_LINE_CHARS: Final = 2_000


@record
class _Source:
    """The bytes to show: all of a file or stored result, or a part of a huge file and the amount before it."""

    data: bytes
    size_bytes: int
    target: str = ""
    mtime_ns: int = 0
    skipped_bytes: int = 0
    skipped_lines: int = 0

    @property
    def more(self) -> bool:
        """Whether the file has more bytes after ``data``."""
        return self.skipped_bytes + len(self.data) < self.size_bytes

    @property
    def whole(self) -> bool:
        """Whether ``data`` is the whole file."""
        return len(self.data) == self.size_bytes


class Read(NoPreview):
    """The tool Read: shows a file with numbered lines, an image, or a stored tool result, within limits."""

    name = "Read"
    max_chars = inf
    description = (
        "Read a file. Lines come numbered as '   12\\ttext'; the number and the tab are not part of the file. Without "
        "offset and limit it starts at line 1 and shows as much as fits (2,000 lines, 25,000 tokens); a note names the "
        "shown lines. Images (png, jpg, gif, webp) are shown as images. Read a file before you edit it. Also takes the "
        "path or handle of an earlier result that was saved or cleared ('saved to: ...', 'handle: ...'); the handle of "
        "a summary lists the messages it replaced, each with its own handle. Directories cannot be read."
    )
    beside: Mapping[str, str] = {"Grep": "To search many files use Grep.", "Glob": "To find files use Glob."}
    input_schema = _READ_INPUT

    def access(self, input: Mapping[str, Any], context: ToolContext) -> Access:
        """Return read access to the file; an access of kind ``none`` for a stored tool result."""
        return access_to_text(str(input.get("file_path", "")), context)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> Output:
        """Return the content of a file or stored result, and note in ``context.reads`` which lines were shown."""
        return await path_output(lambda: _read(input, context), str(input["file_path"]), context)


def _read(input: Mapping[str, Any], context: ToolContext) -> Output:
    path = str(input["file_path"])
    stored = stored_result(path, context, listed=True)
    if stored is not None:
        source = _Source(stored, len(stored))
        if media := _media(stored):
            return _image(source, media)
        return Output(_answer(source, stored.decode("utf-8", "replace"), input, context)[0])
    source = _load(path, input, context)
    media = _media(source.data)
    if media:
        return _image(source, media)
    text = decoded_text(source.data, source.target)[0].replace("\r\n", "\n")
    answer, shown = _answer(source, text, input, context)
    if shown is None:
        return Output(answer, read=(source.target,))
    version = version_of(source.data) if source.whole else f"{source.size_bytes}:{source.mtime_ns}"
    spans = None if shown.whole else ((shown.first, shown.last),)
    return Output(answer, read=(source.target,), files=(FileRead(source.target, version, spans),))


def _load(path: str, input: Mapping[str, Any], context: ToolContext) -> _Source:
    """Read a whole file; of one above ``MAX_EDIT_BYTES`` only a part that starts at the asked line or byte."""
    opened = open_plain_file(path, context)
    with open(opened.descriptor, "rb") as file:
        changed = opened.stat.st_mtime_ns
        if opened.stat.st_size <= MAX_EDIT_BYTES:
            data = file.read(MAX_EDIT_BYTES + 1)
            return _Source(data, len(data), opened.target, changed)
        lines = 0
        if "byte_offset" in input:
            file.seek(int(input["byte_offset"]))
        else:
            lines = max(1, int(input.get("offset") or 1)) - 1
            _skip_lines(file, lines, opened.target)
        start = file.tell()
        data = file.read(context.policy.read_max_bytes)
        end = data.rfind(b"\n") + 1
        return _Source(data[:end] if end else data, opened.stat.st_size, opened.target, changed, start, lines)


def _skip_lines(file: BufferedReader, count: int, target: str) -> None:
    for _ in range(count):
        while (line := file.readline(_SCAN_BYTES)) and not line.endswith(b"\n"):
            pass
        if not line:
            raise InputError(f"{target} has fewer than {count + 1:,} lines; give a smaller offset")


def _answer(
    source: _Source, text: str, input: Mapping[str, Any], context: ToolContext
) -> tuple[str, NumberedText | None]:
    """Return the answer's text, and its numbered lines (None if raw bytes were asked for); raise past the end."""
    if "byte_offset" in input:
        asked = int(input["byte_offset"])
        if asked >= source.size_bytes:
            raise InputError(f"there are only {source.size_bytes:,} bytes; give a smaller byte_offset")
        part, end = show_bytes(source.data, asked - source.skipped_bytes, input.get("byte_limit"), context.policy)
        end += source.skipped_bytes
        more = f"; byte_offset={end} reads on" if end < source.size_bytes else ""
        return f"{part}\n[bytes {asked:,} to {end:,} of {source.size_bytes:,}{more}]", None
    if not text:
        return "[the file is empty]", NumberedText("", 1, 0, 0, True)
    shown = show_lines(
        text,
        input.get("offset"),
        input.get("limit"),
        context.policy,
        skipped=source.skipped_lines,
        more=source.more,
    )
    if shown.last < shown.first:
        raise InputError(f"there are only {shown.total:,} lines; give an offset of at most {shown.total}")
    return shown.text + shown.note, shown


def _media(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _IMAGES if data.startswith(magic)), "")


def _image(source: _Source, media: str) -> Output:
    """Return an image block; the session scales an image down that is too large for the provider."""
    if not source.whole:
        raise InputError(
            f"{source.target} is an image of {source.size_bytes:,} bytes, more than the {MAX_EDIT_BYTES:,} that can "
            "be read; make it smaller first (for example with ImageMagick: convert in.png -resize 1500x1500 out.png)"
        )
    data = base64.standard_b64encode(source.data).decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
    return Output([block], read=(source.target,) if source.target else ())


async def path_output(act: Callable[[], Output], path: str, context: ToolContext) -> Output:
    """Run work on a path in a thread, note the files that it read, and return its output, also of an error."""
    try:
        output = await anyio.to_thread.run_sync(act)
    except (InputError, StorageError) as error:
        return error_output(error)
    except OSError as error:
        return error_output(not_found(path, error, context))
    for read in output.files:
        context.reads.note(read)
    return output


def not_found(path: str, error: OSError, context: ToolContext) -> str:
    """Return an error message for a path that could not be used; for a missing file, suggest similar names."""
    target = resolved_path(path, context).target or path
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{target}: {error.strerror or error}; check the path and its rights with Bash (ls -la)"
    folder = Path(target).parent
    try:
        names = sorted(os.listdir(folder))[:5_000]
    except OSError:
        return f"{target} does not exist, nor does its directory. Find it with Glob, under {context.cwd}."
    wanted = unicodedata.normalize("NFC", Path(target).name).casefold()
    same = [name for name in names if unicodedata.normalize("NFC", name).casefold() == wanted]
    near = same or difflib.get_close_matches(Path(target).name, names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(str(folder / name) for name in near)}?" if near else " Find it with Glob."
    return f"{target} does not exist.{hint} The working directory is {context.cwd}."


@record
class NumberedText:
    """Numbered lines of a text: first and last line (from 1), the text's total, and whether all of it is shown.

    ``note`` is a line for the model that says which lines are shown; empty if all are.
    """

    text: str
    first: int
    last: int
    total: int
    whole: bool
    note: str = ""


def show_lines(
    text: str, offset: int | None, limit: int | None, policy: AgentPolicy, *, skipped: int = 0, more: bool = False
) -> NumberedText:
    """Return the numbered lines from ``offset`` on, at most ``limit`` and as many as the policy's limits allow.

    ``skipped`` is the number of lines before ``text``; ``more`` says that there are lines after it.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = skipped + len(lines)
    first = max(1, offset or 1)
    start = first - 1 - skipped
    wanted = lines[start:] if limit is None else lines[start : start + limit]
    chosen = wanted[: policy.read_max_lines]
    rows = [_row(first + at, line) for at, line in enumerate(chosen)]
    fitting = _fitting_count(rows, policy)
    last = first + fitting - 1
    cut = any(len(line) > MAX_LINE_CHARS for line in chosen[:fitting])
    whole = first == 1 and last == total and not cut and not more
    reason = ""
    if fitting < len(rows):
        reason = f"{policy.read_max_tokens:,} tokens or {policy.read_max_bytes:,} bytes"
    elif fitting < len(wanted):
        reason = f"{policy.read_max_lines:,} lines"
    elif more and last == total and (limit is None or fitting < limit):
        reason = f"{policy.read_max_bytes:,} bytes"
    return NumberedText("\n".join(rows[:fitting]), first, last, total, whole, _note(first, last, total, more, reason))


def _note(first: int, last: int, total: int, more: bool, reason: str) -> str:
    if first == 1 and last == total and not more:
        return ""
    of = "" if more else f" of {total:,}"
    if not reason:
        return f"\n[lines {first:,} to {last:,}{of}]"
    return (
        f"\n[lines {first:,} to {last:,}{of}; at most {reason} are shown at once: "
        f"offset={last + 1} reads on, Grep searches]"
    )


def show_bytes(data: bytes, offset: int, limit: int | None, policy: AgentPolicy) -> tuple[str, int]:
    """Return the text from a byte offset on, as long as the limits allow, and the offset of its end."""
    end = min(len(data), offset + min(limit or policy.read_max_bytes, policy.read_max_bytes))
    while end > offset + 4 and end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1  # not in the middle of a character
    text = data[offset:end].decode("utf-8", "replace")
    while estimate_text(text) > policy.read_max_tokens:
        text = text[: len(text) * 3 // 4]
        end = offset + len(text.encode())
    return text, end


def _row(number: int, line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) > MAX_LINE_CHARS:
        more = len(line) - MAX_LINE_CHARS
        line = f"{line[:MAX_LINE_CHARS]} [... {more:,} more characters of this line; byte_offset reads them]"
    return f"{number:6}\t{line}"


def _fitting_count(rows: list[str], policy: AgentPolicy) -> int:
    """Return how many of the rows fit the policy's limits; at least one, unless there are no rows."""
    low, high = 1, len(rows)
    while low <= high:
        middle = (low + high) // 2
        text = "\n".join(rows[:middle])
        if len(text.encode()) <= policy.read_max_bytes and estimate_text(text) <= policy.read_max_tokens:
            low = middle + 1
        else:
            high = middle - 1
    return max(high, min(1, len(rows)))
