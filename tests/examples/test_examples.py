"""Every example is short, and runs unchanged."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
LOOPS = ["own_loop_sync", "own_loop_memory", "own_loop_chat", "own_loop_stream"]
HEAVY = [
    path
    for path in EXAMPLES
    if path.stem not in LOOPS and re.search("import .*(Anthropic|OpenAI|create_agent)", path.read_text())
]
"""Examples around packages that take seconds to import: they run in this process, where other tests import them too."""


def run(tmp_path: Path, *command: object) -> str:
    """Run an example in a folder of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *map(str, command)], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def notes_reader(request: Mapping[str, Any]) -> list[dict[str, Any]] | str:
    """Act as a model: read notes.txt with the tool of the request, then describe it."""
    if "buy bread" in json.dumps(request["messages"]):
        return "It says: buy bread."
    return [{"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "notes.txt"}}]


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run test servers at the addresses that the SDKs use by default."""
    with MessagesServer(notes_reader) as messages, ChatServer(notes_reader) as chat:
        for name, address in (("ANTHROPIC", messages.base_url), ("OPENAI", chat.base_url)):
            monkeypatch.setenv(f"{name}_BASE_URL", address)
            monkeypatch.setenv(f"{name}_API_KEY", "none needed here")
        yield


@pytest.mark.requirement("U1", "U2")
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.usefixtures("providers")
def test_an_own_loop_with_tools_has_at_most_25_lines_of_code_and_uses_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("buy bread\n")
    example = next(path for path in EXAMPLES if path.stem == name)
    assert sum(bool(line.strip()) for line in example.read_text().splitlines()) <= 25
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr() == ("It says: buy bread.\n", "")
    logged = list(Path(tmp_path, os.environ["REVERIE_HOME"]).rglob("notes.jsonl"))
    assert "buy bread\\n" in logged[0].read_text(), "the tool's result is in the log"


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


@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path not in HEAVY and path.stem not in LOOPS], ids=lambda path: path.stem
)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(example.read_text().splitlines()) <= 40
    printed = run(tmp_path, example)
    assert printed
    for recipe in (example.parents[1] / "docs" / "recipes").glob("*.md"):
        if f"Program: [examples/{example.name}]" in (text := recipe.read_text()):
            assert re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL) in ([], [printed])


def test_the_telemetry_example_shows_a_session_from_its_opening_to_its_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    *lines, last = run(tmp_path, next(path for path in EXAMPLES if path.stem == "telemetry")).splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert (events[0], events[-1], last) == ("session_opened", "session_closed", "0 events lost")
    assert "reply_observed" in events
