"""``reverie replay`` and ``reverie demo`` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coding_session import as_claude_code_jsonl, coding_session

from .conftest import on_a_screen

KEYS = {
    *("input_usd", "output_usd", "cache_read", "cache_write", "uncached", "requests", "invalid_requests", "breaks"),
    "read_backs",
}


def reverie(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from reverie.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recorded") / "one.jsonl"
    file.write_bytes(as_claude_code_jsonl(coding_session(5, 60_000)))
    return file


def test_sessions_without_a_request_are_counted_where_nobody_gave_files(tmp_path: Path):
    projects = tmp_path / ".claude" / "projects" / "-fence"
    projects.mkdir(parents=True)
    first = as_claude_code_jsonl(coding_session(5, 60_000)).splitlines()[0]
    (projects / "one.jsonl").write_bytes(first + b"\n")
    done = reverie("replay", HOME=str(tmp_path), REVERIE_HOME=str(tmp_path / "home"), CLAUDE_CONFIG_DIR="")
    assert (done.returncode, done.stderr) == (2, "reverie: no requests to replay in 1 session file\n")


@pytest.mark.requirement("B1")
def test_replay_prints_json_with_the_figures_of_every_policy(session: Path):
    done = reverie("replay", str(session), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sessions"] == 1
    for name in ("uncached", "recorded", "append-only", "sliding-window", "clear-every-turn", "balanced"):
        assert set(found["policies"][name]) >= KEYS
        assert found["policies"][name]["invalid_requests"] == 0
    assert set(found["files"][0]["policies"]["balanced"]) >= KEYS
    assert done.stderr == ""


@pytest.mark.requirement("B1")
@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.requirement("B1")
def test_a_date_brings_the_policies_that_it_compares(session: Path):
    done = reverie("replay", str(session), "--json", "--policy", "append-only", "--since", "2001-01-01")
    found = json.loads(done.stdout)
    assert found["policies"].keys() >= {"append-only", "uncached", "recorded", "balanced"}
    assert found["since"] == "no billed session before that date"


def test_replay_writes_a_page_once_and_draws_a_table(session: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    done = reverie("replay", str(session.parent), "--html", str(page), "--policy", "append-only", "--policy", "reverie")
    assert done.returncode == 0, done.stderr
    assert "append-only" in done.stdout
    assert "reverie" in done.stdout
    assert page.read_text().startswith("<!doctype html>")
    again = reverie("replay", str(session), "--html", str(page))
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_the_reason_is_told_why_append_only_removed_content(session: Path, tmp_path: Path):
    note = "append-only keep everything until the window is full"
    for window, is_told in ((60_000, True), (1_000_000, False)):
        given = {"REVERIE_HOME": str(tmp_path), "REVERIE_WINDOW_TOKENS": str(window)}
        done = reverie("replay", str(session), "--policy", "append-only", "--policy", "sliding-window", **given)
        assert done.returncode == 0, done.stderr
        assert (note in " ".join(done.stdout.split())) is is_told


@pytest.mark.slow
def test_prices_can_be_chosen(session: Path):
    cheap = json.loads(
        reverie("replay", str(session), "--json", "--policy", "append-only", "--model", "claude-haiku-4-5").stdout
    )
    dear = json.loads(
        reverie("replay", str(session), "--json", "--policy", "append-only", "--model", "claude-opus-4-1").stdout
    )
    assert cheap["policies"]["append-only"]["input_usd"] < dear["policies"]["append-only"]["input_usd"]
    long = json.loads(reverie("replay", str(session), "--json", "--policy", "append-only", "--ttl", "1h").stdout)
    assert long["ttl"] == "1h"
    assert long["policies"]["append-only"]["cache_write_5m"] == 0


@pytest.mark.requirement("U5")
def test_a_session_of_the_library_has_a_name_and_other_prices_are_no_bill(session: Path, tmp_path: Path) -> None:
    given = {"REVERIE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    assert reverie("import", str(session), **given).returncode == 0
    row = json.loads(reverie("sessions", "--json", **given).stdout)["sessions"][0]
    policies = ("--policy", "recorded", "--policy", "balanced")
    assert reverie("replay", row["session"], *policies, **given).stdout.startswith("You paid $")
    other = reverie("replay", row["session"], *policies, "--model", "claude-fable-5-1", **given).stdout
    assert other.startswith("You would have paid $")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "'missing.jsonl' is neither a file, nor a directory, nor a session"),
        ([".", "--model", "claude-opus"], "no price is known for 'claude-opus'; did you mean claude-opus-5?"),
        ([".", "--policy", "wishful"], "no policy is called 'wishful'"),
        (["--policy", "absent.toml"], "no such settings file"),
        ([], "no sessions of agents"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], said: str, session: Path, tmp_path: Path):
    given = [str(session) if argument == "." else argument for argument in arguments]
    done = reverie("replay", *given, HOME=str(tmp_path), CLAUDE_CONFIG_DIR=str(tmp_path), CODEX_HOME=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.requirement("U5")
def test_without_a_file_it_replays_all_sessions_of_this_machine_once(session: Path, tmp_path: Path):
    folder = tmp_path / ".claude" / "projects" / "-home-me-app"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(session.read_bytes())
    (folder / "b.jsonl").write_bytes(b"not a session")
    rollouts = tmp_path / ".codex" / "sessions" / "2026" / "11" / "15"
    rollouts.mkdir(parents=True)
    meta = {"type": "session_meta", "timestamp": "2026-11-15T00:00:00Z", "payload": {"id": "x", "cwd": "/home/me/tool"}}
    (rollouts / "rollout-1.jsonl").write_text(json.dumps(meta) + "\n")
    known = {"HOME": str(tmp_path), "REVERIE_HOME": str(tmp_path / "reverie")}
    assert reverie("import", str(session), **known).returncode == 0
    done = reverie("replay", "--json", **known)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sessions"] == 1
    assert list(found["policies"]) == ["recorded", "append-only", "faithful", "balanced", "thrifty"]
    assert {"b.jsonl", "rollout-1.jsonl"} <= {one.split(":")[0] for one in found["skipped"]}


def test_the_demo_needs_nothing_leaves_nothing_and_ends_with_the_ledger(tmp_path: Path, home: Path):
    work = tmp_path / "work"
    work.mkdir()
    done = reverie("demo", "--tokens", "60000", TMPDIR=str(work))
    assert done.returncode == 0, done.stderr
    assert "layer 3" in done.stdout
    assert "ledger" in done.stdout
    lines = done.stdout.splitlines()
    notes = [at for at, line in enumerate(lines) if "updated the notes" in line]
    assert all(lines[at + 1].startswith("> ") for at in notes)  # once a prompt
    windows = {
        line.split()[0]: line.split()[1]
        for line in lines
        if line.startswith(("append-only ▁", "append-only ▂", "reverie     "))
    }
    assert set("".join(windows.values())) <= set("▁▂▃▄▅▆▇█")
    assert len(windows["append-only"]) == len(windows["reverie"])
    assert "\x1b" not in done.stdout
    paid = next(line for line in lines if " for input and " in line).partition("$")[2].split()[0]
    rows = {line.partition("$")[0].strip(): line.partition("$")[2].split()[0] for line in lines if "  $" in line}
    assert rows["reverie, the session above"] == paid  # one figure for one thing
    told = next(line for line in lines if line.startswith("Reverie costs "))
    for row, words in (("reverie, summaries by a model", "if a model"), ("reverie, the session above", "less if they")):
        saved = 1 - float(rows[row]) / float(rows["append-only"])
        share = re.search(r"(\d+)% (?=(?:(?!%).)*" + words + ")", told)
        assert share is not None
        assert float(share[1]) == pytest.approx(saved * 100, abs=1.5)
    assert list(work.iterdir()) == []
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_no_line_of_the_demo_is_wider_than_the_screen():
    shown = on_a_screen("demo", "--tokens", "60000", "--fast", columns=60, NO_COLOR="1")
    kept = [re.split(r"\r|\x1b\[2K", line.rstrip("\r"))[-1] for line in shown.split("\n")]
    prose = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in kept]
    assert any("updated the notes" in line for line in prose)
    assert [line for line in prose if len(line) > 60 and "█" not in line and not line.startswith("input cost")] == []
    live = [piece for piece in re.split(r"[\r\n]", shown) if piece.startswith("  request")]
    assert live
    assert max(map(len, live)) < 60, "a line that breaks cannot be replaced"


@pytest.mark.slow
def test_the_demo_as_json_and_with_bad_numbers():
    found = json.loads(reverie("demo", "--tokens", "60000", "--json").stdout)
    assert found["requests"] > 10
    assert found["policies"]["reverie"]["input_usd"] < found["policies"]["append-only"]["input_usd"]
    assert reverie("demo", "--tokens", "5").returncode == 2
