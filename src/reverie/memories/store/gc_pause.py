"""Making thousands of small things without the collector looking through all of them again and again."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["uncollected"]


@contextmanager
def uncollected() -> Generator[None]:
    """Let the collector of cycles rest meanwhile; what is made here has none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
