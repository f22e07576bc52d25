"""The trust of some memories according to the journal, read quickly and without the store."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress

from ..memories.store.trust_history import TrustHistory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Final

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MARK_DIGITS: Final = 20
_CHANGED: Final = re.compile(rb'"file":"([^"\\]+)"')


class _Change:
    """A change of the journal, as far as trust depends on it."""

    __slots__ = ("after", "file", "trust")

    def __init__(self, given: dict[str, Any]) -> None:
        self.file, self.after, self.trust = given["file"], given.get("after"), given.get("trust")


def journal_trusts(root: str, files: Collection[str]) -> TrustHistory:
    """Return the trust history of these files of a memory directory; empty without a readable journal.

    Only lines that name one of the files are parsed. A line that the writer has not applied yet does not count.
    """
    found = TrustHistory()
    with suppress(OSError, ValueError):
        applied = int(_head(os.path.join(root, ".journal", "lock"), _MARK_DIGITS) or b"0")
        data = _head(os.path.join(root, ".journal", "journal.jsonl"), applied)
        wanted = {file.encode("utf-8", "replace") for file in files}
        done = 0
        for match in _CHANGED.finditer(data):
            if match.group(1) not in wanted or match.start() < done:
                continue
            start, done = data.rfind(b"\n", 0, match.start()) + 1, data.find(b"\n", match.end()) + 1 or len(data)
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                line = json.loads(data[start:done])
                found.add(line["act"], [_Change(one) for one in line["changes"]])
    return found


def _head(path: str, size: int) -> bytes:
    """Return the first bytes of a file."""
    descriptor = os.open(path, _FLAGS)
    try:
        data = os.read(descriptor, size)
        while len(data) < size and (more := os.read(descriptor, size - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)
