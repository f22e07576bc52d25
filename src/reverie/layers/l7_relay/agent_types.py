"""Agent types: Markdown files whose front matter describes an agent's purpose and tools.

Claude Code's files in ``.claude/agents`` are read too: tools as one line or as a list, models by short names, and
descriptions that strict YAML refuses. An unknown field is reported and ignored, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from ...errors import InputError
from ...memories.store.frontmatter import Value, parse
from ...values import record

MemoryScope: TypeAlias = Literal["", "user", "project", "local"]
KindSource: TypeAlias = Literal["builtin", "user", "project"]

MEMORY_SCOPES: Final[tuple[MemoryScope, ...]] = ("user", "project", "local")
_SCOPES: Final[Mapping[str, MemoryScope]] = {scope: scope for scope in MEMORY_SCOPES}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_LINE: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):[ \t]*(.*)")
_MAX_DESCRIPTION: Final = 1_000
_MAX_PROMPT_CHARS: Final = 100_000
# Names of the same tools in other programs.
_ALIASES: Final[Mapping[str, str]] = {"Task": "Agent", "MultiEdit": "Edit"}
# The tools for commands that Bash has started in the background.
_BESIDE_BASH: Final = ("BashOutput", "KillShell")
_MODES: Final[Mapping[str, str]] = {
    "default": "default",
    "acceptEdits": "accept-edits",
    "accept-edits": "accept-edits",
    "plan": "plan",
    "bypassPermissions": "bypass",
    "bypass": "bypass",
}


@record
class AgentKind:
    """A type of agent: its name, purpose, system prompt, tools, model and limits."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    """The tools that the type requests; None means all of its parent's."""
    without: tuple[str, ...] = ()
    model: str = ""
    """A model alias or name; empty means the model of its parent."""
    memory: MemoryScope = ""
    mode: str = ""
    """The permission mode that the type requests; it applies if it allows less than its parent's."""
    max_turns: int | None = None
    worktree: bool = False
    background: bool = False
    source: KindSource = "builtin"


def parse_kind(text: str, *, file: str, source: KindSource) -> tuple[AgentKind | None, list[str]]:
    """Return the agent type in a file's text, or None if it is invalid, and a list of the problems found."""
    problems: list[str] = []
    fields, body = _fields(text)
    name = _text(fields.get("name")) or file.removesuffix(".md")
    name = "-".join(re.split(r"[\s_]+", name.strip().lower()))
    if not _NAME.fullmatch(name) or name == "fork":
        return None, [f"{file}: {name[:60]!r} cannot name a type of agents: use letters, digits and '-'"]
    described = " ".join(_text(fields.get("description")).replace("\\n", " ").split())
    if not described or not body.strip():
        return None, [f"{file}: a type of agents needs a description in its front matter, and a prompt below it"]
    memory = _text(fields.get("memory")).lower()
    if memory and memory not in MEMORY_SCOPES:
        problems.append(f"{file}: memory {memory[:40]!r} is none of {', '.join(MEMORY_SCOPES)}; it has none")
    mode = _text(fields.get("permissionMode") or fields.get("mode"))
    if mode and mode not in _MODES:
        problems.append(f"{file}: the mode {mode[:40]!r} is not known here and was left out")
    turns = _text(fields.get("maxTurns") or fields.get("max_turns"))
    asked, model = _names(fields.get("tools")), _text(fields.get("model"))
    return (
        AgentKind(
            name=name,
            description=described[:_MAX_DESCRIPTION],
            prompt=body.strip()[:_MAX_PROMPT_CHARS],
            tools=None if not asked or asked == ["*"] else tuple(asked),
            without=tuple(_names(fields.get("disallowedTools"))),
            model="" if model == "inherit" else model,
            memory=_SCOPES.get(memory, ""),
            mode=_MODES.get(mode, ""),
            max_turns=int(turns) if turns.isdecimal() and int(turns[:9]) > 0 else None,
            worktree=_text(fields.get("isolation")) == "worktree",
            background=_text(fields.get("background")).lower() == "true",
            source=source,
        ),
        problems,
    )


def allowed_tools(kind: AgentKind, parents: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tools of a type, in order and only its parent's, and the requested names that match none.

    A type that asks for Bash also gets the tools that read and stop the commands it starts in the background.
    """
    wanted = list(parents) if kind.tools is None else [_ALIASES.get(name, name) for name in kind.tools]
    beside = _BESIDE_BASH if "Bash" in wanted else ()
    refused = {_ALIASES.get(name, name) for name in kind.without}
    given = [name for name in parents if any(_covers(one, name) for one in (*wanted, *beside))]
    given = [name for name in given if not any(_covers(one, name) for one in refused)]
    unknown = [one for one in wanted if not any(_covers(one, name) for name in parents)]
    return given, unknown


def _covers(asked: str, name: str) -> bool:
    """Say whether a name in a type's list means this tool; the name of an MCP server means all of its tools."""
    if asked in (name, "*"):
        return True
    whole = asked.removesuffix("*").removesuffix("__")
    return whole.startswith("mcp__") and whole.count("__") == 1 and name.startswith(f"{whole}__")


def _fields(text: str) -> tuple[Mapping[str, Value], str]:
    """Return the front matter fields and the body of a text, parsed strictly or, if that fails, line by line."""
    try:
        found = parse(text)
        return found.fields, found.body
    except InputError:
        pass
    head, fence, body = text.removeprefix("\ufeff").replace("\r\n", "\n").removeprefix("---\n").partition("\n---")
    fields: dict[str, Value] = {}
    key = ""
    for line in head[:65_536].split("\n") if fence else ():
        found_line = _LINE.fullmatch(line)
        if found_line:
            key, value = found_line.group(1), found_line.group(2).strip()
            fields.setdefault(key, "" if value in ("|", ">", "|-", ">-") else value.strip("\"'"))
        elif key and line.strip().startswith("- ") and line.startswith((" ", "-")):
            before = fields[key]
            fields[key] = [*(before if isinstance(before, list) else []), line.strip()[2:].strip("\"' ")]
        elif key and isinstance(fields[key], str):
            fields[key] = f"{fields[key]} {line.strip()}".strip()
    return fields, body.partition("\n")[2]


def _text(value: Value | None) -> str:
    return value.strip() if isinstance(value, str) else ""


def _names(value: Value | None) -> list[str]:
    """Return a list of names from a list or a line; commas within brackets belong to the name."""
    if isinstance(value, list):
        return [item.strip() for item in value if item.strip()]
    text = _text(value).strip("[]")
    return [name for part in re.split(r",(?![^()]*\))", text) if (name := part.strip().strip("\"'"))]
