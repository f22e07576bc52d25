"""The sources of settings: TOML files and environment variables, read into the same format."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import SettingsError
from .checks import CHECKS, read_word, refuse_unknown
from .records import SWITCHES

NOT_SETTINGS: Final = frozenset(
    {"REVERIE_HOME", "REVERIE_WORKER", "REVERIE_CORPUS", "REVERIE_TEST_SEED", "REVERIE_MODEL_WINDOW_TOKENS"}
)
FILE_ONLY: Final = frozenset({"switches", "permissions", "hooks", "mcp_servers"})
SWITCH_PREFIX: Final = "REVERIE_SWITCH_"
HOOK_PREFIX: Final = "REVERIE_HOOK_"  # variables that Reverie sets for hooks, which may call reverie themselves
MAX_FILE_BYTES: Final = 65_536

# Variables that other programs use for the same purpose, and the switches each of them turns off.
DISABLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "DISABLE_COMPACT": ("compact", "auto_compact", "compact_from_notes", "collapse"),
    "DISABLE_AUTO_COMPACT": ("auto_compact",),
    "DISABLE_MICROCOMPACT": ("idle_trim", "priced_trim", "cache_edit", "budget_trim"),
}


def read_toml(file: Path, *, private: bool = False) -> dict[str, object]:
    """Return the content of a TOML settings file as a dict; empty if the file does not exist.

    Raise ``SettingsError`` if the file cannot be read, is not valid TOML or is too long, or with ``private`` if others
    could have written it.
    """
    import tomllib

    try:
        # Non-blocking, because a repository may contain a pipe in place of its settings file.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise SettingsError(f"{file} is not a regular file; replace it by one or delete it")
            if private and _is_open_to_others(found):
                raise SettingsError(f"{file} could have been written by others; look at it, then chmod 600 it")
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise SettingsError(f"{file}: longer than {MAX_FILE_BYTES} bytes; shorten it")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: not valid TOML: {error}") from error


def _is_open_to_others(found: os.stat_result) -> bool:
    # A group with the number of its user is that user's own: there, files are often writable for the group.
    shared = 0o002 if found.st_gid == found.st_uid else 0o022
    return found.st_uid not in (os.getuid(), 0) or bool(found.st_mode & shared)


def from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the settings in ``REVERIE_`` variables as TOML would have them; raise ``SettingsError`` if unknown."""
    given: dict[str, object] = {}
    switches: dict[str, object] = {}
    variables = {f"REVERIE_{key.upper()}": key for key in CHECKS if key not in FILE_ONLY}
    for variable, text in environ.items():
        if not variable.startswith("REVERIE_") or variable in NOT_SETTINGS or variable.startswith(HOOK_PREFIX):
            continue
        if variable.startswith(SWITCH_PREFIX):
            name = variable.removeprefix(SWITCH_PREFIX).lower()
            if name not in SWITCHES:
                refuse_unknown(variable, [SWITCH_PREFIX + known.upper() for known in SWITCHES], "environment")
            switches[name] = read_word(text, f"environment: {variable}")
        elif variable not in variables:
            refuse_unknown(variable, [*variables, *NOT_SETTINGS], "environment")
        else:
            given[variables[variable]] = read_text(variables[variable], text)
    return {**given, "switches": switches} if switches else given


def read_text(key: str, text: str) -> object:
    """Return the text of the setting ``key`` in its own type; invalid text stays text and is rejected later."""
    try:
        match key:
            case "window_tokens" | "retention_days":
                return int(text)
            case "compact_percent":
                return float(text)
            case "offload_limits":
                pairs = (part.partition("=") for part in text.split(",") if part.strip())
                return {tool.strip(): int(limit) for tool, _, limit in pairs}
            case "trim" | "notes" | "compact" | "extract" | "recall" | "dream" | "relay" | "agent" | "model_aliases":
                pairs = (part.partition("=") for part in text.split(",") if part.strip())
                return {name.strip(): _plain(value.strip()) for name, _, value in pairs}
            case _:
                return text
    except ValueError:
        return text


def _plain(text: str) -> object:
    """Return a word as the boolean or number that TOML would read, or else as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def disabled_by(environ: Mapping[str, str]) -> list[str]:
    """Return a list of the switches that DISABLE_ variables turn off; an empty variable or 0 has no effect."""
    asked = [name for name in DISABLERS if environ.get(name, "").strip()]
    return [
        switch
        for variable in asked
        if read_word(environ[variable], f"environment: {variable}")
        for switch in DISABLERS[variable]
    ]
