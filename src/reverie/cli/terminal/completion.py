"""Completion of commands after ``/``, of their arguments, and of files after ``@``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..output import printable
from .files import best_matches

MAX_SHOWN: Final = 50
AT_FILE: Final = re.compile(r"(?:^|\s)@(\S*)$")


class InputCompleter(Completer):
    """Completes commands, their arguments and file names."""

    def __init__(
        self,
        commands: Mapping[str, str],
        files: Callable[[], Sequence[str]],
        arguments: Callable[[str], Sequence[str]],
    ) -> None:
        self._commands = commands
        self._files = files
        self._arguments = arguments

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield completions for the text before the cursor."""
        before = document.text_before_cursor
        found = AT_FILE.search(before)
        if found is not None:
            typed = found.group(1)
            for path in best_matches(typed, self._files(), limit=MAX_SHOWN):
                yield Completion(_escaped(path), start_position=-len(typed), display=printable(path))
        elif before.startswith("/") and "\n" not in before:
            yield from self._of_command(before[1:])

    def _of_command(self, typed: str) -> Iterable[Completion]:
        name, space, rest = typed.partition(" ")
        if not space:
            for command, meaning in self._commands.items():
                if command.startswith(name):
                    yield Completion(command, start_position=-len(name), display=f"/{command}", display_meta=meaning)
            return
        for value in self._arguments(name):
            if value.startswith(rest) and value != rest:
                yield Completion(value, start_position=-len(rest))


def _escaped(path: str) -> str:
    """Return a path with its spaces escaped."""
    return path.replace(" ", "\\ ")
