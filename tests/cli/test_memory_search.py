"""``reverie memory search`` finds memories by their text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reverie import Memory
from reverie.cli.memory import command


@pytest.mark.requirement("R2")
def test_the_best_memory_comes_first_as_a_table_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    memory = Memory.open(project, home=tmp_path / "home")
    memory.save("Berth fees are rounded up to the cent.", type="project", why="the auditors asked for it")
    memory.save("Ask Dana about the crane schedule.", type="reference", description="Dana knows the crane schedule")
    given = ["--project", str(project), "search", "who knows", "the cranes?"]
    found = json.loads(CliRunner().invoke(command, [*given, "--json"], catch_exceptions=False).output)
    assert "Dana" in found[0]["description"]
    assert "Dana" in CliRunner().invoke(command, given, catch_exceptions=False).output
    nothing = CliRunner().invoke(command, ["--project", str(project), "search", "zebra"], catch_exceptions=False)
    assert "no matches" in nothing.output
