"""Decide when to look for memories in a conversation, and in which part. Pure; the state is in the log."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from ...conversation.authorship import own_words, utterances
from ...conversation.entries import ASSISTANT, USER, Entry, reply_id
from ...conversation.tool_calls import path_of
from ...conversation.view import View
from ...values import object_of, record
from .policy import ExtractPolicy

CURSOR: Final = "extract"
IMPORTED: Final = "imported"
"""Name of the cursor that marks the last message recorded by another program."""
Act: TypeAlias = Literal["run", "skip", "wait"]

_CHANGING: Final = re.compile(r"save|update|forget|write|create|insert|replace|rename|delete|edit|remove|add")
_WRITERS: Final = re.compile(r"write|edit|create|replace|insert|patch", re.IGNORECASE)
_SHELL_WRITES: Final = re.compile(r">|\b(?:tee|mv|cp|rm|sed\s+-i|install|touch|ln)\b")
_SHELLS: Final = re.compile(r"bash|shell|exec|terminal|run", re.IGNORECASE)


@record
class ExtractionStep:
    """The next step of layer 5 for the messages after its cursor: extract, skip or wait, with the reason."""

    act: Act
    why: str
    entries: tuple[Entry, ...] = ()
    upto: str = ""
    """The uuid of the message to which the cursor moves on ``run`` or ``skip``."""
    turns: int = 0
    lost: bool = False
    """Whether the cursor's message is missing in the history, so that every message counts as new."""


def imported_upto(view: View) -> str:
    """Return the uuid of the last message that another program recorded, or ""; call it before the first new message.

    Only for logs that were imported before every imported entry had a mark: those of a marked log decide nothing.
    """
    first = next(view.entries(), None)
    if first is not None and first.imported:
        return ""
    known = view.facts.cursors.get(IMPORTED)
    if known:
        return known
    last = next(view.latest(), None) if view.facts.meta.get("source") else None
    return last.uuid if last is not None else ""


def after_cursor(latest: Iterable[Entry], cursor: str | None) -> tuple[tuple[Entry, ...], bool]:
    """Return the entries after the cursor, or all without one, and whether the cursor's message is missing.

    ``latest`` are the entries with the newest first; those before the cursor are not read.
    """
    found: list[Entry] = []
    for entry in latest:
        if entry.uuid == cursor:
            return tuple(reversed(found)), False
        found.append(entry)
    return tuple(reversed(found)), bool(cursor)


def extraction_step(view: View, cursor: str | None, policy: ExtractPolicy, *, memory_path: str = "") -> ExtractionStep:
    """Return whether to extract memories now, skip or wait, given the conversation after a query.

    The cursor is a separate argument, since it may have moved after the view was taken. If the agent wrote under
    ``memory_path`` itself, the messages are skipped.
    """
    final = view.final
    if final is None or final.role != ASSISTANT or final.uses:
        return ExtractionStep("wait", "the query has not come to its end")
    entries, lost = after_cursor(view.latest(), cursor)
    if not entries:
        return ExtractionStep("wait", "nothing has been said since")
    upto = entries[-1].uuid
    cwd = view.facts.meta.get("cwd")
    if memory_path and wrote_memories(entries, memory_path, cwd=cwd if isinstance(cwd, str) else ""):
        return ExtractionStep("skip", "the agent wrote memories itself", entries, upto, lost=lost)
    turns = _completed(entries)
    if not any(own_words(entry) for entry in entries if entry.kind == USER):
        return ExtractionStep("wait", "there are no new messages", entries, upto, turns, lost)
    if turns < policy.every_turns:
        return ExtractionStep("wait", f"{turns} of {policy.every_turns} turns", entries, upto, turns, lost)
    return ExtractionStep("run", "due", entries, upto, turns, lost)


def _completed(entries: Sequence[Entry]) -> int:
    """Return the number of replies without tool calls; each ends a query."""
    calls: dict[str, bool] = {}
    for entry in entries:
        if entry.kind == ASSISTANT:
            id = reply_id(entry)
            calls[id] = calls.get(id, False) or any(one.kind == "call" and one.id for one in utterances(entry))
    return sum(not called for called in calls.values())


def wrote_memories(entries: Sequence[Entry], memory_path: str, *, cwd: str = "") -> bool:
    """Say whether a successful tool call in these entries seems to have changed memories."""
    asked: dict[str, bool] = {}
    for entry in entries:
        for one in utterances(entry):
            if one.kind == "call" and one.id:
                asked[one.id] = _changes_memory(one.tool, one.input, memory_path, cwd)
            elif one.kind == "result" and one.id and asked.get(one.id) and not one.failed:
                return True
    return False


def _changes_memory(tool: str, given: Any, memory_path: str, cwd: str) -> bool:
    name = tool.rpartition("__")[2].lower()
    fields = object_of(given)
    path = path_of(fields)
    if path and _WRITERS.search(name):
        return _is_beneath(path, memory_path, cwd)
    if "memory" in name or "memory" in tool.lower().split("__"):
        act = fields.get("action") or fields.get("command") or name
        return bool(_CHANGING.search(str(act)))
    command = fields.get("command")
    if isinstance(command, str) and _SHELLS.search(name):
        return memory_path in command and bool(_SHELL_WRITES.search(command))
    return False


def _is_beneath(path: str, folder: str, cwd: str) -> bool:
    whole = posixpath.normpath(posixpath.join(cwd, path))
    root = posixpath.normpath(folder)
    return whole == root or whole.startswith(root.rstrip("/") + "/")
