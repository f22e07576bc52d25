"""The effect and outcome of a tool call, for tools of any name: files read and changed, commands, errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from ...conversation.identifiers import mine
from ...conversation.tool_calls import path_of
from ...values import object_of, record, rows_of

What: TypeAlias = Literal["read", "write", "edit", "run", "search", "plan", "ask", "other"]

_PATHS: Final = ("filename", "file", "target_file", "relative_path", "file_name", "notebook_path")
_COMMANDS: Final = ("command", "cmd", "script", "code")
_RUNS: Final = re.compile(r"bash|shell|exec|run|terminal|command|python|ipython|powershell")
_ASKS: Final = re.compile(r"(?<!t)ask|user|human")  # a search takes a question too, but no person answers it
_PLANS: Final = re.compile(r"todo|plan|task_?tracker")
_KINDS: Final[tuple[tuple[What, re.Pattern[str]], ...]] = (
    ("edit", re.compile(r"edit|replace|insert|patch|apply|update_file|modify")),
    ("write", re.compile(r"write|create|save|new_file")),
    ("search", re.compile(r"grep|glob|find|search|list|\bls\b")),
    ("read", re.compile(r"read|view|open|cat\b|fetch|load|scroll|goto")),
)
_EDITING: Final = re.compile(
    r"\bsed\s+(?:-\w+\s+)*-i|\btee\b|(?<![0-9&<])>{1,2}\s*[^&\s|]|\bpatch\b|\bgit\s+apply\b|\bmv\b|\brm\b|\bcp\b"
)
_TARGET: Final = re.compile(r"(?<![0-9&<])>{1,2}\s*([^&\s|;<>]+)")
_LEADING: Final = re.compile(r"\s*(?:cd\s+\S+\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=\S*\s+)+|set -\w+;?\s*)")
_SIFTED: Final = re.compile(r"\s*(?:2>&1)?\s*\|\s*(?:head|tail|less|cat)\b[^|;&\n]*\Z|\s*2>&1\s*\Z")
_HEAD: Final = re.compile(r"\|\s*head\b(?:\s+-(?:n\s*)?(\d+))?")
_EXIT: Final = re.compile(
    r"<returncode>\s*(-?\d+)|[Ee]xit(?:ed with)? (?:code|status):? ?(-?\d+)|exit_code[\"']?[:=] ?(-?\d+)"
)
_SUMMARY: Final = re.compile(
    r"\b\d+ (?:passed|failed|errors?|tests?|specs?|examples?)\b|Ran \d+ tests?|OK\b|FAILED \(|\s*Tests?:\s.*\d"
    r"|test result: |BUILD \w+|ok\s+\S+\s|FAIL\s+\S+|.*Found \d+ errors?|\[[\w./-]+ [0-9a-f]{7,}\] "
    r"|\s*\d+ files? changed|=+ .*\d+ \w+ in "
)
_FAILED: Final = re.compile(r"\bFAIL|\b[1-9]\d* (?:failed|errors?)\b|result: FAILED")
_LOCATED: Final = re.compile(r"[\w./~-]*\w\.\w+:\d+(?::\d+)?:? \S+ \S+")
_COLUMN: Final = re.compile(r"[\w./~-]*\w\.\w+:\d+:\d+")
_LAST_LINES: Final = 3
_SUMMARY_LINES: Final = 40
_SUMMARY_CHARS: Final = 300
_DEFINED: Final = re.compile(
    r"^[ \t]*(?:(?:export|default|public|private|protected|static|async|pub|abstract|final)\s+)*"
    r"(?:def|class|func|function|fn|interface|struct|enum|trait|type)\s+(?:\([^)\n]*\)\s*)?([A-Za-z_$][\w$]{2,})",
    re.MULTILINE,
)
_NUMBERED: Final = re.compile(r"^ *\d+[→\t|]", re.MULTILINE)
_DELETES: Final = re.compile(r"(?:^|[;&|]\s*)(?:git\s+)?(?:rm\s+([^;&|\n]+)|mv\s+([^;&|\n]+)\s\S+)")
_FILE: Final = re.compile(r"[\w./~@+-]*[./][\w./~@+-]*\Z")
_LOOKS: Final = frozenset(
    ("ls", "cat", "grep", "rg", "head", "tail", "nl", "sed", "find", "wc", "pwd", "echo", "which", "tree")
)
_LOOKED: Final = 20_000
_LEAST_PIECE: Final = 12  # characters of a line that finds a place in a file
_MOST_ERROR: Final = 199  # characters; error lines come cut to 200, so a longer one is not whole


@record
class ToolEffect:
    """The effect of a tool call: its kind, its file or command, and the symbols defined in the text it writes."""

    what: What
    tool: str
    path: str = ""
    command: str = ""
    symbols: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Symbols that the replaced text defines and the new text does not."""
    replaced: str = ""
    """The text of the file that the call replaces."""
    deleted: tuple[str, ...] = ()
    """Files that a command deletes."""


