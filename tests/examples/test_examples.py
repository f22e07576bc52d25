"""Every example is short, and runs as it stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


def run(example: Path, tmp_path: Path) -> str:
    """Run an example in a folder of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(example.read_text().splitlines()) <= 40
    assert run(example, tmp_path)


def test_the_telemetry_example_shows_a_session_from_its_opening_to_its_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    *lines, last = run(next(path for path in EXAMPLES if path.stem == "telemetry"), tmp_path).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert (events[0], events[-1], last) == ("session_opened", "session_closed", "0 events lost")
    assert "reply_observed" in events
