"""``reverie keep``: one screen about all agents, JSON, a dry run and a timer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .conftest import Asked, Reverie

pytestmark = pytest.mark.requirement("A1", "A2")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: Path) -> Path:
    """Return the home of a user with a session of Claude Code, most of it, and a history of prompts."""
    home = tmp_path / "user"
    session = home / ".claude" / "projects" / "-p" / sample.name
    session.parent.mkdir(parents=True)
    session.write_bytes(b"".join(sample.read_bytes().splitlines(keepends=True)[:-2]))
    prompt = {"display": "an old prompt", "timestamp": 1_704_000_000_000, "project": "/gone", "sessionId": "gone-1"}
    (home / ".claude" / "history.jsonl").write_text(json.dumps(prompt) + "\n")
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def test_one_screen_says_what_is_kept_what_grew_and_what_was_recovered(
    reverie: Reverie, user: Path, sample: Path
) -> None:
    code, out, err = reverie("keep")
    assert (code, err) == (0, "")
    assert out.startswith("1 session of 1 agent kept.\n")
    assert "Claude Code     1    1      0" in out
    assert "1 session; 1 prompt of yours recovered" in out
    assert len(out.splitlines()) <= 24
    (user / ".claude" / "projects" / "-p" / sample.name).write_bytes(sample.read_bytes())
    assert "Claude Code     1    0      1" in reverie("keep")[1]


def test_the_kept_session_and_the_recovered_prompt_are_found(asked: Asked, reverie: Reverie, user: Path) -> None:
    report = asked("keep")
    assert (report["kept"], report["added"], report["lost"], report["recovered_prompts"]) == (1, 1, 1, 1)
    assert len(report["logs"]) == 2
    titles = {one["title"]: one["imported"] for one in asked("sessions")["sessions"]}
    assert titles["Recovered prompts: an old prompt"] is True
    assert all(titles.values())
    assert "an old prompt" in reverie("search", "old prompt")[1]
    assert asked("keep")["logs"] == []


def test_a_session_that_was_imported_and_deleted_is_gone_with_its_agents_and_not_kept_again(
    asked: Asked, reverie: Reverie, user: Path, home: Path, sample: Path
) -> None:
    (user / ".claude" / "history.jsonl").unlink()
    reverie("import", str(user / ".claude" / "projects" / "-p" / sample.name))
    [one] = asked("sessions")["sessions"]
    [log] = home.rglob(f"{one['session']}.jsonl")
    agent = log.with_name(f"{one['session']}.agent-x.jsonl")
    agent.write_bytes(log.read_bytes())
    assert reverie("delete", one["session"], "--yes")[0] == 0
    assert not agent.exists()
    assert asked("keep")["logs"] == []


def test_a_dry_run_writes_nothing(asked: Asked, user: Path, home: Path) -> None:
    assert asked("keep", "--dry-run")["added"] == 1
    assert list(home.iterdir()) == []


def test_a_machine_without_agents_is_told_so(reverie: Reverie, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert reverie("keep")[1].startswith("Found no sessions of Claude Code")


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_kept(reverie: Reverie, user: Path) -> None:
    (user / ".codex" / "sessions").mkdir(parents=True)
    (user / ".codex" / "sessions" / "rollout-1.jsonl").write_text("no rollout\n")
    code, out, err = reverie("keep")
    assert code == 2
    assert out.startswith("1 session of 1 agent kept.\n")
    assert "rollout-1.jsonl is in an unknown format" in err
    code, _, err = reverie("keep")
    assert code == 0
    assert err.startswith("reverie: still not kept: ")
    assert "rollout-1.jsonl is in an unknown format" in err


def test_the_timer_is_a_line_of_cron_that_comes_and_goes(
    asked: Asked, reverie: Reverie, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    table.write_text("0 1 * * * other\n")
    crontab = tmp_path / "bin" / "crontab"
    crontab.parent.mkdir()
    crontab.write_text(f'#!/bin/sh\nif [ "$1" = -l ]; then cat {table}; else cat > {table}; fi\n')
    crontab.chmod(0o755)
    monkeypatch.setenv("PATH", f"{crontab.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("CODEX_HOME", "/else where")
    planned = asked("keep", "--install-timer", "--dry-run")
    assert "'CODEX_HOME=/else where'" in planned["line"]
    assert table.read_text() == "0 1 * * * other\n"
    assert asked("keep", "--install-timer")["line"] == planned["line"]
    assert table.read_text() == f"0 1 * * * other\n{planned['line']}\n"
    assert "keep --json" in planned["line"]
    assert "--install-timer" not in reverie("keep")[1]
    reverie("keep", "--remove-timer")
    assert table.read_text() == "0 1 * * * other\n"
    code, _, err = reverie("keep", "--install-timer", "--remove-timer")
    assert code == 2
    assert "only one of" in err
    crontab.write_text(f'#!/bin/sh\nif [ "$1" = -l ]; then echo "cannot read" >&2; exit 1; else cat > {table}; fi\n')
    code, _, err = reverie("keep", "--install-timer")
    assert (code, table.read_text()) == (2, "0 1 * * * other\n")
    assert "cannot read" in err
    assert reverie("keep")[0] == 0
