"""Printing for all commands: text, tables, bars and JSON, with terminal escape sequences removed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..errors import InputError
from ..text.counts import counted as counted
from ..text.counts import dollars as dollars
from ..text.visible import one_word as one_word
from ..text.visible import visible as visible
from ..values import record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

T = TypeVar("T")

# Match the whole sequence, not only its ESC, so that no "[31m" is left in the text.
ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f\n]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Characters that reorder or hide text without being control characters: bidi marks, zero-width and tag characters,
# line and paragraph separators, lone surrogates. The joiners U+200C and U+200D stay: scripts and emoji need them.
DECEPTIVE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
SUSPECT = re.compile(f"{CONTROL.pattern}|{DECEPTIVE.pattern}")

CLEARING_REASONS = {
    "idle": "the cache had ended, so that costs nothing",
    "priced": "it saves more than it costs",
    "window": "the window is nearly full",
    "budget": "over the budget of old results",
}
"""The triggers of layer 2 in plain words."""
COMPACTION_REASONS = {"auto": "automatically", "manual": "on request", "reactive": "since the request was too long"}
"""The triggers of layer 4 in plain words."""
COMPACTION_METHODS = {
    "notes": "from notes",
    "full": "by the model",
    "provider": "by the provider",
    "from": "in part",
    "up_to": "in part",
}
"""The methods of layer 4 in plain words."""

MIN_CUT = 12
_LEAST_TEXT = 24  # width of a cut column below which others are dropped
MIN_BAR = 8
MIN_WIDTH = 20
"""Output for a narrower screen is made for this width."""
PIPED_WIDTH = 10_000
"""Width used when stdout is not a terminal and COLUMNS is not set: wide enough that a table is never folded."""


@record
class StyledCell:
    """A table cell with its own style."""

    text: str
    style: str


def printable(text: str) -> str:
    """Return text without control characters except newline and tab, with hidden characters shown as <U+XXXX>."""
    if SUSPECT.search(text) is None:
        return text
    text = CONTROL.sub("", ESCAPE_SEQUENCE.sub("", text))
    return DECEPTIVE.sub(lambda found: f"<U+{ord(found.group()):04X}>", text)


def say(text: str = "") -> None:
    """Print text and a newline on stdout, after removing control characters."""
    sys.stdout.write(printable(text) + "\n")


def warn(text: str) -> None:
    """Print ``reverie:`` and the text as one line on stderr, without control characters."""
    sys.stderr.write("reverie: " + " ".join(printable(text).split()) + "\n")


def warn_of_fallback(event: object) -> None:
    """Print the reason of a fallback as a warning; ignore other events."""
    from ..events import FellBack

    if isinstance(event, FellBack):
        warn(event.why)


def folded(text: str, indent: str = "") -> str:
    """Return text that is indented and, where output must fit a width, broken between words."""
    if not is_fitted():
        return indent + text
    return fill(text, console().width - 1, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def paint(pieces: Iterable[tuple[str, str]], *, wrap: bool = False) -> None:
    """Print (text, style) pieces one after another; the pieces contain their own newlines.

    With ``wrap``, a long line breaks between words; without it, the terminal breaks the line, which stays copyable.
    """
    from rich.text import Text

    screen = console()
    if not screen.is_terminal:
        sys.stdout.writelines(printable(text) for text, _ in pieces)
        return
    line = Text()
    for text, style in pieces:
        line.append(printable(text), style)
        if text.endswith("\n"):
            screen.print(line, end="", soft_wrap=not wrap)
            line = Text()
    screen.print(line, end="", soft_wrap=not wrap)


def tracked(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield the items; iterating over two or more of them shows a progress bar if stderr is a terminal."""
    with progressing(label, len(items)) as step:
        for item in items:
            yield item
            step()


@contextmanager
def progressing(label: str, total: int) -> Generator[Callable[[], None], None, None]:
    """Yield the function to call after each step; it moves a progress bar if stderr is a terminal."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(escape(printable(label)), total=total)
        yield lambda: shown.advance(task)


def gathered(items: Iterable[T], label: str, item_name: str) -> list[T]:
    """Return the items; until all are found, show how many there are so far if stderr is a terminal."""
    if not sys.stderr.isatty():
        return list(items)
    from rich.console import Console
    from rich.markup import escape

    label, found = escape(printable(label)), list[T]()
    with Console(stderr=True).status(label, spinner="line") as shown:
        for item in items:
            found.append(item)
            shown.update(f"{label}: {counted(len(found), item_name)}")
    return found


def is_terminal() -> bool:
    """Return whether a question can be asked: input and errors are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, refusal: str) -> bool:
    """Ask a yes/no question and return the answer; without a terminal, raise InputError with ``refusal``.

    Ctrl-C ends the command here, also in an event loop: its own handler would wait until the question is answered.
    """
    if not is_terminal():
        raise InputError(refusal)
    import signal

    import click

    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(folded(visible(question)), err=True)
    except click.Abort:
        sys.stderr.write("\n")
        warn("nothing was changed")
        raise
    finally:
        signal.signal(signal.SIGINT, earlier)


