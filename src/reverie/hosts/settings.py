"""The settings of a hook, read without loading the whole settings package where every value is the default."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from ..memories.recall.policy import RecallPolicy
    from ..settings import Settings

_NO_RULES: Final = frozenset({"REVERIE_HOME", "REVERIE_WORKER"})


class HookSettings:
    """The settings that hooks use: directories, switches and limits."""

    __slots__ = (
        "_recall",
        "embedder",
        "home",
        "memory",
        "memory_dir",
        "offload",
        "offload_limits",
        "recalls",
        "team_memory",
    )

    def __init__(self, home: str, given: Settings | None = None) -> None:
        """Take the loaded settings; None means the defaults."""
        limits: Mapping[str, int] = {}
        self.home = home
        self.memory = given is None or given.switches.memory
        self.recalls = given is None or (given.switches.memory and given.switches.recall)
        self.offload = given is None or given.switches.offload
        self.offload_limits = limits if given is None else given.offload_limits
        self.memory_dir = None if given is None or given.memory_dir is None else str(given.memory_dir)
        self.team_memory = None if given is None or given.team_memory is None else str(given.team_memory)
        self.embedder = None if given is None else given.embedder
        self._recall = None if given is None else given.recall

    @property
    def recall(self) -> RecallPolicy:
        """The limits on recalled memories."""
        if self._recall is None:
            from ..memories.recall.policy import RecallPolicy

            self._recall = RecallPolicy()
        return self._recall


def load_hook_settings(project: str | None) -> HookSettings:
    """Return the settings for hooks in a project directory; raise ``SettingsError`` if a setting is wrong."""
    home = _home()
    files = [os.path.join(home, "config.toml"), *([os.path.join(project, ".reverie.toml")] if project else [])]
    rules = [
        name
        for name in os.environ
        if name.startswith(("REVERIE_", "DISABLE_"))
        and name not in _NO_RULES  # the latter may be switches that Reverie honours
    ]
    if not rules and not any(map(os.path.lexists, files)):
        return HookSettings(home)
    from pathlib import Path

    from ..settings import SettingIgnored, load_settings

    with warnings.catch_warnings():  # a hook says nothing but its answer
        warnings.simplefilter("ignore", SettingIgnored)
        found = load_settings(project=Path(project) if project else None)
    return HookSettings(str(found.home), found)


def _home() -> str:
    """Return the path of Reverie's home as the settings would, without loading them in plain cases."""
    given = os.environ.get("REVERIE_HOME", "")
    if _is_plain(given):
        return given
    if not given and sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        data, home = os.environ.get("XDG_DATA_HOME", ""), os.environ.get("HOME", "")
        if _is_plain(data):
            return f"{data}/reverie"
        if not data and _is_plain(home):
            return f"{home}/.local/share/reverie"
    from pathlib import Path

    from platformdirs import user_data_path

    return str((Path(given).expanduser() if given else user_data_path("reverie", appauthor=False)).absolute())


def _is_plain(path: str) -> bool:
    """Return whether a path is absolute, normalised and needs no expansion."""
    return path.startswith("/") and path == path.strip() and path == os.path.normpath(path) and "~" not in path