@record
class ToolOutcome:
    """The outcome of a call: whether it failed, a summary line (empty if none), and the error lines it printed."""

    failed: bool
    said: str
    errors: tuple[str, ...] = ()


def tool_effect(tool: str, given: Any) -> ToolEffect:
    """Return the effect of a tool call, guessed from the tool's name and its input."""
    name = tool.rpartition("__")[2].lower()
    fields = object_of(given)
    path = path_of(fields) or next((str(fields[key]) for key in _PATHS if isinstance(fields.get(key), str)), "")
    command = next((str(fields[key]) for key in _COMMANDS if isinstance(fields.get(key), str)), "")
    if _PLANS.search(name):
        return ToolEffect("plan", tool)
    if _ASKS.search(name) and not path and not command and {"question", "questions"} & fields.keys():
        return ToolEffect("ask", tool)
    if "editor" in name and path and command in ("view", "create", "undo_edit"):
        what: What = "write" if command == "create" else "read" if command == "view" else "edit"
        return _edit(what, tool, path, fields)
    if command and not path and (_RUNS.search(name) or len(fields) <= 3):
        return _shell(tool, command)
    for what, pattern in _KINDS:
        if pattern.search(name):
            return _edit(what, tool, path, fields) if what in ("edit", "write") else ToolEffect(what, tool, path)
    return ToolEffect("other", tool, path, command)


def _shell(tool: str, command: str) -> ToolEffect:
    """Return the effect of a shell command as a run; if it writes to a file, with the file's path and symbols."""
    head = command[:_LOOKED]
    if not _EDITING.search(head):
        return ToolEffect("run", tool, command=command)
    moved = (word for words in _DELETES.findall(head) for word in "".join(words).split())
    deleted = tuple(word for word in moved if not word.startswith("-"))
    target = _TARGET.search(head)
    named = target.group(1).strip("\"'") if target else ""
    if named.startswith("/dev/") or not _FILE.match(named):
        named = ""
    if not named and "sed" in head:
        paths = [one.text for one in mine(head.split("\n", 1)[0], errors=False) if one.kind == "path"]
        named = paths[-1] if paths else ""
    return ToolEffect("run", tool, named, command, symbols_in(head) if named else (), deleted=deleted)


def _edit(what: What, tool: str, path: str, fields: dict[str, Any]) -> ToolEffect:
    """Return the effect of a change of a file; fields such as ``old_string`` have the text that it replaces."""
    texts = {key: value[:_LOOKED] for key, value in fields.items() if isinstance(value, str)}
    old = "\n".join(text for key, text in texts.items() if key.startswith("old"))
    before = symbols_in(old)
    after = symbols_in("\n".join(text for key, text in texts.items() if not key.startswith("old")))
    added = tuple(name for name in after if name not in before)  # others may only surround the change
    removed = tuple(name for name in before if name not in after)
    return ToolEffect(what, tool, path, symbols=added or after, removed=removed, replaced=old)


def enclosing_symbol(text: str, part: str) -> str:
    """Return the last symbol that a file's text, perhaps with line numbers, defines before a part; empty if none."""
    plain = _NUMBERED.sub("", text) if part else ""
    pieces = (part, *(line for line in part.splitlines() if len(line.strip()) >= _LEAST_PIECE))
    at = next((plain.find(piece) for piece in pieces if piece and plain.count(piece) == 1), -1)
    found = _DEFINED.findall(plain[:at]) if at >= 0 else []
    return found[-1] if found else ""


