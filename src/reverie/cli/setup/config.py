"""``reverie config``: show every setting with its origin, and set one in the user's file."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, cast

import click

from ...errors import InputError, ModelUnknown
from ...runtime.places.projects import canonical_root
from ...runtime.places.shared_settings import with_shared
from ...settings import Settings, load_settings
from ...settings.load import usable_home
from ...settings.origins import (
    FILE_NAME,
    SettingOrigin,
    changed_file,
    refuse_unknown_setting,
    setting_origins,
    write_settings,
)
from ..output import counted, emit_json, folded, one_word, say, table, warn

_BELOW_ZERO: Final = re.compile(r"-(?:\.?\d.*|inf)")


class _TakesNumbers(click.Command):
    """A command that takes a number below zero as an argument; click alone takes it for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the numbers behind the options."""
        numbers = [one for one in args if _BELOW_ZERO.fullmatch(one)]
        if numbers and "--" not in args:
            args = [*(one for one in args if one not in numbers), "--", *numbers]
        return super().parse_args(ctx, args)


@click.command(cls=_TakesNumbers)
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY from your file, so that it has its default.")
@click.option("--all", "everything", is_flag=True, help="Also settings with their default.")
@click.option("--dry-run", is_flag=True, help="Show the change of your file and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(key: str | None, value: str | None, unset: bool, everything: bool, dry_run: bool, as_json: bool) -> None:
    """Show your settings with the file or variable that each comes from; with VALUE, set KEY in config.toml.

    KEY is a setting such as 'preset' or 'compact.patience', or a group such as 'compact'. VALUE is written as in TOML;
    text needs no quotes. The comments of your file stay.
    """
    home = usable_home()
    if unset and (key is None or value is not None):
        raise InputError("--unset needs KEY and no VALUE")
    if key is not None and (unset or value is not None):
        return _change(home, key, None if unset else _parsed(value or ""), dry_run, as_json)
    found = _origins(home, Path.cwd())
    if key is not None:
        found = [one for one in found if one.key == key or one.key.startswith(f"{key}.")]
        if not found:
            refuse_unknown_setting(home, key)
    shown = found if everything or key is not None else [one for one in found if one.source]
    model, reason = chat_model(found)
    if as_json:
        chosen = {"name": model, "reason": reason}
        emit_json({"file": str(home / FILE_NAME), "settings": [_row(one) for one in shown], "chat_model": chosen})
        return
    if shown:
        rows = [(one.key, one_word(_text(one.value)), one.source or "default") for one in shown]
        table(["setting", "value", "from"], rows)
    if len(shown) < len(found):
        say(f"{counted(len(found) - len(shown), 'setting')} with the default: 'reverie config --all' lists them.")
    if key in (None, "model"):
        say(folded(f"Model of the chat: {model or 'none'} ({reason})."))


def _origins(home: Path, here: Path) -> list[SettingOrigin]:
    """Return every setting with its origin; print a notice if rules and hooks of the project are not used."""
    notices: list[str] = []

    def shared(settings: Settings) -> Settings:
        settings, notice = with_shared(settings, canonical_root(here))
        notices.extend(filter(None, [notice]))
        return settings

    found = setting_origins(home=home, project=canonical_root(here), shared=shared)
    for notice in notices:
        warn(notice)
    return found


def chat_model(found: Sequence[SettingOrigin]) -> tuple[str | None, str]:
    """Return the model that a chat uses, None if there is none, and the setting or variable that decides it."""
    from ...models.names import deciding_variable, full_name

    own = next((one for one in found if one.key == "model"), None) or SettingOrigin("model", None, None, "")
    aliases = {
        one.key.removeprefix("model_aliases."): str(one.value) for one in found if one.key.startswith("model_aliases.")
    }
    variable = deciding_variable(os.environ)
    if own.value is None and not variable:
        return None, (
            "no key of a provider is in the environment; set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a model: "
            "reverie config model NAME"
        )
    try:
        name = full_name(str(own.value or ""), aliases=aliases)
    except ModelUnknown as error:
        return None, f"{str(error).partition('. ')[0]}; set by {own.source}"
    if own.value is not None:
        return name, f"set by {own.source}"
    return name, f"the default of the provider that {variable} chooses; another one: reverie config model NAME"


def _change(home: Path, key: str, value: object | None, dry_run: bool, as_json: bool) -> None:
    file = home / FILE_NAME
    before = file.read_text("utf-8") if file.exists() else ""
    after = changed_file(home, key, value)
    notice = _notice_of_model(home, value) if key == "model" and isinstance(value, str) else ""
    if not dry_run and after != before:
        write_settings(home, after)
    [now] = [one for one in setting_origins(home=home) if one.key == key] or [SettingOrigin(key, None, None, "")]
    if as_json:
        emit_json({"file": str(file), "changed": after != before, "dry_run": dry_run, "setting": _row(now)})
        return
    if after == before:
        say(f"nothing to change: {file} has it already" if value is not None else f"{file} does not set {key}")
    else:
        say(f"{file} {'would change' if dry_run else 'changed'}:")
    for line in list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]:
        say(line)
    if notice:
        warn(notice)
    if now.source and now.source != str(file):
        say(f"{now.source} has precedence: {key} stays {_text(now.value)} while it is set")


def _notice_of_model(home: Path, name: str) -> str:
    """Return a notice about a model that no list has; raise ``ModelUnknown`` if the name implies no provider."""
    from ...models.names import full_name, unlisted_notice

    settings = load_settings(home=home)
    return unlisted_notice(full_name(name, aliases=settings.model_aliases), settings.models)


def _parsed(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _row(one: SettingOrigin) -> dict[str, object]:
    return {"key": one.key, "value": one.value, "default": one.default, "source": one.source or "default"}


def _text(value: object) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return "true" if value else "false"
        case tuple() | list() | frozenset():
            words = (str(getattr(one, "command", one)) for one in cast("Iterable[object]", value))
            return ", ".join(sorted(words) if isinstance(value, frozenset) else words) or "none"
        case float():
            return f"{value:g}"
        case "":
            return "none"
        case _:
            return str(value)
