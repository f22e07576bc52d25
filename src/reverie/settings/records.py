"""All settings and their defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ..layers.l2_trim import TrimPolicy
from ..layers.l3_notes import NotesPolicy
from ..layers.l4_compact import CompactPolicy
from ..layers.l5_extract import ExtractPolicy
from ..layers.l6_dream import DreamPolicy
from ..layers.l7_relay import RelayPolicy
from ..memories.recall.policy import RecallPolicy
from ..values import field, fields_of, record, replace

Mode: TypeAlias = Literal["default", "accept-edits", "plan", "bypass"]

HOOK_EVENTS: Final = (
    "session_start",
    "session_end",
    "user_prompt",
    "before_tool",
    "after_tool",
    "before_compact",
    "after_compact",
    "stop",
)
Preset: TypeAlias = Literal["faithful", "balanced", "thrifty"]
PRESETS: Final[Mapping[Preset, str]] = MappingProxyType(
    {
        "faithful": "compacts only near the end of the window; clears old results only when the cache is cold",
        "balanced": "also compacts when carrying the window has cost as much as compacting several times over",
        "thrifty": "also clears old results while the cache is live, where that saves money",
    }
)
"""How readily context is given up for money, each with its effect in words."""
# Switches that must be off while another one is off.
IMPLIED_OFF: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("extraction", "recall", "dream"),
    "compact": ("auto_compact", "compact_from_notes", "collapse"),
}


@record
class AgentPolicy:
    """The limits of an agent and of its tools."""

    max_turns: int = 200
    max_tokens: int = 8_000
    """The maximum output tokens of a reply; a reply that was cut off raises it once, to ``max_tokens_raised``."""
    max_tokens_raised: int = 64_000
    budget_usd: float | None = None
    """The most that one session may cost."""
    budget_day_usd: float | None = None
    """The most that all sessions of this home may cost in one UTC day; ``month`` likewise."""
    budget_month_usd: float | None = None
    budget_project_day_usd: float | None = None
    """The most that all sessions of one project may cost in one UTC day; ``month`` likewise."""
    budget_project_month_usd: float | None = None
    bash_timeout_seconds: float = 120.0
    bash_max_timeout_seconds: float = 600.0
    read_max_lines: int = 2_000
    read_max_tokens: int = 25_000
    read_max_bytes: int = 262_144
    web_fetch: bool = False
    """Whether the WebFetch tool is offered to the model."""
    parallel_tools: int = 8
    """How many calls of one reply run at once if all of them only read."""


@record
class PermissionRules:
    """The tool calls that are allowed, need the user's approval, or are denied.

    A rule is a tool's name, or ``Tool(pattern)``: a path pattern for file tools (``Edit(src/**)``), a command prefix
    for Bash (``Bash(git status:*)``), a host for WebFetch (``WebFetch(docs.python.org)``), ``mcp__server`` or
    ``mcp__server__tool`` for tools of MCP servers. Deny goes before ask, ask before allow.
    """

    mode: Mode = "default"
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    """Directories besides the working directory that file tools may use."""


@record
class HookCommand:
    """A command that gets an event as JSON on stdin and may answer with JSON on stdout."""

    command: str
    matcher: str = ""
    """A regular expression for the tool's name; empty matches all."""
    timeout_seconds: float = 60.0


@record
class McpServer:
    """An MCP server whose tools are offered to the agent: a command on this machine, or a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: {})
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    timeout_seconds: float = 30.0
    deferred: bool | tuple[str, ...] | None = None
    """Whether its tools, or which of them, are declared only after ToolSearch has found them.

    None defers the tools of all such servers if their definitions together take more than a share of the window.
    """


@record
class Switches:
    """The features of Reverie, each on or off; a flag provider can turn a feature off while the program runs."""

    offload: bool = True
    idle_trim: bool = True
    cache_edit: bool = True
    priced_trim: bool = True
    budget_trim: bool = False
    snip: bool = False
    notes: bool = True
    compact: bool = True
    auto_compact: bool = True
    compact_from_notes: bool = True
    collapse: bool = False
    extraction: bool = True
    recall: bool = True
    dream: bool = True
    relay: bool = True
    memory: bool = True
    """Memories, agent memory and search over past sessions together."""


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``REVERIE_HOME`` as an absolute path, else Reverie's folder in the platform's place for user data."""
    given = (os.environ if environ is None else environ).get("REVERIE_HOME", "")
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("reverie", appauthor=False)


