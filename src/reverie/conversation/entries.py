"""Log entries: one line of a session log each.

A line is ``{"uuid", "parent", "time", "session", "kind", "body", ...}``. Messages keep the provider's format:
``body["message"]`` is exactly the message of a request (``role`` and ``content``), and for replies ``body["reply"]``
holds the other fields of the provider's answer (``id``, ``model``, ``usage``, ...). Unknown kinds and unknown fields
are kept unchanged in ``extra`` and ``body``.
"""

from __future__ import annotations

import uuid as _uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final, cast

import msgspec

from ..values import field, record, replace

Message = dict[str, Any]

USER: Final = "user"
ASSISTANT: Final = "assistant"
ATTACHMENT: Final = "attachment"
SYSTEM: Final = "system"
DECISION: Final = "decision"
META: Final = "meta"
REWOUND: Final = "rewound"
"""The metadata of a session that a rewind made: the entries before it are copies of another session's."""

_ENVELOPE: Final = ("uuid", "parent", "time", "session", "kind", "body")
_envelope: Final = itemgetter(*_ENVELOPE)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_EMPTY: Final[Mapping[str, Any]] = {}
_IMPORTED: Final = "imported"


@record
class Entry:
    """One line of a session's log: a message, a decision or metadata; unknown fields are in ``extra``."""

    uuid: str
    parent: str | None
    time: str
    session: str
    kind: str
    body: dict[str, Any]
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    @property
    def message(self) -> Message | None:
        """The message of this entry in the provider's format, or None if it has no message."""
        found = self.body.get("message")
        return cast(Message, found) if isinstance(found, dict) else None

    @property
    def reply(self) -> Mapping[str, Any]:
        """The fields the provider sent besides the message, such as id and usage; empty if this is no reply."""
        found = self.body.get("reply")
        return cast(Mapping[str, Any], found) if isinstance(found, dict) else _EMPTY

    @property
    def imported(self) -> bool:
        """Whether this entry was recorded elsewhere and imported: none of its words are this user's."""
        return _IMPORTED in self.extra

    @property
    def at(self) -> float:
        """The entry's time in seconds since 1970, or 0 if it cannot be read."""
        return seconds(self.time)


def marked_imported(entries: Iterable[Entry], session: str) -> list[Entry]:
    """Return the entries of a recording as entries of ``session``, each marked as imported.

    Every door that stores a recording calls this, so a recording can neither leave out the mark nor take it off.
    """
    return [replace(entry, session=session, extra={**entry.extra, _IMPORTED: True}) for entry in entries]


def new_uuid() -> str:
    """Return a new random entry id."""
    return str(_uuid.uuid4())


def iso(at: float) -> str:
    """Return a time in seconds since 1970 as text in the log's format."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def seconds(time: str) -> float:
    """Return a time in the log's format as seconds since 1970; 0 if it cannot be read."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def encode_entry(entry: Entry) -> bytes:
    """Return the entry as a line of JSON without a newline; values that JSON cannot hold pass ``clean`` first."""
    line = {
        "uuid": entry.uuid,
        "parent": entry.parent,
        "time": entry.time,
        "session": entry.session,
        "kind": entry.kind,
        "body": entry.body,
        **entry.extra,
    }
    try:
        return _encoder.encode(line)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encoder.encode(clean(line))


def decode_entry(line: bytes) -> Entry:
    """Return the entry of a log line; raise ``ValueError`` with the reason if the line is not an entry."""
    try:
        found: Any = _decoder.decode(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__}, not an entry")
    fields = cast(dict[str, Any], found)
    extra = _EMPTY
    try:
        uuid, parent, time, session, kind, body = _envelope(fields)
        if len(fields) > len(_ENVELOPE):
            extra = {key: value for key, value in fields.items() if key not in _ENVELOPE}
    except KeyError:
        uuid, parent, time, session, kind, body, extra = _incomplete(fields)
    if not (isinstance(kind, str) and isinstance(uuid, str) and isinstance(body, dict)):
        raise ValueError("not an entry: kind and uuid are strings, body is an object")
    if not (isinstance(time, str) and isinstance(session, str) and (parent is None or isinstance(parent, str))):
        raise ValueError("not an entry: time, session and parent are strings")
    return Entry(uuid, parent, time, session, kind, cast(dict[str, Any], body), extra)


def _incomplete(fields: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of an entry that lacks optional ones; raise ``ValueError`` without a kind, uuid or body."""
    for key in ("kind", "uuid", "body"):
        if key not in fields:
            raise ValueError(f"not an entry: no {key!r}")
    found = {"parent": None, "time": "", "session": "", **fields}
    extra = {key: value for key, value in fields.items() if key not in _ENVELOPE}
    return (*_envelope(found), extra or _EMPTY)


def compact_json(value: Any) -> str:
    """Return a value as one line of JSON; parts that JSON cannot hold become strings."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.json.encode(clean(value)).decode()


def clean(value: Any, depth: int = 0) -> Any:
    """Return a copy in JSON types that every reader accepts, without lone surrogates, NaN and huge integers.

    Values nested more than 200 levels deep become a text; ``depth`` counts the levels so far.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if depth > 200:
        return "[nested too deeply]"
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {clean(str(key)): clean(item, depth + 1) for key, item in items}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(item, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return clean(str(value))


def as_logged(value: Any) -> Any:
    """Return a value as the log gives it back: lists in place of tuples, and only what JSON can hold."""
    try:
        return _decoder.decode(_encoder.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return clean(value)


def reply_id(entry: Entry) -> str:
    """Return the provider's id of the reply in an entry, or the entry's uuid if the reply has no id."""
    found = entry.reply.get("id")
    return found if isinstance(found, str) and found else entry.uuid


def rounds(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return message entries as rounds: those before the first reply, then one from each reply with a new id on."""
    out: list[list[Entry]] = []
    seen: set[str] = set()
    for entry in entries:
        starts = entry.kind == ASSISTANT and reply_id(entry) not in seen
        if entry.kind == ASSISTANT:
            seen.add(reply_id(entry))
        if starts or not out:
            out.append([entry])
        else:
            out[-1].append(entry)
    return out
