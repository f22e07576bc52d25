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
from .agent import AgentPolicy, HookCommand, McpServer, PermissionRules

Preset: TypeAlias = Literal["faithful", "balanced", "thrifty"]
PRESETS: Final[Mapping[Preset, str]] = MappingProxyType(
    {
        "faithful": "compacts only near the end of the window; clears old results only when the cache is cold",
        "balanced": "also compacts when carrying the window has cost as much as compacting several times over",
        "thrifty": "also clears old results while the cache is live, where that saves money",
    }
)
"""How readily context is given up for money, each with its effect in words."""


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
    """The tenant's key that encrypts a database's content: ``env:NAME`` or ``file:PATH`` of 32 bytes in base64."""
    retention_days: int | None = None
    """Days that a session is kept after its last entry, by ``reverie delete --expired`` and the job ``retain``."""
    window_tokens: int | None = None
    """A limit below the model's own window."""
    compact_percent: float | None = None
    """Compact at this percentage of the effective window, if that is earlier."""
    flag_provider: str | None = None
    """``package.module:callable`` that returns an OpenFeature provider."""


SWITCHES: Final = fields_of(Switches)
# Switches that must be off while another one is off.
IMPLIED_OFF: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("extraction", "recall", "dream"),
    "compact": ("auto_compact", "compact_from_notes", "collapse"),
}


def turned_off(switches: Switches, names: list[str]) -> Switches:
    """Return a copy of the switches with the named ones off."""
    return replace(switches, **dict.fromkeys(names, False))


def consistent(switches: Switches) -> Switches:
    """Return a copy of the switches in which a switch is off if the switch it depends on is off."""
    return turned_off(
        switches, [name for cause, names in IMPLIED_OFF.items() if not getattr(switches, cause) for name in names]
    )
