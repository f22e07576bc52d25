"""The activity of a session: requests, files, commands, errors with their fixes, and exact names.

It is a fold of the log, so a resumed session builds it again. Adding an entry costs time only for that entry, and all
lists are bounded, so writing notes does not get slower as the session grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as default
from typing import Final, Protocol, TypeVar

from ...conversation.authorship import Utterance, utterances
from ...conversation.entries import Entry
from ...conversation.identifiers import Identifier, mine_utterance
from ...conversation.reads import HistoryReader
from ...conversation.view import View
from .tool_effects import ToolEffect, ToolOutcome, command_key, one_line, outcome_of, todos_in, tool_effect

__all__ = ["Activity", "CommandUse", "Failure", "FileUse", "UserRequest"]

W = TypeVar("W", bound="_HasWeight")

_NAMES: Final = 6_000
_FILES: Final = 600
_COMMANDS: Final = 400
_FAILURES: Final = 300
_ASKED: Final = 200
_WORDS: Final = 60
CORRECTION_CHARS: Final = 300
_TEXT: Final = 6_000
_CORRECTED: Final = re.compile(
    r"\s*(?:no\b|nope|don'?t\b|do not\b|stop\b|wrong|actually|instead|revert|undo|that'?s not|that is not|not what"
    r"|i said|i told|you (?:forgot|didn'?t|haven'?t|missed|should|must)|why (?:do|did|would) (?:you|we)\b|wait\b"
    r"|never\b|always\b|please (?:don'?t|do not|always|never))",
    re.IGNORECASE,
)
# For a text in lower case: without the flag, and with a letter first in each part, the search is several times faster.
_INSIGHT: Final = re.compile(
    r"root cause|turns out|the (?:problem|issue|bug|reason|fix|solution) (?:is|was)|fixed by|caused by|because\b"
    r"|didn'?t work|doesn'?t work|works? (?:now|because|only)|important(?:ly)?:|note that|key insight"
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")


class _HasWeight(Protocol):
    @property
    def weight(self) -> int: ...


@dataclass(slots=True)
class UserRequest:
    """A user's request, with the edits by file, the outcomes by program and the answer that followed it."""

    uuid: str
    text: str
    at: int
    edits: dict[str, int] = default(default_factory=lambda: {})
    runs: dict[str, str] = default(default_factory=lambda: {})
    calls: int = 0
    failures: int = 0
    answer: str = ""


@dataclass(slots=True)
class FileUse:
    """How often the session read and changed one file, when last (``at``), and the names it defined there."""

    reads: int = 0
    edits: int = 0
    at: int = 0
    symbols: dict[str, None] = default(default_factory=lambda: {})

    @property
    def weight(self) -> int:
        """The rank of the file: frequency times recency; a change counts as three reads."""
        return (self.reads + 3 * self.edits) * (1 + self.at)


@dataclass(slots=True)
class CommandUse:
    """How often one command ran and failed, when last (``at``), and its last outcome."""

    runs: int = 0
    failed: int = 0
    at: int = 0
    said: str = ""
    broken: bool = False

    @property
    def weight(self) -> int:
        """The rank of the command: its runs times recency."""
        return self.runs * (1 + self.at)


@dataclass(slots=True)
class Failure:
    """The count of one error line, the command before it, the files edited since, and its fix (empty if none)."""

    count: int = 0
    at: int = 0
    after: str = ""
    edits: dict[str, None] = default(default_factory=lambda: {})
    fixed: str = ""

    @property
    def weight(self) -> int:
        """The rank of the error: its count times recency."""
        return self.count * (1 + self.at)


