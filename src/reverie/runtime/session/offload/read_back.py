"""Read content back that left a session's view, whole or one level of it, by its handle.

A handle is the id of a tool call, the path or file name of a stored result, the uuid of a message, or the uuid (or own
handle) of a cut, which returns all messages that the cut removed, or the list of them. Items of standing context have
handles too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, cast

import msgspec

from ....arguments import check_text
from ....conversation.authorship import own_words
from ....conversation.cuts import message_of
from ....conversation.decisions import Collapsed, Compacted, ResultOffloaded, Snipped, decision_of
from ....conversation.entries import ASSISTANT, ATTACHMENT, DECISION, Entry
from ....conversation.log import parse_log
from ....conversation.standing_context import handle_of
from ....conversation.tokens.estimate import estimate_message
from ....conversation.view import View
from ....errors import InputError, StorageError
from ....layers.l1_offload import RESULTS, read_stored, result_forms, text_of
from ....layers.l3_notes import tool_effect
from ....memories.recall.terms import excerpt, rarity, terms
from ....ports import Storage
from ....values import record, rows_of
from ...search.hits import Exchanges, answered_in, call_line

EXPAND_CHARS: Final = 20_000
EXPAND_TOOL: Final[dict[str, Any]] = {
    "name": "expand",
    "description": (
        "Open one thing of this conversation that is no longer shown in full, by the handle shown in its place: "
        "a summary, a tool result that was cleared or saved to disk, a message. A summary opens one level: a list of "
        "the messages and earlier summaries that it replaced, each with its handle, its speaker, its size in tokens "
        "and its first line. A result or message opens as the original text. Long texts come in parts: go on with the "
        "offset that the last line names, or give words in about to see the part around them."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "The handle, as a placeholder, summary or list shows it"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character to show, 0 if left out"},
            "about": {
                "type": "string",
                "description": (
                    "Words to look for: shows only the part around them, a tool call together with its result, and "
                    "the calls that followed"
                ),
            },
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
}
"""The declaration of the tool that calls ``Session.expand``."""
_MAX_FIRST_LINE_CHARS: Final = 100
_ABOUT_CHARS: Final = 1_000
_FOLLOWING_CALLS: Final = 8
_MOST_FOLLOWING: Final = 400  # messages after one in which calls are looked for
_NEAR: Final = 20
"""The messages before and after one in which its calls and results are looked for."""
_LEAST_START: Final = 8


@record
class TextLine:
    """One line of a text, with its number from 1."""

    number: int
    text: str


@record
class StoredContent:
    """Content that left the view, unchanged."""

    handle: str
    source: Literal["file", "log", "cut"]
    data: bytes
    text: str
    path: str = ""
    listing: str = ""
    """The list of the messages that a cut removed: one line each, after two lines about all of them."""

    @property
    def sha256(self) -> str:
        """The SHA-256 hash of the bytes, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def lines(self) -> list[str]:
        """The text in lines, split at newlines only."""
        lines = self.text.split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    def search(self, pattern: str | None) -> list[TextLine]:
        """Return a list of the lines in which a regular expression is found; all lines if ``pattern`` is None."""
        try:
            wanted = re.compile(pattern or "")
        except re.error as error:
            raise InputError(f"{pattern!r} is no regular expression: {error}") from None
        return [TextLine(number, text) for number, text in enumerate(self.lines, 1) if wanted.search(text)]


