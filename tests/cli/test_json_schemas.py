"""Every command that reads prints JSON that fits its published schema, and every command that changes has --dry-run."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest

from log_script import Script
from reverie import FileStorage, Library
from reverie.cli.main import group
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.places.projects import log_key, project_slug

from .conftest import SAMPLE, Reverie

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"
CALLS: dict[str, list[list[str]]] = {
    "agents": [["agents"]],
    "config": [["config"], ["config", "--all"]],
    "context": [["context", "6513270e"], ["context", "fence-1", "--whole"]],
    "db-audit": [],  # these need a server: test_operations.py, test_database.py
    "db-jobs": [],
    "db-status": [],
    "demo": [["demo", "--tokens", "20000"]],
    "doctor": [["doctor"], ["doctor", "--model", "claude-sonnet-5"]],
    "dream": [["dream", "--status"]],
    "gateway-check": [["gateway", "check"]],
    "gateway-env": [["gateway", "env"], ["gateway", "env", "--host", "codex"]],
    "inbox": [["inbox", "worker"]],
    "inspect": [["inspect", "fence-1", "--html", "page.html"]],
    "loss": [["loss", "fence-1"]],
    "memory-blame": [["memory", "blame", "lunch"]],
    "memory-lint": [["memory", "lint"]],
    "memory-list": [["memory", "list"]],
    "memory-log": [["memory", "log"]],
    "memory-path": [["memory", "path"]],
    "memory-review": [["memory", "review"]],
    "memory-search": [["memory", "search", "lunch"]],
    "memory-show": [["memory", "show", "lunch"]],
    "notes": [["notes", "6513270e"]],
    "read": [["read", "fence-1", "t1"], ["read", "fence-1", "t1", "--search", "line 1"]],
    "redact": [["redact", "fence-1", "--scan"]],
    "replay": [["replay", str(SAMPLE)]],
    "rules": [["rules", "fence-1"]],
    "search": [["search", "fence"]],
    "sessions": [["sessions"]],
    "show": [["show", "fence-1"], ["show", "6513270e", "--view"]],
    "stats": [["stats", "--days", "36500"], ["stats", "--by", "session", "--days", "36500"], ["stats", "6513270e"]],
    "statusline": [["statusline"]],
    "trust": [["trust", "--list"], ["trust", "--rules"]],
    "worker": [["worker", "--status"]],
}
"""For each schema the calls that read; some of these commands also change things, with other options."""
NO_JSON = {
    "acp": "speaks the protocol of editors",
    "gateway-record": "serves until it is stopped",
    "chat": "a conversation; --output-format has its own formats",
    "completion": "prints a script",
    "hook": "answers in the format of the calling agent",
    "mcp": "serves until it is stopped; --json prints its address",
}
NO_DRY_RUN = {
    "acp": "serves an editor until it goes; the model decides about changes, and asks",
    "chat": "the model decides about changes, and asks",
    "gateway-record": "serves until it is stopped",
    "hook": "called by another agent, and not by people",
    "mcp": "serves until it is stopped",
    "worker": "--status shows the jobs that it would run",
}


def commands(table: click.Group = group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Return every command with its name, that of its group before it."""
    for name in table.list_commands(click.Context(table)):
        command = table.get_command(click.Context(table), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        elif command is not None:
            yield "-".join((*above, name)), command


def options_of(command: click.Command) -> set[str]:
    """Return the options of a command."""
    return {option for each in command.params for option in each.opts}


def unplaced(found: dict[str, click.Command]) -> list[str]:
    """Return the commands that neither have --dry-run nor a schema of what they read nor are excepted."""
    names = [name for name, command in found.items() if "--dry-run" not in options_of(command)]
    return [name for name in names if name not in CALLS and name not in NO_DRY_RUN and name not in NO_JSON]


def test_every_command_reads_with_a_schema_or_changes_with_a_dry_run() -> None:
    found = dict(commands())
    assert unplaced(found) == []
    assert unplaced({**found, "juggle": click.Command("juggle")}) == ["juggle"]
    assert {name for name in NO_DRY_RUN if "--dry-run" in options_of(found[name])} == set(), "no longer excepted"
    assert set(NO_JSON) | set(NO_DRY_RUN) <= set(found)
    assert {name for name, one in found.items() if "--json" not in options_of(one)} == set(NO_JSON) - {"mcp"}
    listed = re.findall(r"\(schemas/([\w-]+)\.json\)", (SCHEMAS.parent / "json.md").read_text())
    assert {path.stem for path in SCHEMAS.glob("*.json")} == set(CALLS) == set(listed)


@pytest.fixture
def world(home: Path, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reverie: Reverie) -> None:
    """Make a home with sessions, a memory, a letter, a rule and a trusted directory."""
    monkeypatch.chdir(tmp_path)
    storage = FileStorage(home)
    Library(storage).store(log_key(project_slug(tmp_path), "fence-1"), script.entries)
    storage.close()
    Mailbox(home, "default", "worker").close()
    for command in (
        ["import", SAMPLE],
        ["memory", "add", "Lunch is at noon, since 2026-01-05", "--type", "project", "--name", "lunch"],
        ["send", "worker", "the build is red", "--summary", "build"],
        ["rules", "fence-1", "--add", "Answer in two sentences."],
        ["trust", ".", "--yes"],
        ["config", "preset", "thrifty"],
    ):
        assert reverie(*command)[0] == 0


def closed(schema: Any) -> Any:
    """Return a schema that allows only the named properties: readers ignore new ones, but we publish them."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


def schema_of(name: str) -> dict[str, Any]:
    """Return a published schema."""
    return json.loads((SCHEMAS / f"{name}.json").read_text())


@pytest.mark.usefixtures("world")
def test_the_output_of_every_reading_command_fits_its_schema(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: dict[str, list[str]] = {}
    for name, calls in CALLS.items():
        schema = schema_of(name)
        jsonschema.Draft202012Validator.check_schema(schema)
        check = jsonschema.Draft202012Validator(closed(schema))
        assert not check.is_valid({"surprise": 1}), name
        for call in calls:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
            code, out, err = reverie(*call, "--json")
            assert code in (0, 1), err  # 1: lint found something
            errors = [f"{error.json_path}: {error.message}" for error in check.iter_errors(json.loads(out))]
            wrong |= {" ".join(call): errors} if errors else {}
    assert wrong == {}


def test_a_property_that_no_schema_names_would_be_seen() -> None:
    check = jsonschema.Draft202012Validator(closed(schema_of("memory-path")))
    assert check.is_valid({"path": "/x"})
    assert not check.is_valid({"path": "/x", "new": 1})
    assert jsonschema.Draft202012Validator(schema_of("memory-path")).is_valid({"path": "/x", "new": 1}), "for readers"
