"""Encode letters as bytes with a signature that only the sender's key can make."""

from __future__ import annotations

import hmac
import re
from typing import Final

import msgspec

from ...errors import InputError
from ...schemas import LETTER, is_newer, newer
from .messages import Letter, check_name

KEY_BYTES: Final = 32
MAX_LETTER_BYTES: Final = 1 << 20
"""The largest size of a letter, including its signature."""
MAX_SEQUENCE: Final = 10**12
MAX_TIME_NS: Final = 2**62

_HEAD: Final = b"reverie-letter %d " % LETTER
_VERSION: Final = re.compile(rb"reverie-letter (\d{1,9}) ")
_DOMAIN: Final = b"reverie letter 1\0"
_SIGNATURE_CHARS: Final = 64
_HEAD_BYTES: Final = len(_HEAD) + _SIGNATURE_CHARS + 1


def sealed(letter: Letter, key: bytes) -> bytes:
    """Return a letter as bytes signed with its sender's key; raise ``InputError`` if it is too large."""
    body = msgspec.json.encode(letter)
    if _HEAD_BYTES + len(body) > MAX_LETTER_BYTES:
        raise InputError(f"the message takes {len(body):,} bytes, and {MAX_LETTER_BYTES:,} is the most; shorten it")
    return b"%b%b\n%b" % (_HEAD, _signature(key, body), body)


def read(data: bytes) -> Letter:
    """Return the letter in these bytes without checking its signature; raise ``InputError`` if it is malformed.

    Raise ``NewerVersion`` if a newer Reverie wrote it.
    """
    version = _VERSION.match(data)
    if version is not None and is_newer(int(version[1]), LETTER):
        raise newer("a letter", "", "upgrade Reverie to read it; it waits until then")
    if len(data) > MAX_LETTER_BYTES or not data.startswith(_HEAD) or data[_HEAD_BYTES - 1 : _HEAD_BYTES] != b"\n":
        raise InputError("that is no letter")
    try:
        letter = msgspec.json.decode(data[_HEAD_BYTES:], type=Letter)
        check_name(letter.sender)
        check_name(letter.to)
        check_name(letter.team, "team")
        check_name(letter.to_team, "team")
    except (ValueError, RecursionError, InputError) as error:  # invalid UTF-8 raises no DecodeError
        raise InputError(f"the letter cannot be read: {error}") from None
    if not letter.id.startswith(f"{letter.sender}:") or not (
        0 < letter.sequence < MAX_SEQUENCE and 0 <= letter.time_ns < MAX_TIME_NS
    ):
        raise InputError("the letter's id, number or time cannot be its own")
    return letter


def signed(data: bytes, key: bytes | None) -> bool:
    """Say whether this key made the signature of a letter's bytes; False without a key."""
    given = data[len(_HEAD) : _HEAD_BYTES - 1]
    return key is not None and hmac.compare_digest(given, _signature(key, data[_HEAD_BYTES:]))


def _signature(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, _DOMAIN + body, "sha256").hexdigest().encode()
