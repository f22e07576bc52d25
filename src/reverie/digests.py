"""The hash by which things are known here, without loading OpenSSL, which takes a hook 4 of its 100 ms.

The interpreter has an SHA-256 of its own. ``hashlib``'s is quicker on long texts: who hashes thousands of them uses
that one, and both say the same.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # an interpreter built without them
            from hashlib import sha256

__all__ = ["hex_of"]


def hex_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal digits."""
    return sha256(data).hexdigest()
