"""Build HTML from parts: all text is escaped here, and text is never taken as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final

from ..values import record

_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")


@record
class Html:
    """A piece of markup that is safe in a page."""

    source: str


def text(value: object) -> Html:
    """Return a value as escaped text, without characters that a page cannot hold."""
    sound = str(value).encode("utf-8", "replace").decode("utf-8")
    return Html(escape(_UNSEEN.sub("", sound), quote=True))


def join(parts: Iterable[Html]) -> Html:
    """Return parts as one piece of markup, without anything between them."""
    return Html("".join(part.source for part in parts))


def el(tag: str, /, *inside: object, **attributes: object) -> Html:
    """Return an element; content that is not ``Html`` becomes escaped text.

    In the names of attributes an underscore becomes a hyphen and one at the end is dropped (``class_``).
    Attributes that are None or False are left out.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value).source}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if not inside and tag in ("meta", "input", "path", "line", "col"):
        return Html(f"<{tag}{given}/>" if tag in ("path", "line") else f"<{tag}{given}>")
    body = join(part if isinstance(part, Html) else text(part) for part in inside)
    return Html(f"<{tag}{given}>{body.source}</{tag}>")
