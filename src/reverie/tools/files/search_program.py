"""The search behind Grep, as a separate program, so that a pattern that never ends can be killed.

It gets a request on stdin and the descriptor of a directory or file, and needs only the standard library. ripgrep, if
installed, only selects the files that contain a required text; lines are always matched here, so that the results are
the same without it.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from ...paths import open_beneath
from ...text.globs import path_regex
from .ignore_rules import parse_ignore_rules
from .literals import required_literal
from .readable import ReadScope, has_other_names
from .tree_walk import walk

MAX_FILE_BYTES: Final = 64_000_000
_MAX_ROWS: Final = 20_000
_MAX_CHARS: Final = 2_000_000
_MAX_LINE_CHARS: Final = 500
_CHUNK_FILES: Final = 2_000
_CHUNK_BYTES: Final = 100_000
_MIN_LITERAL: Final = 3
_MIN_FILES: Final = 20
"""With fewer files than this, ripgrep is not started, because reading them all is faster."""
_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def main() -> None:
    """Read a search request from stdin as JSON, search, and write the result to stdout as JSON."""
    request: dict[str, Any] = json.load(sys.stdin)
    json.dump(search(request), sys.stdout)


def search(request: dict[str, Any]) -> dict[str, Any]:
    """Run a search request; return its rows, whether there are more, and the files too large to search."""
    flags = re.MULTILINE | re.DOTALL if request["multiline"] else re.NOFLAG
    pattern = re.compile(request["pattern"], flags | (re.IGNORECASE if request["ignore_case"] else re.NOFLAG))
    found = _Rows(request, pattern)
    for path, text in _texts(request, found):
        if not found.search(path, text):
            break
    return {"rows": found.rows, "more": found.more, "too_large": found.too_large, "linked": found.linked}


class _Rows:
    """Collects the rows of the result, up to the limits on their number and size."""

    def __init__(self, request: dict[str, Any], pattern: re.Pattern[str]) -> None:
        self.rows: list[str] = []
        self.more = False
        self.too_large: list[str] = []
        self.linked: list[str] = []
        self._request = request
        self._pattern = pattern
        self._limit: int = min(request["head_limit"] or _MAX_ROWS, _MAX_ROWS)
        self._chars = 0

    def search(self, path: str, text: str) -> bool:
        """Search one text and add its rows; return False if a limit was reached, so that the search ends."""
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        matched = _matching_lines(lines, text, self._pattern, self._request["multiline"])
        if self._request["mode"] == "files_with_matches":
            return next(matched, None) is None or self._add(path)
        if self._request["mode"] == "count":
            count = len(set(matched))
            return not count or self._add(f"{path}:{count}")
        return self._take_content(path, lines, set(islice(matched, self._limit + 1)))

    def _take_content(self, path: str, lines: list[str], matched: set[int]) -> bool:
        before, after = self._request["before"], self._request["after"]
        near = {line for at in matched for line in range(max(0, at - before), min(len(lines), at + after + 1))}
        last = -2
        for at in sorted(near):
            if (before or after) and at > last + 1 and self.rows and not self._add("--"):
                return False
            last = at
            mark = ":" if at in matched else "-"
            number = f"{at + 1}{mark}" if self._request["numbers"] else ""
            if not self._add(f"{path}{mark}{number}{_short(lines[at])}"):
                return False
        return True

    def _add(self, row: str) -> bool:
        if len(self.rows) >= self._limit or self._chars > _MAX_CHARS:
            self.more = True
            return False
        self.rows.append(row)
        self._chars += len(row)
        return True


def _matching_lines(lines: list[str], text: str, pattern: re.Pattern[str], multiline: bool) -> Iterator[int]:
    """Yield the numbers of matching lines, from 0; with ``multiline`` every line that a match covers."""
    if not multiline:
        find = pattern.search
        yield from (at for at, line in enumerate(lines) if find(line))
        return
    at = line = 0
    for found in pattern.finditer(text):
        start, end = found.span()
        line += text.count("\n", at, start)
        at = start
        last = line + text.count("\n", start, max(start, end - 1))
        yield from range(line, min(last + 1, len(lines)))


def _texts(request: dict[str, Any], found: _Rows) -> Iterator[tuple[str, str]]:
    """Yield the displayed path and the text of every file to search; note those too large or with hard links."""
    label: str = request["label"]
    if request["text"] is not None:
        yield label, request["text"].replace("\r\n", "\n")
        return
    start: int = request["descriptor"]
    if not request["is_folder"]:
        text = _text(os.dup(start), label, found)
        if text is not None:
            yield label, text
        return
    literal = required_literal(request["pattern"], request["ignore_case"])
    program: str = request["ripgrep"] if len(literal) >= _MIN_LITERAL else ""
    files = _wanted_paths(start, request)
    while chunk := list(islice(files, _CHUNK_FILES)):
        if program and len(chunk) >= _MIN_FILES:
            chunk = _files_with_literal(
                chunk, start, [program, *_RIPGREP, *["-i"] * request["ignore_case"], "-e", literal, "--"]
            )
        for path in chunk:
            shown = f"{label}/{path}" if label else path
            try:
                text = _text(open_beneath(start, path, _FILE), shown, found, linked=request["linked"])
            except OSError:  # removed, replaced by a link, or not readable
                continue
            if text is not None:
                yield shown, text


def _wanted_paths(start: int, request: dict[str, Any]) -> Iterator[str]:
    above = [parse_ignore_rules(text, prefix=prefix) for prefix, text in request["rules"]]
    cwd, home, roots, denied = request["scope"]
    scope, folder = ReadScope(cwd, home, tuple(roots), tuple(denied)), request["folder"]
    for walked in walk(start, hidden=request["hidden"], ignore=request["ignore"], above=above):
        if scope.is_hidden(os.path.join(folder, walked.path), folder):
            continue
        if all(_passes(walked.path, glob) for glob in request["globs"]) and _has_type(walked.path, request["endings"]):
            yield walked.path


def _passes(path: str, glob: str) -> bool:
    wanted = not glob.startswith("!")
    plain = glob.lstrip("!")
    pattern = plain if "/" in plain else f"**/{plain}"
    return bool(path_regex(pattern).fullmatch(path)) == wanted


def _has_type(path: str, endings: list[str]) -> bool:
    return not endings or path.endswith(tuple(endings))


# This program selects files and lines, so every filter of ripgrep is turned off.
_RIPGREP: Final = ("--no-config", "--no-ignore", "--hidden", "--text", "--no-messages", "--null", "-l", "-F")


def _files_with_literal(paths: list[str], start: int, command: list[str]) -> list[str]:
    """Return those of the paths in which ripgrep (``command``) finds its text; all paths if ripgrep fails."""
    hits: set[bytes] = set()
    for batch in _batches(paths):
        try:
            done = subprocess.run(
                [*command, *(f"./{path}" for path in batch)],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                check=False,
                preexec_fn=lambda: os.fchdir(start),
            )
        except OSError:
            return paths
        if done.returncode > 1 and not done.stdout:
            return paths
        hits.update(done.stdout.split(b"\0"))
    return [path for path in paths if os.fsencode(f"./{path}") in hits]


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        size += len(os.fsencode(path)) + 9
        if size > _CHUNK_BYTES and batch:
            yield batch
            batch, size = [], 0
        batch.append(path)
    if batch:
        yield batch


def _text(descriptor: int, path: str, found: _Rows, *, linked: bool = True) -> str | None:
    """Read a file and close it; return its text, None if binary, too large, or with hard links unless ``linked``."""
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not linked and has_other_names(status):
            found.linked.append(path)
            return None
        if status.st_size > MAX_FILE_BYTES:
            found.too_large.append(path)
            return None
        data = file.read(MAX_FILE_BYTES) or b""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace").replace("\r\n", "\n")
    if b"\0" in data:
        return None
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _short(line: str) -> str:
    more = len(line) - _MAX_LINE_CHARS
    return line if more <= 0 else f"{line[:_MAX_LINE_CHARS]} [... {more:,} more characters]"
