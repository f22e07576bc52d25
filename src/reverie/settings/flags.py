"""Switches turned off from outside, without a release, by an OpenFeature provider."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

from ..errors import SettingsError
from .records import SWITCHES, Settings, Switches, consistent, turned_off

__all__ = ["Flags", "open_flags", "switched_by"]


class Flags(Protocol):
    """The part of an OpenFeature client that is used."""

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        """Return the flag's value, or the default where the provider has none."""
        ...


def switched_by(flags: Flags, switches: Switches) -> Switches:
    """Return the switches with those off that the flag provider turns off; it can turn none on.

    A flag is named ``reverie.<switch>``. A provider that fails has no say: the settings stand.
    """

    def says_off(name: str) -> bool:
        try:
            return flags.get_boolean_value(f"reverie.{name}", True) is False
        except Exception:
            return False

    return consistent(turned_off(switches, [name for name in SWITCHES if getattr(switches, name) and says_off(name)]))


def open_flags(settings: Settings) -> Flags | None:
    """Start the OpenFeature provider that the user's settings name, or return None where they name none."""
    if settings.flag_provider is None:
        return None
    try:
        api: Any = import_module("openfeature.api")
    except ImportError:
        raise SettingsError("flag_provider needs OpenFeature: pip install 'reverie[flags]'") from None
    module_name, _, attribute = settings.flag_provider.partition(":")
    try:
        make_provider: Callable[[], object] = getattr(import_module(module_name), attribute)
        api.set_provider(make_provider(), domain="reverie")
    except Exception as error:
        raise SettingsError(f"flag_provider = {settings.flag_provider!r} cannot be used: {error}") from error
    return cast(Flags, api.get_client(domain="reverie"))
