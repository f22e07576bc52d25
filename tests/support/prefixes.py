"""Whether one request begins with another, block by block."""

from __future__ import annotations

from collections.abc import Sequence


def extends(earlier: Sequence[bytes], later: Sequence[bytes]) -> bool:
    """Say whether the later blocks begin with all the earlier ones."""
    return len(later) >= len(earlier) and all(map(bytes.__eq__, earlier, later))
