"""An install hint is the command that works in the environment in which it is printed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from reverie import extras
from reverie.extras import install_command

SOURCE = Path(extras.__file__).parent


def test_pip_of_this_interpreter_installs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/a user/.venv/bin/python")
    monkeypatch.setattr(extras, "find_spec", lambda name: importlib.util.find_spec("json"))
    assert install_command("mcp") == "'/home/a user/.venv/bin/python' -m pip install 'reverie[mcp]'"


def test_without_pip_it_is_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/p/.venv/bin/python")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert install_command("mcp") == "uv pip install --python /p/.venv/bin/python 'reverie[mcp]'"


def test_pipx_is_asked_by_the_name_of_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = tmp_path / "reverie-old"
    prefix.mkdir()
    (prefix / "pipx_metadata.json").write_text("{}")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    assert install_command("mcp") == "pipx runpip reverie-old install 'reverie[mcp]'"


def test_a_program_that_uvx_runs_is_run_again_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "uv" / "archive-v0" / "BC8rchqjiq2wp96L"))
    assert install_command("mcp") == "uvx --from 'reverie[mcp]' reverie"


@pytest.mark.parametrize(
    ("requirement", "wanted"),
    [
        ('{ name = "reverie" }', "'reverie[mcp]'"),
        ('{ name = "reverie", extras = ["openai", "anthropic"] }', "'reverie[anthropic,mcp,openai]'"),
        ('{ name = "reverie", extras = ["mcp"], path = "/d/r.whl" }', "'/d/r.whl[mcp]'"),
        ('{ name = "reverie", directory = "/d/clone" }', "'/d/clone[mcp]'"),
        ('{ name = "other" }', "'reverie[mcp]'"),
        ("{ torn", "'reverie[mcp]'"),
    ],
)
def test_a_tool_of_uv_keeps_its_other_extras_and_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirement: str, wanted: str
) -> None:
    (tmp_path / "uv-receipt.toml").write_text(f"[tool]\nrequirements = [{requirement}]\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("mcp") == f"uv tool install {wanted}"


def test_no_other_module_spells_an_install_command() -> None:
    spelled = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for line in path.read_text().splitlines()
        if "pip install '" in line or "pip install reverie" in line
    }
    assert spelled == set(), "call install_command() instead"
