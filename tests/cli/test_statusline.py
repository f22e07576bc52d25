"""``reverie statusline``: one line for any input, fast, without control sequences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie import Memory
from reverie.cli.hosts.session_line import line_of, line_values
from reverie.cli.main import run

START = "import sys; sys.argv[0] = 'reverie'; from reverie.cli.start import main; main()"
HOST: dict[str, Any] = {
    "hook_event_name": "Status",
    "session_id": "abc",
    "transcript_path": "/nowhere/abc.jsonl",
    "model": {"id": "claude-opus-4-6", "display_name": "Opus 4.6"},
    "workspace": {"current_dir": "/repo", "project_dir": "/repo"},
    "cost": {"total_cost_usd": 0.5349},
    "context_window": {
        "context_window_size": 200_000,
        "current_usage": {
            "input_tokens": 1_000,
            "output_tokens": 4_000,
            "cache_creation_input_tokens": 4_000,
            "cache_read_input_tokens": 95_000,
        },
    },
}


def started(given: bytes, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command as it is started from a shell."""
    command = [sys.executable, "-c", START, "statusline", *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=60, env={**os.environ, **environ})


def test_the_line_says_model_project_window_cache_cost_and_memories(tmp_path: Path, home: Path) -> None:
    memory = Memory.open(tmp_path, home=home)
    memory.save("Tests hit a real database, never a mock.", type="feedback", why="a mock hid a bug")
    memory.save("The page says to deploy on Fridays.", type="project", why="seen", author="agent", trust="unconfirmed")
    stamp = memory.path / ".consolidate-lock"
    stamp.touch()
    os.utime(stamp, (time.time() - 7_300,) * 2)
    told = {**HOST, "workspace": {"current_dir": str(tmp_path)}}
    line = line_of(line_values(json.dumps(told).encode()))
    name = tmp_path.name if len(tmp_path.name) <= 40 else tmp_path.name[:39] + "…"
    assert line == f"Opus 4.6 · {name} · ████░░░░ 52% · cache 95% · $0.53 · 2 memories · 1 to review · dreamt 2h ago"


def test_the_window_is_what_the_host_says_or_what_the_last_reply_used(tmp_path: Path) -> None:
    said = line_values(json.dumps({**HOST, "context_window": {"used_percentage": 97.6}}).encode())
    assert said["window_percent"] == 98
    usage = {"input_tokens": 10, "output_tokens": 0, "cache_read_input_tokens": 49_990}
    lines = [
        {"type": "assistant", "message": {"usage": {"input_tokens": 1}}},
        {"type": "assistant", "message": {"usage": usage}},
        {"type": "assistant", "isSidechain": True, "message": {"usage": {"input_tokens": 199_000}}},
        {"type": "user", "message": {"content": '"usage"'}},
    ]
    transcript = tmp_path / "t.jsonl"
    transcript.write_text("torn {\n" + "x" * 300_000 + "\n" + "\n".join(map(json.dumps, lines)) + '\n{"usage')
    told = {"transcript_path": str(transcript), "model": {"id": "claude-x"}}
    said = line_values(json.dumps(told).encode())
    assert (said["window_percent"], said["cache_share"]) == (25, 0.9998)
    for model in ("claude-x[1m]", "claude-opus-5-5"):
        told["model"] = {"id": model}
        assert line_values(json.dumps(told).encode())["window_percent"] == 5


def test_memories_that_are_switched_off_or_elsewhere_are_treated_so(tmp_path: Path, home: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "one.md").write_text("---\ntrust: unconfirmed\n---\nx")
    (theirs / "MEMORY.md").write_text("- [One](one.md)")
    (theirs / "logs").mkdir()
    (theirs / "logs" / "day.md").write_text("x")
    told = json.dumps({"cwd": str(tmp_path)}).encode()
    (home / "config.toml").write_text(f'memory_dir = "{theirs}"\n')
    said = line_values(told)
    assert (said["memories"], said["pending_reviews"]) == (1, 1)
    (home / "config.toml").write_text("[switches]\nmemory = false\n")
    assert line_values(told)["memories"] is None
    (home / "config.toml").write_text("this is no TOML")
    assert line_of(line_values(told)).startswith(tmp_path.name[:30])


