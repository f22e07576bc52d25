"""Where the ``reverie`` command begins: hooks and the status line answer at once, all else loads the commands."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run one command and leave with its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"} & set(arguments):
        from ..hosts.hook import main as hook

        sys.exit(hook(arguments[1:]))
    if arguments in (["statusline"], ["statusline", "--json"]):
        from .session_line import main as line

        sys.exit(line(arguments[1:]))
    from .main import main as command

    command()


if __name__ == "__main__":
    main()
