"""Questions about a session, made mechanically from its messages, with literal answers.

A question is about a path that was edited, a number or a name the user gave, an error and its fix, the outcome of a
command, a decision and the question it answered, or a call that the user refused. Nothing here uses the code that
writes summaries, so that no rule judges itself. The evidence is the original text around the fact, which gives the
ceiling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reverie.conversation.authorship import own_words, text_of
from reverie.conversation.entries import ASSISTANT, Entry

OUTCOMES = ("error", "fix", "outcome")
EVIDENCE_CHARS = 860  # about 240 tokens
LOOKING = frozenset(
    ("ls", "cat", "head", "tail", "grep", "rg", "find", "sed", "awk", "wc", "pwd", "echo", "which", "tree", "nl", "for")
)
LOOKING_GIT = frozenset(
    ("log", "show", "diff", "status", "ls-tree", "ls-files", "blame", "branch", "cat-file", "rev-parse", "reflog")
)
"""Commands of git that only print; as with the programs above, a line that they print is no outcome of the work."""
NUMBER = re.compile(r"(?<![\w.,/#-])\d+(?:[.,]\d+)*(?:[a-z]{1,2}\b|%)?(?![\w/-]|\.\d)")
DEFINED = re.compile(r"^\s*(?:async )?(?:def|class|func|function|fn)\s+(?:\([^)\n]*\)\s*)?(\w{4,})", re.MULTILINE)
TEST = re.compile(r"\b(?:test_\w{3,}|Test[A-Z]\w{3,})")
FAILED = re.compile(r"(?m)^.*(?:\bFAIL\b|\bFAILED\b|\bError:|\berror:|\bpanic:|\bfatal:).*$")
EXIT = re.compile(r"[Ee]xit code:? ?([1-9]\d*)|<returncode>[1-9]")
REFUSED = re.compile(r"the user said:\s*\n(.+)\Z", re.DOTALL)
WORD = re.compile(r"[A-Za-z][\w/.()-]{5,}")
NAME = re.compile(r"(?<![\w./-])(?=[\w./-]*[a-z][\w./-]*[A-Z]|[\w./-]*\w[._/-]\w)[A-Za-z./~][\w./-]{4,}\w")
CODE = re.compile(r"`([^`\n]{3,60})`")


@dataclass(frozen=True)
class Question:
    """A question with the answers that count as right, and the original text around the fact."""

    kind: str
    text: str
    answers: tuple[str, ...]
    evidence: str
    at: int
    """The index of the last entry with a part of the fact."""


@dataclass
class Run:
    """A command with its result."""

    command: str
    result: str
    failed: bool
    at: int
    edits: list[Edit] = field(default_factory=lambda: [])
    """The edits before the next run of the same program."""


@dataclass(frozen=True)
class Edit:
    """An edit of a file, as the call that made it."""

    path: str
    text: str
    at: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def questions(entries: Sequence[Entry], rng: Random, *, most_per_kind: int) -> list[Question]:
    """Return the questions about these entries, at most so many of a kind, in the order of their facts."""
    by_kind: dict[str, dict[str, Question]] = {}
    for one in (*_spoken(entries), *_worked(entries)):
        by_kind.setdefault(one.kind, {})[one.text] = one
    chosen: list[Question] = []
    for kind in sorted(by_kind):
        found = list(by_kind[kind].values())
        chosen += rng.sample(found, min(most_per_kind, len(found)))
    return sorted(chosen, key=lambda one: (one.at, one.text))


def _spoken(entries: Sequence[Entry]) -> Iterator[Question]:
    """Yield questions about numbers of the user, and about decisions."""
    told = ""
    for at, entry in enumerate(entries):
        if entry.kind == ASSISTANT:
            told = _told(entry) or told
            continue
        words = own_words(entry)
        if not words:
            continue
        yield from _given(words, at)
        asked = [line for line in re.split(r"(?<=[.!?])\s+|\n+", told) if line.rstrip("*_ ").endswith("?")]
        if asked and len(words.split()) <= 8:
            yield from _decided(asked[-1].strip(), told, words, at)


def _given(words: str, at: int) -> Iterator[Question]:
    """Yield questions about the numbers in a message, and about its longest name."""
    spans = [(found.start(), found.end(), "number") for found in NUMBER.finditer(words) if len(found.group()) > 1]
    names = list(CODE.finditer(words)) or list(NAME.finditer(words))
    if names:
        longest = max(names, key=lambda one: len(one.group()))
        spans.append((*longest.span(longest.lastindex or 0), "name"))
    for start, end, kind in spans:
        around = _masked(words, start, end)
        if len(around.split()) >= 8:
            text = f'The user wrote: "{around}". Which {kind} stands in place of ____?'
            yield Question(kind, text, (words[start:end],), f"user: {_around(words, start)}", at)


def _decided(question: str, told: str, words: str, at: int) -> Iterator[Question]:
    names = CODE.findall(question) or WORD.findall(question)
    if names:
        name = max(names, key=len)
        place = question.index(name)
        around = _masked(question, place, place + len(name))
        text = f'The agent asked: "{around}" and the user answered: "{words}". Which words stand in place of ____?'
        yield Question("decision", text, (name,), f"agent: {told[-600:]}\n\nuser: {words}", at)


def _worked(entries: Sequence[Entry]) -> Iterator[Question]:
    """Yield questions about edits, failures, outcomes and refused calls."""
    calls: dict[str, dict[str, Any]] = {}
    said, said_at = "", 0
    edits: list[Edit] = []
    runs: list[Run] = []
    for at, entry in enumerate(entries):
        words = own_words(entry)
        if words:
            yield from _edited(said, edits, said_at)
            said, said_at, edits = words, at, []
        for block in _blocks(entry):
            if block.get("type") == "tool_use":
                calls[str(block.get("id"))] = block
            elif block.get("type") == "tool_result" and (call := calls.get(str(block.get("tool_use_id")))):
                result = text_of(block)
                refused = REFUSED.search(result) if block.get("is_error") is True else None
                if refused is not None:
                    yield from _refused(call, refused.group(1).strip(), at)
                elif edit := _edit(call, at, failed=block.get("is_error") is True):
                    edits.append(edit)
                    for run in runs:
                        run.edits.append(edit)
                elif isinstance(command := call["input"].get("command"), str):
                    runs.append(Run(command, result, _has_failed(block, result), at))
    yield from _edited(said, edits, said_at)
    yield from _ran(runs)


def _edited(said: str, edits: Sequence[Edit], at: int) -> Iterator[Question]:
    names = tuple(dict.fromkeys(edit.name for edit in edits))
    for edit in edits:
        for name in DEFINED.findall(edit.text)[:1]:
            shown = f"agent edits {edit.path}:\n{edit.text[: EVIDENCE_CHARS // 2]}"
            yield Question("path", f"In which file did the agent write `{name}`?", (edit.name,), shown, edit.at)
    if said and names and len(said.split()) >= 5:
        text = f'Which file did the agent edit after the user wrote: "{_start(said)}"? Give one file name.'
        shown = "\n".join(f"agent edits {edit.path}" for edit in edits[:6])
        yield Question("path", text, names, f"user: {said[:500]}\n\n{shown}", max(at, edits[0].at))


def _ran(runs: Sequence[Run]) -> Iterator[Question]:
    for number, run in enumerate(runs):
        if _only_looks(run.command):
            continue
        program = _program(run.command)
        later = [other for other in runs[number + 1 :] if _program(other.command) == program]
        error = FAILED.search(run.result)
        if run.failed and error is not None:
            line = " ".join(error.group().split())[:160]
            tests = TEST.findall("\n".join(FAILED.findall(run.result)))
            shown = f"agent runs {_line(run.command)}\nresult: {_around(run.result, error.start())}"
            if tests:
                shown = f"agent runs {_line(run.command)}\nresult: {_around(run.result, run.result.index(tests[0]))}"
                text = f"Which test failed when the agent ran `{_line(run.command)}`? Give one name."
                yield Question("error", text, tuple(dict.fromkeys(tests)), shown, run.at)
            end = later[0].at if later else 0
            changed = [edit for edit in run.edits if edit.at < end]
            if later and not later[0].failed and changed:
                text = (
                    f'`{_line(run.command)}` failed with "{line}". Which file did the agent then edit to fix it? '
                    "Give one file name."
                )
                names = tuple(dict.fromkeys(edit.name for edit in changed))
                fixes = "\n".join(f"agent edits {edit.path}: {edit.text[:160]}" for edit in changed[:3])
                evidence = f"{shown[: EVIDENCE_CHARS // 2]}\n\n{fixes}\n\nagent runs {_line(run.command)}: success"
                yield Question("fix", text, names, evidence, changed[0].at)
        yield from _outcome(run)
    yield from _endings(runs)


def _outcome(run: Run) -> Iterator[Question]:
    """Yield a question about a count in one of the last lines of a run; how long it took is no outcome."""
    lines = [line for line in run.result.splitlines() if line.strip()]
    for line in reversed(lines[-3:]):
        counts = [found for found in NUMBER.finditer(line) if found.group().isdigit()]
        if counts and len(line) <= 160 and len(line.split()) >= 3:
            around = _masked(line, *counts[0].span())
            text = (
                f'The agent ran `{_line(run.command)}`. A line of its output is "{around}". What is in place of ____?'
            )
            tail = "\n".join(lines[-6:])[-EVIDENCE_CHARS // 2 :]
            shown = f"agent runs {_line(run.command)}\nresult: {tail}"
            yield Question("outcome", text, (counts[0].group(),), shown, run.at)
            return


def _endings(runs: Sequence[Run]) -> Iterator[Question]:
    """Yield whether the last run of a command succeeded, for commands that failed at least once."""
    for command in dict.fromkeys(_line(run.command) for run in runs):
        mine = [run for run in runs if _line(run.command) == command]
        if not _only_looks(command) and any(run.failed for run in mine):
            text = (
                f"The agent ran `{command}` {len(mine)} times. Did the last run fail or succeed? Answer with one word."
            )
            answers = (
                ("fail", "failed", "failure") if mine[-1].failed else ("succeed", "succeeded", "success", "passed")
            )
            ended = "failure" if mine[-1].failed else "success"
            shown = f"agent runs {command}\nresult: {mine[-1].result[-EVIDENCE_CHARS // 2 :]}\nstatus: {ended}"
            yield Question("outcome", text, answers, shown, mine[-1].at)


def _refused(call: dict[str, Any], words: str, at: int) -> Iterator[Question]:
    found = WORD.findall(words)
    if found:
        name = max(found, key=len)
        around = _masked(words, words.index(name), words.index(name) + len(name))
        text = f'The user refused a call of the agent with the words: "{around}". Which word stands in place of ____?'
        shown = f"agent calls {call.get('name')}: {json.dumps(call.get('input'))[:300]}\n\nuser refuses: {words[:400]}"
        yield Question("rejected", text, (name,), shown, at)


def _edit(call: dict[str, Any], at: int, *, failed: bool) -> Edit | None:
    given: dict[str, Any] = call.get("input") or {}
    path = given.get("file_path") or given.get("path")
    is_edit = re.search(r"edit|write|create|replace|patch", str(call.get("name")).lower())
    if failed or not is_edit or not isinstance(path, str):
        return None
    text = given.get("new_string") or given.get("content") or ""
    return Edit(path, str(text), at)


def _has_failed(block: dict[str, Any], result: str) -> bool:
    return (
        block.get("is_error") is True or EXIT.search(result) is not None or re.search(r"\bFAIL\b", result) is not None
    )


def _program(command: str) -> str:
    """Return the first words of a command, without a leading change of folder."""
    command = re.sub(r"^\s*cd \S+ *(?:&&|;) *", "", command)
    words = command.split()
    return words[0] if words and words[0] in LOOKING else " ".join(words[:3])


def _only_looks(command: str) -> bool:
    words = _program(command).split()
    return words[0] in LOOKING or (words[0] == "git" and not LOOKING_GIT.isdisjoint(words)) if words else True


def _line(command: str) -> str:
    line = " ".join(re.sub(r"^\s*cd \S+ *(?:&&|;) *", "", command).split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def _start(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def _masked(text: str, start: int, end: int) -> str:
    before, after = " ".join(text[:start].split()), " ".join(text[end:].split())
    head = "" if not text[:start] or text[:start][-1:].isspace() is False else " "
    return f"{before[-80:]}{head}____{'' if not text[end : end + 1].isspace() else ' '}{after[:60]}".strip()


def _around(text: str, place: int) -> str:
    start = max(0, place - EVIDENCE_CHARS // 2)
    return text[start : start + EVIDENCE_CHARS]


def _told(entry: Entry) -> str:
    return "\n".join(str(block.get("text") or "") for block in _blocks(entry) if block.get("type") == "text").strip()


def _blocks(entry: Entry) -> list[dict[str, Any]]:
    content: Any = (entry.message or {}).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, dict)]
