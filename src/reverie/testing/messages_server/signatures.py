"""The signatures of thinking and of compaction blocks.

A signature holds its own record and the server's seal over it, so that any server of this module can check it. The
record binds a thinking block to its text, its model, its account, the content before it and the thinking before it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from ...values import record

Kind = TypeVar("Kind")
_SECRET: Final = b"the test server's own key"


@record
class ThinkingRecord:
    """The record in a thinking block's signature."""

    text: str
    """A digest of the thinking text as it was returned."""
    model: str
    """The family of the model that wrote it; ``checked``: whether that model checks the content before it."""
    checked: bool
    account: str
    prefix: str
    """The digest of the content sent before it."""
    previous: str
    """The identity of the thinking block before it, and the number of those that were sent before it."""
    depth: int
    index: int
    """Its place among the ``count`` thinking blocks of its reply."""
    count: int
    words: str = ""
    """The thinking where its text was not returned: the model reads it here."""


@record
class CompactionRecord:
    """The record in a compaction block's signature: its text, and the messages that it replaces."""

    text: str
    tool_changes: str
    chains: tuple[str, ...]
    opening: str
    last_role: str


def sealed(value: Any) -> str:
    """Return a record as a signature."""
    body = base64.b64encode(msgspec.json.encode(value)).decode()
    return f"{body}.{base64.b64encode(_mac(b'seal', body)).decode()}"


def open_seal(signature: Any, kind: type[Kind]) -> Kind | None:
    """Return the record in a signature; None where the seal is not this server's or holds another record."""
    body, _, mac = signature.partition(".") if isinstance(signature, str) else ("", "", "")
    expected = base64.b64encode(_mac(b"seal", body))
    if not hmac.compare_digest(expected, mac.encode("utf-8", "replace")):
        return None
    try:
        return msgspec.json.decode(base64.b64decode(body), type=kind)
    except (msgspec.DecodeError, ValueError):
        return None


def text_mark(text: str) -> str:
    """Return a digest of a text that is kept in a record."""
    return _mac(b"text", text).hex()[:24]


def is_text_of(text: str, mark: str) -> bool:
    """Return whether a digest in a record belongs to the text."""
    return text_mark(text) == mark


def record_of(block: Mapping[str, Any]) -> ThinkingRecord | None:
    """Return the record of a thinking block; None for one that a test signed, or that has no valid signature."""
    if block["type"] == "thinking":
        return open_seal(block.get("signature"), ThinkingRecord)
    return open_seal(str(block.get("data")).partition("|")[2], ThinkingRecord)


def identity_of(block: Mapping[str, Any]) -> str:
    """Return an identity of a thinking block, by which a later one knows it."""
    return _mac(b"identity", str(block.get("signature") or block.get("data"))).hex()[:16]


def sign_thinking(thinking: str) -> str:
    """Return this server's signature for a thinking text without a conversation, so that a test can write history.

    A model that checks the content before a thinking block does not accept it.
    """
    return base64.b64encode(b"sig1" + _mac(b"thinking", thinking)).decode()


def redact_thinking(thinking: str) -> str:
    """Return the data of a redacted thinking block for a text, so that a test can write redacted history."""
    body = base64.b64encode(thinking.encode("utf-8", "replace")).decode()
    return f"{body}.{base64.b64encode(_mac(b'redacted', body)).decode()}"


def is_signed(thinking: str, signature: str) -> bool:
    """Return whether the signature is ``sign_thinking`` of the text."""
    return hmac.compare_digest(sign_thinking(thinking).encode(), signature.encode("utf-8", "replace"))


def is_redacted(data: str) -> bool:
    """Return whether the data of a redacted thinking block is this server's, whole and with its own record."""
    shown, _, seal = data.partition("|")
    body, _, mac = shown.partition(".")
    expected = base64.b64encode(_mac(b"redacted", body))
    if not hmac.compare_digest(expected, mac.encode("utf-8", "replace")):
        return False
    binding = open_seal(seal, ThinkingRecord) if seal else None
    return not seal or (binding is not None and is_text_of(shown, binding.text))


def _mac(kind: bytes, text: str) -> bytes:
    return hmac.digest(_SECRET, kind + b":" + text.encode("utf-8", "replace"), "sha256")
