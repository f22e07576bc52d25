"""Open a file in the user's editor, or a text in the user's pager."""

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


def open_pager(text: str) -> None:
    """Show a text in $PAGER, or in less or more, and wait for its end."""
    from click import echo_via_pager

    echo_via_pager(text)
