"""Calls that cannot run are reported like calls that failed, so that a person sees them."""

from __future__ import annotations

from pathlib import Path

from agent_stage import Stage, plays, use
from reverie.events import PermissionDecided, ToolFinished, ToolStarted
from reverie.settings import PermissionRules


def test_calls_of_unknown_tools_and_with_wrong_inputs_are_events_with_their_reason(tmp_path: Path) -> None:
    calls = [use("Reed", file_path="x"), use("Read", file="x"), use("Glob", pattern="*")]
    stage = Stage(tmp_path, {"main": plays(calls, "Done.")})
    stage.ask()
    assert [(event.name, event.is_error) for event in stage.seen(ToolFinished)] == [
        ("Reed", True),
        ("Read", True),
        ("Glob", False),
    ]
    unknown, wrong, _ = stage.seen(ToolFinished)
    assert "No tool is called 'Reed'" in unknown.text
    assert "does not fit the tool's schema" in wrong.text
    assert [event.id for event in stage.seen(ToolStarted)] == [event.id for event in stage.seen(ToolFinished)]


def test_a_denied_call_is_named_with_its_input(tmp_path: Path) -> None:
    rules = PermissionRules(deny=("Read(secret.txt)",))
    stage = Stage(tmp_path, {"main": plays([use("Read", file_path="secret.txt")], "Done.")}, rules=rules)
    (stage.cwd / "secret.txt").write_text("x")
    stage.ask()
    [denied] = [event for event in stage.seen(PermissionDecided) if not event.allowed]
    assert denied.input == {"file_path": "secret.txt"}
    assert denied.id


def test_the_end_of_a_long_result_is_reported_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays([use("Bash", command="seq 1 9000; exit 3")], "Done.")})
    stage.ask()
    [finished] = stage.seen(ToolFinished)
    assert finished.text.startswith("1\n2\n")
    assert finished.end.endswith("8999\n9000\n[exit code 3]")
    assert finished.lines == 9_001
