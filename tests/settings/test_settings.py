"""Settings come from five sources in one order, and errors are clear."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import SettingsError
from reverie.model_facts import facts_of
from reverie.settings import SettingIgnored, Settings, Switches, default_home, load_settings, open_flags, switched_by
from reverie.settings.records import SWITCHES


def user_file(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


def project_with(folder: Path, text: str) -> Path:
    (folder / ".reverie.toml").write_text(text)
    return folder


def test_without_any_source_the_defaults_stand(home: Path) -> None:
    assert load_settings() == Settings(home=home)


def test_the_home_is_the_variable_or_the_platforms_data_directory(tmp_path: Path) -> None:
    assert default_home({"REVERIE_HOME": str(tmp_path)}) == tmp_path
    assert default_home({"REVERIE_HOME": ""}).name == "reverie"


def test_each_source_overrules_the_one_before(home: Path, tmp_path: Path) -> None:
    assert load_settings().window_tokens is None
    user_file(home, "window_tokens = 400_000")
    assert load_settings().window_tokens == 400_000
    project = project_with(tmp_path, "window_tokens = 300_000")
    assert load_settings(project=project).window_tokens == 300_000
    environ = {"REVERIE_HOME": str(home), "REVERIE_WINDOW_TOKENS": "200000"}
    assert load_settings(project=project, environ=environ).window_tokens == 200_000
    assert load_settings(project=project, environ=environ, arguments={"window_tokens": 9}).window_tokens == 9


def test_a_later_source_leaves_what_it_does_not_name(home: Path) -> None:
    user_file(home, 'durability = "second"\n[switches]\ndream = false\n[offload_limits]\nBash = 60_000\n')
    environ = {"REVERIE_HOME": str(home), "REVERIE_SWITCH_RECALL": "off", "REVERIE_OFFLOAD_LIMITS": "Grep=7, Glob=8"}
    settings = load_settings(environ=environ)
    assert settings.durability == "second"
    assert (settings.switches.dream, settings.switches.recall, settings.switches.notes) == (False, False, True)
    assert settings.offload_limits == {"Bash": 60_000, "Grep": 7, "Glob": 8}


def test_settings_cannot_be_changed_after_they_are_made(home: Path) -> None:
    settings = load_settings(arguments={"offload_limits": {"Bash": 1}})
    with pytest.raises(FrozenInstanceError):
        settings.home = home  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.offload_limits["Bash"] = 2  # type: ignore[index]


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_turns_off_in_settings_by_environment_by_argument_and_by_flag(home: Path, switch: str) -> None:
    everything_on = {"switches": dict.fromkeys(SWITCHES, True)}
    user_file(home, f"[switches]\n{switch} = false\n")
    assert getattr(load_settings().switches, switch) is False
    user_file(home, "")
    environ = {"REVERIE_HOME": str(home), f"REVERIE_SWITCH_{switch.upper()}": "off"}
    assert getattr(load_settings(environ=environ).switches, switch) is False
    assert getattr(load_settings(arguments={"switches": {switch: False}}).switches, switch) is False
    flags = FlagTable({f"reverie.{switch}": False})
    assert getattr(load_settings(arguments=everything_on, flags=flags).switches, switch) is False
    assert getattr(load_settings(arguments=everything_on).switches, switch) is True


@pytest.mark.requirement("F1")
def test_one_switch_turns_all_memory_off(home: Path) -> None:
    switches = load_settings(environ={"REVERIE_HOME": str(home), "REVERIE_SWITCH_MEMORY": "0"}).switches
    assert not any([switches.memory, switches.extraction, switches.recall, switches.dream])
    assert switches.notes


@pytest.mark.requirement("F1")
@pytest.mark.parametrize(
    ("variable", "off"),
    [
        ("DISABLE_COMPACT", {"compact", "auto_compact", "compact_from_notes"}),
        ("DISABLE_AUTO_COMPACT", {"auto_compact"}),
        ("DISABLE_MICROCOMPACT", {"idle_trim", "priced_trim", "cache_edit"}),
    ],
)
def test_the_variables_other_programs_know_are_honoured(home: Path, variable: str, off: set[str]) -> None:
    def changed(value: str) -> set[str]:
        switches = load_settings(environ={"REVERIE_HOME": str(home), variable: value}).switches
        return {name for name in SWITCHES if getattr(switches, name) != getattr(Switches(), name)}

    assert changed("1") == changed("true") == off
    assert changed("0") == changed("") == set()


@pytest.mark.requirement("S2")
@pytest.mark.parametrize(
    "text",
    [
        'flag_provider = "evil.module:run"',
        'durability = "second"',
        "[offload_limits]\nBash = 1_000_000_000",
        "[switches]\nmemory = true",
        'home = "elsewhere"',
    ],
)
def test_a_project_can_neither_name_code_nor_move_nor_turn_on_anything(home: Path, tmp_path: Path, text: str) -> None:
    with pytest.warns(SettingIgnored, match=r"\.reverie\.toml"):
        found = load_settings(project=project_with(tmp_path, text))
    assert found == load_settings()


@pytest.mark.parametrize("text", ["stray = 1", "window_tokens = 'x'", "not TOML", "[switches]\nnone = false"])
def test_a_wrong_setting_of_a_project_is_left_out_and_the_others_hold(home: Path, tmp_path: Path, text: str) -> None:
    with pytest.warns(SettingIgnored, match="ignored"):
        found = load_settings(project=project_with(tmp_path, f"compact_percent = 40\n{text}"))
    assert found.compact_percent == (None if text == "not TOML" else 40)


@pytest.mark.parametrize(
    ("mode", "group", "said"), [(0o666, 1, True), (0o602, 0, True), (0o660, 1, True), (0o644, 1, False)]
)
def test_a_settings_file_that_others_could_write_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: int, said: bool
) -> None:
    user_file(home, "window_tokens = 100_000")
    file = home / "config.toml"
    file.chmod(mode)
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        found = list(real(descriptor))
        found[5] = found[4] + group
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)
    if said:
        with pytest.raises(SettingsError, match=r"written by others.*chmod 600"):
            load_settings()
    else:
        assert load_settings().window_tokens == 100_000


@pytest.mark.requirement("S2", "T7")
def test_a_project_can_only_lower_a_limit(home: Path, tmp_path: Path) -> None:
    user_file(home, "window_tokens = 100_000\ncompact_percent = 50")
    project = project_with(tmp_path, "window_tokens = 900_000\ncompact_percent = 40\n[switches]\ndream = false")
    settings = load_settings(project=project)
    assert (settings.window_tokens, settings.compact_percent, settings.switches.dream) == (100_000, 40, False)


@pytest.mark.requirement("S2")
@given(data=st.data())
@pytest.mark.slow
def test_whatever_a_project_says_it_opens_nothing_the_user_closed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    mine = data.draw(st.dictionaries(st.sampled_from(SWITCHES), st.booleans()))
    theirs = data.draw(st.dictionaries(st.sampled_from(SWITCHES), st.booleans()))

    def table(switches: Mapping[str, bool]) -> str:
        return "[switches]\n" + "".join(f"{name} = {str(value).lower()}\n" for name, value in switches.items())

    user_file(home, table(mine))
    before = load_settings(home=home, environ={}).switches
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingIgnored)
        after = load_settings(home=home, project=project_with(project, table(theirs)), environ={}).switches
    assert all(asdict(before)[name] for name, value in asdict(after).items() if value)
    assert not any(asdict(after)[name] for name, value in theirs.items() if not value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[switches]\ndraem = false", "did you mean dream"),
        ("windw_tokens = 5", "did you mean window_tokens"),
        ("zzz = 5", "use one of agent, blobs"),
        ("[switches]\ndream = 1", "say true or false"),
        ("switches = 1", "table of switches"),
        ("offload_limits = 3", "by tool"),
        ("[offload_limits]\nBash = 0", "above 0"),
        ("window_tokens = true", "above 0"),
        ("window_tokens = 1.5", "above 0"),
        ("compact_percent = 101", "at most 100"),
        ("compact_percent = nan", "at most 100"),
        ('durability = "never"', "always or second"),
        ('flag_provider = "no colon"', "package.module:callable"),
        ("window_tokens = " + "9" * 5_000, "not valid TOML"),
        ("= 5", "not valid TOML"),
        ("#" * 70_000, "longer than"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path_and_what_would_be_right(home: Path, text: str, said: str) -> None:
    user_file(home, text)
    with pytest.raises(SettingsError, match=said) as raised:
        load_settings()
    assert str(home / "config.toml") in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("REVERIE_SWITCH_DRAEM", "off", "did you mean REVERIE_SWITCH_DREAM"),
        ("REVERIE_WINDOW_TOKEN", "5", "did you mean REVERIE_WINDOW_TOKENS"),
        ("REVERIE_SWITCH_DREAM", "perhaps", "say on or off"),
        ("REVERIE_WINDOW_TOKENS", "many", "whole number"),
        ("REVERIE_OFFLOAD_LIMITS", "Bash", "by tool"),
        ("DISABLE_COMPACT", "perhaps", "say on or off"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(home: Path, variable: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings(environ={"REVERIE_HOME": str(home), variable: value})


def test_bytes_that_are_no_text_and_pipes_and_folders_are_refused(home: Path) -> None:
    file = home / "config.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_settings()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SettingsError, match="not a regular file"):
        load_settings()
    file.unlink()
    file.mkdir()
    with pytest.raises(SettingsError, match=r"config\.toml"):
        load_settings()


class FlagTable:
    """A flag client that answers from a table."""

    def __init__(self, table: Mapping[str, bool]) -> None:
        self.table = table

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        return self.table.get(flag_key, default_value)


class FailingFlags:
    """A flag client whose service is down."""

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        raise ConnectionError(flag_key)


@given(
    st.dictionaries(st.sampled_from(SWITCHES), st.booleans()), st.dictionaries(st.sampled_from(SWITCHES), st.booleans())
)
def test_a_flag_turns_off_and_never_on(mine: dict[str, bool], flags: dict[str, bool]) -> None:
    before = Switches(**mine)
    after = switched_by(FlagTable({f"reverie.{name}": value for name, value in flags.items()}), before)
    assert all(getattr(before, name) for name in SWITCHES if getattr(after, name))
    assert not any(getattr(after, name) for name, value in flags.items() if not value)


def test_a_flag_service_that_is_down_changes_nothing() -> None:
    assert switched_by(FailingFlags(), Switches()) == Switches()


def test_a_real_openfeature_provider_named_in_the_settings_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openfeature")
    module = home / "our_flags.py"
    module.write_text(
        "from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider\n"
        "def make():\n"
        "    return InMemoryProvider({'reverie.dream': InMemoryFlag('off', {'on': True, 'off': False})})\n"
    )
    monkeypatch.syspath_prepend(str(home))
    user_file(home, 'flag_provider = "our_flags:make"')
    flags = open_flags(load_settings())
    assert flags is not None
    assert load_settings(flags=flags).switches == Switches(dream=False)


def test_a_provider_that_cannot_be_had_is_a_clear_error(home: Path) -> None:
    pytest.importorskip("openfeature")
    user_file(home, 'flag_provider = "no_such_module_anywhere:make"')
    with pytest.raises(SettingsError, match="no_such_module_anywhere"):
        open_flags(load_settings())


def test_without_a_provider_there_are_no_flags(home: Path) -> None:
    assert open_flags(load_settings()) is None


@pytest.mark.requirement("V1")
def test_facts_of_models_are_corrected_by_name_or_pattern(home: Path) -> None:
    user_file(home, '[models."my-*"]\nwindow_tokens = 16_000\nthinking = ["adaptive"]\n')
    settings = load_settings(arguments={"models": {"other-one": {"compaction": True}}})
    assert facts_of("gateway/my-model", settings.models).window_tokens == 16_000
    assert facts_of("my-model", settings.models).thinking == ("adaptive",)
    assert facts_of("other-one", settings.models).compaction
    assert facts_of("your-model", settings.models) == facts_of("your-model")


@pytest.mark.requirement("V1")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("models = 5", "must be a table of models"),
        ("[models]\nmine = 5", "models.mine must be a table of facts"),
        ("[models.mine]\nwindow_token = 5", "did you mean window_tokens"),
        ('[models.mine]\nname = "yours"', "unknown setting name"),
        ("[models.mine]\nwindow_tokens = 0", "give a number above 0"),
        ('[models.mine]\nwindow_tokens = "many"', "models.mine.window_tokens: Expected `int`"),
        ('[models.mine]\nprefix_check = "some"', "Invalid enum value 'some'"),
    ],
)
def test_facts_that_cannot_be_are_refused_by_name(home: Path, text: str, error: str) -> None:
    user_file(home, text)
    with pytest.raises(SettingsError, match=error):
        load_settings()
