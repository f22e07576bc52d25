"""``reverie config``: settings with their origin, and changes of the user's file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.settings import load_settings

Reverie = Callable[..., tuple[int, str, str]]
MINE = '# mine\npreset = "faithful"  # careful\n\n[compact]\n# why\npatience = 2.0\n'


@pytest.fixture
def file(home: Path) -> Path:
    """Return the user's file, with comments."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "config.toml"
    path.write_text(MINE)
    path.chmod(0o600)
    return path


def origins(reverie: Reverie, *arguments: str) -> dict[str, tuple[object, str]]:
    """Return the values and sources that the command prints, by key."""
    found = json.loads(reverie("config", *arguments, "--json")[1])["settings"]
    return {one["key"]: (one["value"], one["source"]) for one in found}


def test_each_setting_names_the_source_that_it_comes_from(
    reverie: Reverie, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".reverie.toml").write_text("compact_percent = 50\n[switches]\ndream = false\n")
    monkeypatch.setenv("REVERIE_COMPACT", "patience=5")
    monkeypatch.setenv("REVERIE_SWITCH_NOTES", "off")
    monkeypatch.setenv("DISABLE_AUTO_COMPACT", "1")
    project = str(tmp_path / ".reverie.toml")
    assert origins(reverie) == {
        "preset": ("faithful", str(file)),
        "compact.patience": (5, "REVERIE_COMPACT"),
        "compact_percent": (50.0, project),
        "switches.dream": (False, project),
        "switches.notes": (False, "REVERIE_SWITCH_NOTES"),
        "switches.auto_compact": (False, "DISABLE_AUTO_COMPACT"),
    }
    everything = origins(reverie, "--all")
    assert everything["keep_warm"] == (False, "default")
    assert set(origins(reverie, "compact")) == {key for key in everything if key.startswith("compact.")}


def test_a_setting_that_a_project_may_not_make_is_said_and_is_not_named_as_a_source(
    reverie: Reverie, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".reverie.toml").write_text("[compact]\npatience = 9\n[switches]\ndream = true\nnotes = false\n")
    assert origins(reverie) == {
        "preset": ("faithful", str(file)),
        "compact.patience": (2.0, str(file)),
        "switches.notes": (False, str(tmp_path / ".reverie.toml")),
    }
    assert "a project may not set compact" in reverie("config")[2]


def test_shared_rules_are_shown_once_they_are_trusted(
    reverie: Reverie, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".reverie.toml").write_text('[permissions]\nallow = ["Bash(make)"]\ndeny = ["Read(.env)"]\n')
    file.write_text('[permissions]\nallow = ["Bash(go test)"]\n')
    assert origins(reverie) == {"permissions.allow": (["Bash(go test)"], str(file))}
    assert "'reverie trust' shows and accepts them" in reverie("config")[2]
    reverie("trust", "--yes")
    project = str(tmp_path / ".reverie.toml")
    assert origins(reverie) == {
        "permissions.allow": (["Bash(go test)", "Bash(make)"], f"{file}, {project}"),
        "permissions.deny": (["Read(.env)"], project),
    }
    assert reverie("config")[2] == ""


