"""``reverie measures`` reads logs and recordings and prints quality figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reverie.cli.costs.measures import command

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions" / "sample.jsonl"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Return a runner in a home of its own."""
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "home"))
    return CliRunner()


@pytest.mark.requirement("B7")
def test_a_recording_is_measured_as_json_and_as_a_table(runner: CliRunner) -> None:
    found = json.loads(runner.invoke(command, [str(SAMPLE), "--json"], catch_exceptions=False).output)
    assert 0 < found["total"]["cache_hit_rate"] <= 1
    assert found["total"]["sessions"] == len(found["sessions"]) >= 1
    drawn = runner.invoke(command, [str(SAMPLE)], catch_exceptions=False).output
    for name in ("cache-hit rate", "compactions per session", "facts kept", "background spend", "memory pollution"):
        assert name in drawn


def test_an_empty_library_says_what_to_do(runner: CliRunner) -> None:
    assert "reverie import" in runner.invoke(command, [], catch_exceptions=False).output
    assert json.loads(runner.invoke(command, ["--json"], catch_exceptions=False).output)["sessions"] == []
