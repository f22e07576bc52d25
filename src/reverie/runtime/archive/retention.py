"""When an agent will delete its recorded sessions, by its own settings on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from ...importers import SessionPlace

_DAY: Final = 86_400.0
_USUAL_DAYS: Final = 30.0
_UNITS: Final = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


def days_kept(place: SessionPlace) -> float | None:
    """Return after how many days an agent deletes a session that was not used; None if it deletes none."""
    reader = _READERS.get(place.format)
    return None if reader is None else reader(_settings(place.root / "settings.json"))


def _claude_code(settings: Mapping[str, Any]) -> float | None:
    return _days(settings.get("cleanupPeriodDays"))


def _gemini(settings: Mapping[str, Any]) -> float | None:
    general = settings.get("general")
    kept = cast("Mapping[str, Any]", general).get("sessionRetention") if isinstance(general, dict) else None
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", kept) if isinstance(kept, dict) else {}
    return None if fields.get("enabled") is False else _days(fields.get("maxAge"))


def _days(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(max(0, value))
    found = re.fullmatch(r"(\d+)([hdwm])", value) if isinstance(value, str) else None
    return int(found[1]) * _UNITS[found[2]] if found else _USUAL_DAYS


def _settings(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        value = json.loads(path.read_text("utf-8"))
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    return {}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "claude-code": _claude_code,
    "gemini": _gemini,
}


def days_left(place_days: float, changed: float, now: float) -> float:
    """Return the days until an agent deletes a session that was last changed at a time in seconds."""
    return place_days - (now - changed) / _DAY
