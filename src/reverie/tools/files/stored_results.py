"""Find a stored tool result by the path or handle that its placeholder names."""

from __future__ import annotations

import os
import re
from typing import Final

from ...errors import ReverieError
from ..context import ToolContext
from ..tool import Access
from .workspace import access_to

_HANDLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{5,199}")
_FOLDER: Final = "tool-results"


def access_to_text(name: str, context: ToolContext) -> Access:
    """Return read access to a path; an access of kind ``none`` if the name is that of a stored tool result."""
    return access_to("read", name, context) if stored_result(name, context) is None else Access("none", name)


def _looks_stored(name: str, context: ToolContext) -> bool:
    """Return whether a name looks like the handle or path of a stored tool result.

    An existing file with the same name as a handle takes precedence: then return False.
    """
    if "\0" in name:
        return False
    parts = name.split("/")
    if len(parts) > 1 and parts[-2] != _FOLDER:
        return False
    if len(parts) == 1 and not _HANDLE.fullmatch(name):
        return False
    try:
        return len(parts) > 1 or not os.path.lexists(os.path.join(context.cwd, name))
    except (OSError, ValueError):
        return False


def stored_result(name: str, context: ToolContext, *, listed: bool = False) -> bytes | None:
    """Return the bytes of a stored tool result by its handle or path; None if the name is neither.

    ``listed`` gives the list of the messages that a summary replaced instead of all of them.
    """
    if not _looks_stored(name, context):
        return None
    try:
        return (context.expand(name) if listed else None) or context.read_back(name)  # a context may lack expand
    except ReverieError:  # not a handle of this session; it may still be a path
        return None
