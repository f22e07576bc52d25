"""``reverie dream``: due or not, dry run, real run, watch, stop, undo, and its timer."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from reverie.cli.memory.dream import command
from reverie.cli.terminal.commands import run_command
from reverie.errors import InputError, SessionBusy
from reverie.events import DreamChanged, Event
from reverie.runtime.dream.lock import DreamLock
from reverie.runtime.dream.progress import ProgressWriter
from reverie.runtime.dream.scheduler import DreamScheduler
from reverie.runtime.memory.memory import Memory
from reverie.settings import Settings, load_settings
from reverie.values import replace

WHY = "support was overrun once"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with two memories that say the same."""
    directory = tmp_path / "project"
    directory.mkdir()
    memory = Memory.open(directory)
    rule = "Deploy the billing service only after two approvals from payments"
    memory.save(rule, type="feedback", why=WHY)
    memory.save(f"{rule}.", type="feedback", name="two approvals from payments", why=f"{WHY}.")
    return directory


def run(project: Path, *arguments: str) -> Result:
    """Run the command for a project."""
    return CliRunner().invoke(command, ["--project", str(project), *arguments], catch_exceptions=False)


def said(project: Path, *arguments: str) -> Any:
    """Run the command and return what it says as JSON."""
    return json.loads(run(project, *arguments, "--json").output)


def contents(project: Path) -> dict[str, bytes]:
    """Return the memory files as they are, the index too."""
    return {path.name: path.read_bytes() for path in Memory.open(project).path.glob("*.md")}


