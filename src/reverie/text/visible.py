"""Text for a person to decide on: nothing is removed, and all that a screen would not show has a number."""

from __future__ import annotations

import re
from typing import Final

# Letters and marks that no font draws; Python calls them printable.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_TICKS: Final = re.compile(r"`+")


def visible(text: str) -> str:
    """Return text in which all that a screen would not show is <U+XXXX>; newline, tab and space stay."""
    return "\n".join(line if _is_plain(line) else "".join(map(_shown, line)) for line in text.split("\n"))


def one_word(text: str) -> str:
    """Return a name, path or rule as ``visible`` does, with newlines and tabs by their numbers too."""
    return visible(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def as_code_block(text: str) -> str:
    """Return text as a code block of Markdown, which shows every letter of it as it is written."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _is_plain(text: str) -> bool:
    return text.isprintable() and _BLANK.search(text) is None


def _shown(one: str) -> str:
    return one if one == "\t" or _is_plain(one) else f"<U+{ord(one):04X}>"
