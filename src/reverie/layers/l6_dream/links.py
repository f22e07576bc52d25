"""Links between memories: a link follows a merged target, and becomes plain text if its target is missing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final

from ...memories.store.index import INDEX
from ...memories.store.names import FOLDERS
from ...values import record

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]\\\n]|\\.)*)\]\((<[^>\n]*>|[^()\s]+)(\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\)")
_WIKI: Final = re.compile(r"\[\[([^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|([^\[\]\n]+))?\]\]")
_CODE: Final = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\n]*$|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_DEAD: Final = re.compile(r" \((?:[^()\n]*, )?a (?:memory|file) that is no longer there\)")
_ENCODED: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


@record
class RelinkedText:
    """A memory's text after its links were updated."""

    text: str
    dead: tuple[str, ...] = ()
    """Missing targets whose links became plain text."""
    led_on: tuple[str, ...] = ()
    """Merged targets whose links now point to the merged file."""


def links_in(file: str, text: str) -> list[str]:
    """Return the paths that a memory's text links to, relative to the memory directory, without web addresses."""
    return [path for found in _links(text) if (path := _target(file, found))]


def relinked(
    file: str, text: str, *, there: frozenset[str], moved: Mapping[str, str], gone: frozenset[str] | None
) -> RelinkedText:
    """Return a memory's text in which links to merged memories lead on and links to missing ones are plain text.

    ``there`` are existing paths, ``moved`` maps merged memories to their new file, ``gone`` are missing files (None:
    links to missing ones stay). A wiki link without ``.md`` may name anything, so it only leads on.
    """
    parts: list[str] = []
    dead: list[str] = []
    led_on: list[str] = []
    at = 0
    for found in _links(text):
        path = _target(file, found)
        if not path or path in there:
            continue
        shown = (found[1] if found.re is _LINK else found[2] or found[1]).replace("\\", "")
        into = _final(path, moved)
        if into != path and into in there:
            led_on.append(path)
            new = _led_to(file, into, found, shown)
        elif gone is not None and (path in gone or _is_memory(path)) and not _is_bare(found):
            dead.append(path)
            what = "file" if path in gone and not _is_memory(path) else "memory"
            name = "" if shown == path else f"{path}, "
            new = f"{shown} ({name}a {what} that is no longer there)"
        else:
            continue
        parts += (text[at : found.start()], new)
        at = found.end()
    return RelinkedText("".join((*parts, text[at:])), tuple(dead), tuple(led_on))


def without_links(text: str) -> str:
    """Return a text with each link replaced by its visible words, to compare texts whose link targets changed."""
    shown = _LINK.sub(r"\1", _WIKI.sub(lambda found: found[2] or (found[1] if _is_bare(found) else ""), text))
    return _DEAD.sub("", shown)


def _links(text: str) -> list[re.Match[str]]:
    code = [(found.start(), found.end()) for found in _CODE.finditer(text)]
    found = [*_LINK.finditer(text), *_WIKI.finditer(text)]
    kept = [one for one in found if not any(start <= one.start() < end for start, end in code)]
    return sorted(kept, key=lambda one: one.start())


def _target(file: str, found: re.Match[str]) -> str:
    raw = found[2].removeprefix("<").removesuffix(">") if found.re is _LINK else found[1].strip()
    raw += ".md" if _is_bare(found) else ""
    path = _ENCODED.sub(_decoded, raw.split("#", 1)[0].split("?", 1)[0])
    if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//|/|~", path):
        return path if path.startswith("/") else ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), path))


def _is_bare(found: re.Match[str]) -> bool:
    """Return whether a match is a wiki link by a name without ``.md``."""
    return found.re is _WIKI and not found[1].strip().endswith(".md")


def _is_memory(path: str) -> bool:
    first = path.split("/", 1)[0]
    return path.endswith(".md") and path != INDEX and first not in FOLDERS and not path.startswith(("../", "/", "."))


def _final(path: str, moved: Mapping[str, str]) -> str:
    seen: set[str] = set()
    while path in moved and path not in seen:
        seen.add(path)
        path = moved[path]
    return path


def _led_to(file: str, into: str, found: re.Match[str], shown: str) -> str:
    if into == file:
        return shown
    path = posixpath.relpath(into, posixpath.dirname(file) or ".")
    if found.re is _WIKI:
        name = path.removesuffix(".md") if _is_bare(found) else path
        return f"[[{name}|{shown}]]" if found[2] else f"[[{name}]]"
    target = f"<{path}>" if re.search(r"[\s()]", path) else path
    return f"[{found[1]}]({target}{found[3] or ''})"


def _decoded(found: re.Match[str]) -> str:
    """Return the text for a run of percent-encoded bytes in a link target."""
    return bytes.fromhex(found.group().replace("%", "")).decode("utf-8", "replace")
