"""The settings a hook acts by, without loading what only an agent needs where nobody set anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..memories.recall_policy import RecallPolicy
    from ..settings import Settings

__all__ = ["Settled", "settled"]

_NO_RULES: Final = frozenset({"REVERIE_HOME", "REVERIE_WORKER"})


class Settled:
    """What is set for hooks: where things are, and what is on."""

    __slots__ = ("_recall", "home", "memory", "memory_dir", "offload", "offload_limits", "recalls", "team_memory")

    def __init__(self, home: Path, given: Settings | None = None) -> None:
        """Take the settings as given, or as they are where nothing is."""
        limits: Mapping[str, int] = {}
        self.home = home
        self.memory = given is None or given.switches.memory
        self.recalls = given is None or (given.switches.memory and given.switches.recall)
        self.offload = given is None or given.switches.offload
        self.offload_limits = limits if given is None else given.offload_limits
        self.memory_dir = None if given is None else given.memory_dir
        self.team_memory = None if given is None else given.team_memory
        self._recall = None if given is None else given.recall

    @property
    def recall(self) -> RecallPolicy:
        """How many memories are brought into view."""
        if self._recall is None:
            from ..memories.recall_policy import RecallPolicy

            self._recall = RecallPolicy()
        return self._recall


def settled(project: Path | None) -> Settled:
    """Return what holds for hooks in a project; settings that are wrong raise ``SettingsError``."""
    home = _home()
    files = [home / "config.toml", *([project / ".reverie.toml"] if project is not None else [])]
    rules = [
        name
        for name in os.environ
        if name.startswith(("REVERIE_", "DISABLE_")) and name not in _NO_RULES  # the latter may be ours to honour
    ]
    if not rules and not any(map(os.path.lexists, files)):
        return Settled(home)
    from ..settings import load_settings

    found = load_settings(project=project)
    return Settled(found.home, found)


def _home() -> Path:
    given = os.environ.get("REVERIE_HOME", "")
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("reverie", appauthor=False).absolute()
