"""Entry point of ``reverie``: run hooks and the status line directly, and load click for all other commands."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


_COLLECT_AFTER = 100_000
"""The new objects between two collections: a log is many objects without cycles, and looking for some takes time."""


def main() -> NoReturn:
    """Run one command and exit with its exit code."""
    if os.name == "nt":
        sys.exit("reverie: Windows itself is not supported; install and run Reverie in WSL 2")
    _use_utf8()
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"} & set(arguments):
        if arguments[-1] == "View":
            from .hosts.opencode_view import main as view

            _leave(view())
        gc.disable()  # the process ends before there is garbage to collect
        from ..hosts.hook import main as hook

        _leave(hook(arguments[1:]))
    if arguments in (["statusline"], ["statusline", "--json"]):
        gc.disable()
        from .hosts.session_line import main as line

        _leave(line(arguments[1:]))
    gc.set_threshold(_COLLECT_AFTER)
    from .main import main as command

    command()


def _use_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale cannot name every path, such as ``LC_ALL=C``."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        program = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, program, {**os.environ, "PYTHONUTF8": "1"})


def _leave(code: int) -> NoReturn:
    """Flush and end the process at once, because a normal interpreter shutdown would delay the calling host."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


if __name__ == "__main__":
    main()