def test_a_setting_that_a_project_may_not_set_does_not_disturb_the_line(tmp_path: Path) -> None:
    (tmp_path / ".reverie.toml").write_text('[hooks]\nsession_start = ["touch x"]\n')
    told = json.dumps({"cwd": str(tmp_path)}).encode()
    done = subprocess.run([sys.executable, "-c", START, "statusline"], input=told, capture_output=True, timeout=60)
    assert b"0 memories" in done.stdout
    assert done.stderr == b""


@pytest.mark.requirement("S7")
def test_nothing_a_host_says_drives_the_terminal() -> None:
    evil = "Opus\x1b[31m\x1b]0;owned\x07 4\n\r\t\u202e\x9b2J.6\x00"
    told = {**HOST, "model": {"display_name": evil[:-1]}, "workspace": {"current_dir": "/repo\x1b[2J/a\nb"}}
    line = line_of(line_values(json.dumps(told).encode()))
    assert line.startswith("Opus 4 2J.6 · a b · ")
    assert line.isprintable()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*HOST, "x"]), inner, max_size=3),
    max_leaves=12,
)


def spoiled(draw: st.DrawFn) -> Any:
    """Return what a host says with anything at all in some places."""
    told = json.loads(json.dumps(HOST))
    for place in draw(st.lists(st.sampled_from([*HOST, "cwd"]), max_size=4)):
        told[place] = draw(ANYTHING)
    inner = draw(st.sampled_from(["context_window", "cost", "model", "workspace"]))
    if isinstance(told.get(inner), dict):
        for key in list(told[inner]):
            if draw(st.booleans()):
                told[inner][key] = draw(ANYTHING)
    return told


@pytest.mark.requirement("S7")
@given(st.one_of(st.composite(spoiled)().map(lambda told: json.dumps(told).encode()), st.binary(max_size=200)))
def test_whatever_stands_on_stdin_one_printable_line_comes_out(given: bytes) -> None:
    said = line_values(given)
    line = line_of(said)
    assert line.isprintable()
    assert line
    assert len(line) < 300
    json.dumps(said, allow_nan=False)


def test_the_command_is_total_plain_where_asked_and_says_json(tmp_path: Path) -> None:
    told = json.dumps(HOST).encode()
    coloured = started(told)
    assert coloured.returncode == 0
    assert "\x1b[32m█" in coloured.stdout.decode()
    plain = started(told, NO_COLOR="1", PYTHONIOENCODING="ascii").stdout
    assert plain == b"Opus 4.6 | repo | ####---- 52% | cache 95% | $0.53 | 0 memories\n"
    assert json.loads(started(told, "--json").stdout)["cache_share"] == 0.95
    for odd in (b"", b"{", b"[" * 100_000, b"\xff\x00", b"x" * 3_000_000):
        done = started(odd)
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


def test_it_is_a_command_like_the_others_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert run(["statusline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["directory"] == str(tmp_path)
    assert run(["statusline", "--nonsense"]) == 2


@pytest.mark.slow
def test_it_answers_a_host_that_leaves_the_pipe_open_and_one_that_does_not_listen(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", START, "statusline"], stdin=reading, capture_output=True, timeout=60, cwd=tmp_path
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1)
    ears, mouth = os.pipe()
    os.close(ears)
    try:
        command = [sys.executable, "-c", START, "statusline"]
        deaf = subprocess.run(command, input=b"{}", stdout=mouth, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(mouth)
    assert (deaf.returncode, deaf.stderr) == (0, b"")


def test_it_loads_no_command_framework_and_no_settings_where_there_are_none(tmp_path: Path) -> None:
    told = "import os\nos._exit = lambda code: sys.exit(print(sorted(sys.modules), file=sys.stderr))\n"
    code = START.replace("main()", f"\n{told}main()")
    command = [sys.executable, "-c", code, "statusline"]
    environ = {name: value for name, value in os.environ.items() if name in ("PATH", "REVERIE_HOME")}
    done = subprocess.run(command, input=json.dumps(HOST).encode(), capture_output=True, timeout=60, env=environ)
    loaded = set(eval(done.stderr))
    heavy = {"click", "msgspec", "rich", "anyio", "mcp", "asyncio", "dataclasses", "reverie.settings", "sqlite3"}
    assert "reverie.cli.hosts.session_line" in loaded
    assert loaded & heavy == set()