@record
class Settings:
    """All settings, resolved from every source."""

    home: Path = field(default_factory=default_home)
    preset: Preset = "balanced"
    """How readily context is given up for money: ``faithful``, ``balanced`` or ``thrifty``."""
    keep_warm: bool = False
    """Whether the cache is renewed while the user is away, as long as that costs less than writing it again."""
    vim_keys: bool = False
    """Whether the input line of ``reverie chat`` has the keys of vim."""
    switches: Switches = field(default_factory=Switches)
    offload_limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType[str, int]({}))
    """The maximum characters of a tool result before it is offloaded, by tool name."""
    trim: TrimPolicy = field(default_factory=TrimPolicy)
    """How layer 2 clears old tool results: ``mode``, ``clearable``, ``keep_cold``, ``keep_priced``, ..."""
    notes: NotesPolicy = field(default_factory=NotesPolicy)
    """When layer 3 updates the notes, and how large they may be."""
    compact: CompactPolicy = field(default_factory=CompactPolicy)
    """The messages layer 4 keeps, the files it restores, and its retries."""
    extract: ExtractPolicy = field(default_factory=ExtractPolicy)
    """When layer 5 looks for memories, and its cost limit per day."""
    recall: RecallPolicy = field(default_factory=RecallPolicy)
    """How many memories are shown to the model, and how large they may be."""
    dream: DreamPolicy = field(default_factory=DreamPolicy)
    """When layer 6 consolidates memories, its limits, and its cost limit."""
    relay: RelayPolicy = field(default_factory=RelayPolicy)
    """The limits of sub-agents: how many, how deeply nested, and how many turns each."""
    daily_logs: bool = False
    """Whether an agent keeps a daily log, which dreams turn into memories."""
    model: str | None = None
    """The agent's model, such as ``anthropic:MODEL``, or an alias."""
    fallback_model: str | None = None
    """The model to use if the first one stays unavailable."""
    model_aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType[str, str]({}))
    models: Mapping[str, Mapping[str, object]] = field(
        default_factory=lambda: MappingProxyType[str, Mapping[str, object]]({})
    )
    """Corrections of model facts by a model's name or pattern, such as ``window_tokens``."""
    agent: AgentPolicy = field(default_factory=AgentPolicy)
    permissions: PermissionRules = field(default_factory=PermissionRules)
    hooks: Mapping[str, tuple[HookCommand, ...]] = field(
        default_factory=lambda: MappingProxyType[str, tuple[HookCommand, ...]]({})
    )
    """Commands by event: ``session_start``, ``before_tool``, ..."""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=lambda: MappingProxyType[str, McpServer]({}))
    memory_dir: Path | None = None
    """The folder of memories, instead of the project's folder under ``home``."""
    team_memory: Path | None = None
    """The folder of shared memories; None shares nothing."""
    embedder: str | None = None
    """The embedding model for recall and search: ``local:/path/model.gguf``, or an endpoint ``https://host/v1#model``."""
    durability: Literal["always", "second"] = "always"
    """``always``: an append is on disk when it returns; ``second``: a power failure may lose the last second."""
    database: str | None = None
    """The URL of a PostgreSQL database that holds sessions instead of ``home``: ``postgresql://USER@HOST/NAME``."""
    tenant: str | None = None
    """The tenant whose rows of the database are seen and written; a database needs one."""
    blobs: str | None = None
    """The object store for entries over 256 KB of a database: ``s3://BUCKET/FOLDER``; without it they are in rows."""
    encryption_key: str | None = None
    """The place of the tenant's key, ``env:NAME`` or ``file:PATH``: 32 bytes in base64. ``{tenant}`` is its name."""
    retention_days: int | None = None
    """Days that a session is kept after its last entry, by ``reverie delete --expired`` and the job ``retain``."""
    window_tokens: int | None = None
    """A limit below the model's own window."""
    compact_percent: float | None = None
    """Compact at this percentage of the effective window, if that is earlier."""
    flag_provider: str | None = None
    """``package.module:callable`` that returns an OpenFeature provider."""


SWITCHES: Final = fields_of(Switches)


def turned_off(switches: Switches, names: list[str]) -> Switches:
    """Return a copy of the switches with the named ones off."""
    return replace(switches, **dict.fromkeys(names, False))


def consistent(switches: Switches) -> Switches:
    """Return a copy of the switches in which a switch is off if the switch it depends on is off."""
    return turned_off(
        switches, [name for cause, names in IMPLIED_OFF.items() if not getattr(switches, cause) for name in names]
    )
