"""The activity of a session: requests with their replies, files, commands, failures with their fixes, exact names.

It is a fold of the log, so a resumed session builds it again. Adding an entry costs time only for that entry, and all
lists are bounded, so writing notes does not get slower as the session grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from ...conversation.authorship import Utterance, strings_of, utterances
from ...conversation.entries import Entry
from ...conversation.identifiers import Identifier, mine, mine_utterance
from ...conversation.reads import HistoryReader
from ...conversation.view import View
from .tool_effects import (
    ToolEffect,
    ToolOutcome,
    command_key,
    command_line,
    enclosing_symbol,
    is_cut_off,
    one_line,
    only_looks,
    outcome_of,
    todos_in,
    tool_effect,
)

V = TypeVar("V")
W = TypeVar("W", bound="_HasWeight")

_NAMES: Final = 6_000
_FILES: Final = 600
_COMMANDS: Final = 400
_FAILURES: Final = 300
_ASKED: Final = 200
_REPLIES: Final = 400
_SYMBOLS: Final = 16
_WORK: Final = 64  # steps of one request, and changed files of one step; a summary shows a few of the last
_SEEN_FILES: Final = 16  # texts of files that were read, to find the function around a change
_SEEN_CHARS: Final = 60_000
_TEXT: Final = 6_000
_TELLING_WORDS: Final = 4  # words of an error line that explains itself
_NOT_RUN: Final = "<tool_use_error>"  # with this Claude Code says that it did not make a call
_MODULE: Final = re.compile(r"\S*\bpython[\d.]*(?: -[A-Za-z]+)*? -m ")
_COMMIT: Final = re.compile(r"^\[[^\]\n]+ [0-9a-f]{7,}\].*", re.MULTILINE)


class _HasWeight(Protocol):
    @property
    def weight(self) -> int: ...


@dataclass(slots=True)
class WorkStep:
    """A step of the work: a decision, a commit, a command with its outcome, or the changes between two commands."""

    kind: Literal["decision", "commit", "run", "edit"]
    at: int
    text: str = ""
    outcome: str = ""
    command: str = ""
    """The key of the command that ran; ``text`` is the command as it ran."""
    edits: dict[str, dict[str, None]] = default(default_factory=lambda: {})


@dataclass(slots=True)
class UserRequest:
    """A user's request, with the steps of the work that followed it, in order."""

    uuid: str
    text: str
    at: int
    refused: str = ""
    """The call that the user refused with these words."""
    steps: list[WorkStep] = default(default_factory=lambda: [])
    calls: int = 0

    def add(self, step: WorkStep) -> None:
        """Add a step, and drop the oldest above the limit; a command that ran before has its last outcome only."""
        if step.kind == "run":
            self.steps = [one for one in self.steps if (one.kind, one.command) != ("run", step.command)]
        self.steps.append(step)
        del self.steps[:-_WORK]

    def change(self, path: str, symbols: Mapping[str, None], at: int) -> None:
        """Add a changed file with its names to the changes since the last command."""
        if not self.steps or self.steps[-1].kind != "edit":
            self.add(WorkStep("edit", at))
        _changed(self.steps[-1].edits, path, symbols)


@dataclass(slots=True)
class Reply:
    """A text of the agent: its handle, and that of the request before it (empty if none)."""

    uuid: str
    request: str
    at: int
    text: str
    is_last: bool = True
    """Whether no other text of the agent follows before the next request."""


@dataclass(slots=True)
class FileUse:
    """How often the session read and changed one file, when last (``at``), and the names it changed there."""

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

    @property
    def weight(self) -> int:
        """The rank of the command: its runs times recency."""
        return self.runs * (1 + self.at)


@dataclass(slots=True)
class Failure:
    """An error line with its failing tests, its command, the changes until the next run, and the success of that."""

    request: str
    count: int = 0
    at: int = 0
    after: str = ""
    """The command as it ran."""
    tests: dict[str, None] = default(default_factory=lambda: {})
    edits: dict[str, dict[str, None]] = default(default_factory=lambda: {})
    fixed: str = ""
    """The command that succeeded after the changes; empty if none did."""
    fails_again: bool = False
    """Whether the next run of the program failed as well, with other errors."""

    @property
    def weight(self) -> int:
        """The rank of the failure: its count times recency."""
        return self.count * (1 + self.at)


MinedUtterances: TypeAlias = Sequence[tuple[Utterance, Counter[Identifier]]]


def mined_utterances(entry: Entry) -> list[tuple[Utterance, Counter[Identifier]]]:
    """Return the utterances of an entry, each with its exact names and how often they occur."""
    return [(one, mine_utterance(one)) for one in utterances(entry)]


