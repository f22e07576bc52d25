"""SHA-256 digests without loading OpenSSL, which would cost a hook 4 of its 100 ms.

The interpreter has its own SHA-256 with the same results. ``hashlib`` is several times faster on long data, so it is
used if it is already loaded, and loaded for data above a size at which that pays.
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

_WORTH_LOADING_BYTES: Final = 1_000_000


def hex_of(data: bytes) -> str:
    """Return the SHA-256 digest of the data in hexadecimal."""
    if "hashlib" in sys.modules or len(data) > _WORTH_LOADING_BYTES:
        import hashlib

        return hashlib.sha256(data).hexdigest()
    return sha256(data).hexdigest()
