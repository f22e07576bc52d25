"""Install then uninstall: existing content stays, including comments, and every file is restored byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import reverie.cli.hosts.install as installing_commands
from reverie.cli.hosts.install import command as install_command
from reverie.cli.hosts.install import remove
from reverie.errors import InputError
from reverie.hosts.events import HOSTS, Host
from reverie.hosts.installer import (
    InstallOptions,
    hook_entries,
    install,
    installed_files,
    settings_file,
    uninstall,
)
from reverie.hosts.jsonc import read, with_item, with_member, without

WITH_SETTINGS = [host for host in HOSTS if host != "opencode"]
OTHER = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}'
FILES: list[str] = [
    "",
    "\n",
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"model": "opus"}',
    '{"model":"opus","hooks":{}}\n',
    OTHER,
    json.dumps(json.loads(OTHER), indent=4) + "\n",
    json.dumps(json.loads(OTHER), indent="\t"),
    json.dumps(json.loads(OTHER), indent=2).replace("\n", "\r\n") + "\r\n",
    '{\n  // how I like it\n  "model": "opus", // the large one\n  /* nothing\n     here */\n}\n',
    '{\n  "hooks": {\n    "Stop": [\n      {"command": "x"}, // mine\n    ],\n  },\n}\n',
    '\ufeff{"permissions": {"allow": ["Bash(ls:*)"]}}\n',
    '{"hooks": {"SessionStart": [], "UserPromptSubmit": [{"hooks": []}], "sessionStart": []}, "version": 1}',
    '{"url": "http://example.com//path", "text": "a \\"quoted\\" /* not a comment */ word"}',
    '{\n\n\n        "deep": {"deeper": {"deepest": [1, 2, [3, {"x": null}]]}}\n\n\n}',
    '{"é": "ü — ☃", "n": -1.5e-7, "t": true}   \n\n',
    '{"hooks": {"PostToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "fmt"}]}]} , "a":1}',
    '{"enabledPlugins": {}, "statusLine": {"type": "command", "command": "my-line"}, "hooks" : { "Stop":[ ] }}',
    "// only a comment\n",
]


@pytest.mark.requirement("B6")
@pytest.mark.parametrize("host", WITH_SETTINGS)
@pytest.mark.parametrize("text", FILES, ids=range(len(FILES)))
def test_what_was_there_stays_and_comes_back_byte_for_byte(host: Host, text: str, tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    data = text.encode()
    path.write_bytes(data)
    path.chmod(0o644)
    dry = install(host, path, home, dry_run=True)
    assert path.read_bytes() == data
    assert not installed_files(home)
    everything = InstallOptions(statusline=True, permissions=True, memory="/shared")
    made = install(host, path, home, everything)
    assert made.state == "installed" != ""
    assert dry.diff
    now, before = read(path.read_text("utf-8")), read(text)
    assert covers(now, before), "nothing of it was lost"
    for line in comments(text):
        assert line in path.read_text("utf-8")
    commands = json.dumps(now)
    wanted = hook_entries(host, str)
    assert all(f"hook --host {host} {event}" in commands for event in wanted if event != "PreToolUse")
    assert install(host, path, home, everything).state == "unchanged"
    assert path.stat().st_mode & 0o777 == 0o644
    assert made.backup is not None
    assert made.backup.read_bytes() == data
    assert uninstall(host, path, home, dry_run=True).diff
    assert uninstall(host, path, home).state == "restored"
    assert path.read_bytes() == data
    assert uninstall(host, path, home).state == "absent"


def comments(text: str) -> list[str]:
    """Return the comments of the files above."""
    return [line for line in ("// how I like it", "// the large one", "// mine", "// only a comment") if line in text]


def covers(new: Any, old: Any) -> bool:
    """Say whether all that was said before is said still."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(name in new and covers(new[name], old[name]) for name in old)
    if isinstance(old, list):
        return isinstance(new, list) and new[: len(old)] == old
    return new == old


