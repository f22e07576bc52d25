"""Loading of settings from every source, in order of precedence."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from ..errors import SettingsError
from ..extras import needing
from ..values import replace
from .checks import CHECKS, read_switches, refuse_unknown
from .records import SWITCHES, Settings, Switches, consistent, default_home, turned_off
from .sources import disabled_by, from_environment, read_toml

RECORDS: Final = frozenset(
    {"agent", "compact", "dream", "extract", "notes", "permissions", "recall", "relay", "switches", "trim"}
)
TABLES: Final = frozenset({"hooks", "mcp_servers", "model_aliases", "models", "offload_limits"})
PROJECT_KEYS: Final = ("switches", "window_tokens", "compact_percent")
SHARED_KEYS: Final = ("permissions", "hooks")
"""Settings that a project's file may share with users who trust it (``runtime.places.shared_settings``)."""
PROJECT_FILE: Final = ".reverie.toml"


class SettingIgnored(UserWarning):
    """Warns that a setting in a project's file has no effect."""


def load_settings(
    *,
    home: Path | None = None,
    project: Path | None = None,
    environ: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
    flags: Flags | None = None,
    settings_file: Path | None = None,
) -> Settings:
    """Return the settings from the user's file, the project's file, the environment and arguments; later ones win.

    The project's file may only turn switches off and lower limits; ``flags`` may only turn switches off.
    ``settings_file`` is read instead of the user's file and must exist. Invalid sources raise ``SettingsError``;
    an invalid setting in the project's file is left out with the warning ``SettingIgnored``.
    """
    environment = os.environ if environ is None else environ
    settings = Settings(home=usable_home(home or default_home(environment)))
    if settings_file is not None and not settings_file.is_file():
        raise SettingsError(f"{settings_file}: no such settings file; check the path")
    user_file = settings_file or settings.home / "config.toml"
    settings = applied(settings, read_toml(user_file, private=settings_file is None), source=str(user_file))
    if project is not None:
        settings = narrowed(settings, project / PROJECT_FILE)
    settings = applied(settings, from_environment(environment), source="environment")
    settings = applied(settings, arguments or {}, source="argument")
    switches = consistent(turned_off(settings.switches, disabled_by(environment)))
    if flags is not None:
        switches = switched_by(flags, switches)
    return replace(settings, switches=switches)


def usable_home(home: Path | None = None) -> Path:
    """Return the home, by default the user's, as an absolute path; raise ``SettingsError`` if it is a file."""
    home = (home or default_home()).expanduser().absolute()
    there = next(place for place in (home, *home.parents) if place.exists())
    if not there.is_dir():
        inside = "" if there == home else f"cannot be created: {there} "
        advice = "set REVERIE_HOME to one that you can write to"
        raise SettingsError(f"the home {home} {inside}is not a directory; {advice}")
    return home


def applied(settings: Settings, given: Mapping[str, object], *, source: str) -> Settings:
    """Return the settings overridden by the values of ``source``; raise ``SettingsError`` if a value is invalid.

    Tables are merged into the tables of the settings, other values replace them.
    """
    changes: dict[str, Any] = {}
    for key, value in given.items():
        if key not in CHECKS:
            refuse_unknown(key, CHECKS, source)
        changes[key] = CHECKS[key](value, f"{source}: {key}")
    for key in RECORDS & changes.keys():
        changes[key] = replace(getattr(settings, key), **changes[key])
    for key in TABLES & changes.keys():
        changes[key] = MappingProxyType({**getattr(settings, key), **changes[key]})
    return replace(settings, **changes)


