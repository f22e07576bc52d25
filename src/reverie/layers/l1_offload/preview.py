"""Texts that the view shows in place of results."""

from __future__ import annotations

from typing import Final

OPENING: Final = "<persisted-output>"
CLOSING: Final = "</persisted-output>"


def preview_of(text: str, max_bytes: int) -> str:
    """Return the first ``max_bytes`` bytes of a text, cut at the last newline if that is in the second half."""
    data = text[: max_bytes + 1].encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    newline = data.rfind(b"\n", 0, max_bytes)
    end = newline if newline * 2 >= max_bytes else max_bytes
    return data[:end].decode("utf-8", "ignore")  # the cut can split only the last character


def persisted_text(text: str, *, size_bytes: int, path: str, handle: str, preview_bytes: int) -> str:
    """Return the text shown for a result that is stored in a file: its size, path, handle and a preview."""
    preview = preview_of(text, preview_bytes)
    more = "" if preview == text else "\n..."
    return (
        f"{OPENING}\n"
        f"Output too large to show whole: {_size(size_bytes)}. Full output saved to: {path}\n"
        f"Read or search it there, or read it back by its handle: {handle}\n\n"
        f"Preview (first {preview_bytes:,} bytes):\n"
        f"{preview}{more}\n"
        f"{CLOSING}"
    )


def repeated_text(first: str, tool: str, *, size_bytes: int, handle: str) -> str:
    """Return the text shown for a result that repeats that of the call ``first``, which is still in view."""
    by = f"{tool} call " if tool else ""
    return (
        f"[Identical to the result of {by}{first} above, {_size(size_bytes)}; "
        f"this one can be read back by its handle: {handle}]"
    )


def image_text(problem: str, about: str, path: str = "", handle: str = "", kind: str = "image") -> str:
    """Return the text shown for an image or document that cannot be sent: the problem, and the original's place."""
    advice = "Make a smaller copy to see it" if kind == "image" else "Take out the pages that you need to see them"
    where = f". Saved to: {path}\nIts handle: {handle}. {advice}" if handle else ""
    return f"[{kind.capitalize()} not shown: {problem} ({about}){where}]"


def scaled_text(about: str, size: str, path: str, handle: str) -> str:
    """Return the text shown beside the smaller copy of an image, with the place of the original if it was stored."""
    where = f" The original ({about}) is saved to: {path}, handle: {handle}" if handle else ""
    return f"[The image was scaled down to {size} pixels.{where}]"


def empty_text(tool: str) -> str:
    """Return the text shown for an empty result, with the tool's name."""
    return f"({tool or 'The tool'} completed with no output)"


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} bytes"
    kilobytes = count / 1_000
    short = f"{kilobytes:.1f} kB" if kilobytes < 1_000 else f"{kilobytes / 1_000:.1f} MB"
    return f"{short} ({count:,} bytes)"