@pytest.mark.requirement("V13")
def test_a_dry_run_calls_no_model(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reverie import models

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a dry run opened a model")

    monkeypatch.setattr(models, "open_model", refuse)
    monkeypatch.setenv("REVERIE_MODEL", "anthropic:claude-opus-5-5")
    dry = run(project, "--dry-run").output
    assert "## Merged" in dry
    assert "A dry run calls no model." in dry


@pytest.mark.requirement("L6.1", "L6.6", "L6.7", "B3")
@pytest.mark.slow
def test_it_says_why_none_is_due_shows_what_one_would_do_dreams_and_takes_it_back(project: Path) -> None:
    before = contents(project)
    assert run(project).output == (
        "No dream is due: few sessions since the last dream (0 of 5 sessions).\n"
        "'reverie dream --now' starts one anyway; 'reverie dream --dry-run' shows its changes.\n"
    )
    assert "they are counted again in" in run(project).output
    assert said(project)["reason"] == "just_scanned", "sessions are counted every ten minutes at most"
    dry = run(project, "--dry-run").output
    assert "A dry run" in dry
    assert "## Merged" in dry
    assert contents(project) == before
    made = said(project, "--now")
    assert (made["state"], made["by"], made["files_before"], made["files_after"]) == ("completed", "local", 2, 1)
    assert len(contents(project)) == 2, "one memory and the index"
    status = said(project, "--status")
    assert status["report"]["dream"] == made["dream"]
    assert status["gate"].startswith("too_soon")
    assert "1 merged" in run(project, "--status").output
    assert "says the same as" in run(project, "--report").output
    assert said(project, "--undo", "--dry-run")["dry_run"] is True
    assert len(contents(project)) == 2
    assert "restored 1 file." in run(project, "--undo").output
    assert contents(project) == before


@pytest.mark.requirement("L6.8")
def test_with_none_running_there_is_nothing_to_watch_or_to_end(project: Path) -> None:
    assert "No dream is running." in run(project, "--watch").output
    assert "No dream is running." in run(project, "--kill").output
    assert said(project, "--kill") == {"dry_run": False, "running": None, "killed": False}
    refused = CliRunner().invoke(command, ["--watch", "--kill"])
    assert refused.exit_code != 0


class Heard:
    """A session that writes down what it is told."""

    def __init__(self, settings: Settings) -> None:
        self.name = "s1"
        self.log = self.policy = self
        self.settings = settings
        self.model = None
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        """Write an event down."""
        self.events.append(event)


@pytest.mark.requirement("L6.1", "L6.2", "F1")
def test_after_a_query_a_due_dream_begins_by_itself_and_is_followed(project: Path) -> None:
    settings = load_settings()
    due = replace(settings, dream=replace(settings.dream, min_sessions=0))

    async def finish(session: Heard, settings: Settings) -> int:
        async with anyio.create_task_group() as tasks:
            sleep = DreamScheduler(session, project, settings, tasks=tasks)
            with anyio.fail_after(60):
                await sleep.after_query()
            await sleep.after_query()
        return sleep.started

    off = Heard(replace(due, switches=replace(due.switches, dream=False)))
    assert anyio.run(finish, off, due) == 0, "the switch turns it off while it runs"
    session = Heard(due)
    assert anyio.run(finish, session, due) == 1, "the second time it is too soon"
    states = [event.state for event in session.events if isinstance(event, DreamChanged)]
    assert states[0] == "starting"
    assert states[-1] == "completed"
    assert len(Memory.open(project).list()) == 1


@pytest.mark.requirement("L6.1", "L6.10")
def test_where_dreams_are_switched_off_neither_the_command_nor_the_terminal_starts_one(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for door in ("cli.memory.dream", "runtime.dream.scheduler"):
        monkeypatch.setattr(f"reverie.{door}.start", lambda *_, **__: pytest.fail("a process was started"))
    monkeypatch.setenv("REVERIE_SWITCH_DREAM", "off")
    with pytest.raises(InputError, match=r"set switches\.dream to true"):
        run(project, "--now")
    heard = Heard(load_settings())
    with pytest.raises(InputError, match=r"set switches\.dream to true"):
        anyio.run(DreamScheduler(heard, project, heard.settings).start_now)  # type: ignore[arg-type]


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put programs of our own before all others."""
    folder.mkdir()
    for name, text in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_systemd_timer_is_written_shown_and_taken_away(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    programs(tmp_path / "bin", monkeypatch, systemctl=f'echo "$@" >> {calls}')
    (tmp_path / "run" / "systemd").mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    dry = said(project, "--install-timer", "--dry-run")
    assert not calls.exists()
    assert not (tmp_path / "config").exists()
    shown = run(project, "--install-timer").output
    made = {path: Path(path).read_text() for path in dry["files"]}
    assert made == dry["files"]
    assert all(line in shown for text in made.values() for line in text.splitlines())
    assert any(f"WorkingDirectory={project}" in text for text in made.values())
    home = os.environ["REVERIE_HOME"]
    [service] = [text for path, text in made.items() if path.endswith(".service")]
    assert f"Environment=REVERIE_HOME={home}" in service
    [log] = [line.partition("append:")[2] for line in service.splitlines() if line.startswith("StandardError=")]
    assert Path(log).parent == Path(home)
    Path(log).write_text("SettingsError: no such setting\n")
    os.utime(log, (1_794_391_200.0, 1_794_391_200.0))
    status = run(project, "--status").output
    assert ".timer" in status
    when = f"{datetime.fromtimestamp(1_794_391_200.0):%Y-%m-%d %H:%M}"
    assert f"last error of the timer: {when}: SettingsError: no such setting" in status
    (other := tmp_path / "other").mkdir()
    said(other, "--install-timer")
    assert said(other, "--status")["timer"]["error"] == "", "the error is another project's"
    said(other, "--remove-timer")
    assert "enable --now" in calls.read_text()
    assert "removed" in run(project, "--remove-timer").output
    assert not any(Path(path).exists() for path in made)
    assert "There is no such timer" in run(project, "--remove-timer").output


def test_without_systemd_a_line_of_cron_is_added_once_beside_the_others(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    table.write_text("0 1 * * * other\n")
    programs(tmp_path / "bin", monkeypatch, crontab=f'if [ "$1" = -l ]; then cat {table}; else cat > {table}; fi')
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for _ in range(2):
        line = said(project, "--install-timer")["line"]
        assert table.read_text() == f"0 1 * * * other\n{line}\n"
    assert str(project) in line
    assert f"REVERIE_HOME={os.environ['REVERIE_HOME']}" in line
    assert f"2>>{os.environ['REVERIE_HOME']}/dream-timer-" in line
    assert said(project, "--status")["timer"]["installed"] == ["a line in your crontab"]
    run(project, "--remove-timer")
    assert table.read_text() == "0 1 * * * other\n"
    assert "timer: none" in run(project, "--status").output


@pytest.mark.requirement("L6.10")
def test_a_second_dream_ends_at_once_and_names_the_process_of_the_first(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = DreamLock(Memory.open(project).path).take(1_794_391_200.0)
    assert held is not None
    monkeypatch.setattr("reverie.cli.memory.dream.start", lambda *_, **__: pytest.fail("a process was started"))
    with held, pytest.raises(SessionBusy, match=f"process {os.getpid()}"):
        run(project, "--now")


@pytest.mark.requirement("L6.10")
def test_a_dream_that_cannot_start_says_why_as_soon_as_its_process_ends(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_MODEL", "nobody-knows-it")
    monkeypatch.setattr("reverie.cli.memory.dream._BEGIN_SECONDS", 3600.0)
    with pytest.raises(InputError, match="nobody-knows-it"):
        run(project, "--now")


@pytest.mark.requirement("L6.8")
def test_a_dream_that_was_killed_before_its_report_is_called_killed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, memory_dir: str, **__: Any) -> int:
        ProgressWriter(memory_dir, "d1", began=1.0)
        return os.getpid()

    monkeypatch.setattr("reverie.cli.memory.dream.start", killed)
    with pytest.raises(InputError, match="the dream d1 was killed before it changed anything"):
        run(project, "--now")
    assert "without a report: d1, killed" in run(project, "--status").output


@pytest.mark.requirement("L6.10")
def test_where_there_is_nothing_to_do_a_dream_says_so_and_ends_with_0(tmp_path: Path) -> None:
    done = run(tmp_path, "--now")
    assert (done.exit_code, "no memories" in done.output) == (0, True)
    assert said(tmp_path, "--now")["reason"] == "no_memories"
    assert said(tmp_path, "--dry-run") == said(tmp_path, "--now")


def test_what_a_dream_asks_waits_in_the_review(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reverie.cli.memory.review import review

    monkeypatch.chdir(project)
    memory = Memory.open(project)
    memory.save("The API gateway times out after 30 seconds", type="project", why="measured")
    memory.save("The API gateway times out after 60 seconds", type="project", why="measured")
    said(project, "--now", "--local")
    found = json.loads(CliRunner().invoke(review, ["--json"], catch_exceptions=False).output)
    assert [one["topic"] for one in found["questions"]] == ["similar"]
    assert "30 seconds" in CliRunner().invoke(review, [], catch_exceptions=False).output
    memory.forget(found["questions"][0]["files"][0])
    assert json.loads(CliRunner().invoke(review, ["--json"], catch_exceptions=False).output)["questions"] == []


@pytest.mark.requirement("L6.11")
def test_the_review_offers_to_delete_a_memory_whose_date_has_passed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.cli.memory.review import review

    monkeypatch.chdir(project)
    memory = Memory.open(project)
    path = memory.save("The freeze of the API lasts until 2026-10-01", type="project", why="audit").path
    path.write_text(re.sub(r'(created|modified): ".*"', r'\1: "2026-09-01T00:00:00Z"', path.read_text()))
    said(project, "--now", "--local")
    terminal = SimpleNamespace(isatty=lambda: True)
    module = sys.modules[review.callback.__module__]  # type: ignore[union-attr]
    monkeypatch.setattr(module, "sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    assert path.is_file()
    for answer, stays in (("s", True), ("d", False)):
        CliRunner().invoke(review, [], input=f"{answer}\n", catch_exceptions=False)
        assert path.is_file() is stays
    assert "2026-10-01" not in CliRunner().invoke(review, [], catch_exceptions=False).output


@pytest.mark.slow
@pytest.mark.requirement("L6.10")
def test_the_terminal_starts_follows_stops_and_undoes_a_dream(project: Path) -> None:
    before = contents(project)
    heard = Heard(load_settings(project=project))
    notes: list[str] = []

    async def talk() -> None:
        async with anyio.create_task_group() as tasks:
            dreaming = DreamScheduler(heard, project, heard.settings, tasks=tasks)  # type: ignore[arg-type]
            parts = SimpleNamespace(memory=SimpleNamespace(dreaming=dreaming))
            page = SimpleNamespace(note=lambda text, *_: notes.append(text))
            chat: Any = SimpleNamespace(agent=SimpleNamespace(parts=parts), transcript=page)
            await run_command(chat, "/dream stop")
            await run_command(chat, "/dream sideways")
            await run_command(chat, "/dream")
            with anyio.fail_after(60):
                while not heard.events or heard.events[-1].state != "completed":  # type: ignore[attr-defined]
                    await anyio.sleep(0.05)
            held = None
            with anyio.fail_after(60):
                while held is None:  # the process may still be ending
                    held = DreamLock(Memory.open(project).path).take(1_794_391_200.0)
                    await anyio.sleep(0.05)
            with held:
                await run_command(chat, "/dream")
            assert contents(project) != before
            await run_command(chat, "/dream undo")

    anyio.run(talk)
    assert contents(project) == before
    assert notes[0] == "no dream is running"
    assert "usage" in notes[1]
    assert f"process {os.getpid()}" in notes[2]
    assert notes[3].startswith("undone: 1 file ")
    touched = [event for event in heard.events if isinstance(event, DreamChanged) and event.paths]
    assert touched, "the files were told"