class Activity:
    """The requests, files, commands, failures and names of a session so far, from which notes are written."""

    def __init__(self, read: Callable[[Entry], MinedUtterances] | None = None) -> None:
        """Read the utterances of an entry by ``read``, if the caller knows those of many entries already."""
        self._read = read or mined_utterances
        self._restart()

    def _restart(self) -> None:
        self.at = 0
        self.calls = 0
        self.requests: list[UserRequest] = []
        self.first: UserRequest | None = None
        self.replies: list[Reply] = []
        self.files: dict[str, FileUse] = {}
        self.commands: dict[str, CommandUse] = {}
        self.failures: dict[str, Failure] = {}
        self.names: Counter[Identifier] = Counter()
        self.todos: list[tuple[str, str]] = []
        self.open_calls: dict[str, ToolEffect] = {}
        self._seen: dict[Identifier, tuple[int, str]] = {}
        self._asked: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self._reader = HistoryReader()
        self._structured = False
        self._resulted = False
        self._unfixed: dict[str, str] = {}

    @property
    def last_reply(self) -> str:
        """The last text of the agent since the last request; empty if there is none."""
        last = self.replies[-1] if self.replies else None
        return last.text if last is not None and (not self.requests or last.at >= self.requests[-1].at) else ""

    def named(self) -> dict[Identifier, tuple[int, str]]:
        """Return the exact names, each with the number of its uses and the uuid of the last message that has it."""
        return {name: (count, self._seen[name][1]) for name, count in self.names.items()}

    def follow(self, view: View) -> Activity:
        """Add the entries that the view gained and return this activity; start again if the view is another one."""
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
        for one, found in self._read(entry):
            self.names.update(found)
            self._seen.update(dict.fromkeys(found, (self.at, entry.uuid)))
            match one.kind:
                case "said":
                    self._said(UserRequest(entry.uuid, one.text[:_TEXT], self.at))
                case "refused":
                    self._refused(entry.uuid, one)
                case "told":
                    self._told(entry.uuid, one.text.strip())
                case "call":
                    self._called(one)
                case _:
                    self._answered(one, [name.text for name in found if name.kind == "error"])
        if len(self.names) > _NAMES:
            kept = sorted(self.names, key=lambda name: self.names[name] * (1 + self._seen[name][0]))[_NAMES // 2 :]
            self.names = Counter({name: self.names[name] for name in kept})
            self._seen = {name: self._seen[name] for name in kept}
        _pruned(self.files, _FILES)
        _pruned(self.commands, _COMMANDS)
        _pruned(self.failures, _FAILURES)

    def _said(self, asked: UserRequest) -> None:
        self.first = self.first or asked
        self.requests.append(asked)
        del self.requests[:-_ASKED]
        self.open_calls.clear()
        self._asked.clear()

    def _refused(self, uuid: str, one: Utterance) -> None:
        call = self._asked.get(one.id, "a call")
        if one.text:
            self._said(UserRequest(uuid, one.text[:_TEXT], self.at, call))
        elif self.requests:
            self.requests[-1].add(WorkStep("decision", self.at, f"the user refused {call}"))
        self.open_calls.pop(one.id, None)
        self._resulted = True

    def _told(self, uuid: str, text: str) -> None:
        if not text:
            return
        request = self.requests[-1].uuid if self.requests else ""
        if self.replies and self.replies[-1].request == request:
            self.replies[-1].is_last = False
        self.replies.append(Reply(uuid, request, self.at, text[:_TEXT]))
        if len(self.replies) > _REPLIES:  # words between calls go first
            at = next((at for at, reply in enumerate(self.replies) if not reply.is_last), 0)
            del self.replies[at]

    def _called(self, one: Utterance) -> None:
        self._structured = self._structured or bool(one.id)
        if self._structured and not one.id:
            return  # a code fence in the text of an agent with tools is not a call
        act = tool_effect(one.tool, one.input)
        self.calls += 1
        if self._resulted:
            self.open_calls.clear()  # calls without a result in this round never get one
            self._asked.clear()
            self._resulted = False
        self.open_calls[one.id] = act
        target = act.command or act.path or next(strings_of(one.input), "")
        self._asked[one.id] = f"{act.tool} `{one_line(target, 120)}`" if target else act.tool
        if act.what == "plan":
            self.todos = todos_in(one.input)[:40] or self.todos
        if self.requests:
            self.requests[-1].calls += 1

    def _answered(self, one: Utterance, errors: list[str]) -> None:
        act = self.open_calls.pop(one.id, None) or ToolEffect("other", "")
        self._resulted = True
        outcome = outcome_of(one.text, errors, failed=one.failed)
        if act.what == "read" and act.path and not outcome.failed:
            self._texts.pop(act.path, None)
            self._texts[act.path] = one.text[:_SEEN_CHARS]
            if len(self._texts) > _SEEN_FILES:
                self._texts.pop(next(iter(self._texts)))
        if act.path and act.what != "search" and not outcome.failed:
            self._touched(act)
        if act.what == "ask" and not outcome.failed and self.requests:
            self.requests[-1].add(WorkStep("decision", self.at, one_line(one.text, 600)))
        if act.what == "run" and not one.text.lstrip().startswith(_NOT_RUN):
            self._ran(command_key(act.command), act, outcome, one.text)

    def _touched(self, act: ToolEffect) -> None:
        file = self.files.setdefault(act.path, FileUse())
        file.at = self.at
        if act.what == "read":
            file.reads += 1
            return
        file.edits += 1
        around = "" if act.symbols else enclosing_symbol(self._texts.get(act.path, ""), act.replaced)
        changed = dict.fromkeys((*act.symbols, around) if around else act.symbols)
        for name in act.removed:
            file.symbols.pop(name, None)
        _renewed(file.symbols, changed)
        if self.requests:
            self.requests[-1].change(act.path, changed, self.at)
        for line in self._unfixed.values():
            if (failure := self.failures.get(line)) is not None:
                _changed(failure.edits, act.path, changed)

    def _ran(self, key: str, act: ToolEffect, outcome: ToolOutcome, text: str) -> None:
        if act.deleted and not outcome.failed:
            gone = [path for path in self.files if any(path == one or path.endswith(f"/{one}") for one in act.deleted)]
            for path in gone:
                del self.files[path]
        command = self.commands.setdefault(key, CommandUse())
        command.runs += 1
        command.failed += outcome.failed
        command.at = self.at
        command.said = outcome.said or ("failed" if outcome.failed else "ok")
        if not only_looks(key):
            self._judged(key, command_line(act.command), outcome, is_cut=is_cut_off(act.command, text))
        if not self.requests:
            return
        commit = _COMMIT.search(text) if not outcome.failed and "git commit" in act.command else None
        if commit is not None:
            self.requests[-1].add(WorkStep("commit", self.at, one_line(commit.group(), 160)))
        elif not only_looks(key):
            self.requests[-1].add(WorkStep("run", self.at, command_line(act.command), command.said, command=key))

    def _judged(self, key: str, ran: str, outcome: ToolOutcome, *, is_cut: bool) -> None:
        """Record the errors of an outcome, and close the failure of the program before it; a cut output closes none."""
        program = _program(key)
        before = self.failures.get(self._unfixed.get(program, ""))
        if outcome.failed and outcome.errors:
            if before is not None:
                before.fails_again = True
            telling = sorted(outcome.errors, key=lambda one: -min(len(one.split()), _TELLING_WORDS))[:2]
            line = "; ".join(telling)
            count = self.failures[line].count if line in self.failures else 0
            request = self.requests[-1].uuid if self.requests else ""
            tests = dict.fromkeys(name for one in outcome.errors for name in _tests(one))
            self.failures[line] = Failure(request, count + 1, self.at, ran, tests)
            _renewed(self._unfixed, {program: line})
        elif not outcome.failed and not is_cut:
            self._unfixed.pop(program, None)
            if before is not None:
                before.fixed = ran


def _tests(line: str) -> list[str]:
    return [name.text for name in mine(line, errors=False) if name.kind == "test"]


def _program(key: str) -> str:
    """Return a command's words before its first option or path, such as ``go test``; of ``python -m`` the module."""
    words: list[str] = []
    for word in _MODULE.sub("", key, count=1).split(" ")[:4]:
        if words and (word.startswith("-") or re.search(r"[^\w:-]", word)):
            break
        words.append(word)
    return " ".join(words)


def _renewed(kept: dict[str, V], newest: Mapping[str, V], most: int = _SYMBOLS) -> None:
    """Put the newest items at the end of a dict, and drop the oldest ones above the limit."""
    for key, value in newest.items():
        kept.pop(key, None)
        kept[key] = value
    while len(kept) > most:
        kept.pop(next(iter(kept)))


def _changed(edits: dict[str, dict[str, None]], path: str, symbols: Mapping[str, None]) -> None:
    names = edits.get(path, {})
    _renewed(names, symbols)
    _renewed(edits, {path: names}, _WORK)


def _pruned(kept: dict[str, W], most: int) -> None:
    """Delete ``most // 2`` entries with the lowest weight from the dict if it holds more than ``most``."""
    if len(kept) > most:
        for key in sorted(kept, key=lambda one: kept[one].weight)[: most // 2]:
            del kept[key]
