"""The immutable ``Settings``: defaults < user's TOML < project's TOML < environment < arguments.

The user's file is ``<home>/config.toml``. A project may have a ``.reverie.toml``; a repository is less trusted
than the user, so it can only turn switches off and lower limits.
"""

from __future__ import annotations

from .load import Flags, SettingIgnored, limits_by, load_settings, open_flags, switched_by
from .records import (
    HOOK_EVENTS,
    PRESETS,
    AgentPolicy,
    HookCommand,
    McpServer,
    Mode,
    PermissionRules,
    Preset,
    Settings,
    Switches,
    default_home,
)

__all__ = [
    "HOOK_EVENTS",
    "PRESETS",
    "AgentPolicy",
    "Flags",
    "HookCommand",
    "McpServer",
    "Mode",
    "PermissionRules",
    "Preset",
    "SettingIgnored",
    "Settings",
    "Switches",
    "default_home",
    "limits_by",
    "load_settings",
    "open_flags",
    "switched_by",
]
