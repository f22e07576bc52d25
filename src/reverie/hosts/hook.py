"""``reverie hook``: answer one event of a host, quickly, and never get in its way.

It writes one JSON object to stdout and exits with 0, even after an error: hosts take other exit codes, and plain text,
as a request to stop the user's work. Only before a compaction Claude Code takes plain text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_MAX_INPUT_BYTES: Final = 64 * 2**20


def main(arguments: Sequence[str]) -> int:
    """Read a payload from stdin, write the answer to stdout and a failure to stderr, and always return 0."""
    text = _nothing(*_arguments(arguments))
    try:
        data = _read_input()
        text = answer(arguments, data)
    except BaseException as error:  # a hook that fails is worse than one that does nothing
        _write_error(error)
    _write_output(text)
    return 0


def answer(arguments: Sequence[str], data: bytes) -> str:
    """Handle one hook event and return the JSON answer; ``{}`` for an unknown host, event or payload.

    ``arguments`` are those of the command line, and ``data`` is the input from stdin.
    """
    import json

    from .events import HOSTS, read_hook_event
    from .handlers import handle
    from .responses import answer_line

    host, name = _arguments(arguments)
    try:
        payload: object = json.loads(data)
    except (ValueError, RecursionError):
        return _nothing(host, name)
    if host not in HOSTS:
        return "{}"
    event = read_hook_event(host, name, payload, os.environ)
    if event.kind == "other":
        return "{}"
    from ..runtime.places.projects import root_of
    from .settings import load_hook_settings

    project = root_of(event.cwd) if event.cwd else None
    return answer_line(event, handle(event, load_hook_settings(project)))


def _nothing(host: str, name: str) -> str:
    """Return the answer that changes nothing: before a compaction Claude Code takes even ``{}`` as instructions."""
    return "" if (host, name) == ("claude-code", "PreCompact") else "{}"


def _arguments(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the host and the event named on the command line, in either order; one not named is empty."""
    host, event = "", ""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--host":
            host = rest.pop(0) if rest else ""
        elif word.startswith("--host="):
            host = word.partition("=")[2]
        elif not word.startswith("-"):
            event = event or word
    return host, event


def _read_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read(_MAX_INPUT_BYTES)


def _write_output(text: str) -> None:
    if sys.stdout is None or not text:  # the host closed it
        return
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has closed the pipe: exit without an error message


def _write_error(error: BaseException) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"reverie hook: {type(error).__name__}: {' '.join(str(error).split())[:500]}\n")
    except (OSError, ValueError):
        return
