"""Every example is short, and runs unchanged."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
HEAVY = [path for path in EXAMPLES if re.search("import .*(Anthropic|OpenAI|create_agent)", path.read_text())]
"""Examples around packages that take seconds to import: they run in this process, where other tests import them too."""


def run(tmp_path: Path, *command: object) -> str:
    """Run an example in a folder of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *map(str, command)], cwd=tmp_path, capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.mark.parametrize("example", HEAVY, ids=lambda path: path.stem)
def test_an_example_around_a_framework_is_short_and_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert len(example.read_text().splitlines()) <= 40
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr()
    assert (bool(printed.out), printed.err) == (True, "")


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path not in HEAVY], ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(example.read_text().splitlines()) <= 40
    assert run(tmp_path, example)


def test_the_telemetry_example_shows_a_session_from_its_opening_to_its_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    *lines, last = run(tmp_path, next(path for path in EXAMPLES if path.stem == "telemetry")).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert (events[0], events[-1], last) == ("session_opened", "session_closed", "0 events lost")
    assert "reply_observed" in events
