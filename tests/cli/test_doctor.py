"""Doctor reports the state of this machine correctly and leaves no files behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reverie.cli.main import run
from reverie.cli.setup import doctor
from reverie.testing.messages_server import MessagesServer
from reverie.tools.shell import sandbox
from reverie.tools.shell.sandbox import available, can_hide


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
    assert "database" not in found


@pytest.mark.requirement("D4")
def test_every_kernel_feature_is_there_or_its_fallback_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    for name in ("openat2", "sandbox", "denied files", "ripgrep"):
        assert found[name]["status"] in {"ok", "fallback"}
        if found[name]["status"] == "fallback":
            assert "; " in found[name]["detail"]


OLDER = """import sys; sys.path.insert(0, {folder!r})
import confine; confine.landlock_version = lambda: {version}
sys.exit(confine.main(sys.argv[1:]))
"""


@pytest.mark.requirement("D4")
@pytest.mark.skipif(not available().works, reason="no sandbox here")
@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        (0, "fallback", "no Landlock: read-only commands do not run automatically"),
        (1, "ok", "the seccomp filter stops truncation and signals"),
        (2, "ok", "the seccomp filter stops truncation and signals"),
        (5, "ok", "the seccomp filter stops signals"),
        (6, "ok", "Landlock version 6: no writes, no truncation;"),
    ],
)
def test_the_parts_that_a_kernel_gives_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int, status: str, said: str
) -> None:
    launcher = tmp_path / "launcher.py"
    launcher.write_text(OLDER.format(folder=str(sandbox.LAUNCHER.parent), version=version))
    monkeypatch.setattr(sandbox, "LAUNCHER", launcher)
    available.cache_clear()
    try:
        found = doctor.sandbox()
    finally:
        available.cache_clear()
    assert (found.status, said in found.detail) == (status, True), found.detail
    assert "seccomp: no sockets" in found.detail
    assert "limits: 4 GiB of memory, 512 processes" in found.detail


@pytest.mark.requirement("D4")
def test_on_another_system_the_fallback_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for each in (available, can_hide):
        each.cache_clear()
    try:
        found, denied = doctor.sandbox(), doctor.denied_files()
    finally:
        for each in (available, can_hide):
            each.cache_clear()
    assert (found.status, denied.status) == ("fallback", "fallback")
    assert "Linux" in found.detail
    assert "a program that does more than read can open them in bypass mode" in denied.detail


def test_an_extra_is_there_or_the_line_that_installs_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    for name in doctor.EXTRAS:
        finding = found[f"extra {name}"]
        assert finding["status"] == "ok" or f"reverie[{name}]" in finding["detail"]


def test_every_extra_of_the_package_but_those_of_its_makers_is_looked_for() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    extras = [name for name in project["optional-dependencies"] if name != "dev"]
    assert sorted([*doctor.EXTRAS, "ripgrep"]) == sorted(extras)


def test_people_get_a_table_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("Ready.\n")
    assert "flock" in out
    assert "\x1b" not in out


@pytest.mark.requirement("V1")
def test_the_row_of_a_model_is_printed_with_its_price_and_the_source_of_its_window(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrections = '[models."*haiku-5-5"]\nmax_images = 7\n'
    (home / "config.toml").write_text(corrections + '[model_aliases]\nfast = "claude-haiku-5-5"\n')
    assert run(["doctor", "--model", "fast", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["model"], row["family"], row["is_known"]) == ("claude-haiku-5-5", "claude-haiku-5-5", True)
    assert (row["window_tokens"], row["window_source"]) == (1_000_000, "the model facts")
    assert row["facts"]["max_images"] == 7
    assert row["corrected"] == ["max_images"]
    assert row["usd_per_million_tokens"]["steps"][0]["above_tokens"] == 100_000
    assert run(["doctor", "--model", "fast"]) == 0
    shown = capsys.readouterr().out
    assert "7  (settings)" in shown
    assert "above 100,000 input tokens" in shown
    for fact in row["facts"]:
        assert fact.replace("_", " ") in shown


@pytest.mark.requirement("V1", "T5")
def test_a_model_that_no_table_names_has_the_strict_row_and_says_so(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--model", "nobody-knows-it"]) == 0
    shown = capsys.readouterr().out
    assert "not in the table" in shown
    assert "assumed: no source names it" in shown
    assert "dollars" not in shown, "an unknown price has no unit"
    assert '[models."nobody-knows-it"]' in shown
    assert run(["doctor", "--ask"]) == 2
    assert "--model" in capsys.readouterr().err
    (home / "config.toml").write_text("window_tokens = 5_000")
    assert run(["doctor", "--model", "nobody-knows-it", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window_source"] == "the setting window_tokens"
    (home / "windows.json").write_text('{"nobody-knows-it": 4000}')
    assert run(["doctor", "--model", "openai:nobody-knows-it", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["window_tokens"], row["window_source"]) == (4_000, "a refusal")


def test_without_a_model_the_reason_is_one_whole_sentence(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for model, reason in (("", "No model is set up yet"), ("nobody", "'nobody' names no model here")):
        (home / "config.toml").write_text(f'model = "{model}"\n' if model else "")
        assert findings(capsys)["model"]["detail"] == f"{reason}; 'reverie' says how to get one"


@pytest.mark.requirement("V1")
@pytest.mark.parametrize(
    ("asked", "near"),
    [("clade-opus-5-5", "claude-opus-5-5"), ("anthropic:claude-opus-55", "claude-opus-5-5"), ("nobody-knows-it", "")],
)
def test_a_name_with_a_typing_error_gets_the_near_one(
    home: Path, capsys: pytest.CaptureFixture[str], asked: str, near: str
) -> None:
    assert run(["doctor", "--model", asked]) == 0
    assert (f"Did you mean {near}?" in capsys.readouterr().out) is bool(near)


@pytest.mark.requirement("V1")
@pytest.mark.parametrize(
    ("line", "said"),
    [("window = 5", "unknown setting window"), ('window_tokens = "x"', "models.m.window_tokens: Expected `int`")],
)
def test_a_wrong_fact_in_the_settings_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    (home / "config.toml").write_text(f'[models."m"]\n{line}\n')
    found = findings(capsys, code=1)["settings"]
    assert (found["status"], said in found["detail"]) == ("failed", True)
    assert run(["doctor", "--model", "m"]) == 2
    assert said in capsys.readouterr().err


def test_a_flag_provider_that_cannot_be_imported_is_a_failure(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text('flag_provider = "no_such_module:Provider"\n')
    assert run(["doctor"]) == 1
    assert "no_such_module:Provider" in capsys.readouterr().out


def test_settings_that_others_could_write_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("")
    (home / "config.toml").chmod(0o666)
    found = findings(capsys, code=1)["settings"]
    assert found["status"] == "failed"
    assert "written by others" in found["detail"]


@pytest.mark.requirement("T5")
def test_the_provider_is_asked_for_the_window_before_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessagesServer(lambda request: "hello", window=123_456) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        assert run(["doctor", "--model", "anthropic:claude-opus-5-5", "--ask", "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert (row["window_tokens"], row["window_source"]) == (123_456, "the provider's list of models")
        assert run(["doctor", "--model", "anthropic:claude-none", "--ask", "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert row["window_source"] == "assumed: no source names it"
        assert "claude-none" in row["problem"]
