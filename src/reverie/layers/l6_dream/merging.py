"""Two memories that say the same become one file: the richer text, with whatever only the other one said below it."""

from __future__ import annotations

import re
from typing import Final

from ...errors import InputError
from ...memories.store.frontmatter import Value
from ...memories.store.records import MemoryRecord, revised_text
from ...memories.store.trust import worst
from .labels import without_label
from .standing import missing
from .statements import Pool, statements_of
from .words import HARD

__all__ = ["merged_text"]

_PART: Final = re.compile(r"^\s*\*\*(Why|How to apply)\b", re.IGNORECASE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[^\sa-z])")


def merged_text(kept: MemoryRecord, text: str, gone: MemoryRecord) -> str | None:
    """Return the text of ``kept`` with all that ``gone`` says and names as its source; None where it cannot be.

    Sources are united, trust is the worst of both, it was created with the earlier and changed with the later one.
    """
    body = _with_facts(kept, gone)
    try:
        new = revised_text(text, _fields(kept, gone), None if body == kept.body else body)
    except InputError:
        return None
    return None if missing(gone.body, new) else new


def _fields(kept: MemoryRecord, gone: MemoryRecord) -> dict[str, Value | None]:
    """Return the fields that change."""
    fields: dict[str, Value | None] = {}
    sources = list(dict.fromkeys((*kept.source, *gone.source)))
    if tuple(sources) != kept.source:
        fields["source"] = sources[0] if len(sources) == 1 else sources
    trust = worst((kept.trust, gone.trust))
    if trust != kept.trust:
        fields["trust"] = trust
    created = min((one for one in (kept.created, gone.created) if one), default="")
    modified = max(kept.modified, gone.modified)
    # Without a date both outlive any; the later date never takes a memory away sooner.
    expires = max(kept.expires, gone.expires) if kept.expires and gone.expires else ""
    fields |= {
        key: new or None
        for key, old, new in (
            ("created", kept.created, created),
            ("modified", kept.modified, modified),
            ("expires", kept.expires, expires),
            ("description", kept.description, kept.description or gone.description),
        )
        if new != old
    }
    return fields | {key: value for key, value in gone.extra.items() if key not in kept.extra}


def _with_facts(kept: MemoryRecord, gone: MemoryRecord) -> str:
    """Return the body of one memory with the sentences of the other that do not stand in it."""
    body = kept.body
    own = f"{kept.name}\n{kept.description}\n"
    for line in gone.body.splitlines():
        if not line.strip() or not missing(line, own + body):
            continue
        part = _PART.match(line)
        lost = [one for one in _SENTENCE.split(line.strip()) if missing(one, own + body)]
        body = _added(body, part[1] if part else "", line.strip(), lost or [line.strip()])
    said = without_label(gone.description, gone.body).rstrip()
    if said and _has_more(said, own + body):
        body = _added(body, "", said, [said if said[-1] in ".!?…" else f"{said}."])
    return body


def _has_more(description: str, text: str) -> bool:
    """Say whether a description names a fact that stands nowhere in a text, however it is worded."""
    there = Pool(word for one in statements_of(text) for word in one.every)
    return any(
        word.kind in HARD and not there.covers(word, one.pool)
        for one in statements_of(description)
        for word in one.words
    )


def _added(body: str, part: str, line: str, lost: list[str]) -> str:
    """Return a body with sentences at the end of the part they belong to."""
    paragraphs = re.split(r"\n\s*\n", body.rstrip("\n")) if body.strip() else []
    if part:
        at = next((number for number, one in enumerate(paragraphs) if _named(one) == part.lower()), None)
        if at is None:
            return "\n\n".join((*paragraphs, line)) + "\n"
        said = " ".join(re.sub(r"^\s*\*\*[^*]*\*\*:?\s*", "", one) for one in lost)
        paragraphs[at] = f"{paragraphs[at].rstrip()} {said}"
        return "\n\n".join(paragraphs) + "\n"
    said = " ".join(lost)
    at = next((number for number, one in enumerate(paragraphs) if _named(one)), len(paragraphs))
    return "\n\n".join((*paragraphs[:at], said, *paragraphs[at:])) + "\n"


def _named(paragraph: str) -> str:
    found = _PART.match(paragraph)
    return found[1].lower() if found else ""
