"""Feature flags: an OpenFeature provider can turn switches off and set offload limits while the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from ..errors import SettingsError
from ..extras import install_command
from .records import SWITCHES, Settings, Switches, consistent, turned_off


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
    try:
        api: Any = import_module("openfeature.api")
    except ImportError:
        raise SettingsError(f"flag_provider needs OpenFeature: {install_command('flags')}") from None
    module_name, _, attribute = settings.flag_provider.partition(":")
    try:
        make_provider: Callable[[], object] = getattr(import_module(module_name), attribute)
        api.set_provider(make_provider(), domain="reverie")
    except Exception as error:
        raise SettingsError(f"flag_provider = {settings.flag_provider!r} cannot be used: {error}") from error
    return cast(Flags, api.get_client(domain="reverie"))
