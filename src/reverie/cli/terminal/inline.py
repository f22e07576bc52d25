"""An application that keeps to the bottom of the terminal while finished lines scroll up above it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

__all__ = ["Inline", "OneFrameOutput"]

REDRAW_SECONDS: Final = 0.03
ESCAPE_SECONDS: Final = 0.1
BEGIN_FRAME: Final = "\x1b[?2026h"
END_FRAME: Final = "\x1b[?2026l"


def terminal_size() -> Size:
    """Return the size of the terminal as it is now; one that does not say has 80 columns and 24 rows."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return Size(24, 80)
    return Size(found.lines or 24, found.columns or 80)


class OneFrameOutput(Vt100_Output):
    """Terminal output that can be held back until a whole frame is there, so that nothing half drawn is ever seen."""

    _held = 0

    def flush(self) -> None:
        """Write what there is, unless a frame is being put together."""
        if not self._held:
            super().flush()

    def erase_down(self) -> None:
        """Erase all that is below, line by line first.

        A terminal that is asked to erase all of its screen may take it for something to keep in its history.
        """
        self.write_raw("\x1b7\x1b[K\x1b[B\r\x1b[J\x1b8")

    @contextmanager
    def frame(self) -> Generator[None]:
        """Write all that is drawn within this block at once."""
        self._held += 1
        if self._held == 1:
            self.write_raw(BEGIN_FRAME)
        try:
            yield
        finally:
            self._held -= 1
            if not self._held:
                self.write_raw(END_FRAME)
                self.flush()


class Inline(Application[None]):
    """An application whose every redraw first lets finished lines go up, in the same frame."""

    def __init__(self, **attributes: Any) -> None:
        # Without asking where the cursor is: the footer stands right below the input, and nothing waits for an answer.
        self.frames = OneFrameOutput(sys.stdout, terminal_size, term=os.environ.get("TERM"), enable_cpr=False)
        self._finished: list[str] = []
        super().__init__(
            output=self.frames,
            full_screen=False,
            mouse_support=False,
            erase_when_done=True,
            min_redraw_interval=REDRAW_SECONDS,
            **attributes,
        )
        self.ttimeoutlen = ESCAPE_SECONDS
        self.timeoutlen = ESCAPE_SECONDS * 2

    def lift(self, lines: Sequence[str]) -> None:
        """Let lines go up for good; they bring their own escape sequences."""
        self._finished += lines
        self.invalidate()

    def write_rest(self) -> None:
        """Write what has not been drawn when the application is no longer there to do it."""
        lines, self._finished = self._finished, []
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    def _redraw(self, render_as_done: bool = False) -> None:
        with self.frames.frame():
            self._follow_size()
            if self._finished and not self._running_in_terminal:
                lines, self._finished = self._finished, []
                self.renderer.erase(leave_alternate_screen=False)
                self.frames.write_raw("\r\n".join(lines) + "\r\n")
            super()._redraw(render_as_done)

    def _on_resize(self) -> None:
        with self.frames.frame():
            self._follow_size()
            super()._on_resize()

    def _follow_size(self) -> None:
        """Where the terminal has another size than at the last drawing, take back what was drawn.

        A redraw may come before the news of the resize: both must find the place where our lines begin now.
        """
        last = cast(Any, self.renderer)._last_size
        if last is not None and last != self.frames.get_size():
            self.frames.cursor_up(self._rows_gained_by_wrapping())
            self.renderer.erase(leave_alternate_screen=False)

    def _rows_gained_by_wrapping(self) -> int:
        """Return how many rows more our lines above the cursor take in a terminal that is narrower now."""
        renderer: Any = self.renderer
        screen, cursor = renderer._last_screen, renderer._cursor_pos
        if screen is None:
            return 0
        columns = max(1, self.frames.get_size().columns)
        widths = [
            max((at + 1 for at, cell in screen.data_buffer[row].items() if cell.char.strip()), default=1)
            for row in range(cursor.y)
        ]
        return sum((width - 1) // columns for width in widths) + cursor.x // columns
