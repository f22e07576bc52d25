"""Keys: the relative POSIX paths by which stores name their files, and the check of their safety.

A key may come from a model or a file. A key is rejected if any later reader could take it for something other than a
plain path beneath the root, including after decoding or because of hidden characters.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from .errors import UnsafePath
from .lazy import pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Final

OWN_PREFIX: Final = ".reverie-"
"""The prefix of names reserved for the store itself."""

_MAX_NAME_BYTES: Final = 255
_MAX_KEY_BYTES: Final = 1024
_MAX_ENCODINGS: Final = 8
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PERCENT: Final = pattern(r"%u([0-9a-fA-F]{4})|((?:%[0-9a-fA-F]{2})+)")


@lru_cache(maxsize=1_024)
def check_key(key: str) -> tuple[str, ...]:
    """Return the components of a safe key as a tuple, or raise ``UnsafePath`` with the reason and the remedy."""
    if not key or key.startswith("/"):
        raise _bad_key(key, "it is empty or absolute; give a path relative to the store's root")
    if any(unicodedata.category(letter) in _HIDDEN for letter in key):
        raise _bad_key(key, "it holds control or invisible characters; leave them out")
    if len(key.encode()) > _MAX_KEY_BYTES:
        raise _bad_key(key, f"it is longer than {_MAX_KEY_BYTES} bytes; shorten it")
    if not unicodedata.is_normalized("NFC", key):
        raise _bad_key(key, "it is not in Unicode form NFC; normalise it first")
    parts = tuple(key.split("/"))
    for part in parts:
        _check_name(key, part)
    return parts


def _check_name(key: str, name: str) -> None:
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise _bad_key(key, f"a component is longer than {_MAX_NAME_BYTES} bytes; shorten it")
    plain = _decoded_name(name)
    if plain is None or "/" in plain or "\\" in plain or any(unicodedata.category(c) in _HIDDEN for c in plain):
        raise _bad_key(key, "a component hides a separator or a control character; use plain names")
    if plain.strip() in ("", ".", ".."):
        raise _bad_key(key, "a component is empty, '.' or '..' (perhaps encoded); use plain names")
    if plain.casefold().startswith(OWN_PREFIX):
        raise _bad_key(key, f"names that begin with {OWN_PREFIX!r} are the store's own; use another")


def _decoded_name(name: str) -> str | None:
    """Return the name with every encoding undone; None if it is no valid text or is encoded eight times or more."""
    for _ in range(_MAX_ENCODINGS):
        try:
            plain = unicodedata.normalize("NFKC", _PERCENT.sub(_decoded, name))
        except ValueError:
            return None
        if plain == name:
            return plain
        name = plain
    return None


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return bytes.fromhex(found[2].replace("%", "")).decode()


def _bad_key(key: str, reason: str) -> UnsafePath:
    return UnsafePath(f"the key {key[:200]!a} cannot be used: {reason}", path=key)


def as_one_part(name: str) -> str:
    """Return a name as one part of a path; different names have different parts."""
    return name.replace("%", "%25").replace("/", "%2F")
