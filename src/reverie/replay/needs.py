"""Find removed content that a recorded session used later.

A reply shows which content the model could see: it quotes lines to edit, it repeats lines it read. A long line that
occurs in a removed result, that no later message repeated and that is not in view elsewhere must come from that
result, so under the policy the model would have had to read it back first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from ..conversation.authorship import text_of
from ..conversation.entries import ASSISTANT, DECISION, Entry
from ..conversation.wire.blocks import Block, as_blocks

_LEAST_CHARS: Final = 30
_NUMBERED: Final = re.compile(r"^\s*\d+(?:→|\t|: |\| )")


class BlockLines:
    """The long lines of blocks, without line numbers; shorter lines are not distinctive. Each block is split once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, tuple[str, ...]]] = {}

    def of(self, block: Block) -> tuple[str, ...]:
        """Return the long lines of a text, of a result, or of the arguments of a call; other blocks have none."""
        found = self._known.get(id(block))
        if found is None:
            kind = block["type"]
            if kind == "tool_result":
                text = text_of(block)
            else:
                text = _inputs(block) if kind == "tool_use" else block.get("text", "") if kind == "text" else ""
            found = self._known[id(block)] = (block, tuple(_lines(text)))
        return found[1]

    def __reduce__(self) -> tuple[type[BlockLines], tuple[()]]:
        """Leave the lines out of a copy in another process, where the blocks are other objects."""
        return BlockLines, ()


class NeededResults:
    """An index of the lines in results and other messages, which finds removed results that are used later."""

    def __init__(self, lines: BlockLines | None = None) -> None:
        self._lines = lines or BlockLines()
        self._results_with: dict[str, list[str]] = {}
        self._said: set[str] = set()
        self._paths: dict[str, str] = {}
        self._gone: dict[str, int] = {}
        self._unread: list[Entry] | None = []
        """The entries before the first removed result, which are read when there is one."""

    def add(self, entry: Entry) -> dict[str, int]:
        """Add the lines of an entry; return the removed results whose file the entry reads again, with their sizes."""
        again: dict[str, int] = {}
        if self._unread is not None:
            self._unread.append(entry)
            return again
        for block in _blocks(entry):
            kind = block["type"]
            if kind == "tool_result":
                for line in self._lines.of(block):
                    self._results_with.setdefault(line, []).append(block["tool_use_id"])
            elif kind == "tool_use":
                again.update(self._read(block))
                self._said.update(self._lines.of(block))
            elif kind == "text":
                self._said.update(self._lines.of(block))
        return again

    def _read(self, block: Block) -> dict[str, int]:
        """Note the file that a call of ``Read`` reads, and return the sizes of removed results of that file."""
        arguments = cast("dict[str, Any]", block["input"])
        path = arguments.get("file_path") or arguments.get("path")
        if block["name"].lower() != "read" or not isinstance(path, str):
            return {}
        again = {called: tokens for called, tokens in self._gone.items() if self._paths.get(called) == path}
        for called in again:
            del self._paths[called]
        self._paths[block["id"]] = path
        return again

    def removed(self, tool_use_id: str, tokens: int) -> None:
        """Note that the result of a call, with its size in tokens, left the view."""
        if self._unread is not None:
            before, self._unread = self._unread, None
            for entry in before:
                self.add(entry)
        self._gone[tool_use_id] = tokens

    def shown(self, text: str) -> None:
        """Note a preview or a summary that takes the place of removed content."""
        self._said.update(_lines(text))

    def wanted(self, reply: tuple[Entry, ...]) -> list[tuple[str, int]]:
        """Return the call ids and sizes of removed results that a reply needs, and count them as in view again."""
        found: list[tuple[str, int]] = []
        if not self._gone:
            return found
        for entry in reply:
            for block in _blocks(entry):
                for line in self._lines.of(block):
                    holders = self._results_with.get(line)
                    if holders and line not in self._said and all(called in self._gone for called in holders):
                        found.append((holders[-1], self._gone.pop(holders[-1])))
        return found


def _blocks(entry: Entry) -> Iterator[Block]:
    message = entry.message if entry.kind != DECISION else None
    for block in as_blocks(message) if message is not None else []:
        if block["type"] in ("text", "tool_result") or (block["type"] == "tool_use" and entry.kind == ASSISTANT):
            yield block


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        bare = _NUMBERED.sub("", line).strip()
        if len(bare) >= _LEAST_CHARS:
            yield bare


def _inputs(block: Block) -> str:
    """Return the string arguments of a call, and those of the objects in its lists, joined by line ends."""
    found: list[str] = []
    for value in cast("dict[str, Any]", block["input"]).values():
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            for item in cast("list[Any]", value):
                if isinstance(item, dict):
                    found += [inner for inner in cast("dict[str, Any]", item).values() if isinstance(inner, str)]
    return "\n".join(found)
