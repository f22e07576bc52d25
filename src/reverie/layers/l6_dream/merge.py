"""Merge two memories with the same words: one text stays, with the sources and the lower trust of both."""

from __future__ import annotations

from ...errors import InputError
from ...memories.store.frontmatter import Value
from ...memories.store.records import MemoryRecord, revised_text
from ...memories.store.trust import worst
from .coverage import missing

__all__ = ["merged_text"]


def merged_text(kept: MemoryRecord, text: str, gone: MemoryRecord) -> str | None:
    """Return ``text``, the file of ``kept``, with the sources of both; None if that loses a sentence of ``gone``.

    Trust is the lower of both, the creation date the earlier one, the modification date the later one.
    """
    if missing(gone.body, kept.body):
        return None
    try:
        return revised_text(text, _fields(kept, gone))
    except InputError:
        return None


def _fields(kept: MemoryRecord, gone: MemoryRecord) -> dict[str, Value | None]:
    """Return the front matter fields of ``kept`` that change in the merge; None deletes a field."""
    fields: dict[str, Value | None] = {}
    sources = list(dict.fromkeys((*kept.source, *gone.source)))
    if tuple(sources) != kept.source:
        fields["source"] = sources[0] if len(sources) == 1 else sources
    trust = worst((kept.trust, gone.trust))
    if trust != kept.trust:
        fields["trust"] = trust
    created = min((one for one in (kept.created, gone.created) if one), default="")
    modified = max(kept.modified, gone.modified)
    # A missing date means no expiry; the later date never removes a memory sooner.
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