def narrowed(settings: Settings, file: Path) -> Settings:
    """Return the settings restricted by a project's file, which may only turn switches off and lower limits.

    A higher limit is ignored, and anything else too, with a warning: a repository must not stop a user's commands.
    What it shares with users who trust it is left out.
    """
    try:
        given = read_toml(file)
    except SettingsError as error:
        return _ignored(error, settings)
    switches = given.pop("switches", {})
    given = {key: value for key, value in given.items() if key not in SHARED_KEYS}
    single = cast("dict[str, object]", switches).items() if isinstance(switches, dict) else [("", switches)]
    for key, value in [*given.items(), *(("switches", {name: one} if name else one) for name, one in single)]:
        try:
            settings = _narrowed(settings, key, value, str(file))
        except SettingsError as error:
            settings = _ignored(error, settings)
    return settings


def _ignored(error: SettingsError, settings: Settings) -> Settings:
    warnings.warn(f"ignored: {error}", SettingIgnored, stacklevel=4)
    return settings


def _narrowed(settings: Settings, key: str, value: object, source: str) -> Settings:
    if key in CHECKS and key not in PROJECT_KEYS:
        raise SettingsError(f"{source}: a project may not set {key}; put it in {settings.home / 'config.toml'}")
    asked = applied(Settings(home=settings.home), {key: value}, source=source)
    if key != "switches":
        return replace(settings, **{key: lower(getattr(settings, key), getattr(asked, key))})
    wanted = read_switches(value, f"{source}: switches")
    for name, is_on in wanted.items():
        if is_on:
            raise SettingsError(f"{source}: a project may only turn switches off, and {name} is turned on")
    return replace(settings, switches=turned_off(settings.switches, list(wanted)))


def lower(one: float | None, other: float | None) -> Any:
    """Return the lower of two limits; None means no limit."""
    given = [limit for limit in (one, other) if limit is not None]
    return min(given) if given else None


class Flags(Protocol):
    """The part of an OpenFeature client that Reverie uses."""

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        """Return the flag's value, or the default if the provider has none."""
        ...

    def get_object_value(self, flag_key: str, default_value: Any, /) -> Any:
        """Return the flag's value as a table or list, or the default if the provider has none."""
        ...


def switched_by(flags: Flags, switches: Switches, *, failed: Callable[[str], None] | None = None) -> Switches:
    """Return the switches with those off that the flag provider turns off; the provider cannot turn any on.

    A flag is named ``reverie.<switch>``. If the provider fails, the settings apply and ``failed`` gets the message.
    """

    def says_off(name: str) -> bool:
        try:
            return flags.get_boolean_value(f"reverie.{name}", True) is False
        except Exception as error:
            if failed is not None:
                failed(f"the flag provider failed for reverie.{name}, so the setting applies: {error}")
            return False

    return consistent(turned_off(switches, [name for name in SWITCHES if getattr(switches, name) and says_off(name)]))


def limits_by(flags: Flags, limits: Mapping[str, int]) -> Mapping[str, int]:
    """Return the offload limits by tool, overridden by the flag ``reverie.offload_limits``.

    Invalid limits in the flag are ignored, and so is a provider that fails.
    """
    try:
        given = flags.get_object_value("reverie.offload_limits", {})
    except Exception:
        return limits  # switched_by reports a failing provider
    if not isinstance(given, Mapping):
        return limits
    found = {
        tool: limit
        for tool, limit in cast("Mapping[str, object]", given).items()
        if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    }
    return {**limits, **found} if found else limits


def open_flags(settings: Settings) -> Flags | None:
    """Start the OpenFeature provider that the settings name and return its client; None if they name no provider.

    Raise ``SettingsError`` if the provider cannot be used.
    """
    if settings.flag_provider is None:
        return None
    with needing("flags", "flag_provider needs OpenFeature", SettingsError):
        api: Any = import_module("openfeature.api")
    module_name, _, attribute = settings.flag_provider.partition(":")
    try:
        make_provider: Callable[[], object] = getattr(import_module(module_name), attribute)
        api.set_provider(make_provider(), domain="reverie")
    except Exception as error:
        raise SettingsError(f"flag_provider = {settings.flag_provider!r} cannot be used: {error}") from error
    return cast(Flags, api.get_client(domain="reverie"))
