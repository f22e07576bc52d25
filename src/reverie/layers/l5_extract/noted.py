"""What a note about the user asks to be kept: as ``said``, but told by whoever took the note."""

from __future__ import annotations

import re
from typing import Final

from .found import Found, Kind, reasoned
from .patterns import MOMENTARY
from .said import found_in
from .sentences import Sentence

__all__ = ["noted_in"]

_USER: Final = r"(?:the )?user(?:'s)?\b"
_IS: Final = re.compile(
    rf"{_USER} (?:is (?:an? |the |new to |based in |fluent in |not familiar with |learning |responsible for )"
    r"|prefers?\b|likes\b|dislikes\b|hates\b|works (?:at|for|in|as|on)\b|lives in\b|speaks\b"
    r"|uses (?!the (?:app|form|page))|has (?:been |never |\d+ years)|wants to (?:learn|be called|become)"
    r"|(?:name|role|job|time ?zone|goal|team|background)\b.{0,30} is\b)",
    re.IGNORECASE,
)
_WANTS: Final = re.compile(
    rf"{_USER} (?:(?:corrected|told|reminded) (?:me|us)|asked(?: me| us)?|wants(?: me| us)?|said|insists|decided"
    r"|confirmed)(?: that| never| always|,|:)? (?P<what>(?:to |not to |never |always |we |that ).{6,})",
    re.IGNORECASE,
)
_MARKED: Final = re.compile(
    r"(?P<kind>rule|feedback|correction|preference|decision|deadline|pointer|reference)\s*[:—–-]\s*(?P<what>.{8,})",
    re.IGNORECASE,
)
_KINDS: Final[dict[str, Kind]] = {
    "rule": "feedback",
    "feedback": "feedback",
    "correction": "feedback",
    "preference": "user",
    "decision": "project",
    "deadline": "project",
    "pointer": "reference",
    "reference": "reference",
}


def noted_in(sentence: Sentence) -> Found | None:
    """Return what a note asks to be kept, or None."""
    text = sentence.text.strip()
    if not 8 <= len(text) <= 600 or text.endswith("?") or MOMENTARY.search(text):
        return None
    marked = _MARKED.match(text)
    if marked:
        body, why = reasoned(marked["what"], sentence)
        return Found(_KINDS[marked["kind"].lower()], body, why, by="note")
    if _IS.match(text):
        body, why = reasoned(text, sentence)
        return Found("user", body, why, "What an agent noted about the user.", "note")
    if _WANTS.match(text):
        body, why = reasoned(text, sentence)
        return Found("feedback", body, why, by="note")
    return found_in(sentence)