def test_a_change_keeps_the_comments_and_is_in_use_at_once(reverie: Reverie, file: Path, home: Path) -> None:
    for key, value in (
        ("preset", "thrifty"),
        ("compact.patience", "4.5"),
        ("switches.dream", "false"),
        ("model", "local:m"),
    ):
        assert reverie("config", key, value)[0] == 0
    settings = load_settings(home=home)
    assert (settings.preset, settings.compact.patience) == ("thrifty", 4.5)
    assert (settings.switches.dream, settings.model) == (False, "local:m")
    text = file.read_text()
    assert all(comment in text for comment in ("# mine", "# careful", "# why"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert reverie("config", "--unset", "compact.patience")[0] == 0
    assert load_settings(home=home).compact.patience != 4.5


def test_a_dry_run_shows_the_change_and_writes_nothing(reverie: Reverie, file: Path) -> None:
    code, out, _ = reverie("config", "preset", "thrifty", "--dry-run")
    assert code == 0
    assert '-preset = "faithful"' in out
    assert '+preset = "thrifty"' in out
    assert file.read_text() == MINE


def test_a_variable_that_has_precedence_is_named(reverie: Reverie, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_PRESET", "balanced")
    assert "REVERIE_PRESET has precedence: preset stays balanced" in reverie("config", "preset", "thrifty")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prest", "x"], "did you mean preset"),
        (["preset", "cheap"], "faithful, balanced, thrifty"),
        (["compact", "3"], "compact."),
        (["preset.x", "3"], "preset is one value"),
        (["compact.patiense", "3"], "did you mean patience"),
        (["switches.dream", "maybe"], "true or false"),
        (["nothing"], "unknown setting nothing"),
        (["compact.patiense"], "did you mean compact.patience"),
        (["budget_day_usd", "5"], "did you mean agent.budget_day_usd"),
        (["budget_day_usd"], "did you mean agent.budget_day_usd"),
        (["--unset"], "--unset needs KEY"),
    ],
)
def test_a_wrong_change_says_what_is_right_and_writes_nothing(
    reverie: Reverie, file: Path, arguments: list[str], said: str
) -> None:
    code, _, error = reverie("config", *arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert said in error
    assert file.read_text() == MINE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compact.patience", "-5"], "compact.patience is -5.0; give a number that is at least 0"),
        (["compact.patience", "-0.5", "--dry-run"], "compact.patience is -0.5; give a number that is at least 0"),
        (["compact.patience", "--", "-5"], "compact.patience is -5.0; give a number that is at least 0"),
        (["dream.budget_usd", "-1"], "dream.budget_usd is -1.0; give a number that is at least 0"),
        (["dream.budget_usd", "-inf"], "dream.budget_usd is -inf; give a finite number that is at least 0"),
        (["compact.patience", "inf"], "compact.patience is inf; give a finite number that is at least 0"),
        (["compact.patience", "-x"], "No such option '-x'"),
    ],
)
def test_a_number_below_zero_or_without_end_is_refused_as_a_value(
    reverie: Reverie, file: Path, arguments: list[str], expected: str
) -> None:
    code, _, err = reverie("config", *arguments)
    assert code == 2
    assert expected in err
    assert file.read_text() == MINE


def test_a_file_that_others_could_have_written_is_not_changed(reverie: Reverie, file: Path) -> None:
    file.chmod(0o666)
    code, _, error = reverie("config", "preset", "thrifty")
    assert code == 2
    assert "could have been written by others" in error
    assert file.read_text() == MINE


@pytest.mark.parametrize(
    ("environment", "name", "because"),
    [
        ({}, None, "no key of a provider is in the environment; set ANTHROPIC_API_KEY"),
        ({"OPENAI_API_KEY": "k"}, "openai:", "the default of the provider that OPENAI_API_KEY chooses"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic:claude-", "ANTHROPIC_API_KEY chooses"),
        ({"ANTHROPIC_API_KEY": "k", "REVERIE_MODEL": "gpt-9"}, "openai:gpt-9", "set by REVERIE_MODEL"),
        ({"REVERIE_MODEL": "parrot"}, None, "'parrot' names no model here; set by REVERIE_MODEL"),
    ],
)
def test_it_says_which_model_a_chat_uses_and_which_key_or_setting_decides(
    reverie: Reverie, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str | None, because: str
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    for words in ([], ["model"]):
        assert because in reverie("config", *words)[1]
        chosen = json.loads(reverie("config", *words, "--json")[1])["chat_model"]
        assert because in chosen["reason"]
        assert (chosen["name"] or "").startswith(name or "")
        assert (chosen["name"] is None) is (name is None)
    assert "Model of the chat" not in reverie("config", "compact")[1]


def test_a_mistyped_model_is_not_accepted_in_silence(
    reverie: Reverie, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    code, _, err = reverie("config", "model", "claude-sonet-5")
    assert (code, "Did you mean claude-sonnet-5?" in err) == (0, True)
    assert reverie("config", "model", "claude-sonnet-5")[2] == ""
    code, _, err = reverie("config", "model", "sonet")
    assert (code, "'sonet' names no model here" in err) == (2, True)
    assert "Did you mean claude-sonnet-5? Choose one" in reverie("config", "model", "claud-sonnet-5")[2]
    assert load_settings().model == "claude-sonnet-5"
    assert reverie("config", "model_aliases.sonet", "claude-sonnet-5")[0] == 0
    assert reverie("config", "model", "sonet")[0] == 0


def test_a_chat_says_that_no_list_has_its_model(reverie: Reverie, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(*given: object) -> int:
        return 0

    monkeypatch.setattr("reverie.cli.terminal.print_mode.print_answer", answered)
    monkeypatch.setattr("reverie.cli.chat.piped_text", lambda: "")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    assert "Did you mean claude-sonnet-5?" in reverie("chat", "-p", "hi", "--model", "claude-sonet-5")[2]
    assert reverie("chat", "-p", "hi", "--model", "claude-sonnet-5")[2] == ""
