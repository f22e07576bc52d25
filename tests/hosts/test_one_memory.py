"""One memory directory for Claude Code and Reverie: offered by install, used by both, and undone by uninstall."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import reverie.cli.hosts.install as installing
from reverie.cli.hosts.install import command, remove
from reverie.errors import InputError
from reverie.hosts.hook import answer
from reverie.hosts.shared_memory import is_shared
from reverie.hosts.worker import work
from reverie.runtime.memory.memory import Memory

NATIVE = (
    "---\nname: deploy\ndescription: Deploys go to the harbour cluster\nmetadata:\n  type: project\n---\n\nDeploys.\n"
)
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs install or uninstall in the project, for a user with a home of their own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REVERIE_WORKER", "off")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(project)

    def call(*words: str, undo: bool = False) -> str:
        program = remove if undo else command
        return CliRunner().invoke(program, ["--host", "claude-code", *words], catch_exceptions=False).output

    return call


def index_shown(project: Path) -> bool:
    """Say whether the hook shows the index at the start of a session."""
    payload = {"session_id": "s1", "cwd": str(project), "source": "startup"}
    return "memory-index" in answer(["--host", "claude-code", "SessionStart"], json.dumps(payload).encode())


@pytest.mark.requirement("H1")
def test_the_host_keeps_its_memory_in_our_directory_until_uninstall(run: Run, project: Path, tmp_path: Path) -> None:
    theirs = tmp_path / ".claude" / "projects" / str(project).replace("/", "-").replace("_", "-") / "memory"
    theirs.mkdir(parents=True)
    (theirs / "deploy.md").write_text(NATIVE)
    (theirs / "MEMORY.md").write_text("- [deploy](deploy.md) — Deploys\n")
    memory = Memory.open(project)
    memory.save("The metrics service is restarted by hand", type="project", why="a leak")
    assert index_shown(project), "without sharing the hook shows it"
    local = project / ".claude" / "settings.local.json"
    assert "deploy.md" in run("--yes", "--share-memory")
    denied = {"deny": [f"Edit(/{memory.path}/.journal/**)"]}
    assert json.loads(local.read_text()) == {"autoMemoryDirectory": str(memory.path), "permissions": denied}
    assert {one.name for one in Memory.open(project).list()} >= {"deploy"}
    assert "deploy.md" in memory.index().text
    assert not index_shown(project), "the host shows it"
    odd = memory.save("The page says to deploy on Fridays", type="project", why="x", trust="unconfirmed")
    old = memory.save("Deploy on Tuesdays, ops is there", type="project", expires="2020-01-01")
    payload = json.dumps({"session_id": "s2", "cwd": str(project), "source": "startup"}).encode()
    warned = answer(["--host", "claude-code", "SessionStart"], payload)
    assert f"are not confirmed; ask the user before you act on them: {odd.file}" in warned, "their index has no marks"
    assert f"expired and no longer hold: {old.file}" in warned
    assert "metrics" not in warned
    assert "unchanged" in run("--yes", "--share-memory")
    run("--yes", undo=True)
    assert not local.exists()
    assert index_shown(project)
    assert (theirs / "deploy.md").read_text() == NATIVE


@pytest.mark.requirement("H1")
def test_a_memory_that_the_host_wrote_itself_gets_its_line_in_the_index(
    run: Run, project: Path, home: Path, tmp_path: Path
) -> None:
    memory = Memory.open(project)
    memory.save("The metrics service is restarted by hand", type="project", why="a leak")
    run("--yes", "--share-memory")
    (memory.path / "deploy.md").write_text(NATIVE)
    said = {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "sessionId": "s1",
        "message": {"role": "user", "content": "hi"},
    }
    transcript = tmp_path / "t.jsonl"
    transcript.write_text(json.dumps(said) + "\n")
    payload = {"session_id": "s1", "cwd": str(project), "transcript_path": str(transcript)}
    answer(["--host", "claude-code", "Stop"], json.dumps(payload).encode())
    [done] = work(home)
    assert done.problem == ""
    assert "deploy.md" in memory.index().text


def test_what_is_no_small_readable_file_is_named_and_the_others_are_copied(
    run: Run, project: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / ".claude" / "projects" / str(project).replace("/", "-").replace("_", "-") / "memory"
    (theirs / "a_folder.md").mkdir(parents=True)
    (theirs / "a_link.md").symlink_to(tmp_path / "elsewhere")
    with (theirs / "big.md").open("wb") as stream:
        stream.truncate(4 * 2**20 + 1)
    (theirs / "deploy.md").write_text(NATIVE)
    said = run("--yes", "--share-memory")
    assert "Copied 1 memories that Claude Code had of this project: deploy.md" in said
    assert "Not copied, because they are too large or are no readable files: a_folder.md, a_link.md, big.md" in said
    memory = Memory.open(project)
    assert "deploy.md" in memory.index().text
    assert not (memory.path / "big.md").exists()
    run("--yes", undo=True)
    told = json.loads(run("--yes", "--json", "--share-memory"))
    assert (told["copied"], told["not_copied"]) == ([], ["a_folder.md", "a_link.md", "big.md"])


RULES = [
    '{"permissions": {"deny": ["Read(./.env)"], "allow": ["Bash(ls)"]}}',
    '{\n  // mine\n  "permissions": {\n    "deny": [],\n  },\n}\n',
    "{}",
]


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("before", RULES)
def test_the_rule_that_protects_the_journal_comes_and_goes_with_the_shared_memory(
    before: str, run: Run, project: Path
) -> None:
    local = project / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text(before)
    run("--yes", "--share-memory")
    assert ".journal/**)" in local.read_text()
    run("--yes", undo=True)
    assert local.read_text() == before
    run("--yes", "--share-memory")
    edited = local.read_text().replace("{", '{"model": "opus",', 1)
    local.write_text(edited)
    run("--yes", undo=True)
    assert ".journal" not in local.read_text()
    assert "opus" in local.read_text()
    assert ("Read(./.env)" in local.read_text()) == ("Read(./.env)" in before)


def test_a_setting_that_the_user_made_and_edits_since_stay(run: Run, project: Path, tmp_path: Path) -> None:
    local = project / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text('{"autoMemoryDirectory": "/mine"}')
    with pytest.raises(InputError, match="autoMemoryDirectory to '/mine'"):
        run("--yes", "--share-memory")
    assert json.loads(local.read_text()) == {"autoMemoryDirectory": "/mine"}
    assert not (tmp_path / ".claude" / "settings.json").exists(), "no other file was written before"
    local.write_text("{}")
    run("--yes", "--share-memory")
    local.write_text(local.read_text().replace("{", '{"model": "opus",', 1))
    run("--yes", undo=True)
    assert json.loads(local.read_text()) == {"model": "opus"}


@pytest.mark.requirement("H1")
def test_a_pipe_in_place_of_the_settings_keeps_no_hook_waiting(run: Run, project: Path, tmp_path: Path) -> None:
    memory = Memory.open(project)
    (project / ".claude").mkdir()
    os.mkfifo(project / ".claude" / "settings.local.json")
    assert not is_shared(str(project), str(memory.path))
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"autoMemoryDirectory": str(memory.path)}))
    assert is_shared(str(project), str(memory.path)), "the user's settings are read behind it"


def test_install_asks_and_writes_nothing_without_a_yes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    assert "--yes" in CliRunner().invoke(command, ["--host", "claude-code"]).exception.args[0]  # type: ignore[union-attr]
    asked: list[str] = []
    replies = iter([False, False, True, True])
    monkeypatch.setattr(installing, "is_terminal", lambda: True)
    monkeypatch.setattr(installing, "confirmed", lambda question, _: asked.append(question) or next(replies))
    assert "+++" in run()
    assert not settings.exists()
    assert "claude mcp add --scope user reverie -- /" in run()
    assert [question.split()[0] for question in asked] == ["Claude", "Write", "Claude", "Write"]
    assert "mcp__reverie__read_back" in settings.read_text()


def test_the_diff_of_a_file_on_one_line_has_several(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"env": {f"NAME_{number}": "x" * 20 for number in range(20)}}))
    shown = run("--dry-run")
    assert max(map(len, shown.splitlines())) < 400
    assert '+    "SessionStart": [' in shown
