"""Separate the words that a person typed in a message from fenced, tagged, quoted and printed text."""

from __future__ import annotations

import re
from typing import Final

_FENCED: Final = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TAGGED: Final = re.compile(r"<([a-zA-Z][\w:.-]{0,60})\b[^<>]{0,400}>.*?</\1\s*>", re.DOTALL)
_OPEN_TAG: Final = re.compile(r"<[a-zA-Z/!][^<>\n]{0,400}>")
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
# A line that a program printed or a line of source code.
_PRINTED: Final = re.compile(
    r"\s*(?:>|\||\$ |#!|#{1,6} |//|/\*|\*/|diff --git|@@ |[+-]{3} [ab]/|\+ |- \{|[{}\[\]();]\s*$|Traceback"
    r"|File \"|at \w[\w.$]*\("
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL)\b|E   |import "
    r"|from \w+ import"
    r"|def |class \w+[:(]|(?:const|let|var|return|function)\b|[A-Z_]{3,}=|[\"'][\w-]+[\"']\s*:|\w+Error\b|root@"
    r"|~/|/\w+/\w)"
)
_ABBREVIATED: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Mrs|Ms|Dr|St|No|Inc|Ltd|a\.m|p\.m)\.$")


def ends_in_abbreviation(text: str) -> bool:
    """Say whether the full stop at the end of a text belongs to a common English abbreviation."""
    return _ABBREVIATED.search(text) is not None


def without_pasted(text: str) -> str:
    """Return a text without its fenced and tagged parts and without lines that a program printed."""
    lines = _TAGGED.sub("\n\n", _FENCED.sub("\n\n", text)).split("\n")
    return "\n".join("" if _is_pasted(line) else line for line in lines)


def _is_pasted(line: str) -> bool:
    return bool(_PRINTED.match(line) or _OPEN_TAG.search(line) or _HIDDEN.search(line) or len(line) > 2_000)
