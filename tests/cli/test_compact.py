"""Compact, undo and loss on the command line: preview, apply once, undo byte for byte."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from log_script import Script, text
from reverie import FileStorage, Session, load_settings
from reverie.cli.compaction import compact, loss
from reverie.cli.costs import context
from reverie.cli.costs.inspect_session import session_doors
from reverie.cli.main import run
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.commands import run_command
from reverie.cli.terminal.questions import Option
from reverie.cli.terminal.transcript import Transcript
from reverie.conversation.decisions import Cause, Compacted
from reverie.conversation.entries import marked_imported
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.errors import InputError
from reverie.models import ScriptedModel
from reverie.runtime.library import Library
from reverie.runtime.places.projects import log_key, project_slug

from .conftest import on_a_screen

MODEL = "claude-sonnet-4-5"
PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "
Ran = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """Return a function that runs a command and gives its exit code, what it printed (JSON read) and complained."""

    def call(command: Any, *arguments: str) -> tuple[int, Any, str]:
        code = run(list(arguments), commands=command.command)
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and out else out, err

    return call


async def talk(session: Session, turns: int, tests: int = 1) -> list[str]:
    said = [(await session.say("Write down every ship of pier_7.txt, please.")).uuid]
    for n in range(turns):
        await session.prepare(model=MODEL, max_tokens=100)
        blocks = [{"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"piers/pier_{n}.txt"}}]
        await session.observe({"id": f"m{n}", "role": "assistant", "model": MODEL, "content": blocks})
        failed = "".join(f"tests/test_pier_{n + turns * one}.py failed\n" for one in range(tests))
        said.append((await session.result(f"t{n}", failed + PROSE * 40)).uuid)
    return said


@pytest.fixture
def harbour(tmp_path: Path) -> list[str]:
    """Keep a session of 60 turns and return the uuids of what was said."""

    async def steps() -> list[str]:
        async with Session.open("harbour", cwd=tmp_path) as session:
            return await talk(session, 60)

    return anyio.run(steps)


def shown() -> list[bytes]:
    storage = FileStorage(load_settings().home)
    try:
        library = Library(storage)
        return canonical(build_request(View().fold_all(library.load(library.find("harbour")).entries)))
    finally:
        storage.close()


@pytest.mark.requirement("L4.14", "B2")
def test_it_shows_before_it_acts_and_undo_gives_everything_back(ran: Ran, harbour: list[str]):
    before = shown()
    code, report, _ = ran(compact, "harbour", "--dry-run", "--json")
    assert code == 0
    assert not report["applied"]
    assert shown() == before
    assert report["tokens_after"] < 0.75 * report["tokens_before"]
    assert report["model_calls"] == 0
    assert report["kept_messages"] > 0
    assert report["loss"]["by_kind"]["path"][0] > 0
    assert "price" in report
    code, text, _ = ran(compact, "harbour", "--yes")
    assert code == 0
    assert "tokens" in text
    assert "read back" in text
    assert "compacted" in text
    assert len(shown()) < len(before)
    code, told, _ = ran(loss, "harbour", "--json")
    made = told[0]["compactions"]
    assert code == 0
    assert len(made) == 1
    assert not made[0]["undone"]
    assert made[0]["handle"].startswith("cut-")
    code, undone, _ = ran(compact, "harbour", "--undo", "--json")
    assert code == 0
    assert undone["tokens_after"] > undone["tokens_before"]
    assert shown() == before
    assert ran(loss, "harbour", "--json")[1][0]["compactions"][0]["undone"]
    code, _, complaint = ran(compact, "harbour", "--undo")
    assert code == 2
    assert "no compaction to undo" in complaint


def test_the_question_stands_right_below_the_price_on_a_small_screen(ran: Ran, tmp_path: Path):
    async def steps() -> None:
        async with Session.open("harbour", cwd=tmp_path) as session:
            await talk(session, 60, tests=20)

    anyio.run(steps)
    _, report, _ = ran(compact, "harbour", "--dry-run", "--json")
    lost = len(report["loss"]["lost"])
    screen = on_a_screen("compact", "harbour", typed=b"n\n", code=1).split("Compact?")[0]
    assert f"  and {lost - 4:,} more; after the compaction 'reverie loss' lists all" in screen
    lines = [line.rstrip() for line in screen.splitlines() if line.strip() and line.strip() != "n"]
    assert lines[-4].startswith("tokens ")
    cost, carrying, saved = (float(one) for one in re.findall(r"\$([\d.]+)", lines[-3]))
    assert f": saves ${saved:.4f}" in lines[-3]
    assert saved == pytest.approx(carrying - cost, abs=0.0002)
    cost, carrying, saved = (int(one.replace(",", "")) for one in re.findall(r"\d[\d,]+", " ".join(lines[-2:]))[:3])
    assert saved == pytest.approx(carrying - cost, abs=2)
    assert len(lines) <= 30
    _, piped, _ = ran(compact, "harbour", "--yes")
    assert f"  and {lost - 40:,} more" in piped
    _, told, _ = ran(loss, "harbour")
    assert told.count("tests/test_pier_") >= lost > 40
    assert " more" not in told


@pytest.mark.parametrize("options", [(), ("--json",), ("--model", "scripted")])
def test_without_a_terminal_it_compacts_only_with_yes(
    ran: Ran, harbour: list[str], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
):
    monkeypatch.setattr("reverie.models.open_model", lambda name: ScriptedModel([]))
    before = shown()
    code, out, complaint = ran(compact, "harbour", *options)
    assert (code, out) == (2, "")
    assert "compacted nothing: confirmation needs a terminal; --yes compacts" in complaint
    assert shown() == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads from /proc whether the command waits")
@pytest.mark.parametrize("command", ["compact harbour", "delete harbour", "trust", "install --host codex"])
def test_ctrl_c_at_a_question_ends_the_command_at_once(harbour: list[str], command: str):
    before = shown()
    screen = on_a_screen(*command.split(), interrupt_at="[y/N]: ", code=130)
    assert "nothing was changed" in screen
    assert shown() == before


@pytest.mark.requirement("L4.11")
def test_a_part_is_named_by_a_message(ran: Ran, harbour: list[str]):
    code, report, _ = ran(compact, "harbour", "--up-to", harbour[45][:13], "--yes", "--json")
    assert code == 0
    assert report["method"] == "up_to"
    assert report["applied"]
    code, _, complaint = ran(compact, "harbour", "--from", "nowhere-at-all", "--yes")
    assert code == 2
    assert "is in the view" in complaint
    code, _, complaint = ran(compact, "harbour", "--from", "a", "--up-to", "b")
    assert code == 2
    assert "exclude each other" in complaint
    code, _, complaint = ran(compact, "harbour", "--instructions", "Mind the tides.")
    assert code == 2
    assert "--model" in complaint


@pytest.mark.requirement("K13")
def test_a_session_that_is_open_elsewhere_is_asked_to_do_it(ran: Ran, tmp_path: Path):
    async def steps() -> None:
        async with Session.open("harbour", cwd=tmp_path) as session:
            await talk(session, 60)
            code, told, _ = await anyio.to_thread.run_sync(lambda: ran(compact, "harbour", "--json"))
            assert code == 0
            assert told["queued"]
            assert not told["applied"]
            await session.prepare(model=MODEL, max_tokens=100)
            assert len(session.view.facts.compactions) == 1
            code, told, _ = await anyio.to_thread.run_sync(lambda: ran(compact, "harbour", "--undo", "--json"))
            assert code == 0
            assert told["queued"]
            await session.prepare(model=MODEL, max_tokens=100)
            assert session.view.facts.undone == {session.view.facts.compactions[0]}

    anyio.run(steps)


@pytest.mark.requirement("B2")
@pytest.mark.slow
def test_compactions_that_another_agent_recorded_are_reported_too(ran: Ran, corpus: Path):
    found = 0
    for file in sorted((corpus / "claude-code").glob("*.jsonl")):
        if b"compact_boundary" in file.read_bytes():
            code, told, _ = ran(loss, str(file), "--json")
            assert code == 0
            found += sum(len(one["compactions"]) for one in told)
    if not found:
        pytest.skip("no recording here holds a compaction")


@pytest.mark.requirement("V13")
def test_a_dry_run_with_a_model_calls_no_model(ran: Ran, harbour: list[str], monkeypatch: pytest.MonkeyPatch):
    calls: list[Any] = []

    def answer(request: Mapping[str, Any]) -> str:
        calls.append(request)
        return "<summary>The harbour, in short.</summary>"

    monkeypatch.setattr("reverie.models.open_model", lambda name: ScriptedModel(answer, name=name))
    asked = (compact, "harbour", "--model", "scripted:x")
    _, report, _ = ran(*asked, "--dry-run", "--json")
    assert (calls, report["is_estimate"], report["applied"]) == ([], True, False)
    assert "a dry run calls no model" in ran(*asked, "--dry-run")[1]
    _, report, _ = ran(*asked, "--yes", "--json")  # the known-bad twin: the same without --dry-run calls
    assert (len(calls) > 0, report["is_estimate"], report["applied"]) == (True, False, True)


def import_harbour(folder: Path) -> None:
    """Keep a recording of another program that has a compaction of it."""
    script = Script()
    script.add("meta", {"schema": 1, "source": {"format": "claude-code", "name": "x"}})
    for _ in range(30):
        script.user(PROSE * 40)
        last = script.reply(text("Noted."))
    script.decide(Compacted(Cause("compact", "full"), "auto", "full", "Ships came in.", 9_000, last, None))
    script.user("Go on.")
    storage = FileStorage(load_settings().home)
    Library(storage).store(log_key(project_slug(folder), "harbour"), marked_imported(script.entries, "harbour"))
    storage.close()


def test_undo_asks_before_it_undoes_a_compaction_of_another_program_and_warns_of_a_view_beyond_the_window(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import_harbour(tmp_path)

    async def steps() -> None:
        async with Session.open("harbour", cwd=tmp_path) as session:
            await talk(session, 60)

    anyio.run(steps)
    assert ran(compact, "harbour", "--yes")[0] == 0
    _, first, warned = ran(compact, "harbour", "--undo")
    assert first.startswith("undone: a compaction by Reverie; ")
    assert warned == ""
    monkeypatch.setenv("REVERIE_WINDOW_TOKENS", "60000")
    code, said, refused = ran(compact, "harbour", "--undo")
    assert (code, said) == (2, "")
    assert "confirmation needs a terminal" in refused
    assert "a compaction by claude-code" in refused
    assert ran(compact, "harbour", "--undo", "--dry-run")[1].startswith("would undo: a compaction by claude-code")
    declined = on_a_screen("compact", "--undo", "harbour", typed=b"n\n", columns=200, code=1)
    assert "The last compaction is a compaction by claude-code, before the import." in declined
    assert "nothing was changed" in declined
    _, second, warned = ran(compact, "harbour", "--undo", "--yes")
    assert second.startswith("undone: a compaction by claude-code, before the import; ")
    assert "more than the window of" in warned
    assert "'reverie compact harbour' compacts it again" in warned


def test_context_and_a_dry_run_count_the_same_tokens_where_no_bill_covers_the_view(ran: Ran, tmp_path: Path):
    import_harbour(tmp_path)
    assert ran(compact, "harbour", "--undo", "--yes")[0] == 0
    size = ran(compact, "harbour", "--dry-run", "--json")[1]["tokens_before"]
    _, shown, _ = ran(context, "harbour")
    assert f"\n{size:,} of 200,000 tokens" in shown
    padded = ran(context, "harbour", "--json")[1]["window"]["used"]
    assert padded > size
    assert f"with a margin for safety: {padded:,} tokens" in " ".join(shown.split())


def test_neither_a_queued_undo_nor_the_inspector_nor_the_chat_undoes_one_of_another_program_without_a_yes(
    ran: Ran, tmp_path: Path
):
    import_harbour(tmp_path)
    author = "a compaction by claude-code, before the import"
    with pytest.raises(InputError, match=f"{author}: 'reverie compact --undo harbour' asks"):
        session_doors(load_settings())["undo"]("harbour")
    lines: list[str] = []
    answers = iter([None, ""])

    async def choose(title: str, options: Sequence[Option]) -> str | None:
        lines.append(title)
        return next(answers)

    async def steps() -> None:
        async with Session.open("harbour", cwd=tmp_path) as session:
            code, said, refused = await anyio.to_thread.run_sync(lambda: ran(compact, "harbour", "--undo"))
            assert (code, said) == (2, "")
            assert author in refused
            transcript = Transcript(lines.extend, paint=Paint(colour=False), cwd=tmp_path, size=lambda: (200, 50))
            chat: Any = SimpleNamespace(agent=SimpleNamespace(session=session), transcript=transcript, choose=choose)
            for line in ("/uncompact", "/compact undo"):
                await run_command(chat, line)
                assert lines == [f"The last compaction is {author}. Undo it?", "nothing was changed"]
                lines.clear()
            assert not session.view.facts.undone
            await run_command(chat, "/uncompact yes")
            assert lines[0].startswith("undone: ")
            assert session.view.facts.undone

    anyio.run(steps)
