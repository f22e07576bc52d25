"""A memory directory with planted faults, and the truth about them: what a dream is measured by.

The facts and their wordings are in ``facts.txt``, what fills them in ``slots.txt``. Nothing here is shared with the
dreamer: no word list, no date arithmetic, no parser.
"""

from __future__ import annotations

from .events import Relative
from .planting import Planted, planted_memories

__all__ = ["Planted", "Relative", "planted_memories"]
