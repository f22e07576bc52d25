"""Update notes that a person or a model wrote with new lines of the local note-taker. Pure."""

from __future__ import annotations

import re
from typing import Final

from ...conversation.tokens.estimate import estimate_text
from .sections import CURRENT, WORKLOG, Notes

_KEY: Final = re.compile(r"- `([^`]+)`|- (The user: .{0,60})|([A-Z][a-z ]+): |- (.{0,80})")


def merge_notes(previous: Notes, written: Notes, rooms: dict[str, int]) -> Notes:
    """Return new notes: the previous ones with the new lines added; ``rooms`` has each section's token budget.

    Current State is always replaced. In other sections earlier text stays, except lines of the local note-taker about
    the same thing, which are replaced; new lines are added while they fit.
    """
    out: dict[str, str] = dict(previous.sections)
    for heading, content in written.sections.items():
        before = previous[heading]
        if heading == CURRENT or not before.strip():
            out[heading] = content
        elif heading in rooms:
            out[heading] = _joined(before, content, rooms[heading], newest_last=heading == WORKLOG)
    return Notes(out)


def _joined(before: str, after: str, room: int, *, newest_last: bool) -> str:
    fresh = {_key(line): line for line in after.split("\n") if line.strip()}
    lines = [fresh.pop(_key(line), line) if _is_ours(line) else line for line in before.split("\n")]
    said = "\n".join(lines)
    left = room - estimate_text(said)
    added: list[str] = []
    candidates = list(fresh.values())
    for line in reversed(candidates) if newest_last else candidates:
        cost = estimate_text(line) + 1
        if line in said or cost > left or not _is_ours(line):
            continue
        left -= cost
        added.append(line)
    return "\n".join([*lines, *(reversed(added) if newest_last else added)])


def _is_ours(line: str) -> bool:
    """Say whether the local note-taker may have written the line: it is a bullet or a list of names."""
    return line.startswith("- ") or re.match(r"[A-Z][a-z ]+: ", line) is not None


def _key(line: str) -> str:
    found = _KEY.match(line)
    return next((part for part in found.groups() if part), line) if found else line