class Activity:
    """The requests, files, commands, errors and names of a session so far, from which notes are written."""

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self.at = 0
        self.calls = 0
        self.requests: list[UserRequest] = []
        self.first: UserRequest | None = None
        self.files: dict[str, FileUse] = {}
        self.commands: dict[str, CommandUse] = {}
        self.failures: dict[str, Failure] = {}
        self.names: Counter[Identifier] = Counter()
        self.seen: dict[Identifier, int] = {}
        self.corrections: list[str] = []
        self.insights: list[str] = []
        self.answers: list[str] = []
        self.commits: list[str] = []
        self.todos: list[tuple[str, str]] = []
        self.last_reply = ""
        self.open_calls: dict[str, ToolEffect] = {}
        self._reader = HistoryReader()
        self._structured = False
        self._resulted = False
        self._unfixed: dict[str, list[str]] = {}

    def follow(self, view: View) -> Activity:
        """Add the entries that the view gained since the last call, and return this activity.

        If the view does not continue the earlier one, the activity is emptied and read from the start.
        """
        if not self._reader.continues(view):
            self._restart()
        for item in self._reader.items(view):
            self.add(item.entry)
        return self

    def add_all(self, entries: Iterable[Entry]) -> Activity:
        """Add these log entries in order, and return this activity."""
        for entry in entries:
            self.add(entry)
        return self

    def add(self, entry: Entry) -> None:
        """Add one log entry; if there are too many names, files, commands or errors, drop the least used."""
        self.at += 1
        for one in utterances(entry):
            found = mine_utterance(one)
            self.names.update(found)
            self.seen.update(dict.fromkeys(found, self.at))
            match one.kind:
                case "said":
                    self._said(entry.uuid, one.text)
                case "told":
                    self._told(one.text)
                case "call":
                    self._called(one)
                case _:
                    self._answered(one, [name.text for name in found if name.kind == "error"])
        if len(self.names) > _NAMES:
            kept = sorted(self.names, key=lambda name: self.names[name] * (1 + self.seen[name]))[_NAMES // 2 :]
            self.names = Counter({name: self.names[name] for name in kept})
            self.seen = {name: self.seen[name] for name in kept}
        _pruned(self.files, _FILES)
        _pruned(self.commands, _COMMANDS)
        _pruned(self.failures, _FAILURES)

    def _said(self, uuid: str, text: str) -> None:
        if self.last_reply and self.requests:
            self._answer()
        asked = UserRequest(uuid, text[:_TEXT], self.at)
        self.first = self.first or asked
        self.requests.append(asked)
        del self.requests[:-_ASKED]
        if len(self.requests) > 1 and _CORRECTED.match(text):
            self.corrections.append(one_line(text, CORRECTION_CHARS))
            del self.corrections[:-_WORDS]
        self.last_reply = ""
        self.open_calls.clear()

    def _answer(self) -> None:
        self.requests[-1].answer = one_line(self.last_reply, 160)
        self.answers.append(self.last_reply[:_TEXT])
        del self.answers[:-6]

    def _told(self, text: str) -> None:
        self.last_reply = text.strip() or self.last_reply
        head = text[:_TEXT]
        parts = _SENTENCE.split(head) if _INSIGHT.search(head.lower()) else ()
        found = [part for part in parts if 30 <= len(part) <= 400 and part[-1] != ":" and _INSIGHT.search(part.lower())]
        for part in found[:2]:
            line = one_line(part, 240)
            if line not in self.insights:
                self.insights.append(line)
        del self.insights[:-_WORDS]

    def _called(self, one: Utterance) -> None:
        self._structured = self._structured or bool(one.id)
        if self._structured and not one.id:
            return  # a code fence in the text of an agent with tools is not a call
        act = tool_effect(one.tool, one.input)
        self.calls += 1
        if self._resulted:
            self.open_calls.clear()  # calls without a result in this round never get one
            self._resulted = False
        self.open_calls[one.id] = act
        if act.what == "plan":
            self.todos = todos_in(one.input)[:40] or self.todos
        if self.requests:
            self.requests[-1].calls += 1

    def _answered(self, one: Utterance, errors: list[str]) -> None:
        act = self.open_calls.pop(one.id, None) or ToolEffect("other", "")
        self._resulted = True
        outcome = outcome_of(one.text, errors, failed=one.failed)
        if self.requests:
            self.requests[-1].failures += outcome.failed
        key = act.path if act.what != "run" and act.path else ""
        if act.path and act.what != "search" and not outcome.failed:
            self._touched(act)
        if act.what == "run":
            key = command_key(act.command)
            self._ran(key, act, outcome, one.text)
        self._judged(key or act.tool, outcome)

    def _touched(self, act: ToolEffect) -> None:
        file = self.files.setdefault(act.path, FileUse())
        file.at = self.at
        if act.what in ("edit", "write", "run"):
            file.edits += 1
            for name in act.symbols:
                file.symbols.pop(name, None)
                file.symbols[name] = None
            while len(file.symbols) > 16:
                file.symbols.pop(next(iter(file.symbols)))
            if self.requests:
                edits = self.requests[-1].edits
                edits[act.path] = edits.get(act.path, 0) + 1
            for lines in self._unfixed.values():
                for line in lines:
                    if (failure := self.failures.get(line)) is not None:
                        failure.edits[act.path] = None
        else:
            file.reads += 1

    def _ran(self, key: str, act: ToolEffect, outcome: ToolOutcome, text: str) -> None:
        command = self.commands.setdefault(key, CommandUse())
        command.runs += 1
        command.failed += outcome.failed
        command.broken = outcome.failed
        command.at = self.at
        command.said = outcome.said or command.said * (not outcome.failed)
        if self.requests:
            self.requests[-1].runs[_program(key)] = outcome.said or ("failed" if outcome.failed else "ok")
        if "git commit" in act.command and not outcome.failed:
            line = next((line for line in text.splitlines() if re.match(r"\[[^\]]+ [0-9a-f]{7,}\]", line)), "")
            if line:
                self.commits.append(one_line(line, 160))
                del self.commits[:-_WORDS]

    def _judged(self, key: str, outcome: ToolOutcome) -> None:
        """Record the errors of an outcome; once the program succeeds, record the edits in between as their fix."""
        program = _program(key)
        if outcome.errors and (outcome.failed or program in self._unfixed or _looks_failed(outcome)):
            for line in outcome.errors:
                failure = self.failures.setdefault(line, Failure())
                failure.count += 1
                failure.at, failure.after, failure.fixed = self.at, key, ""
            self._unfixed[program] = [*self._unfixed.get(program, ()), *outcome.errors][-10:]
            if len(self._unfixed) > 20:
                self._unfixed.pop(next(iter(self._unfixed)))
        elif not outcome.failed and program in self._unfixed:
            for line in self._unfixed.pop(program):
                failure = self.failures.get(line)
                if failure is not None and not failure.fixed:
                    changed = ", ".join(path.rpartition("/")[2] for path in list(failure.edits)[-4:])
                    failure.fixed = f"{f'edits to {changed}, then ' if changed else ''}`{key}` went well"


def _looks_failed(outcome: ToolOutcome) -> bool:
    return outcome.said.startswith(("FAIL", "exit")) or "fail" in outcome.said or "error" in outcome.said


def _program(key: str) -> str:
    """Return the program of a command without options and targets, such as ``npm run check`` or ``go test``."""
    words = [word for word in key.split(" ")[:6] if not word.startswith("-")]
    count = 3 if words[:2] in (["npm", "run"], ["python", "-m"], ["pnpm", "run"], ["uv", "run"], ["mise", "run"]) else 2
    if words and ("/" in words[0] or words[0] in ("pytest", "make", "tox", "cat", "grep", "ls", "sed")):
        count = 1
    return " ".join(words[:count])


def _pruned(kept: dict[str, W], most: int) -> None:
    """Delete ``most // 2`` entries with the lowest weight from the dict if it holds more than ``most``."""
    if len(kept) > most:
        for key in sorted(kept, key=lambda one: kept[one].weight)[: most // 2]:
            del kept[key]
