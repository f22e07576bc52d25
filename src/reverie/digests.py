"""The hash by which things are known here, without loading OpenSSL, which takes a hook 4 of its 100 ms.

The interpreter has an SHA-256 of its own, and both say the same. ``hashlib``'s is several times quicker on long texts,
so it is used where somebody loaded it, and loaded where it pays.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
    from typing import Final
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # an interpreter built without them
            from hashlib import sha256

__all__ = ["hex_of"]

_WORTH_LOADING_BYTES: Final = 1_000_000


def hex_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal digits."""
    if "hashlib" in sys.modules or len(data) > _WORTH_LOADING_BYTES:
        import hashlib

        return hashlib.sha256(data).hexdigest()
    return sha256(data).hexdigest()
