"""The compose file of the guide fits together: names, conditions, and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from reverie.cli.main import group

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "several-machines.md"
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
FIELDS = {
    "image", "command", "environment", "secrets", "volumes", "healthcheck", "depends_on", "restart", "deploy"
}  # fmt: skip
"""The fields of a service that the guide uses; all are in the compose specification."""


def compose() -> dict[str, Any]:
    found = re.search(r"```yaml\n(services:.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


def problems(file: dict[str, Any]) -> list[str]:
    """Return what a compose file names and does not have, and its commands that this version does not know."""
    services, found = file["services"], list[str]()
    for name, service in services.items():
        found += [f"{name}: field {field}" for field in service.keys() - FIELDS]
        for other, asked in service.get("depends_on", {}).items():
            found += [f"{name}: no service {other}"] if other not in services else []
            found += [f"{name}: condition {asked}"] if asked["condition"] not in CONDITIONS else []
            is_checked = "healthcheck" in services.get(other, {})
            found += [f"{name}: no check of {other}"] if "healthy" in asked["condition"] and not is_checked else []
        found += [f"{name}: no secret {one}" for one in service.get("secrets", []) if one not in file["secrets"]]
        places = [one.split(":")[0] for one in service.get("volumes", [])]
        found += [f"{name}: no volume {one}" for one in places if one[0] not in "./" and one not in file["volumes"]]
        found += [f"{name}: {one}" for line in commands(service) if (one := unknown_words(line))]
    return found


def commands(service: dict[str, Any]) -> list[list[str]]:
    """Return the calls of this program in a service's command."""
    words = shlex.split(service.get("command", ""))
    inner = words[2] if words[:2] == ["sh", "-c"] else " ".join(words)
    lines = [shlex.split(part.strip().removeprefix("exec ")) for part in inner.split("&&")]
    return [line[1:] for line in lines if line[:1] == ["reverie"]]


def unknown_words(line: list[str]) -> str:
    """Return the error of parsing a command line, without running it; empty if there is none."""
    command: click.Command = group
    context = click.Context(command, info_name="reverie")
    try:
        while isinstance(command, click.Group):
            name, found, line = command.resolve_command(context, line)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        command.parse_args(context, line)
    except click.UsageError as error:
        return error.format_message()
    return ""


def test_the_compose_file_of_the_guide_fits_together() -> None:
    file = compose()
    assert sum(len(commands(one)) for one in file["services"].values()) == 2
    assert problems(file) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("db migrate", "db migrat", "No such command"),
        ("--grant", "--grants", "No such option"),
        ("secrets: [pgpass]", "secrets: [passwords]", "no secret passwords"),
        ("service_healthy", "healthy", "condition"),
        ("{migrate:", "{migrations:", "no service migrations"),
    ],
)
def test_a_compose_file_with_a_mistake_is_noticed(
    old: str, new: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GUIDE.read_text("utf-8")
    assert old in text
    monkeypatch.setattr(Path, "read_text", lambda *_: text.replace(old, new))
    assert told in str(problems(compose()))
