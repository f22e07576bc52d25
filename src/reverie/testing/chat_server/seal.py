"""Encrypted content of the test server: opaque text that is bound to its model and to the server's key."""

from __future__ import annotations

import base64
import hmac
import secrets
from hashlib import blake2b

from .refusals import ChatRefusal

_SIZE = 16


class Seal:
    """Makes and opens encrypted content; after ``renew`` it opens nothing made before."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_SIZE)

    def renew(self) -> None:
        """Take a new key, as a change of the organisation would."""
        self._key = secrets.token_bytes(_SIZE)

    def close(self, text: str, model: str) -> str:
        """Return text as encrypted content that only this model opens."""
        return base64.b64encode(self._tag(text.encode(), model) + text.encode()).decode()

    def open(self, sealed: str, model: str, item: str) -> str:
        """Return the text of encrypted content; raise ``ChatRefusal`` if it was changed or is another model's."""
        try:
            data = base64.b64decode(sealed, validate=True)
        except ValueError:
            data = b""
        if not hmac.compare_digest(data[:_SIZE], self._tag(data[_SIZE:], model)):
            raise ChatRefusal(
                f"The encrypted content for item {item} could not be verified. "
                "Reason: Encrypted content could not be decrypted or parsed.",
                "invalid_encrypted_content",
            )
        return data[_SIZE:].decode()

    def _tag(self, data: bytes, model: str) -> bytes:
        return blake2b(model.encode() + b"\0" + data, key=self._key, digest_size=_SIZE).digest()