def size(count: int) -> str:
    """Return a number of bytes with a unit, such as "1.2 MB"."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 1_000:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"


def emit_json(value: object) -> None:
    """Print a value as ASCII JSON, which every terminal and pipe accepts."""
    import json

    text = json.dumps(value, indent=2, default=as_plain, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")


def as_plain(value: Any) -> Any:
    """Convert a record, path, date or set into a type that JSON supports; a set becomes a sorted list."""
    import msgspec

    if isinstance(value, frozenset):
        return sorted(map(str, cast("frozenset[object]", value)))
    return msgspec.to_builtins(value, enc_hook=str)


def console() -> Console:
    """Return a console for stdout: coloured and screen-wide on a terminal; otherwise plain, as wide as COLUMNS."""
    from rich.console import Console

    if sys.stdout.isatty():
        screen = Console(highlight=False, markup=False, emoji=False)
        screen.width = max(MIN_WIDTH, screen.width)
        return screen
    wanted = os.environ.get("COLUMNS", "")
    width = max(MIN_WIDTH, int(wanted)) if wanted.isdecimal() and int(wanted) else PIPED_WIDTH
    return Console(width=width, color_system=None, force_terminal=False, highlight=False, markup=False, emoji=False)


def is_fitted() -> bool:
    """Return whether tables must fit a width: that of a terminal, or in a pipe that of COLUMNS."""
    return console().width < PIPED_WIDTH


def table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = (), cut: int | None = None
) -> None:
    """Print rows under headings; columns ``right`` align right, column ``cut`` is shortened to fit."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="right" if number in right else "left", overflow="fold")
    cells = [[cell(value) for value in row] for row in rows]
    if cells and is_fitted():
        for at in range(len(headings)):
            _fit_bars(cells, at, _room(headings, cells, at))
        if cut is not None:
            room = _room(headings, cells, cut)
            for row in cells:
                row[cut].truncate(max(MIN_CUT, room), overflow="ellipsis")
    for row in cells:
        grid.add_row(*row)
    print_without_trailing_space(grid)


def fitted(columns: Mapping[str, Sequence[str]], droppable: Sequence[str], *, cut: str) -> dict[str, Sequence[str]]:
    """Return the columns that fit the screen: the ``droppable`` ones leave, in order, until ``cut`` has room enough."""
    fitting = dict(columns)
    widths = {name: max(map(len, (name, *cells))) + 2 for name, cells in columns.items() if name != cut}
    for name in droppable:
        if name in fitting and sum(widths.values()) + _LEAST_TEXT > console().width:
            del widths[name], fitting[name]
    return fitting


def _room(headings: Sequence[str], cells: Sequence[Sequence[Text]], column: int) -> int:
    """Return the columns of the screen that a table leaves for one of its columns."""
    widths = [max([len(heading), *(row[at].cell_len for row in cells)]) for at, heading in enumerate(headings)]
    return console().width - sum(widths) + widths[column] - 2 * (len(headings) - 1)


def _fit_bars(cells: Sequence[Sequence[Text]], column: int, room: int) -> None:
    """Shorten the bars of a column in proportion, so that none is folded."""
    bars = [row[column] for row in cells if row[column].plain.strip(bar_cell()) == ""]
    longest, room = max((one.cell_len for one in bars), default=0), max(MIN_BAR, room)
    for one in bars if longest > room else []:
        one.plain = one.plain[: -(-one.cell_len * room // longest)]


def listing(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table or, where it does not fit, each row as a line with its last column folded below it."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max([len(heading), *(row[at].cell_len for row in cells)]) for at, heading in enumerate(headings)]
    if not is_fitted() or sum(widths) + 2 * (len(widths) - 1) <= console().width:
        table(headings, rows)
        return
    for row in cells:
        parts = [(f"{one.plain:<{width}}  ", str(one.style)) for one, width in zip(row[:-2], widths, strict=False)]
        paint([*parts, (f"{row[-2].plain}\n", str(row[-2].style))], wrap=True)
        if row[-1].plain:
            say(folded(row[-1].plain, "    "))


def coloured() -> bool:
    """Return whether stdout shows colours."""
    screen = console()
    return screen.is_terminal and screen.color_system is not None and not screen.no_color


def bar(amount: float, whole: float, *, width: int = 40) -> str:
    """Return a bar for ``amount`` of ``whole``: 1 to ``width`` cells, or none if either is not positive."""
    if whole <= 0 or amount <= 0:
        return ""
    filled = min(width, max(1, round(amount / whole * width)))
    return bar_cell() * filled


def sparkline(amounts: Sequence[float], *, width: int = 0) -> str:
    """Return one character per amount, as high as its share of the largest; digits where the encoding has no blocks.

    With ``width``, there are at most so many characters, and each shows the largest of its amounts.
    """
    step = -(-len(amounts) // width) if width else 1
    amounts = [max(amounts[at : at + step]) for at in range(0, len(amounts), step)] if amounts else amounts
    levels = "▁▂▃▄▅▆▇█" if bar_cell() != "#" else "01234567"
    most = max(amounts, default=0.0) or 1.0
    return "".join(levels[round(amount / most * 7)] for amount in amounts)


def bar_cell() -> str:
    """Return the character for bars: a block if the encoding has one, else "#"."""
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return "#"
    return "█"


def cell(value: object) -> Text:
    """Return a value as a rich table cell, without interpreting markup."""
    from rich.text import Text

    style = value.style if isinstance(value, StyledCell) else ""
    return Text(printable(value.text if isinstance(value, StyledCell) else str(value)).replace("\n", " "), style)


def print_without_trailing_space(renderable: Any) -> None:
    """Print a rich renderable; if stdout is not a terminal, strip the padding at line ends."""
    screen = console()
    if screen.is_terminal:
        screen.print(renderable)
        return
    with screen.capture() as drawn:
        screen.print(renderable)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in drawn.get().splitlines()))
