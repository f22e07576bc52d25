"""The one door through which commands print: nothing that passes it can drive a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["bar", "bars", "console", "emit_json", "printable", "say", "table"]

# A whole escape sequence goes with its ESC, so that no "[31m" is left standing in the text.
ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What reorders or hides text without being a control character: bidi marks, zero-width and tag characters, line and
# paragraph separators, lone surrogates. The joiners U+200C and U+200D stay: scripts and emoji need them.
DECEPTIVE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
SUSPECT = re.compile(f"{CONTROL.pattern}|{DECEPTIVE.pattern}")

PIPED_WIDTH = 10_000
"""Columns where nobody's screen sets a limit: wide enough that a table is never folded."""


def printable(text: str) -> str:
    """Return the text without control characters except newline and tab; what hides or reorders is shown."""
    if SUSPECT.search(text) is None:
        return text
    text = CONTROL.sub("", ESCAPE_SEQUENCE.sub("", text))
    return DECEPTIVE.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


def say(text: str = "") -> None:
    """Print one piece of text as it is, made printable."""
    sys.stdout.write(printable(text) + "\n")


def emit_json(value: object) -> None:
    """Print a value as JSON in plain ASCII, so that any terminal and any pipe can take it."""
    import json

    text = json.dumps(value, indent=2, default=as_plain, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")


def as_plain(value: Any) -> Any:
    """Turn a record, path, date or set into what JSON has a form for."""
    import msgspec

    return msgspec.to_builtins(value, enc_hook=str)


def console() -> Console:
    """Make the console for stdout: coloured and as wide as the screen on a terminal, plain and unfolded elsewhere."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    return Console(
        width=PIPED_WIDTH, color_system=None, force_terminal=False, highlight=False, markup=False, emoji=False
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Print rows under headings; the columns whose numbers are in ``right`` are set flush right."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell(value) for value in row))
    print_without_trailing_space(grid)


def bars(rows: Sequence[tuple[str, float, str]], *, whole: float | None = None, width: int = 40) -> None:
    """Print one labelled bar a row, each as long as its share of the whole (of the largest where none is given)."""
    largest = max((amount for _, amount, _ in rows), default=0.0)
    base = largest if whole is None else whole
    table(["", "", ""], [(label, bar(amount, base, width=width), note) for label, amount, note in rows], right=(2,))


def bar(amount: float, whole: float, *, width: int = 40) -> str:
    """Return a bar of at most ``width`` cells; what is above nothing shows at least one."""
    if whole <= 0 or amount <= 0:
        return ""
    filled = min(width, max(1, round(amount / whole * width)))
    return bar_cell() * filled


def bar_cell() -> str:
    """Return the character bars are made of: a block where the encoding has one."""
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#"
    return "█"


def cell(value: object) -> Text:
    """Return a table cell in which nothing is read as markup."""
    from rich.text import Text

    return Text(printable(str(value)).replace("\n", " "))


def print_without_trailing_space(what: Any) -> None:
    """Print something rich can draw; into a pipe without the padding at the ends of lines."""
    screen = console()
    if screen.is_terminal:
        screen.print(what)
        return
    with screen.capture() as drawn:
        screen.print(what)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in drawn.get().splitlines()))
