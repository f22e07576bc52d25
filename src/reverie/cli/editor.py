"""Open a file in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from ..errors import InputError


def open_editor(path: Path) -> None:
    """Open a file in $VISUAL or $EDITOR and wait for its end; raise ``InputError`` if the editor fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot start {editor} ({error}): set EDITOR to an installed editor") from None
    if code:
        raise InputError(f"{editor} exited with code {code}: nothing was taken over; your text is in {path}")
