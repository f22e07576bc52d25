"""``MEMORY.md``: an index with one line per memory, which can always be rebuilt from the files.

People and other programs write in it too: their headings, notes and lines stay. Only lines that link to a memory are
added, changed and removed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...lazy import pattern
from ...values import record
from .records import MemoryRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

INDEX: Final = "MEMORY.md"
MAX_LINES: Final = 200
MAX_BYTES: Final = 25_000
LINE_CHARS: Final = 150
"""The approximate length of an index line."""
_MIN_HOOK_CHARS: Final = 40
_NAMED: Final = 20

_ENTRY: Final = pattern(r"[ \t]*[-*+][ \t]+\[((?:[^\]\\\n]|\\.)*)\]\((<[^>\n]*>|[^)\s]+)\)[ \t]*(?:[—–:-]+[ \t]*)?(.*)")
_MARKER: Final = pattern(r"(?:<{7}|>{7}|\|{7}) |={7}\r?$")
_ENCODED: Final = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E"}


@record
class IndexLine:
    """A line of the index that links to a file: its position from 0, link title, file and text after the link."""

    number: int
    title: str
    file: str
    hook: str


@record
class LoadedIndex:
    """The part of the index that is shown, the files left out, and a warning about them."""

    text: str
    left_out: tuple[str, ...] = ()
    """The files whose lines are not shown."""
    warning: str = ""

    @property
    def shown(self) -> str:
        """The shown text, followed by the warning if there is one."""
        return f"{self.text.rstrip()}\n\n> {self.warning}\n" if self.warning else self.text


@record
class Hunk:
    """The difference between two versions of the index: at line ``at``, ``new`` replaced ``old``."""

    at: int
    old: list[str]
    new: list[str]


def lines_of(text: str) -> list[IndexLine]:
    """Return the list items of an index that link to a file, in order."""
    found: list[IndexLine] = []
    for number, line in enumerate(text.split("\n")):
        entry = _ENTRY.match(line)
        if entry:
            found.append(IndexLine(number, entry[1].replace("\\", ""), _file_of(entry[2]), entry[3].strip()))
    return found


def _file_of(target: str) -> str:
    target = target.removeprefix("<").removesuffix(">").removeprefix("./")
    for letter, code in _ENCODED.items():
        target = target.replace(code, letter)
    return target


def line_for(memory: MemoryRecord) -> str:
    """Return the index line of a memory, about 150 characters long.

    A description that begins with the title goes on where the title ends.
    """
    name = " ".join(memory.name.split())
    title = re.sub(r"([\[\]\\])", r"\\\1", name)
    target = "".join(_ENCODED.get(letter, letter) for letter in memory.file)
    start = f"- [{title}]({target})"
    hook = " ".join(memory.description.split())
    if name and hook.startswith(f"{name} "):
        hook = f"…{hook[len(name) :].lstrip(' ,;:')}"
    room = max(LINE_CHARS - len(start) - 3, _MIN_HOOK_CHARS)
    if len(hook) > room:
        hook = hook[: room - 1].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
    return f"{start} — {hook}" if hook else start


def listed_line(memory: MemoryRecord) -> str | None:
    """Return the index line of a memory; None if the index does not list it."""
    return line_for(memory) if memory.is_listed else None


def changed(text: str, lines: dict[str, str | None]) -> str:
    """Return the index with these lines replaced or added by file (None removes a line); all other lines stay."""
    end = "\r\n" if "\r\n" in text else "\n"
    left = dict(lines)
    kept: list[str] = []
    for line in text.split("\n"):
        entry = _ENTRY.match(line)
        file = _file_of(entry[2]) if entry else ""
        if not entry or file not in lines:
            kept.append(line)
        elif (new := left.pop(file, None)) is not None:
            kept.append(new + ("\r" if line.endswith("\r") else ""))
    joined = "\n".join(kept)
    added = [line for line in left.values() if line is not None]
    if added and joined and not joined.endswith("\n"):
        joined += end
    return joined + "".join(line + end for line in added)


def rebuilt(text: str, memories: Iterable[MemoryRecord]) -> str:
    """Return the index without repeated lines and lines of missing files, and with lines of unlisted memories.

    Lines that git wrote around conflicting versions go too; a memory that is not to be listed counts as missing.
    """
    text = "\n".join(line for line in text.split("\n") if not _MARKER.match(line))
    known = {memory.file: memory for memory in memories if memory.is_listed}
    listed = {line.file for line in lines_of(text)}
    lines: dict[str, str | None] = {file: None for file in listed if file.endswith(".md") and file not in known}
    seen: set[str] = set()
    for line in lines_of(text):
        if line.file in seen and line.file in known:
            lines[line.file] = line_for(known[line.file])  # a duplicate line
        seen.add(line.file)
    missing = [memory for memory in known.values() if memory.file not in listed]
    for memory in sorted(missing, key=lambda one: (one.created or one.modified, one.file)):
        lines[memory.file] = line_for(memory)
    return changed(text, lines)


def load(text: str, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> LoadedIndex:
    """Return the start of the index within ``max_lines`` and ``max_bytes``, with a warning if it was cut."""
    if "<<<<<<<" in text:
        text = "\n".join(line for line in text.split("\n") if not _MARKER.match(line))
    size = len(text.encode("utf-8", "replace"))
    lines = text.count("\n") + (not text.endswith("\n"))
    if size <= max_bytes and (lines <= max_lines or not text):
        return LoadedIndex(text)
    shown = "\n".join(text.split("\n", max_lines)[:max_lines]) + "\n" if lines > max_lines else text
    data = shown.encode("utf-8", "replace")
    if len(data) > max_bytes:
        cut = data[:max_bytes]
        data = cut[: cut.rfind(b"\n") + 1] or cut
        shown = data.decode("utf-8", "ignore")
    rest = [line.file for line in lines_of(text[len(shown) :])]
    left_out = tuple(dict.fromkeys(rest))
    return LoadedIndex(shown, left_out, _warning(lines, size, shown, left_out, max_lines, max_bytes))


def _warning(lines: int, size: int, shown: str, left_out: Sequence[str], max_lines: int, max_bytes: int) -> str:
    named = ", ".join(left_out[:_NAMED]) or "only lines that point to no memory"
    more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return (
        f"WARNING: {INDEX} has {lines} lines and {size} bytes; the limit is {max_lines} lines and {max_bytes} bytes, "
        f"so only {shown.count(chr(10))} lines are shown. Left out: {named}{more}. "
        "Keep each line short and move detail into the memory files."
    )


# -- differences between versions


def hunk_between(old: str, new: str) -> Hunk:
    """Return the lines between the common start and the common end of two versions as one hunk."""
    before, after = old.split("\n"), new.split("\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return Hunk(start, before[start : len(before) - tail], after[start : len(after) - tail])


def patched(text: str, hunk: Hunk, *, backwards: bool = False) -> str | None:
    """Return the text with a hunk applied or, if ``backwards``, reverted; None if the text does not match it."""
    lines = text.split("\n")
    old, new = (hunk.new, hunk.old) if backwards else (hunk.old, hunk.new)
    if lines[hunk.at : hunk.at + len(old)] != old:
        return None
    return "\n".join([*lines[: hunk.at], *new, *lines[hunk.at + len(old) :]])


def merged(text: str, hunk: Hunk) -> str:
    """Return the text with a hunk's changes to lines that link to files, wherever those lines are now."""
    lines: dict[str, str | None] = {}
    for line in hunk.old:
        lines.update((one.file, None) for one in lines_of(line))
    for line in hunk.new:
        lines.update((one.file, line.rstrip("\r")) for one in lines_of(line))
    return changed(text, lines)