def symbols_in(code: str) -> tuple[str, ...]:
    """Return the names of functions, classes and types that code defines, each once, in order, at most 12."""
    return tuple(dict.fromkeys(_DEFINED.findall(code)))[:12]


def command_key(command: str) -> str:
    """Return a command as one line of at most 140 characters, without leading ``cd`` and a final ``| head``."""
    return command_line(command if "<<" in command else _SIFTED.sub("", command[:_LOOKED]))


def command_line(command: str) -> str:
    """Return a command as it ran as one line of at most 140 characters, without leading ``cd`` and variables."""
    while (found := _LEADING.match(command)) and found.end() < len(command):
        command = command[found.end() :]
    return one_line(command.strip().split("\n", 1)[0] if "<<" in command else command[:_LOOKED], 140)


def only_looks(command: str) -> bool:
    """Say whether a command's first word is a program that only looks something up, such as ``ls`` or ``grep``."""
    return command.split(" ", 1)[0] in _LOOKS


def is_cut_off(command: str, shown: str) -> bool:
    """Say whether a final ``| head`` may have cut a command's output, whose start tells no success."""
    found = _HEAD.search(command[:_LOOKED])
    return found is not None and shown.count("\n") + 1 >= int(found.group(1) or 10)


def outcome_of(text: str, errors: Sequence[str], *, failed: bool) -> ToolOutcome:
    """Return the outcome of a call from its result: exit code, test summary and the first five of its error lines.

    ``failed`` is the tool's own statement; an exit code other than 0, or a summary that counts failures, also says so,
    and so do the last lines if there is no exit code.
    """
    head = text if len(text) <= 2 * _LOOKED else f"{text[:_LOOKED]}\n{text[-_LOOKED:]}"
    code = _EXIT.search(head) if "xit" in head or "<returncode>" in head else None
    value = next((int(part) for part in code.groups() if part is not None), 0) if code else 0
    summary = _summary(head)
    lines = [" ".join(line.split()) for line in head.splitlines() if line.strip() and not (code and _EXIT.search(line))]
    ends_in_error = code is None and any(error in line for error in errors for line in lines[-_LAST_LINES:])
    failed = failed or value != 0 or ends_in_error or _FAILED.search(summary) is not None
    located = [line for line in lines if _LOCATED.match(line)] if failed else []
    places = [line for line in located if _COLUMN.match(line)]  # as compilers and linters print; others may be logs
    shown = dict.fromkeys((*places[:1], *places[-1:], *errors, *located[-1:]))
    shown = [line for line in shown if len(line) <= _MOST_ERROR][:5]
    if failed and not shown:  # the last words of a program that failed
        shown = [line for line in lines[-1:] if len(line) <= _MOST_ERROR]
    said = summary or (f"exit {value}" if value else "failed" if failed else "")
    return ToolOutcome(failed, said, tuple(shown))


def _summary(text: str) -> str:
    lines = reversed(text.rstrip().rsplit("\n", _SUMMARY_LINES)[-_SUMMARY_LINES:])
    found = [line for line in lines if len(line) <= _SUMMARY_CHARS and _SUMMARY.match(line)]
    return one_line(next((line for line in found if _FAILED.search(line)), found[0] if found else ""), 160)


def todos_in(given: Any) -> list[tuple[str, str]]:
    """Return the steps of a to-do list in a tool call's input, each as text and state (empty if it has none)."""
    found: list[tuple[str, str]] = []
    for rows in object_of(given).values():
        for item in rows_of(rows):
            text = item.get("content") or item.get("step") or item.get("title") or item.get("description")
            if isinstance(text, str) and text.strip():
                found.append((one_line(text, 120), str(item.get("status") or "")))
    return found


def one_line(text: str, chars: int) -> str:
    """Return a text as one line of at most ``chars`` characters, with "…" at the end if it was longer."""
    line = " ".join(text[: chars * 8].split())
    return line if len(line) <= chars else line[: max(1, chars - 1)].rstrip() + "…"
