"""Doctor reports the state of this machine correctly and leaves no files behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reverie.cli.main import run
from reverie.cli.setup import doctor
from reverie.tools.shell.sandbox import available


def findings(capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, dict[str, str]]:
    """Run doctor and return its findings by name."""
    assert run(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is (code == 0)
    return {finding["name"]: finding for finding in report["findings"]}


def test_a_good_home_is_ready_and_stays_empty(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    assert {found[name]["status"] for name in ("python", "home", "flock")} == {"ok"}
    assert str(home) in found["home"]["detail"]
    assert list(home.iterdir()) == []


def test_a_home_that_is_not_there_yet_is_not_made(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_HOME", str(home / "deep" / "down"))
    assert "does not exist yet" in findings(capsys)["home"]["detail"]
    assert list(home.iterdir()) == []


def test_a_home_that_cannot_be_one_is_a_failure_that_says_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("in the way")
    monkeypatch.setenv("REVERIE_HOME", str(home / "file"))
    found = findings(capsys, code=1)
    assert found["home"]["status"] == "failed"
    assert "REVERIE_HOME" in found["home"]["detail"]


@pytest.mark.requirement("D4")
def test_every_kernel_feature_is_there_or_its_fallback_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    for name in ("openat2", "sandbox", "ripgrep"):
        assert found[name]["status"] in {"ok", "fallback"}
        if found[name]["status"] == "fallback":
            assert "; " in found[name]["detail"]


@pytest.mark.requirement("D4")
def test_on_another_system_the_fallback_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    available.cache_clear()
    try:
        found = doctor.sandbox()
    finally:
        available.cache_clear()
    assert found.status == "fallback"
    assert "Linux" in found.detail


def test_an_extra_is_there_or_the_line_that_installs_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    for name in doctor.EXTRAS:
        finding = found[f"extra {name}"]
        assert finding["status"] == "ok" or f"reverie[{name}]" in finding["detail"]


def test_every_extra_of_the_package_but_those_of_its_makers_is_looked_for() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    extras = [name for name in project["optional-dependencies"] if name != "dev" and not name.startswith("bench-")]
    assert sorted([*doctor.EXTRAS, "ripgrep"]) == sorted(extras)


def test_people_get_a_table_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("Ready.\n")
    assert "flock" in out
    assert "\x1b" not in out
