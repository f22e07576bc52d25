"""The text of a web page, without its markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_SILENT: Final = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object", "canvas"})
_BLOCKS: Final = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
        "header hr li main nav ol p pre section table td th tr ul",
    )
)
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}


def page_text(html: str) -> str:
    """Return the visible text of a page: title and headings with #, items with -, links with their address."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = re.sub(r"[ \t\r\f\v]+", " ", "".join(reader.parts))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class _Reader(HTMLParser):
    """An HTML parser that collects the visible text of a page in ``parts``."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []
        self._links: list[str] = []
        self._title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a line break, heading mark or item mark where a block begins; note links and hidden elements."""
        if tag == "title":
            self._title = True
            self.parts.append("# ")
        if tag in _SILENT:
            self._silent.append(tag)
        if self._silent:
            return
        if tag in _BLOCKS:
            self.parts.append("\n" + _HEADINGS.get(tag, "- " if tag == "li" else ""))
        if tag == "a":
            self._links.append(next((value or "" for name, value in attrs if name == "href"), ""))

    def handle_endtag(self, tag: str) -> None:
        """Add a line break where a block ends and the address after a link; leave a hidden element."""
        if tag == "title":
            self._title = False
            self.parts.append("\n")
        if tag in self._silent:  # unclosed elements inside it end with it
            del self._silent[self._silent.index(tag) :]
            return
        if self._silent:
            return
        if tag == "a" and self._links:
            link = self._links.pop()
            if link.startswith(("http://", "https://", "/")):
                self.parts.append(f" ({link})")
        if tag in _BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Add text to ``parts`` unless it is inside a hidden element; a title is always added."""
        if self._title or not self._silent:
            self.parts.append(data.replace("\n", " "))
