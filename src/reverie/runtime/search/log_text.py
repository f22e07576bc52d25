"""Read session logs for the search index: the existing logs, the new lines of one, and the text of messages."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, cast

from ...conversation.authorship import OUR_RESULTS, own_words, strings_of, text_of, without_our_text
from ...conversation.cuts import message_of
from ...conversation.entries import ASSISTANT, ATTACHMENT, USER, Entry, decode_entry
from ...ports import Stamp, Storage
from ...storage.encryption import EncryptedStorage
from ...storage.files import FileStorage
from .index import IndexedMessage

_CHUNK_BYTES: Final = 8_000_000
_MARK_BYTES: Final = 4_096


def logs_in(storage: Storage) -> Iterator[Stamp]:
    """Yield the stamp of each session's log; none if it is encrypted, because the index holds plain words."""
    if not isinstance(storage, EncryptedStorage):
        yield from log_stamps(storage, "projects/*")


def log_stamps(storage: Storage, folders: str) -> Iterator[Stamp]:
    """Yield the stamp of each log in ``projects/*`` or ``agents``; in files without a look at folders of sessions."""
    root, *projects = folders.split("/")
    if not isinstance(storage, FileStorage):
        found = storage.stamps(root)
        yield from (one for one in found if one.key.endswith(".jsonl") and one.key.count("/") == 1 + len(projects))
        return
    for folder in [f"{root}/{name}" for name in _names(os.path.join(storage.root, root))] if projects else [root]:
        for name in _names(os.path.join(storage.root, folder)):
            if name.endswith(".jsonl"):
                with suppress(OSError):
                    found = os.lstat(os.path.join(storage.root, folder, name))
                    if stat.S_ISREG(found.st_mode):
                        yield Stamp(f"{folder}/{name}", found.st_size, found.st_mtime_ns, found.st_ino)


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def mark_of(read: Callable[[int, int], bytes], offset: int) -> bytes:
    """Return a hash of the first and last bytes of a log before an offset, to detect a replaced log."""
    start = max(0, offset - _MARK_BYTES)
    return blake2b(read(0, min(offset, _MARK_BYTES)) + read(start, offset - start), digest_size=16).digest()


def whole_lines(read: Callable[[int, int], bytes], offset: int, end: int) -> bytes:
    """Return the complete lines between two offsets, at most one chunk, or one longer line; empty without any."""
    wanted = _CHUNK_BYTES
    while True:
        data = read(offset, min(wanted, end - offset))
        cut = data.rfind(b"\n") + 1
        if cut or len(data) < wanted:
            return data[:cut]
        wanted *= 2


def messages_in(data: bytes, offset: int) -> Iterator[IndexedMessage]:
    """Yield the messages with text in some lines of a log that begin at ``offset``; skip invalid lines."""
    for line in data.split(b"\n"):
        with suppress(ValueError):
            entry = decode_entry(line)
            text = text_of_entry(entry)
            if text.strip():
                header = f"{speaker_of(entry)} {_month(entry.time)}"
                yield IndexedMessage(offset, len(line), entry.uuid, bool(own_words(entry)), header, text)
        offset += len(line) + 1


def speaker_of(entry: Entry) -> str:
    """Return the name in an entry's message, or an empty string if there is none."""
    name = (entry.message or {}).get("name")
    return name if isinstance(name, str) else ""


def _month(time: str) -> str:
    """Return the English month and the year of a time, by which a question may name a message; empty if invalid."""
    try:
        return datetime.fromisoformat(time).strftime("%B %Y")
    except ValueError:
        return ""


def text_of_entry(entry: Entry) -> str:
    """Return the text of a message with its tool calls and results, without thinking and Reverie's own additions."""
    message = message_of(entry) if entry.kind in (USER, ASSISTANT, ATTACHMENT) else None
    content: Any = None if message is None or entry.body.get(OUR_RESULTS) else message.get("content")
    if isinstance(content, str):
        return without_our_text(content)
    parts: list[str] = []
    for block in cast("list[Any]", content) if isinstance(content, list) else []:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            parts += _block_texts(cast("dict[str, Any]", block))
    return without_our_text("\n".join(parts))


def _block_texts(block: dict[str, Any]) -> list[str]:
    match block.get("type"):
        case "text":
            text = block.get("text")
            return [text] if isinstance(text, str) else []
        case "tool_use":
            return [str(block.get("name") or ""), *strings_of(block.get("input"))]
        case "tool_result":
            return [text_of(block)]
        case _:
            return []
