"""``reverie mcp``: bad options are refused in one line, and the address is printed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.cli.hosts.mcp import default_projects, print_address
from reverie.extras import install_command

Answer = tuple[int, str, str]


@pytest.mark.slow
def test_what_cannot_be_served_is_refused_in_one_line(reverie: Callable[..., Answer], tmp_path: Path) -> None:
    for arguments, reason in (
        (["--port", "8000"], "--http"),
        (["--json"], "--http"),
        (["--new-token"], "--http"),
        (["--http", "--port", "70000"], "65535"),
        (["--project", str(tmp_path / "missing")], "not a directory"),
    ):
        code, out, err = reverie("mcp", *arguments)
        assert (code, out) == (2, "")
        assert reason in err
        assert err.count("\n") == 1


def test_a_port_that_is_taken_is_named(reverie: Callable[..., Answer]) -> None:
    pytest.importorskip("mcp")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = reverie("mcp", "--http", "--port", port)
    assert code == 2
    assert f"port {port} cannot be used" in err


def test_without_the_extra_it_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['mcp'] = None; from reverie.cli.main import main; main(['mcp'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"reverie: the MCP server needs an optional package: {install_command('mcp')}\n"


def test_it_says_where_it_listens_and_where_the_token_is(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    print_address(home / "mcp-token", False, "http://127.0.0.1:1/mcp")
    assert capsys.readouterr().out == f"listening on http://127.0.0.1:1/mcp\nthe token is in {home / 'mcp-token'}\n"
    print_address(home / "mcp-token", True, "http://127.0.0.1:1/mcp")
    said = json.loads(capsys.readouterr().out)
    assert said == {"url": "http://127.0.0.1:1/mcp", "token_file": str(home / "mcp-token")}


def test_a_server_that_a_plugin_starts_in_its_folder_serves_the_clients_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, project = tmp_path / "plugin", tmp_path / "project"
    for folder in (plugin, project):
        folder.mkdir()
    monkeypatch.chdir(plugin)
    assert default_projects({"PLUGIN_ROOT": str(plugin), "PWD": str(project)}) == (str(project), "~")
    assert default_projects({"PLUGIN_ROOT": str(plugin), "PWD": str(plugin)}) == ("~", ".")
    assert default_projects({"PWD": str(project)}) == (".",)
    monkeypatch.chdir(project)
    assert default_projects({"PLUGIN_ROOT": str(plugin), "PWD": str(project)}) == (".",)
