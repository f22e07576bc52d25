"""Whether a sentence speaks of every week or of one, and of what is over or to come. Pure.

"Deploys happen on Tuesday morning" is a habit, "the release is on Friday" is one day: things in the plural without an
article, in the plain present, are said of all of them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["has_habit_word", "is_generic", "is_habit", "is_over", "is_over_at_once"]

_HABIT: Final = re.compile(
    r"\b(?:every|each|always|never|usually|weekly|bi-?weekly|recurring|regularly|routinely|generally|normally|typically"
    r"|habit|as a rule|whenever|standup|stand-up|ever|only|don['’]?t|do not|avoid|no \w+ on|rota|cron|schedule[ds]? for"
    r"|runs? on|deploys|works|rotates|(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b",
    re.IGNORECASE,
)
_PARTS: Final = re.compile(r"^\s*(?:mornings|afternoons|evenings|nights)\b", re.IGNORECASE)
_DONE: Final = (
    r"are\s+(?:(?:only|all|then)\s+)?(?!plann|schedul|expect|postpon|delay|book|invit|interview|agreed|mov|migrat|need)"
    r"(?:\w+ed|sent|made|held|run|done|built|cut|drawn|taken|given|paid|written|shut|put|kept|forbidden|frozen)"
)
_THINGS: Final = r"(?:[\w'-]+\s+){0,3}?[\w-]*[^\Ws_]s(?:\s+(?:of|for|to|in|from|on)\s+(?:the\s+)?[\w-]+(?:\s+[\w-]+)?)?"
_GENERIC: Final = re.compile(
    rf"^\W*(?!(?:the|these|those|our|this|his|her|their|we|they|both)\b){_THINGS}\s+"
    rf"(?:{_DONE}|happen|occur|run|go|take|ship|get|arrive|come|land|fire|rotate|deploy|sync)\b"
    rf"|^\W*(?:the|our|all)\s+{_THINGS}\s+(?:happen|occur|run|are\s+(?:sent|run|paid|generated|rotated|rebuilt|reset))\b",
    re.IGNORECASE,
)
_BARE: Final = re.compile(r"^\W*(?!(?:the|this|his|its|was|is)\b)(?:[a-z-]+\s+)?[a-z-]*[^\Wsu_]s\s+\Z", re.IGNORECASE)
_PAST: Final = re.compile(
    r"\b(?:was|were|had|did|went|came|broke|fell|began|ran|left|got|took|gave|made|met|sent|told|said|found|lost|saw"
    r"|wrote|[a-z]{3,}(?<!e)ed)\b",
    re.IGNORECASE,
)
_COMING: Final = re.compile(
    r"\b(?:will|shall|is|are|be|to|must|should|can|may|need|due|plan\w*|schedul\w*|expect\w*|agreed|promised|wants?"
    r"|decided|invited|booked|supposed)\b",
    re.IGNORECASE,
)


def has_habit_word(sentence: str) -> bool:
    """Say whether a sentence has a word that is said of what happens again and again."""
    return _HABIT.search(sentence) is not None


def is_habit(before: str, after: str) -> bool:
    """Say whether a weekday between these two parts of a sentence is every such day."""
    if has_habit_word(f"{before} {after}") or _PARTS.match(after):
        return True
    return is_generic(before) or _BARE.match(before) is not None


def is_generic(before: str) -> bool:
    """Say whether a sentence that begins so is about all things of a kind."""
    return _GENERIC.search(before) is not None


def is_over(before: str) -> bool:
    """Say whether a sentence that begins so tells what has happened."""
    return _PAST.search(before) is not None and _COMING.search(before) is None


def is_over_at_once(after: str) -> bool:
    """Say whether a sentence goes on with what has happened: "the meeting on Friday was useful"."""
    found = _PAST.match(after.lstrip())
    return found is not None and after[:1] == " "