@pytest.mark.parametrize("host", WITH_SETTINGS)
def test_a_file_that_was_not_there_is_gone_again(host: Host, tmp_path: Path) -> None:
    path, home = tmp_path / "made" / "settings.json", tmp_path / "home"
    assert install(host, path, home).state == "installed"
    assert json.loads(path.read_text())["hooks"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert uninstall(host, path, home).state == "restored"
    assert not path.parent.exists()


def test_the_diff_of_a_file_on_one_line_has_a_line_for_each_hook(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model": "opus"}')
    lines = install("claude-code", path, tmp_path / "home", dry_run=True).diff.splitlines()
    assert sum('"command":' in line for line in lines) == len(hook_entries("claude-code", str))
    assert '-  "model": "opus"' in lines


def test_in_a_file_that_was_edited_since_only_our_lines_go(tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    text = '{\n  "model": "opus",\n  "hooks": {\n    "Stop": [\n      {"command": "x"}\n    ]\n  }\n}\n'
    path.write_text(text)
    install("claude-code", path, home)
    path.write_text(path.read_text().replace('"opus"', '"sonnet"'))
    assert uninstall("claude-code", path, home).state == "cleaned"
    assert path.read_text() == text.replace('"opus"', '"sonnet"')


def test_where_both_edits_touch_the_same_lines_our_entries_are_still_found(tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    path.write_text('{"model": "opus"}')
    install("claude-code", path, home)
    said = json.loads(path.read_text())
    said["model"] = "sonnet"
    said["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "say done"}]})
    path.write_text(json.dumps(said))
    uninstall("claude-code", path, home)
    left = [{"hooks": [{"type": "command", "command": "say done"}]}]
    assert json.loads(path.read_text()) == {"model": "sonnet", "hooks": {"Stop": left}}


def test_what_was_edited_between_two_installs_is_still_there_at_the_end(tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    text = '{\n  "model": "opus"\n}\n'
    path.write_text(text)
    install("claude-code", path, home)
    path.write_text(path.read_text().replace('"opus"', '"sonnet"'))
    assert install("claude-code", path, home, InstallOptions(statusline=True)).state == "installed"
    assert uninstall("claude-code", path, home).state == "restored"
    assert path.read_text() == text.replace('"opus"', '"sonnet"')


def test_a_hook_that_somebody_put_beside_ours_stays_when_ours_goes(tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    path.write_text("{}")
    install("claude-code", path, home)
    said = json.loads(path.read_text())
    theirs = {"type": "command", "command": "say done"}
    said["hooks"]["Stop"][0]["hooks"].append(theirs)
    path.write_text(json.dumps(said))
    assert uninstall("claude-code", path, home).state == "cleaned"
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [theirs]}]}}


def test_where_our_hooks_are_gone_already_nothing_is_known_of_the_file_any_more(tmp_path: Path) -> None:
    path, home = tmp_path / "settings.json", tmp_path / "home"
    path.write_text("{}")
    install("claude-code", path, home)
    path.write_text('{"model": "opus"}')
    assert uninstall("claude-code", path, home).state == "absent"
    assert installed_files(home) == []
    assert path.read_text() == '{"model": "opus"}'


def test_a_folder_that_was_there_and_empty_is_there_again(tmp_path: Path) -> None:
    path, home = tmp_path / "there" / "hooks.json", tmp_path / "home"
    path.parent.mkdir()
    install("cursor", path, home)
    uninstall("cursor", path, home)
    assert list(path.parent.iterdir()) == []


def test_a_comma_in_a_comment_is_not_the_one_that_parts() -> None:
    assert read(without('{"a": [1 /* x, y */, 2 /* z */]}', ("a", 1))) == {"a": [1]}


def test_a_file_that_cannot_be_read_keeps_nobody_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner()
    for host in HOSTS:
        assert runner.invoke(install_command, ["--host", host, "--yes"]).exit_code == 0
    settings_file("claude-code").write_text("{")
    with pytest.raises(InputError, match=r"settings\.json: line 1 is not JSON"):
        runner.invoke(remove, ["--yes"], catch_exceptions=False, standalone_mode=False)
    assert [settings_file(host).exists() for host in HOSTS] == [True, *[False] * (len(HOSTS) - 1)]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1} x', '{"hooks": 3}', '{"hooks": {"Stop": {}}}', '{"a":1,"a":2}'])
def test_a_file_that_is_not_understood_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(InputError):
        install("claude-code", path, tmp_path / "home")
    assert path.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, path = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_text("{}")
    path.symlink_to(real)
    install("claude-code", path, tmp_path / "home")
    assert path.is_symlink()
    assert "hooks" in real.read_text()


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return lists and objects of what there is."""
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), nested, max_leaves=10),
    st.sampled_from([None, 0, 1, 3, "\t"]),
    st.lists(st.text(max_size=5), min_size=1, max_size=3),
)
def test_adding_and_removing_leave_valid_json_with_all_else_in_it(plain: Any, indent: Any, path: list[str]) -> None:
    said = plain if isinstance(plain, dict) else {"inner": plain}
    text = json.dumps(said, indent=indent, ensure_ascii=False)
    try:
        more = with_item(text, tuple(path), {"new": [1]})
    except InputError:
        return  # something else stands on the way
    found = read(more)
    assert found == json.loads(more)
    assert covers(found, said)
    value: Any = found
    for name in path:
        value = value[name]
    assert value[-1] == {"new": [1]}
    less = read(without(more, (*path, len(value) - 1)))
    assert covers(less, said)
    assert with_member(more, tuple(path), 7) == more, "what is there is not set again"


def test_the_commands_show_a_diff_and_say_where_the_old_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    path = settings_file("claude-code")
    path.parent.mkdir()
    path.write_text("{}\n")
    runner = CliRunner()
    dry = runner.invoke(install_command, ["--host", "claude-code", "--dry-run"], catch_exceptions=False)
    assert "Each hook runs this Reverie (" in " ".join(dry.output.split())
    assert "+" in dry.output
    assert "would be installed" in dry.output
    made = runner.invoke(install_command, ["--host", "claude-code", "--yes", "--json"], catch_exceptions=False)
    assert json.loads(made.output)["changes"][0]["state"] == "installed"
    assert "restored" in runner.invoke(remove, ["--yes"], catch_exceptions=False).output
    assert path.read_text() == "{}\n"
    assert "No agent has" in runner.invoke(remove, ["--yes"], catch_exceptions=False).output


def test_a_file_that_a_killed_install_left_beside_the_users_goes_with_the_next_one(tmp_path: Path) -> None:
    path, home = tmp_path / "hooks.json", tmp_path / "home"
    killed = f"""
import os, signal
from pathlib import Path
os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from reverie.hosts.installer import install
install("codex", Path({str(path)!r}), Path({str(home)!r}))
"""
    assert subprocess.run([sys.executable, "-c", killed], timeout=60).returncode == -9
    [left] = [one for one in tmp_path.iterdir() if one.is_file()]
    install("codex", path, home)
    assert left.exists(), "its writer may still be at it"
    uninstall("codex", path, home)
    os.utime(left, (1, 1))
    install("codex", path, home)
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["hooks.json"]


def test_opencode_gets_a_plugin_that_goes_whole_and_no_other_plugin_is_touched(tmp_path: Path) -> None:
    path, home = tmp_path / "plugins" / "reverie.js", tmp_path / "home"
    assert install("opencode", path, home).state == "installed"
    assert install("opencode", path, home).state == "unchanged"
    assert "@PROGRAM@" not in path.read_text()
    assert uninstall("opencode", path, home).state == "restored"
    assert not path.parent.exists()
    path.parent.mkdir()
    path.write_text("export const Other = async () => ({})")
    with pytest.raises(InputError, match="another plugin"):
        install("opencode", path, home)
    path.unlink()
    install("opencode", path, home)
    path.write_text(path.read_text() + "// mine")
    with pytest.raises(InputError, match="edited since"):
        uninstall("opencode", path, home)
    assert path.read_text().endswith("// mine")


@pytest.mark.requirement("H2")
def test_outputs_are_watched_only_where_a_host_leaves_big_ones() -> None:
    hosts: tuple[Host, ...] = ("claude-code", "codex", "qwen")
    watched = {host: hook_entries(host, str) for host in hosts}
    assert watched["claude-code"]["PostToolUse"]["matcher"] == "mcp__.*"
    assert "PostToolUse" not in {**watched["codex"], **watched["qwen"]}
    assert all("SessionStart" in events for events in watched.values())


@pytest.mark.requirement("H1")
def test_uninstall_shows_the_diff_and_asks_as_install_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    runner = CliRunner()
    assert runner.invoke(install_command, ["--host", "claude-code", "--yes"]).exit_code == 0
    path = tmp_path / ".claude" / "settings.json"
    before = path.read_bytes()
    silent = runner.invoke(remove, [])
    assert isinstance(silent.exception, InputError)
    assert "--yes removes the hooks" in str(silent.exception)
    shown = runner.invoke(remove, ["--dry-run"]).output
    assert f"+++ {path} (changed)" in shown
    assert f"--- {path}\n" in shown
    monkeypatch.setattr(installing_commands, "confirmed", lambda question, _refusal: False)
    assert "-" in runner.invoke(remove, [], catch_exceptions=False).output
    assert path.read_bytes() == before
    monkeypatch.setattr(installing_commands, "confirmed", lambda question, _refusal: True)
    assert runner.invoke(remove, [], catch_exceptions=False).exit_code == 0
    assert not path.exists()
    assert "No agent has Reverie's hooks" in runner.invoke(remove, [], catch_exceptions=False).output


def test_a_host_and_a_plugin_folder_exclude_each_other_and_a_file_is_no_folder(tmp_path: Path) -> None:
    runner, folder = CliRunner(), tmp_path / "plugins"
    for act in (install_command, remove):
        refused = runner.invoke(act, ["--plugin", str(folder), "--host", "codex"]).exception
        assert isinstance(refused, InputError)
        assert "--host and --plugin exclude each other" in str(refused)
    folder.write_text("notes")
    refused = runner.invoke(install_command, ["--plugin", str(folder)]).exception
    assert isinstance(refused, InputError)
    assert str(refused) == f"{folder} is a file: give a folder"
