"""Take secrets out of a log or another text: every form in which a secret may be written, and the lines without it.

The log is append-only; this is the one change of lines that were written. The structure of an entry is never touched,
and lines without a secret stay byte for byte.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from ...conversation.decisions import Cause, Redacted, ThinkingDropped, body_of
from ...conversation.entries import ASSISTANT, DECISION, Entry, decode_entry, encode_entry, iso, new_uuid
from ...conversation.wire.blocks import accepted_message, as_blocks
from ...conversation.wire.flatten import THINKING
from ...errors import InputError
from ...values import object_of, record
from ..places.home_search import written_forms

MARK: Final = "[redacted]"
_MIN_CHARS: Final = 4
_MIN_LINE_CHARS: Final = 16
_MIN_BASE64_CHARS: Final = 8
_STRUCTURE: Final = frozenset(
    ("uuid", "parent", "time", "session", "kind", "decision", "layer", "role", "type", "id", "tool_use_id", "bound")
)
"""The fields whose values the program reads; a secret is never in one."""


class SecretForms:
    """All forms in which some secrets may be written: as they are, escaped, in a URL, and in base64."""

    def __init__(self, secrets: Iterable[str]) -> None:
        wanted = [part for secret in secrets for part in _parts(secret)]
        found = {form: mark for secret in wanted for form, mark in _forms(secret)}
        self.texts: Final = sorted(found.items(), key=lambda pair: -len(pair[0]))
        self.bytes: Final = [(form.encode(), mark.encode()) for form, mark in self.texts]

    def count(self, data: bytes) -> int:
        """Return the number of times that a secret is in some bytes."""
        return self.replaced(data)[1]

    def replaced(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes without the secrets, and the number of replacements."""
        count = 0
        for form, mark in self.bytes:
            if found := data.count(form):
                data, count = data.replace(form, mark), count + found
        return data, count

    def replaced_text(self, text: str) -> str:
        """Return a text without the secrets."""
        for form, mark in self.texts:
            text = text.replace(form, mark)
        return text


def _parts(secret: str) -> list[str]:
    """Return a secret and, of one with several lines, each long line: a listing puts numbers between them."""
    secret = secret.strip("\r\n")
    if len(secret.strip()) < _MIN_CHARS:
        raise InputError(f"the secret has fewer than {_MIN_CHARS} characters: taking it out would spoil other words")
    lines = [line.strip() for line in secret.splitlines()]
    return [secret, *(line for line in lines if len(lines) > 1 and len(line) >= _MIN_LINE_CHARS)]


def _forms(secret: str) -> Iterable[tuple[str, str]]:
    yield from ((form, MARK) for form in written_forms(secret))
    yield quote(secret, safe=""), MARK
    data = secret.encode()
    for offset in range(3):
        # Only the characters that the secret alone decides, for each offset in the encoded bytes.
        whole = base64.b64encode(bytes(offset) + data).decode()
        core = whole[-(-offset * 8 // 6) : (offset + len(data)) * 8 // 6]
        if len(core) >= _MIN_BASE64_CHARS:
            yield core, "A" * len(core)
            yield core.replace("+", "-").replace("/", "_"), "A" * len(core)


@record
class RedactedLog:
    """A log without some secrets: its bytes, and how many places of how many entries were changed."""

    data: bytes
    occurrences: int
    entries: int
    replies: int
    """Replies whose thinking is dropped, because it was signed over content that has changed."""

    @classmethod
    def of(cls, data: bytes, forms: SecretForms, session: str, now: float) -> RedactedLog:
        """Return a log without the secrets and with decisions that say so; without a secret the log stays as it is."""
        lines: list[bytes] = []
        occurrences, changed, last = 0, 0, ""
        replies: list[str] = []
        for line in data.splitlines(keepends=True):
            kept, count = _line(line, forms)
            occurrences, changed = occurrences + count, changed + bool(count)
            lines.append(kept)
            entry = _entry(kept)
            last = entry.uuid if entry is not None else last
            if changed and entry is not None and _has_thinking(entry):
                replies.append(entry.uuid)
        if not changed:
            return cls(data, 0, 0, 0)
        if not lines[-1].endswith(b"\n"):
            lines.append(b"\n")
        lines += _decisions(occurrences, changed, replies, last, session, now)
        return cls(b"".join(lines), occurrences, changed, len(replies))


def _decisions(occurrences: int, changed: int, replies: list[str], last: str, session: str, now: float) -> list[bytes]:
    cause = Cause("redact", "a secret was taken out of the log", moves_prefix=True)
    made: list[Any] = [Redacted(cause, occurrences, changed)]
    said = Entry(new_uuid(), last or None, iso(now), session, DECISION, body_of(made[0]))
    entries = [said]
    if replies:
        dropped = ThinkingDropped(Cause("redact", cause.reason, moves_prefix=True), replies, changed_by=said.uuid)
        entries.append(Entry(new_uuid(), said.uuid, iso(now), session, DECISION, body_of(dropped)))
    return [encode_entry(entry) + b"\n" for entry in entries]


def _line(line: bytes, forms: SecretForms) -> tuple[bytes, int]:
    count = forms.count(line)
    if not count:
        return line, 0
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return forms.replaced(line)[0], count
    if not isinstance(fields, dict):
        return forms.replaced(line)[0], count
    kept = _without_broken_summary(cast("dict[str, Any]", fields), forms)
    encoded = msgspec.json.encode(_value(kept, forms)) + (b"\n" if line.endswith(b"\n") else b"")
    if forms.count(encoded):
        raise InputError("the secret is a word of the log's own structure too, so nothing was changed; give more of it")
    return encoded, count


def _value(value: Any, forms: SecretForms, *, free: bool = False) -> Any:
    """Return a JSON value without the secrets; names of fields change only where they are ``free``, in an input."""
    if isinstance(value, str):
        return forms.replaced_text(value)
    if isinstance(value, list):
        return [_value(one, forms, free=free) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, one in cast("dict[str, Any]", value).items():
        fixed = key in _STRUCTURE and not free and isinstance(one, str)
        name = forms.replaced_text(key) if free else key
        kept[name] = one if fixed else _value(one, forms, free=free or key == "input")
    return kept


def _without_broken_summary(fields: dict[str, Any], forms: SecretForms) -> dict[str, Any]:
    """Return an entry whose signed summary, if it has the secret, is sent as text: its signature would be refused."""
    body = object_of(fields.get("body"))
    if body.get("block") and forms.count(msgspec.json.encode(body["block"])):
        return {**fields, "body": {**body, "block": {}, "covers": {}}}
    return fields


def _entry(line: bytes) -> Entry | None:
    try:
        return decode_entry(line)
    except ValueError:
        return None


def _has_thinking(entry: Entry) -> bool:
    message: Mapping[str, Any] | None = entry.message if entry.kind == ASSISTANT else None
    accepted = accepted_message(message, ASSISTANT) if message is not None else None
    return accepted is not None and any(block.get("type") in THINKING for block in as_blocks(accepted))
