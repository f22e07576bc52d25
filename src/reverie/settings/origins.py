"""The origin of each setting, and changes of the user's file that keep its comments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from ..errors import SettingsError
from ..paths import replace_file
from ..values import fields_of, record
from .checks import CHECKS, refuse_unknown
from .load import PROJECT_FILE, RECORDS, SHARED_KEYS, TABLES, applied, load_settings
from .records import Settings
from .sources import DISABLERS, disabled_by, from_environment, read_toml

FILE_NAME: Final = "config.toml"


@record
class SettingOrigin:
    """One setting: its value in use, its default, and the file or variable that it comes from."""

    key: str
    value: object
    default: object
    source: str
    """Empty if no source sets it."""


def setting_origins(
    *,
    home: Path,
    project: Path | None = None,
    shared: Callable[[Settings], Settings] = lambda settings: settings,
) -> list[SettingOrigin]:
    """Return every setting with its origin, by key; a table without entries has no row.

    ``shared`` adds the rules and hooks of the project's file, if they are trusted.
    """
    own = load_settings(home=home, project=project)
    used, alone = dict(_rows(shared(own))), dict(_rows(load_settings(home=home)))
    defaults = dict(_rows(Settings(home=home)))
    sources = {key: str(home / FILE_NAME) for key in _keys(read_toml(home / FILE_NAME))}
    for key in used:
        if project is not None and used[key] != alone.get(key):
            users = sources.get(key, "") if key.partition(".")[0] in SHARED_KEYS else ""
            sources[key] = ", ".join(filter(None, (users, str(project / PROJECT_FILE))))
    for key in _keys(from_environment(os.environ)):
        head, _, rest = key.partition(".")
        sources[key] = f"REVERIE_SWITCH_{rest.upper()}" if head == "switches" else f"REVERIE_{head.upper()}"
    for switch in disabled_by(os.environ):
        asked = (name for name, off in DISABLERS.items() if switch in off and os.environ.get(name, "").strip())
        sources[f"switches.{switch}"] = next(asked)
    return [SettingOrigin(key, value, defaults.get(key), sources.get(key, "")) for key, value in sorted(used.items())]


def changed_file(home: Path, key: str, value: object | None) -> str:
    """Return the user's file with one setting changed or, for None, removed; raise ``SettingsError`` if invalid."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    head, _, rest = key.partition(".")
    if head not in CHECKS:
        refuse_unknown_setting(home, key)
    if bool(rest) != (head in RECORDS | TABLES):
        raise SettingsError(
            f"{key}: name one setting, such as {head}.{_first(head)}" if not rest else f"{head} is one value"
        )
    file = home / FILE_NAME
    read_toml(file, private=True)  # raises for a file that others could have written, or that is no TOML
    try:
        document = tomlkit.parse(file.read_text("utf-8") if file.exists() else "")
        place = cast("dict[str, Any]", document.setdefault(head, tomlkit.table()) if rest else document)
        if value is None:
            place.pop(rest or head, None)
        else:
            place[rest or head] = value
        text = tomlkit.dumps(document)
        applied(Settings(home=home), document.unwrap(), source="config")
    except TOMLKitError as error:
        raise SettingsError(f"{file}: {error}") from error
    return text


def refuse_unknown_setting(home: Path, key: str) -> NoReturn:
    """Raise ``SettingsError`` with the setting that was probably meant, also where its group is missing."""
    keys, group = [one.key for one in setting_origins(home=home)], key.partition(".")[0] + "."
    near = [one for one in keys if one.endswith(f".{key}")] or [one for one in keys if one.startswith(group)]
    refuse_unknown(key, near or CHECKS, "config")


def write_settings(home: Path, text: str) -> None:
    """Replace the user's file; only the user can read it."""
    replace_file(str(home), FILE_NAME, text.encode())


def _first(head: str) -> str:
    value = getattr(Settings(home=Path()), head)
    return "NAME" if isinstance(value, Mapping) else fields_of(type(value))[0]


def _rows(settings: Settings) -> Iterator[tuple[str, object]]:
    for name in fields_of(Settings):
        value = getattr(settings, name)
        if name in RECORDS:
            yield from ((f"{name}.{each}", getattr(value, each)) for each in fields_of(type(value)))
        elif name in TABLES:
            yield from ((f"{name}.{key}", one) for key, one in cast("Mapping[str, object]", value).items())
        elif name != "home":
            yield name, value


def _keys(given: Mapping[str, object]) -> Iterator[str]:
    for name, value in given.items():
        if name in RECORDS | TABLES and isinstance(value, Mapping):
            yield from (f"{name}.{key}" for key in cast("Mapping[str, object]", value))
        else:
            yield name
