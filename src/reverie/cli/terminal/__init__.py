"""The terminal: what a person sees and types while an agent works.

``conversation`` talks on a real terminal: ``screen`` is its bottom lines, ``transcript`` what scrolls up above them.
``plain`` is the same in plain lines, ``printing`` answers once and leaves.
"""

from __future__ import annotations

__all__: list[str] = []
