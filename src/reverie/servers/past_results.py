"""Read back content that left a session's view, even where only its handle is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, Final

from ..conversation.view import View
from ..errors import InputError, SessionNotFound
from ..ports import Storage
from ..runtime.library import Library
from ..runtime.places.projects import session_of
from ..runtime.places.storage import storage_of
from ..runtime.search.log_text import logs_in
from ..runtime.session.offload.read_back import ReadBack
from ..settings import Settings

Progress = Callable[[int, int, str], None]
"""Called with the steps done, the total and a message; an exception from it stops the work."""

MAX_LOGS: Final = 500
"""The number of logs searched for a handle without a session, the newest first."""
_MAX_LINE_CHARS: Final = 500
_STORED: Final = re.compile(r"(?P<session>projects/[^/]+/[^/]+)/tool-results/(?P<name>[^/]+)")


class PastResults:
    """The content that left the views of one project's sessions, or of all projects' sessions."""

    def __init__(self, settings: Settings, slug: str | None, progress: Progress) -> None:
        """Read the sessions of the project with this slug, or of all projects if it is None.

        ``progress`` is called while logs are searched for a handle.
        """
        self._settings = settings
        self._slug = slug
        self._progress = progress

    def read(
        self,
        handle: str,
        *,
        session: str | None,
        offset: int,
        limit: int,
        find: str | None = None,
        about: str | None = None,
    ) -> dict[str, Any]:
        """Return a dict with a range of the content behind a handle, or with its lines that contain ``find``.

        With ``about`` return the part around these words, with the call or result that belongs to it. Raise
        ``InputError`` or ``SessionNotFound`` if the handle or the session is unknown.
        """
        with closing(storage_of(self._settings)) as storage:
            key, past = self._found(storage, handle, session)
            found = past.find(handle)
            around = past.expand(handle, about=about) if about else ""
        _, project, name = key.split("/", 2)
        text = found.text if find is not None else found.listing or found.text
        matches, more = ([], False) if find is None else matching_lines(text, find, offset, limit)
        part = "" if find is not None else _part(around or text, 0 if around else offset, limit)
        end = matches[-1]["offset"] + matches[-1]["chars"] + 1 if matches else offset + len(part)
        more = more or (find is None and not around and end < len(text))
        return {
            "session": name.removesuffix(".jsonl"),
            "project": project,
            "handle": handle,
            "from": found.source,
            "sha256": found.sha256,
            "total_chars": len(text),
            "total_lines": text.count("\n") + (text[-1:] not in ("", "\n")),
            "offset": offset,
            **({"next_offset": end} if more else {}),
            "text": part,
            "matches": [{key: one[key] for key in ("line", "offset", "text")} for one in matches],
        }

    def _found(self, storage: Storage, handle: str, session: str | None) -> tuple[str, ReadBack]:
        """Return the key of the log that has a handle, and the way to read it there."""
        library, logs = Library(storage), self._keys(storage)
        holding = self._holding(storage, handle)
        if session is not None:
            held = next((key for key in holding if key.endswith(f"/{session}.jsonl")), "")
            keys = iter([held or self._named(storage, session)])
        else:
            keys = chain(holding, self._mentioning(storage, handle))
        for key in keys:
            try:
                view = library.view(key) if key in logs else View()  # a host's session before its end has no log
                past = ReadBack(storage, key.removesuffix(".jsonl"), view)
                past.find(handle)
                return key, past
            except InputError:
                if session is not None:
                    raise
        where = (
            f"the {MAX_LOGS} newest of this project's sessions" if len(logs) > MAX_LOGS else "this project's sessions"
        )
        raise InputError(
            f"{handle[:200]!r} is not in {where}; give a handle and its session as "
            "search_sessions shows them, the id of a tool call, or the path of a stored result"
        )

    def _keys(self, storage: Storage) -> list[str]:
        """Return a list of the keys of the logs that may be read, the last changed one first."""
        logs = [
            (found.changed_ns, found.key)
            for found in logs_in(storage)
            if self._slug is None or found.key.split("/")[1] == self._slug
        ]
        return [key for _, key in sorted(logs, reverse=True)]

    def _named(self, storage: Storage, session: str) -> str:
        wanted = session.rsplit("/", 1)[-1]
        names = {key: session_of(key) for key in self._keys(storage)}
        exact = [key for key, name in names.items() if session in (name, f"{key.split('/')[1]}/{name}")]
        found = exact or [key for key, name in names.items() if wanted and name.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(names[key] for key in found[:5])
            raise InputError(f"{session[:100]!r} could be {len(found)} sessions: {shown}; name one of these")
        raise SessionNotFound(
            f"no session of this project is called {session[:100]!r}; search_sessions shows their names"
        )

    def _holding(self, storage: Storage, handle: str) -> list[str]:
        """Return the keys of the logs, there or not yet, beside whose folder a stored result has this name or path."""
        name = handle.rsplit("/", 1)[-1]
        found: list[str] = []
        for key in storage.list(f"projects/{self._slug}" if self._slug else "projects"):
            stored = _STORED.fullmatch(key)
            if stored and name in (stored["name"], stored["name"].rpartition(".")[0]):
                found.append(f"{stored['session']}.jsonl")
        return found

    def _mentioning(self, storage: Storage, handle: str) -> Iterator[str]:
        """Yield the keys of the newest logs that contain a handle, and report progress before each log is read."""
        wanted = handle.rsplit("/", 1)[-1].split(".", 1)[0].encode() or handle.encode()
        keys = self._keys(storage)[:MAX_LOGS]
        for number, key in enumerate(keys):
            self._progress(number, len(keys), f"looking through session {number + 1} of {len(keys)}")
            if wanted in (storage.load(key) or b""):
                yield key


def _part(text: str, offset: int, limit: int) -> str:
    """Return the part of a text from an offset on whose JSON has at most ``limit`` bytes, at least one character."""
    part = text[offset : offset + limit]
    while len(part) > 1 and (size := json_bytes(part)) > limit:
        part = part[: max(1, min(len(part) - 1, len(part) * limit // size))]
    return part


def json_bytes(value: Any) -> int:
    """Return the size of a value as JSON in UTF-8, without the quotes around a text."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")) - 2


def matching_lines(text: str, find: str, offset: int, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the lines from an offset on that contain a text in any case, and whether more lines than these match.

    ``limit`` is the number of bytes of all matches as JSON; at least one line is returned if any matches.
    """
    wanted = find.casefold()
    found: list[dict[str, Any]] = []
    at = used = 0
    for number, line in enumerate(text.split("\n"), 1):
        if at >= offset and wanted in line.casefold():
            shown = line if len(line) <= _MAX_LINE_CHARS else _around(line, wanted)
            match = {"line": number, "offset": at, "chars": len(line), "text": shown}
            used += json_bytes([match])
            if found and used > limit:
                return found, True
            found.append(match)
        at += len(line) + 1
    return found, False


def _around(line: str, wanted: str) -> str:
    """Return the part of a long line around a text, with an ellipsis at each end that was cut."""
    start = max(0, line.casefold().find(wanted) - _MAX_LINE_CHARS // 4)
    part = line[start : start + _MAX_LINE_CHARS]
    return f"{'…' if start else ''}{part}{'…' if start + len(part) < len(line) else ''}"
