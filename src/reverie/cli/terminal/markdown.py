"""Render Markdown as terminal lines, and split streamed Markdown into finished blocks."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from ..output import printable

MAX_PROSE_COLUMNS: Final = 100
_THEME: Final = Theme({"markdown.code": "cyan", "markdown.hr": "dim", "markdown.item.bullet": "cyan"})


class _Heading(Heading):
    """A left-aligned heading in bold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class _Code(CodeBlock):
    """Code with a margin and no background, so that a copy contains only the code."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(
            str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True, background_color="default"
        )
        yield Padding(code, (0, 0, 0, 2))


class _Prose(Markdown):
    """Markdown with our headings and code blocks."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


def blocks_of(text: str) -> list[str]:
    """Return the top-level blocks of Markdown as a list; text added later can only change the last block."""
    starts = [start for start in _block_starts(text) if start]
    lines = text.splitlines(keepends=True)
    edges = [0, *sorted(set(starts)), len(lines)]
    pieces = ["".join(lines[first:last]) for first, last in pairwise(edges)]
    return [piece for piece in pieces if piece] or ([text] if text else [])


def _block_starts(text: str) -> list[int]:
    tokens: list[Any] = _parser().parse(text)
    return [token.map[0] for token in tokens if token.level == 0 and token.map is not None and token.nesting >= 0]


@lru_cache(maxsize=1)
def _parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt().enable("strikethrough").enable("table")


def markdown_lines(text: str, *, columns: int, colour: bool) -> list[str]:
    """Return Markdown rendered as lines, at most 100 columns wide, with no escape sequences except styles."""
    shown = _Prose(printable(text), code_theme="ansi_dark", hyperlinks=False)
    return ansi_lines(shown, columns=min(columns, MAX_PROSE_COLUMNS), colour=colour)


def ansi_lines(shown: Any, *, columns: int, colour: bool) -> list[str]:
    """Return a rich renderable as lines, without padding and without empty lines at both ends."""
    console = Console(
        width=max(10, columns),
        force_terminal=True,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        theme=_THEME,
    )
    lines = console.render_lines(shown, pad=False)
    drawn: list[str] = []
    for line in lines:
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line if not segment.control))
        text.rstrip()
        with console.capture() as captured:
            console.print(text, end="", soft_wrap=True)
        drawn.append(captured.get())
    while drawn and not drawn[-1]:
        drawn.pop()
    while drawn and not drawn[0]:
        drawn.pop(0)
    return drawn
