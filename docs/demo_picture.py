"""Draw docs/demo.svg, the picture in the README, from the output of ``reverie demo`` on a terminal.

python docs/demo_picture.py          # after a change of the demo; a test compares the picture with its output
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).with_name("demo.svg")
COLUMNS = 118
BEGINNING = 10
"""Lines shown before those in the middle of the session are left out."""


def terminal_output(command: list[str]) -> str:
    """Run a command on a terminal of its own and return its output, with colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment = {name: value for name, value in environment.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        read = b""
        while part := _some(ours):
            read += part
    os.close(ours)
    assert running.returncode == 0, read[-2000:]
    return read.decode()


def _some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so at the end of a terminal's output
        return b""


def shown_lines(output: str) -> list[str]:
    """Return the lines that stay on the screen, and of those that were drawn over only the last text."""
    lines = [line.rpartition("\x1b[2K")[2].rpartition("\r")[2] for line in output.replace("\r\n", "\n").split("\n")]
    end = next(number for number, line in enumerate(lines) if "> /compact" in line)
    middle = Text(f"  … {end - BEGINNING} lines of the session …", "dim")
    console = Console(file=io.StringIO(), force_terminal=True, color_system="256", width=COLUMNS)
    with console.capture() as captured:
        console.print(middle)
    return [*lines[:BEGINNING], captured.get().rstrip("\n"), *lines[end:]]


def picture_of(lines: list[str]) -> str:
    """Return the lines as an SVG that needs no font from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    drawn = console.export_svg(title="reverie demo", unique_id="demo")
    drawn = re.sub(r"@font-face \{.*?\}\n?", "", drawn, flags=re.DOTALL)
    drawn = drawn.replace("Fira Code, monospace", "ui-monospace, Menlo, DejaVu Sans Mono, monospace")
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)


def current_picture() -> str:
    """Run the demo and return its picture."""
    return picture_of(shown_lines(terminal_output([sys.executable, "-m", "reverie", "demo", "--fast"])))


if __name__ == "__main__":
    PICTURE.write_text(current_picture())
