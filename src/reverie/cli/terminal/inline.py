"""A prompt_toolkit application at the bottom of the terminal, with finished lines scrolling above it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output

REDRAW_SECONDS: Final = 0.03
ESCAPE_SECONDS: Final = 0.1
BEGIN_FRAME: Final = "\x1b[?2026h"
END_FRAME: Final = "\x1b[?2026l"


def terminal_size() -> Size:
    """Return the current size of the terminal, or 80 columns and 24 rows if it is unknown."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return Size(24, 80)
    return Size(found.lines or 24, found.columns or 80)


class FrameOutput(Vt100_Output):
    """Terminal output that buffers a whole frame and writes it at once, to avoid flicker."""

    _held = 0

    def flush(self) -> None:
        """Write the buffered output, unless a frame is open."""
        if not self._held:
            super().flush()

    def erase_down(self) -> None:
        """Erase everything below the cursor, the current line first.

        Some terminals copy the screen into their scrollback when asked to erase all of it.
        """
        self.write_raw("\x1b7\x1b[K\x1b[B\r\x1b[J\x1b8")

    @contextmanager
    def frame(self) -> Generator[None]:
        """Buffer all output inside this block and write it at once at the end."""
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


class InlineApplication(Application[None]):
    """An application that prints finished lines above itself, in the same frame as its own redraw."""

    def __init__(self, **attributes: Any) -> None:
        # No cursor position request: the footer is directly below the input, and startup need not wait for a reply.
        self.frames = FrameOutput(sys.stdout, terminal_size, term=os.environ.get("TERM"), enable_cpr=False)
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

    def write_above(self, lines: Sequence[str]) -> None:
        """Print finished lines above the application at the next redraw; they may contain escape sequences."""
        self._finished += lines
        self.invalidate()

    def write_rest(self) -> None:
        """Print the remaining finished lines after the application has ended."""
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
        """Erase the last drawing if the terminal's size has changed since.

        A redraw may happen before the resize signal arrives, so both paths call this.
        """
        last = cast(Any, self.renderer)._last_size
        if last is not None and last != self.frames.get_size():
            self.frames.cursor_up(self._rows_gained_by_wrapping())
            self.renderer.erase(leave_alternate_screen=False)

    def _rows_gained_by_wrapping(self) -> int:
        """Return the number of extra rows that our lines above the cursor take after the terminal became narrower."""
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
