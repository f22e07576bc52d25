"""Descriptions short enough for a line of the index; what no longer fits moves into the body."""

from __future__ import annotations

import re
from typing import Final

from ...memories.store.index import LINE_CHARS
from .standing import missing

__all__ = ["HOOK_CHARS", "shortened"]

HOOK_CHARS: Final = LINE_CHARS
_MIN_CHARS: Final = 60
_BREAK: Final = re.compile(r"(?<=[.;!?])\s|,\s|\s[—–-]\s|:\s|\s\(")


def shortened(description: str, body: str) -> tuple[str, str]:
    """Return a description of at most so many characters, and the body that holds all it said."""
    plain = " ".join(description.split())
    if len(plain) <= HOOK_CHARS:
        return description, body
    breaks = [found.start() for found in _BREAK.finditer(plain[: HOOK_CHARS + 1]) if found.start() >= _MIN_CHARS]
    if breaks:
        hook = plain[: breaks[-1]].rstrip(" ,;:—–-(")
    else:
        cut = plain[: HOOK_CHARS - 1]
        hook = (cut.rsplit(" ", 1)[0] if " " in cut[_MIN_CHARS:] else cut).rstrip(" ,;:—–-(") + "…"
    if not missing(plain, body):
        return hook, body
    said = plain if plain[-1] in ".!?…" else f"{plain}."
    return hook, f"{body.rstrip()}\n\n{said}\n" if body.strip() else f"{said}\n"
