"""API rounds: a round starts at each assistant message id not seen before.

Layers remove whole rounds, so a tool call and its result always leave the view together.
"""

from __future__ import annotations

from collections.abc import Sequence

from .entries import ASSISTANT, Entry


def reply_id(entry: Entry) -> str:
    """Return the provider's id of the reply in an entry, or the entry's uuid if the reply has no id."""
    found = entry.reply.get("id")
    return found if isinstance(found, str) and found else entry.uuid


def rounds(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return message entries as a list of rounds, each starting at a reply with a new id.

    The messages before the first reply form a round of their own.
    """
    out: list[list[Entry]] = []
    seen: set[str] = set()
    for entry in entries:
        starts = entry.kind == ASSISTANT and reply_id(entry) not in seen
        if entry.kind == ASSISTANT:
            seen.add(reply_id(entry))
        if starts or not out:
            out.append([entry])
        else:
            out[-1].append(entry)
    return out
