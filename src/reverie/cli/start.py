"""Where the ``reverie`` command begins: hooks and the status line answer at once, all else loads the commands."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run one command and leave with its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"} & set(arguments):
        gc.disable()  # it ends before there is anything to collect
        from ..hosts.hook import main as hook

        _leave(hook(arguments[1:]))
    if arguments in (["statusline"], ["statusline", "--json"]):
        gc.disable()
        from .hosts.session_line import main as line

        _leave(line(arguments[1:]))
    from .main import main as command

    command()


def _leave(code: int) -> NoReturn:
    """End at once: everything is written, and taking the interpreter down would only keep a host waiting."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


if __name__ == "__main__":
    main()
