"""Valid names of memory files."""

from __future__ import annotations

import re
import unicodedata
from datetime import date

from ...digests import hex_of
from ...errors import InputError, UnsafePath
from ...keys import check_key
from ...lazy import pattern
from .index import INDEX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FOLDERS: Final = frozenset({"team", "logs"})
"""Folders of the memory directory without memories of this scope."""
DAILY_LOG_PATTERN: Final = "logs/YYYY/MM/YYYY-MM-DD.md"
"""The path pattern of daily logs for prompts; never today's date, which would change the cached prefix."""

_PART: Final = pattern(r"\w(?:[\w .,+@=~()'&-]*[\w)'+~])?")
_PLAIN: Final = pattern(r"[A-Za-z0-9_][A-Za-z0-9_-]*\.md")  # a fast path for nearly all names, with the same result
_LETTERS: Final = pattern(r"[^\W\d_]+")
_WRITTEN_TOGETHER: Final = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "IDEOGRAPHIC"})
"""Scripts that a word may mix with others, because their letters look different."""
_MAX_DEPTH: Final = 4
_MAX_FILE_CHARS: Final = 200
_STEM_CHARS: Final = 48
_TITLE_CHARS: Final = 60


def check_file(file: str) -> tuple[str, ...]:
    """Return the path parts of a memory's file name; raise ``UnsafePath`` if the name is invalid."""
    parts = check_key(file)
    reason = ""
    if not file.endswith(".md") or len(file) > _MAX_FILE_CHARS or len(parts) > _MAX_DEPTH:
        reason = f"a memory is a file like feedback_testing.md, at most {_MAX_FILE_CHARS} characters"
    elif not all(_PART.fullmatch(part) for part in parts):
        reason = "use letters, digits, '_', '-' and '.', beginning with a letter or digit"
    elif not file.isascii() and any(map(_is_disguise, _LETTERS.findall(file))):
        reason = "a word mixes scripts or holds a letter without a shape, so it looks like another name; use one script"
    elif _folded(parts[-1]) == _folded(INDEX):
        reason = f"{INDEX} is the index; save a memory under a name of its own"
    elif _folded(parts[0]) in FOLDERS and len(parts) > 1:
        reason = f"the folder {parts[0]} is not for memories of this scope"
    if reason:
        raise UnsafePath(f"the name {file[:200]!a} cannot be used: {reason}", path=file)
    return parts


def is_memory(file: str) -> bool:
    """Say whether a path beneath the memory directory is a valid name of a memory of this scope."""
    if _PLAIN.fullmatch(file) and len(file) <= _MAX_FILE_CHARS:
        return file.lower() != "memory.md"
    try:
        check_file(file)
    except UnsafePath:
        return False
    return True


def composed(file: str) -> str:
    """Return a name in Unicode form NFC, which all stores use; some systems and models give it in parts (NFD)."""
    return unicodedata.normalize("NFC", file)


def _is_disguise(word: str) -> bool:
    """Say whether a word mixes scripts that look alike, such as Latin and Cyrillic, or has an invisible letter."""
    names = [unicodedata.name(letter, "") for letter in unicodedata.normalize("NFKC", word) if letter.isalpha()]
    scripts = {name.split(" ")[0] for name in names}
    return len(scripts - _WRITTEN_TOGETHER) > 1 or any(name.endswith("FILLER") for name in names)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def title_for(text: str) -> str:
    """Return a title of at most 60 characters from the first line of a text that has words."""
    first = next((line.strip(" #*->\t") for line in text.splitlines() if line.strip(" #*->\t")), "")
    sentence = re.split(r"(?<=[.!?])\s|[:;]\s", first, maxsplit=1)[0].rstrip(".!?")
    if len(sentence) <= _TITLE_CHARS:
        return sentence
    return sentence[: _TITLE_CHARS + 1].rsplit(" ", 1)[0].rstrip(" ,;:")[:_TITLE_CHARS]


def file_for(type_name: str, name: str, *, text: str = "") -> str:
    """Return the file name for a memory of this type and name; a text adds a hash, so that other texts differ."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    stem = stem[: _STEM_CHARS + 1].rsplit("_", 1)[0] if len(stem) > _STEM_CHARS else stem
    stem = stem.removeprefix(f"{type_name}_")[:_STEM_CHARS]
    if text or not stem:
        stem = "_".join(filter(None, (stem, hex_of(f"{name}\0{text}".encode())[:6])))
    return f"{type_name}_{stem}.md"


def daily_log(day: date) -> str:
    """Return the path of a day's log beneath the memory directory."""
    if not 1 <= day.year <= 9999:
        raise InputError("a daily log needs a year of four digits")
    return f"logs/{day.year:04}/{day.month:02}/{day.isoformat()}.md"
