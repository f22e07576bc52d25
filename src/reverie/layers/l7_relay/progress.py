"""A short progress line of an agent: made from its last call, or written by a model and checked here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ...cache.prices import Prices
from ...conversation.identifiers import mine

MAX_CHARS: Final = 60
_ASKED_TOKENS: Final = 80
_LINE_TOKENS: Final = 12
MIN_WORDS: Final = 3
MAX_WORDS: Final = 5
_TARGETS: Final[Mapping[str, tuple[str, str]]] = {
    "Read": ("Reading", "file_path"),
    "Write": ("Writing", "file_path"),
    "Edit": ("Editing", "file_path"),
    "Glob": ("Looking for", "pattern"),
    "Grep": ("Searching for", "pattern"),
    "BashOutput": ("Waiting for", "shell_id"),
    "KillShell": ("Stopping", "shell_id"),
    "Skill": ("Loading the skill", "name"),
    "AgentStop": ("Stopping", "agent"),
    "SendMessage": ("Writing to", "to"),
}
_WITHOUT_TARGET: Final[Mapping[str, str]] = {"TodoWrite": "Planning the next steps", "Memory": "Using its memory"}
_RUNNERS: Final = frozenset({"env", "exec", "nice", "nohup", "sudo", "time", "timeout", "uv", "run", "poetry", "npx"})
_PYTHON: Final = re.compile(r"(?:\S*/)?python[0-9.]*\Z")
_STATEMENT: Final = re.compile(r"\s*(?:&&|\|\||;|\n)\s*")
_VAGUE: Final = (
    "anything being continuing doing during everything getting going having helping making nothing processing "
    "progressing something string thing thinking trying working "
)
_MARKS: Final = ".,:;!*'\"`()"
_SEARCHES: Final = frozenset({"Glob", "Grep"})
_MINED_CHARS: Final = 4_000
_MAX_NAMES: Final = 50


def line_for(tool: str, given: Mapping[str, Any]) -> str:
    """Return the progress line for a tool call, such as ``Reading view.py`` or ``Running pytest``."""
    if tool in _WITHOUT_TARGET:
        return _WITHOUT_TARGET[tool]
    if tool == "Bash":
        return _cut(f"Running {_program(_said(given, 'command'))}")
    if tool == "Agent":
        return _cut(f"Starting an agent: {_said(given, 'description') or _said(given, 'kind') or 'a fork'}")
    if tool == "WebFetch":
        host = re.sub(r"^\w+://", "", _said(given, "url")).partition("/")[0]
        return _cut(f"Fetching {host or 'a page'}")
    verb, key = _TARGETS.get(tool, ("", ""))
    target = _said(given, key) if key else ""
    if verb and target:
        return _cut(f"{verb} {target.rstrip('/').rpartition('/')[2] if key == 'file_path' else target}")
    if tool.startswith("mcp__"):
        server, _, name = tool.removeprefix("mcp__").partition("__")
        return _cut(f"Using {name or 'a tool'} of {server}")
    return _cut(f"Using {tool}")


def line_problem(line: str, *, last: str, named: Collection[str] = ()) -> str:
    """Return why a progress line by a model must not be shown; empty if it may; ``last`` is the line before it.

    A line has 3 to 5 words, is in the present, names a file, function or command of the agent's recent calls
    (``named``), and differs from the line before it.
    """
    words = line.split()
    if not line.isprintable() or len(line) > MAX_CHARS:
        return "it is not one short line"
    if not MIN_WORDS <= len(words) <= MAX_WORDS:
        return f"it has {len(words)} words, not {MIN_WORDS} to {MAX_WORDS}"
    verb = words[0].casefold().strip(_MARKS)
    if not verb.endswith("ing") or len(verb) < 5:
        return "it does not describe the current action"
    if f"{verb} " in _VAGUE:
        return f"{verb!r} says nothing"
    if named_in(words[1:]).isdisjoint(named):
        return "it names no file, function or command of the last calls"
    if line.casefold().strip(" .") == last.casefold().strip(" ."):
        return "it is the line before it"
    return ""


def named_in(words: Sequence[str]) -> set[str]:
    """Return the possible names in a line: each word, and the exact names in it."""
    bare = [word.strip(_MARKS) for word in words]
    found = {*bare, *(one.text for word in bare for one in mine(word, errors=False))}
    return found | {_last_part(name) for name in found}


def names_in(tool: str, given: Mapping[str, Any]) -> list[str]:
    """Return the names in a call's input, each once: its target, its program, and the exact names in its texts.

    An ordinary word is no name in any field: a search for ``error`` names nothing, one for ``Session``
    does.
    """
    found = [_program(_said(given, "command")).partition(" ")[0]] if tool == "Bash" else []
    target = _said(given, _TARGETS.get(tool, ("", ""))[1])
    if target and (tool not in _SEARCHES or not _is_plain_word(target)):
        found.append(target)
    texts = [text[:_MINED_CHARS] for text in given.values() if isinstance(text, str)]
    found += [one.text for text in texts for one in mine(text, errors=False)]
    whole = [name for one in found for name in (one, _last_part(one)) if len(name) > 1]
    return list(dict.fromkeys(whole))[:_MAX_NAMES]


def fork_is_cheaper(
    own: Prices | None, small: Prices | None, *, fork_tokens: int, small_tokens: int, warm: bool
) -> bool:
    """Say whether a progress line by a fork on an agent's prefix is cheaper than by a smaller model on an excerpt.

    Caches are per model: the fork reads its own model's cache, the smaller model pays full price for the excerpt. If a
    price is unknown, the smaller model counts as cheaper.
    """
    if own is None or small is None:
        return False
    read, written = (fork_tokens, 0) if warm else (0, fork_tokens)
    by_fork = own.cost(read=read, write_5m=written, uncached=_ASKED_TOKENS, output=_LINE_TOKENS)
    return by_fork < small.cost(uncached=small_tokens + _ASKED_TOKENS, output=_LINE_TOKENS)


def _program(command: str) -> str:
    """Return the short name of the first program that a shell line runs; "a command" if there is none."""
    for statement in _STATEMENT.split(command.strip()):
        words = [word for word in statement.split() if not re.match(r"\w+=", word)]
        while words and (words[0] in _RUNNERS or words[0].startswith("-") or words[0].isdigit()):
            words = words[1:]
        if len(words) > 2 and _PYTHON.match(words[0]) and words[1] == "-m":
            return words[2]
        if words and words[0] not in ("cd", "set", "export", "source", "."):
            first = words[0].rpartition("/")[2] or words[0]
            second = words[1] if len(words) > 1 and re.fullmatch(r"[a-z][a-z-]*", words[1]) else ""
            return f"{first} {second}" if second and first in ("git", "cargo", "go", "npm", "make", "docker") else first
    return "a command"


def _is_plain_word(text: str) -> bool:
    return text.isalpha() and text == text.lower()


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _said(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""


def _cut(text: str) -> str:
    flat = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:1_000]).split())
    return flat if len(flat) <= MAX_CHARS else flat[: MAX_CHARS - 1] + "…"
