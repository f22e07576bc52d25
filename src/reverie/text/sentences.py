"""Split a message into the sentences that a person typed, without fenced, tagged, quoted and printed text."""

from __future__ import annotations

import re
from typing import Final

from ..values import record

__all__ = ["Sentence", "bare", "ends_in_abbreviation", "sentences_of", "without_pasted"]

_FENCED: Final = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TAGGED: Final = re.compile(r"<([a-zA-Z][\w:.-]{0,60})\b[^<>]{0,400}>.*?</\1\s*>", re.DOTALL)
_OPEN_TAG: Final = re.compile(r"<[a-zA-Z/!][^<>\n]{0,400}>")
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)
_BULLET: Final = re.compile(r"^[ \t]*(?:[-*•+]|\d{1,2}[.)])[ \t]+")
# A line that a program printed or a line of source code.
_PRINTED: Final = re.compile(
    r"\s*(?:>|\||\$ |#!|#{1,6} |//|/\*|\*/|diff --git|@@ |[+-]{3} [ab]/|\+ |- \{|[{}\[\]();]\s*$|Traceback"
    r"|File \"|at \w[\w.$]*\("
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|\[?(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL)\b|E   |import "
    r"|from \w+ import"
    r"|def |class \w+[:(]|(?:const|let|var|return|function)\b|[A-Z_]{3,}=|[\"'][\w-]+[\"']\s*:|\w+Error\b|root@"
    r"|~/|/\w+/\w)"
)
_ENDS: Final = re.compile(r"(?<=[.!?…])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9`#@])")
_ABBREVIATED: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|Mr|Mrs|Ms|Dr|St|No|Inc|Ltd|a\.m|p\.m)\.$")

DOCUMENT_CHARS: Final = 1_500
DOCUMENT_LINES: Final = 14
MOST_SENTENCES: Final = 60
MOST_CHARS: Final = 8_000


@record
class Sentence:
    """One typed sentence, and its place in the message."""

    text: str
    opens: bool = True
    """Whether the sentence opens a paragraph."""
    announced: bool = False
    """Whether an earlier paragraph ends in a colon, so that the sentence may be a quote."""
    first: bool = False
    """Whether the sentence is the first of the message."""
    in_document: bool = False
    """Whether the message is too long to have been typed."""


def bare(text: str) -> str:
    """Return the words of a text in lower case on one line without punctuation, to search for them."""
    return " ".join(re.findall(r"[\w']+", text.casefold()))


def sentences_of(words: str) -> list[Sentence]:
    """Return the sentences, at most 60, that a person typed in a message, without code and tagged text."""
    text = _TAGGED.sub("\n\n", _FENCED.sub("\n\n", words[:MOST_CHARS]))
    lines = text.split("\n")
    long = len(words) > DOCUMENT_CHARS or sum(1 for line in lines if line.strip()) > DOCUMENT_LINES
    found: list[Sentence] = []
    announced = False
    for paragraph in _paragraphs(lines):
        for at, part in enumerate(_split(paragraph)):
            if len(found) >= MOST_SENTENCES:
                return found
            found.append(Sentence(part, at == 0, announced, not found, long))
        announced = announced or paragraph.endswith(":")
    return found


def ends_in_abbreviation(text: str) -> bool:
    """Say whether the full stop at the end of a text belongs to a common English abbreviation."""
    return _ABBREVIATED.search(text) is not None


def without_pasted(text: str) -> str:
    """Return a text without its fenced and tagged parts and without lines that a program printed."""
    lines = _TAGGED.sub("\n\n", _FENCED.sub("\n\n", text)).split("\n")
    return "\n".join("" if _is_pasted(line) else line for line in lines)


def _is_pasted(line: str) -> bool:
    return bool(_PRINTED.match(line) or _OPEN_TAG.search(line) or _HIDDEN.search(line) or len(line) > 2_000)


def _paragraphs(lines: list[str]) -> list[str]:
    """Return the paragraphs of prose, each on one line; a bullet is a paragraph, printed lines are left out."""
    out: list[str] = []
    current: list[str] = []

    def close() -> None:
        if current:
            out.append(" ".join(current))
            current.clear()

    for line in lines:
        if not line.strip() or _is_pasted(line):
            close()
            continue
        bullet = _BULLET.match(line)
        if bullet:
            close()
        current.append(line[bullet.end() if bullet else 0 :].strip())
    close()
    return out


def _split(paragraph: str) -> list[str]:
    parts: list[str] = []
    for piece in _ENDS.split(paragraph):
        if parts and ends_in_abbreviation(parts[-1]):
            parts[-1] = f"{parts[-1]} {piece}"
        elif piece.strip():
            parts.append(piece.strip())
    return parts
