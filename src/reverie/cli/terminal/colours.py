"""The colours of the terminal, named by their meaning."""

from __future__ import annotations

from typing import Final

# meaning -> (SGR codes, prompt_toolkit style)
STYLES: Final = {
    "prompt": ("1", "bold"),
    "done": ("32", "ansigreen"),
    "failed": ("31", "ansired"),
    "busy": ("33", "ansiyellow"),
    "warning": ("33", "ansiyellow"),
    "danger": ("1;31", "bold ansired"),
    "edits": ("35", "ansimagenta"),
    "plan": ("36", "ansicyan"),
    "background": ("36", "ansicyan"),
    "thought": ("2;3", "ansibrightblack italic"),
    "dim": ("2", "ansibrightblack"),
    "footer": ("2", "ansibrightblack"),
    "title": ("1", "bold"),
    "chosen": ("1;36", "bold ansicyan"),
    "added": ("32", "ansigreen"),
    "removed": ("31", "ansired"),
    "hunk": ("36", "ansicyan"),
}


class Paint:
    """Adds colour codes to text, or returns it unchanged if colours are off."""

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, meaning: str) -> str:
        """Return the text in the colour of a meaning (a key of ``STYLES``); unchanged if colours are off."""
        if not self.colour or not text:
            return text
        return f"\x1b[{STYLES[meaning][0]}m{text}\x1b[0m"
