"""Commands in hostile environments: a home that cannot be written, a umask of 0777, a locale without UTF-8."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reverie.cache.ledger import LedgerCall
from reverie.cache.usage import Usage
from reverie.runtime.session.ledger import LedgerStore

CHILD = """
import json, os, sys, tempfile
from reverie.cli.main import run
said = {}
for command in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out:
        kept = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1), os.dup2(out.fileno(), 2)
        code = run(command)
        sys.stdout.flush()
        os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        out.seek(0)
        said[" ".join(command)] = [code, out.read().decode()]
print(json.dumps(said))
"""
READING = [
    ["sessions"],
    ["show", "S"],
    ["search", "harbour"],
    ["context", "S"],
    ["loss", "S"],
    ["notes", "S"],
    ["rules", "S"],
    ["stats"],
    ["ledger"],
    ["measures"],
    ["export", "S"],
    ["memory", "list"],
    ["memory", "show", "releases"],
    ["memory", "log"],
    ["memory", "lint"],
    ["memory", "blame", "releases"],
    ["memory", "search", "releases"],
    ["memory", "undo", "--dry-run"],
    ["dream", "--status"],
    ["worker", "--status"],
    ["agents"],
    ["inbox"],
    ["trust", "--list"],
    ["statusline"],
    ["delete", "S", "--dry-run"],
    ["compact", "S", "--dry-run"],
    ["rules", "S", "--add", "Never push.", "--dry-run"],
    ["notes", "S", "--update", "--dry-run"],
]
REFUSING = {"compact --undo S --dry-run": "no compaction to undo"}
"""Commands that have nothing to do in that session, and say so where they can read it."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def state_of(home: Path) -> dict[str, Any]:
    found = [path for path in home.rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def drop_rights() -> None:
    """Give up root's right to write everything, for the program that is started next."""
    for capability in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def run_unable_to_write(home: Path, commands: list[list[str]]) -> dict[str, tuple[int, str]]:
    """Run commands in a process for which the home is read-only, and return the exit code and output of each."""
    paths = [home, *home.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    try:
        for path in paths:
            path.chmod(modes[path] & 0o7555)
        child = [sys.executable, "-c", CHILD, json.dumps(commands)]
        rights = drop_rights if os.geteuid() == 0 else None
        done = subprocess.run(child, capture_output=True, text=True, timeout=100, preexec_fn=rights)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.slow
@pytest.mark.parametrize("is_indexed", [False, True])
def test_every_reading_command_works_in_a_home_that_cannot_be_written(
    reverie: Any, home: Path, project: Path, tmp_path: Path, is_indexed: bool
) -> None:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is the harbour?"}]}
    rollout = {"session": {"id": "S", "timestamp": "2026-04-01T00:00:00Z", "instructions": ""}, "items": [said]}
    (tmp_path / "rollout-a.json").write_text(json.dumps(rollout))
    assert reverie("import", tmp_path / "rollout-a.json")[0] == 0
    memory = ["memory", "add", "--type", "project", "--name", "releases", "--why", "Support is staffed then."]
    assert reverie(*memory, "Releases are cut on Tuesdays.")[0] == 0
    with LedgerStore(home) as ledger:
        assert ledger.enter(LedgerCall("S", "p", 1.8e9, "m", "main", "", "", Usage(uncached=5), Usage(), 0.25, id="1"))
    if is_indexed:
        assert reverie("search", "harbour")[0] == 0
    before = state_of(home)
    done = run_unable_to_write(home, [*READING, *map(str.split, REFUSING), ["doctor", "--json"]])
    assert all(words in done.pop(command)[1] for command, words in REFUSING.items())
    code, answer = done.pop("doctor --json")
    failed = [one for one in json.loads(answer)["findings"] if one["status"] == "failed"]
    assert (code, [one["name"] for one in failed]) == (1, ["home"]), "nothing in it is damaged"
    assert "commands that only read still work" in failed[0]["detail"]
    assert {command: answer for command, answer in done.items() if answer[0]} == {}
    assert "Where is the harbour?" in done["search harbour"][1]
    assert "would compact nothing: it would free too little" in done["compact S --dry-run"][1]
    assert "0.25" in done["ledger"][1]
    assert "releases.md" in done["memory log"][1]
    assert "no worker is running" in done["worker --status"][1]
    assert state_of(home) == before


@pytest.mark.slow
def test_a_command_that_writes_names_the_path_and_a_way_out(home: Path, project: Path) -> None:
    add = ["memory", "add", "--type", "project", "--why", "w", "Releases are cut on Tuesdays."]
    for code, said in run_unable_to_write(home, [add, ["trust", str(project), "--yes"]]).values():
        assert code == 2
        assert str(home) in said
        assert "REVERIE_HOME" in said


def run_in(folder: Path, umask: int, commands: list[list[str]], stdin: str = "", **environment: str) -> list[str]:
    """Run commands in processes of a plain user with a umask and environment, and return their outputs."""

    def prepare() -> None:
        os.umask(umask)
        if os.geteuid() == 0:
            drop_rights()

    outputs: list[str] = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "reverie.cli.start", *command],
            cwd=folder,
            input=stdin.encode(),
            env={**os.environ, **environment},
            capture_output=True,
            timeout=100,
            preexec_fn=prepare,
        )
        assert (done.returncode, done.stderr) == (0, b""), command
        outputs.append(done.stdout.decode())
    return outputs


@pytest.mark.slow
def test_a_umask_that_takes_every_right_leaves_no_file_that_its_owner_cannot_read(
    home: Path, project: Path, tmp_path: Path
) -> None:
    install = ["install", "--host", "codex", "--yes"]
    commands = [["search", "x"], ["search", "x"], install, install, ["worker", "--status"], ["trust", "--list"]]
    run_in(project, 0o777, commands, HOME=str(tmp_path))
    folders = [tmp_path / ".codex", *home.rglob("*")]
    assert all(path.stat().st_mode & 0o400 for path in folders)
    assert "reverie" in (tmp_path / ".codex" / "hooks.json").read_text()


@pytest.mark.slow
def test_hooks_recall_in_a_directory_that_the_locale_cannot_name(reverie: Any, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "projé"
    folder.mkdir()
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    memory = ["memory", "add", "--type", "project", "--why", "w", "--name", "releases", "Releases are cut on Tuesdays."]
    payload = {"session_id": "s", "cwd": str(folder), "hook_event_name": "SessionStart", "source": "startup"}
    hook = ["hook", "--host", "claude-code", "SessionStart"]
    outputs = run_in(folder, 0o022, [memory, hook], json.dumps({**payload, "transcript_path": ""}), **locale)
    assert "releases" in outputs[1].lower()
