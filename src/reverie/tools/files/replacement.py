"""Replace a passage in a text, or advise where a similar passage is."""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from typing import Final

from ...errors import InputError
from ...values import record

_NUMBERED: Final = re.compile(r"^ *\d+\t", re.MULTILINE)
_LOOKALIKES: Final = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " "})
_MAX_COMPARED: Final = 20_000
_SHOWN: Final = 3


@record
class TextEdit:
    """The text after an edit, and the line range of each replaced passage (first, last, change in line count)."""

    text: str
    places: tuple[tuple[int, int, int], ...]


def text_edit(text: str, old: str, new: str, *, everywhere: bool, path: str) -> TextEdit:
    """Replace the one occurrence of ``old``, or all with ``everywhere``, and return the new text.

    Raise ``InputError`` with advice if ``old`` is missing, or occurs more than once without ``everywhere``.
    """
    found = _spans_of(text, old)
    if not found:
        raise InputError(f"old_string was not found in {path}. {_advice(text, old)}")
    if len(found) > 1 and not everywhere:
        lines = _starts(text)
        where = ", ".join(str(bisect_right(lines, start)) for start, _ in found[:10])
        raise InputError(
            f"old_string occurs {len(found)} times in {path} (lines {where}{', ...' if len(found) > 10 else ''}); add "
            "lines before or after it until it is unique, or set replace_all"
        )
    parts: list[str] = []
    places: list[tuple[int, int, int]] = []
    lines = _starts(text)
    at = 0
    for start, end in found:
        instead = _with_ends_of(text[start:end], new)
        parts += [text[at:start], instead]
        first, last = bisect_right(lines, start), bisect_right(lines, max(start, end - 1))
        places.append((first, last, instead.count("\n") - text.count("\n", start, end)))
        at = end
    return TextEdit("".join([*parts, text[at:]]), tuple(places))


def _spans_of(text: str, old: str) -> list[tuple[int, int]]:
    """Return (start, end) of each occurrence of a passage; in a text with CRLF, both line ends match a newline."""
    pattern = re.escape(old)
    if "\r\n" in text and "\n" in old:
        pattern = re.escape(old.replace("\r\n", "\n")).replace("\\\n", "\r?\n")
    return [found.span() for found in re.finditer(pattern, text)]


def _with_ends_of(replaced: str, new: str) -> str:
    if "\r\n" in replaced and "\r\n" not in new:
        return new.replace("\n", "\r\n")
    return new


def _starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _advice(text: str, old: str) -> str:
    """Return advice on a passage that was not found, with the most similar passage of the text if there is one."""
    plain = _NUMBERED.sub("", old)
    if plain != old and plain in text:
        return "It holds line numbers as Read shows them; leave the numbers and the tab out."
    lines = text.split("\n")[:_MAX_COMPARED]
    wanted = [_bare(line) for line in old.strip("\n").split("\n")]
    bare = [_bare(line) for line in lines]
    for at in range(len(bare) - len(wanted) + 1):
        if bare[at] == wanted[0] and bare[at : at + len(wanted)] == wanted:
            return f"Lines {at + 1} to {at + len(wanted)} differ only in white space or quotes; they are:\n" + _quoted(
                lines, at, len(wanted)
            )
    first = next((line for line in wanted if line), "")
    near = difflib.get_close_matches(first, sorted({line for line in bare if line})[:_MAX_COMPARED], n=1, cutoff=0.6)
    if not near:
        return "Nothing there is like it; read the file again."
    at = bare.index(near[0])
    shown = _quoted(lines, at, min(len(wanted), _SHOWN))
    return f"The nearest is at line {at + 1}:\n{shown}\nRead it again and copy it exactly."


def _bare(line: str) -> str:
    """Return a line without white space and with plain quotes and dashes, for a tolerant comparison."""
    return "".join(unicodedata.normalize("NFKC", line.translate(_LOOKALIKES)).split())


def _quoted(lines: list[str], at: int, count: int) -> str:
    shown = [f"{at + number + 1:6}\t{line[:300]}" for number, line in enumerate(lines[at : at + min(count, 20)])]
    return "\n".join(shown)