class ReadBack:
    """Reads content that a session's view no longer shows."""

    def __init__(self, storage: Storage, key: str, view: View) -> None:
        """Read from the session's folder ``key`` in the storage, and from the log beside it."""
        self._storage = storage
        self._key = key
        self._view = view

    def find(self, handle: str) -> StoredContent:
        """Return the content of a handle, verified by its logged hash, if any; raise ``InputError`` if unknown."""
        check_text("the handle", handle)
        found = (
            self._context(handle)
            or self._result(handle)
            or self._file(handle)
            or self._message(handle)
            or self._cut(handle)
        )
        if found is None:
            raise InputError(
                f"{handle!r} is no handle of this session: give the id of a tool call, the path of a stored result or "
                "the uuid of a message"
            )
        return found

    def expand(self, handle: str, *, offset: int = 0, about: str = "", max_chars: int = EXPAND_CHARS) -> str:
        """Return one level of a handle: the list of messages behind a cut, else the text; in parts of ``max_chars``.

        With ``about`` return only the part around these words, with the call or result that belongs to it.
        """
        found = self.find(handle)
        if about.strip():
            return self._about(found, about)
        text = found.listing or found.text
        if "\0" in text:
            return f"[{len(found.data):,} bytes that are no text{f', stored at {found.path}' if found.path else ''}]"
        start = min(max(0, offset), len(text))
        part = text[start : start + max_chars]
        end = start + len(part)
        if end < len(text) and "\n" in part:
            end = start + part.rindex("\n") + 1
        if end == len(text):
            return text[start:] or f"[nothing at offset {offset:,}: the text has {len(text):,} characters]"
        return f"{text[start:end]}\n[{end:,} of {len(text):,} characters; go on with offset {end}]"

    def _about(self, found: StoredContent, about: str) -> str:
        """Return the part of some content around these words; of a message also the calls that followed it."""
        entries = list(self._view.entries())
        places = (at for at, entry in enumerate(entries) if found.handle in (entry.uuid, *answered_in(entry)))
        at = next(places, len(entries))
        near = entries[max(0, at - _NEAR) : at + _NEAR]
        if found.source == "log" and at < len(entries):
            wanted = rarity("\n".join(_readable(_content(entry)) for entry in near), terms(about))
            shown = Exchanges(near).excerpt(entries[at], wanted, _ABOUT_CHARS, excerpt)
        else:  # of a stored result the log has only a preview
            shown = excerpt(found.text, rarity(found.text, terms(about)), max_chars=_ABOUT_CHARS)
        return "\n".join([shown, *_following(entries[at + 1 :])])

    def read(self, handle: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return the bytes of a handle's content, or at most ``limit`` of them from ``offset`` on."""
        data = self.find(handle).data
        start = max(0, offset)
        return data[start:] if limit is None else data[start : start + max(0, limit)]

    def lines(self, handle: str, *, first: int = 1, count: int | None = None) -> list[TextLine]:
        """Return a list of at most ``count`` lines of a handle's text from line ``first`` on, counted from 1."""
        start = max(1, first) - 1
        return self.find(handle).search(None)[start : None if count is None else start + max(0, count)]

    def search(self, handle: str, pattern: str) -> list[TextLine]:
        """Return a list of the lines of a handle's text in which a regular expression is found."""
        return self.find(handle).search(pattern)

    def _context(self, handle: str) -> StoredContent | None:
        if not handle.startswith("ctx-"):
            return None
        table = self._view.facts.standing
        found = (table[key].item for key in table if handle_of(table[key].item.digest) == handle)
        return next((_logged(handle, item.value) for item in found if item.value), None)

    def _result(self, called: str) -> StoredContent | None:
        decision = self._view.offloaded(called)
        if decision is not None:
            return self._stored(called, decision)
        block = next(self._results(called), None)
        found = self._undecided(called)
        return found or (None if block is None else _logged(called, block.get("content") or ""))

    def _undecided(self, handle: str) -> StoredContent | None:
        """Return a result that a hook stored for a host, whose recording has only the preview; else None."""
        name = handle.rsplit("/", 1)[-1]
        for path in self._storage.list(f"{self._key}/{RESULTS}") if name else ():
            stored = path.rsplit("/", 1)[-1]
            if name in (stored, stored.rsplit(".", 1)[0]) and (data := self._storage.load(path)) is not None:
                return StoredContent(handle, "file", data, _as_text(data, stored.rpartition(".")[2]), path)
        return None

    def _stored(self, handle: str, decision: ResultOffloaded) -> StoredContent:
        try:
            data = read_stored(self._storage, decision.path, decision.sha256)
        except StorageError:
            for block in self._results(decision.tool_use_id):  # the log also has the other results of the message
                found = _logged(handle, block.get("content") or "")
                if found.sha256 == decision.sha256:
                    return found
            raise
        return StoredContent(handle, "file", data, _as_text(data, decision.media), decision.path)

    def _file(self, handle: str) -> StoredContent | None:
        """Return a stored result by its storage path, its path on this machine, or its file name; else None."""
        name = handle.rsplit("/", 1)[-1]
        for called in (name.rsplit(".", 1)[0], *self._called()):
            decision = self._view.offloaded(called)
            if decision is not None and decision.path.rsplit("/", 1)[-1] == name and _ends(handle, decision.path):
                return self._stored(handle, decision)
        return self._undecided(handle) if "/" in handle or "." in handle else None

    def _message(self, uuid: str) -> StoredContent | None:
        """Return a message by its uuid, or by the first 8 or more characters if they are of one message only."""
        near: list[Entry] = []
        for entry in self._view.entries():
            if entry.uuid == uuid:
                return _logged(uuid, _content(entry))
            if len(uuid) >= _LEAST_START and entry.uuid.startswith(uuid):
                near.append(entry)
        return _logged(near[0].uuid, _content(near[0])) if len(near) == 1 else None

    def _cut(self, handle: str) -> StoredContent | None:
        entries = parse_log(self._storage.load(f"{self._key}.jsonl") or b"").entries
        for at, entry in enumerate(entries):
            decision = decision_of(entry.body) if entry.kind == DECISION else None
            if not isinstance(decision, Compacted | Collapsed | Snipped):
                continue
            if handle in (entry.uuid, getattr(decision, "handle", "") or entry.uuid):
                return _taken(handle, entries[:at], entry)
        return None

    def _results(self, called: str) -> Iterator[dict[str, Any]]:
        for block in self._blocks():
            if block.get("tool_use_id") == called:
                yield block

    def _called(self) -> Iterator[str]:
        for block in self._blocks():
            called = block.get("tool_use_id")
            if isinstance(called, str):
                yield called

    def _blocks(self) -> Iterator[dict[str, Any]]:
        for entry in self._view.entries():
            yield from (block for block in rows_of(_content(entry)) if block.get("type") == "tool_result")


def _content(entry: Entry) -> Any:
    message = message_of(entry)
    said = entry.body.get("text") or entry.body.get("summary") or ""
    return said if message is None else message.get("content") or ""


def _logged(handle: str, content: Any) -> StoredContent:
    form = result_forms(cast("str | list[Any]", content if isinstance(content, str | list) else [content]))
    return StoredContent(handle, "log", form.data, _readable(form.content))


def _readable(content: Any) -> str:
    """Return a message's or a result's content as text; results inside a message are opened."""
    if not isinstance(content, list):
        return text_of(content)
    parts: list[str] = []
    for block in cast("list[Any]", content):
        inside: Any = cast("dict[str, Any]", block).get("content") if isinstance(block, dict) else None
        whole = cast("str | list[Any]", inside if isinstance(inside, str | list) else [block])
        parts.append(text_of(whole))
    return "\n".join(parts)


def _as_text(data: bytes, media: str) -> str:
    if media == "json":
        try:
            return text_of(msgspec.json.decode(data))
        except (msgspec.DecodeError, TypeError, AttributeError):
            pass
    return data.decode("utf-8", "replace")


def _ends(handle: str, path: str) -> bool:
    return f"/{handle}".endswith(f"/{path}") or f"/{path}".endswith(f"/{handle}")


def _taken(handle: str, before: Sequence[Entry], cut: Entry) -> StoredContent:
    """Return the messages that a cut removed: one JSON line per message, the same as text, and a list of them."""
    view = View().fold_all(before)
    shown = _shown(view)
    left = set(_shown(view.fold(cut)))
    gone = {uuid for uuid in shown if uuid not in left}
    lines: list[bytes] = []
    texts: list[str] = []
    listed: list[str] = []
    total = 0
    for entry in before:
        if entry.uuid not in gone:
            continue
        content = _content(entry)
        lines.append(msgspec.json.encode({"uuid": entry.uuid, "kind": entry.kind, "content": content}) + b"\n")
        texts.append(f"[{entry.kind} {entry.uuid}]\n{_readable(content)}")
        tokens = estimate_message({"role": "user", "content": content})
        total += tokens
        about = f"{_handle(entry)}  {_speaker(entry, view)}  {tokens:,} tokens"
        listed.append(f"{about}  {_first_line(_telling(content))}")
    head = f"{handle} covers {len(listed):,} messages, {total:,} tokens, oldest first. Open one by its handle:"
    listing = "\n".join([head, "", *listed])
    return StoredContent(handle, "cut", b"".join(lines), "\n".join(texts), listing=listing)


def _following(entries: Sequence[Entry]) -> list[str]:
    """Return the calls after a message up to the next words of the user, one a line with its first handle.

    Of too many, changes of files come first, then the first calls.
    """
    lines: dict[str, str] = {}
    changes: set[str] = set()
    for entry in takewhile(lambda entry: not own_words(entry), entries[:_MOST_FOLLOWING]):
        for call in (block for block in rows_of(_content(entry)) if block.get("type") == "tool_use"):
            line = call_line(call)
            lines.setdefault(line, f"{entry.uuid[:_LEAST_START]}  {call_line(call, _MAX_FIRST_LINE_CHARS)}")
            effect = tool_effect(str(call.get("name")), call.get("input"))
            if effect.what in ("edit", "write") or (effect.what == "run" and (effect.path or effect.deleted)):
                changes.add(line)
    chosen = set(sorted(lines, key=lambda line: line not in changes)[:_FOLLOWING_CALLS])
    shown = [lines[line] for line in lines if line in chosen]
    return ["", "Then the agent called, each with its handle:", *shown] if shown else []


def _handle(entry: Entry) -> str:
    """Return the handle that opens a message of a list: of a cut its own, of a single result the id of its call."""
    if entry.kind == DECISION:
        return str(entry.body.get("handle") or entry.uuid)
    blocks = rows_of(_content(entry))
    return str(blocks[0].get("tool_use_id") or entry.uuid) if len(blocks) == 1 else entry.uuid


def _speaker(entry: Entry, view: View) -> str:
    """Return the speaker of a message in a list: user, model with its calls, tools, program, or summary."""
    if entry.kind == DECISION:
        return "summary"
    blocks = rows_of(_content(entry))
    if entry.kind == ASSISTANT:
        names = [str(block.get("name")) for block in blocks if block.get("type") == "tool_use"]
        return f"assistant, calls {', '.join(names)}" if names else "assistant"
    if entry.kind == ATTACHMENT:
        return "program"
    uses = [view.tool_call(str(block.get("tool_use_id"))) for block in blocks if block.get("type") == "tool_result"]
    return f"result of {', '.join(use.name for use in uses if use is not None)}" if any(uses) else "user"


def _telling(content: Any) -> str:
    """Return the part of a message that a list shows: its words, else its first call, else its thinking or result."""
    blocks = rows_of(content)
    said = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
    calls = [call_line(block, _MAX_FIRST_LINE_CHARS) for block in blocks if block.get("type") == "tool_use"]
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    return next((part for part in (*said, *calls, *thoughts) if part.strip()), _readable(content))


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.split("\n") if line.strip()), "(empty)")
    return line if len(line) <= _MAX_FIRST_LINE_CHARS else f"{line[:_MAX_FIRST_LINE_CHARS]}..."


def _shown(view: View) -> list[str]:
    return [piece.uuid for group in view.groups for piece in group.pieces]
