"""Shorten descriptions to one line of the index; the rest moves into the body."""

from __future__ import annotations

import re
from typing import Final

from ...memories.store.index import LINE_CHARS
from ...text.words import has_run, words

__all__ = ["shortened"]

_MIN_CHARS: Final = 60
_BREAK: Final = re.compile(r"(?<=[.;!?])\s|,\s|\s[—–-]\s|:\s|\s\(")


def shortened(description: str, body: str) -> tuple[str, str]:
    """Return a description cut to one index line, and a body that holds all words of a cut description."""
    plain = " ".join(description.split())
    if len(plain) <= LINE_CHARS:
        return description, body
    breaks = [found.start() for found in _BREAK.finditer(plain[: LINE_CHARS + 1]) if found.start() >= _MIN_CHARS]
    if breaks:
        short = plain[: breaks[-1]].rstrip(" ,;:—–-(")
    else:
        cut = plain[: LINE_CHARS - 1]
        short = (cut.rsplit(" ", 1)[0] if " " in cut[_MIN_CHARS:] else cut).rstrip(" ,;:—–-(") + "…"
    if has_run(words(body), words(plain)):
        return short, body
    text = plain if plain[-1] in ".!?…" else f"{plain}."
    return short, f"{body.rstrip()}\n\n{text}\n" if body.strip() else f"{text}\n"
