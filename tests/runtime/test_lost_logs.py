"""Logs that vanish under an open session, and logs that a newer Reverie wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session, StorageError
from reverie.cli.main import run
from reverie.conversation.entries import META, Entry, encode_entry
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.errors import LogLost, NewerVersion
from reverie.events import Event, FellBack, QueryEnded
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.redaction.session import Redaction
from reverie.runtime.session import writer
from reverie.settings import Settings, Switches
from reverie.storage import log_files
from reverie.storage.files import FileStorage

MODEL = "claude-sonnet-4-5"


class Home:
    """A home with a project, and its sessions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.home = root / "home"

    def open(self, name: str = "S", **more: Any) -> Session:
        return Session.open(name, cwd=self.work, settings=Settings(home=self.home), **more)

    @property
    def log(self) -> Path:
        return self.home / log_key(project_slug(self.work), "S")

    def said(self, name: str) -> list[str]:
        """Return the texts of all messages in a session's log on disk."""
        data = (self.log.parent / f"{name}.jsonl").read_bytes()
        return [str(entry.message["content"]) for entry in parse_log(data).entries if entry.message is not None]


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("mode", ["write", "read"])
@pytest.mark.parametrize("change", ["redact", "delete"])
def test_a_storage_that_stays_open_shows_no_text_that_another_process_took_out_of_a_log(
    place: Home, change: str, mode: Any
) -> None:
    storage, other = FileStorage(place.home), FileStorage(place.home)

    async def steps() -> None:
        async with place.open(storage=storage) as session:
            await session.say("My key is sk-secret-12345.")
            await session.say("Go on.")
        key = str(place.log.relative_to(place.home))
        if change == "redact":
            Redaction(other, place.home, key, ["sk-secret-12345"]).run()
        else:
            other.delete(key)
            async with place.open(storage=other) as session:
                await session.say("Another one.")
        async with place.open(storage=storage, mode=mode) as session:
            assert "sk-secret-12345" not in str(session.view.messages())
            assert session.view.length
            if mode == "write":
                await session.say("Again.")

    anyio.run(steps)
    assert [path.name for path in place.log.parent.glob("*.jsonl")] == ["S.jsonl"]
    assert [path for path in place.home.rglob("*") if path.is_file() and b"sk-secret-12345" in path.read_bytes()] == []


def remove_home(place: Home) -> None:
    shutil.rmtree(place.home)


def move_home(place: Home) -> None:
    place.home.rename(place.root / "elsewhere")


def empty_log(place: Home) -> None:
    os.truncate(place.log, 0)


def cut_log(place: Home) -> None:
    os.truncate(place.log, place.log.stat().st_size // 2)


def remove_log(place: Home) -> None:
    place.log.unlink()


def replace_log(place: Home) -> None:
    """Put a copy with other content and the same size in the log's place, as a program that synchronises does."""
    data = place.log.read_bytes().replace(b"two", b"TWO")
    place.log.with_suffix(".new").write_bytes(data)
    os.replace(place.log.with_suffix(".new"), place.log)


def lengthen_log(place: Home) -> None:
    """Let somebody without the lease write a line."""
    with place.log.open("ab") as file:
        file.write(encode_entry(Entry("foreign", None, "", "S", META, {})) + b"\n")


LOSSES: list[Callable[[Home], None]] = [
    remove_home,
    move_home,
    empty_log,
    cut_log,
    remove_log,
    replace_log,
    lengthen_log,
]


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_log_that_vanishes_is_noticed_before_the_next_acknowledgement_and_the_conversation_is_kept(
    place: Home, lose: Callable[[Home], None], resumed: bool
) -> None:
    events: list[Event] = []

    async def steps() -> LogLost:
        if resumed:
            async with place.open() as session:
                await session.say("one")
                await session.say("two")
        async with place.open() as session:
            session.listen(events.append)
            if not resumed:
                await session.say("one")
                await session.say("two")
            live = canonical(await session.prepare(model=MODEL, max_tokens=9))
            lose(place)
            with pytest.raises(LogLost) as lost:
                await session.say("three")
            with pytest.raises(LogLost):
                await session.say("four")
            async with place.open(lost.value.session) as rescued:
                assert canonical(await rescued.prepare(model=MODEL, max_tokens=9)) == live
            return lost.value

    lost = anyio.run(steps)
    assert lost.session == "S-rescued"
    assert "S-rescued" in str(lost)
    assert [e.why for e in events if isinstance(e, FellBack) and "S-rescued" in e.why and e.what == "log"] != []
    assert place.said("S-rescued")[:2] == ["one", "two"]
    if place.log.exists():
        assert "three" not in place.log.read_text("utf-8")


@pytest.mark.requirement("K2")
def test_a_loss_between_the_check_and_the_write_is_noticed_too(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    written = log_files.append_line

    def append_and_lose(*given: Any, **more: Any) -> int:
        place.log.unlink()
        return written(*given, **more)

    async def steps() -> None:
        async with place.open() as session:
            await session.say("one")
            monkeypatch.setattr(log_files, "append_line", append_and_lose)
            with pytest.raises(LogLost):
                await session.say("two")

    anyio.run(steps)
    assert place.said("S-rescued") == ["one"]


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("lose", [remove_home, empty_log])
def test_the_checks_above_detect_a_session_that_trusts_its_path(
    place: Home, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Home], None]
) -> None:
    append = FileStorage.append
    monkeypatch.setattr(FileStorage, "append", lambda self, key, line, expect=None: append(self, key, line))

    async def steps() -> None:
        async with place.open() as session:
            await session.say("one")
            lose(place)
            await session.say("two")

    anyio.run(steps)
    assert place.said("S") == ["two"]


@pytest.mark.requirement("K2")
def test_of_two_writers_after_the_home_was_removed_only_one_has_the_log(place: Home) -> None:
    async def steps() -> None:
        async with place.open() as first:
            await first.say("first one")
            remove_home(place)
            async with place.open() as second:
                await second.say("second one")
                with pytest.raises(LogLost, match="S-rescued"):
                    await first.say("first two")
                await second.say("second two")

    anyio.run(steps)
    assert place.said("S") == ["second one", "second two"]
    assert place.said("S-rescued") == ["first one"]


@pytest.mark.requirement("K2")
def test_of_two_writers_after_the_leases_were_removed_only_one_has_the_log(place: Home) -> None:
    async def steps() -> None:
        async with place.open() as first:
            await first.say("first one")
            shutil.rmtree(place.home / ".reverie-leases")
            async with place.open() as second:
                await second.say("second one")
                with pytest.raises(LogLost, match="S-rescued"):
                    await first.say("first two")
                await second.say("second two")

    anyio.run(steps)
    assert place.said("S") == ["first one", "second one", "second two"]


@pytest.mark.requirement("K2")
def test_a_conversation_that_cannot_be_rescued_now_is_rescued_by_the_next_append(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileStorage.write

    def full(self: FileStorage, key: str, data: bytes, **more: Any) -> str:
        raise StorageError("the disk is full", path=key)

    async def steps() -> None:
        async with place.open() as session:
            await session.say("one")
            remove_log(place)
            with monkeypatch.context() as patch:
                patch.setattr(FileStorage, "write", full)
                with pytest.raises(LogLost, match="the disk is full") as lost:
                    await session.say("two")
                assert lost.value.session == ""
            with pytest.raises(LogLost, match="S-rescued"):
                await session.say("two")

    anyio.run(steps)
    assert write is FileStorage.write
    assert place.said("S-rescued") == ["one"]


@pytest.mark.requirement("K2")
def test_a_log_that_vanishes_after_a_failed_append_is_noticed(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        async with place.open() as session:
            await session.say("one")
            with monkeypatch.context() as patch:
                patch.setattr(log_files, "append_line", _no_space)
                with pytest.raises(StorageError):
                    await session.say("two")
            empty_log(place)
            with pytest.raises(LogLost, match="S-rescued"):
                await session.prepare(model=MODEL, max_tokens=9)

    anyio.run(steps)
    assert place.said("S-rescued") == ["one"]


def _no_space(*given: Any, **more: Any) -> int:
    raise StorageError("no space", path="log")


def agent_of(place: Home, answer: Any = "fine") -> Agent:
    model = ScriptedModel(lambda request: answer, capabilities=Capabilities(True, window=200_000))
    known = Settings(home=place.home, switches=Switches(extraction=False, recall=False, dream=False))
    return Agent(model=model, cwd=place.work, session="S", settings=known)


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("lose", [remove_home, remove_log, empty_log])
def test_an_agent_whose_log_vanishes_ends_its_query_and_names_the_new_session(
    place: Home, lose: Callable[[Home], None]
) -> None:
    events: list[Event] = []

    async def steps() -> None:
        async with agent_of(place) as agent:
            agent.listen(events.append)
            async for _ in agent.ask("one"):
                pass
            lose(place)
            for _ in range(2):
                with pytest.raises(LogLost, match="S-rescued"):
                    async for _ in agent.ask("two"):
                        pass

    anyio.run(steps)
    assert [event.end for event in events if isinstance(event, QueryEnded)] == ["completed", "aborted", "aborted"]
    assert [event.what for event in events if isinstance(event, FellBack)].count("log") == 1
    assert any("one" in said for said in place.said("S-rescued"))


# -- logs of a newer version


def written_by_newer(place: Home, body: dict[str, Any], kind: str = META) -> None:
    async def steps() -> None:
        async with place.open() as session:
            await session.say("hello")

    anyio.run(steps)
    with place.log.open("ab") as file:
        file.write(encode_entry(Entry("newer", None, "", "S", kind, body)) + b"\n")


NEWER = [
    ({"schema": 99}, META),
    ({"decision": "hologram_shown", "layer": "x", "reason": "", "frees": 0, "moves_prefix": True}, "decision"),
]


@pytest.mark.requirement("K1")
@pytest.mark.parametrize(("body", "kind"), NEWER)
def test_a_log_of_a_newer_reverie_is_read_and_not_written(place: Home, body: dict[str, Any], kind: str) -> None:
    written_by_newer(place, body, kind)
    before, events = place.log.read_bytes(), list[Event]()

    async def steps() -> None:
        agent = agent_of(place)
        agent.listen(events.append)
        with pytest.raises(NewerVersion, match=r"written by a newer Reverie"):
            async with agent:
                pass
        for mode in ("write", "read"):
            reading = place.open(mode=mode)
            reading.listen(events.append)
            async with reading as session:
                assert session.view.messages()[0]["content"] == "hello"
                for write in (session.say("no"), session.prepare(model="m", max_tokens=10), session.attach("no")):
                    with pytest.raises(NewerVersion, match=r"written by a newer Reverie.*upgrade Reverie, or fork it"):
                        await write
                async with place.open(mode="write"):
                    pass  # no lease is held

    anyio.run(steps)
    assert place.log.read_bytes() == before
    told = [event.why for event in events if isinstance(event, FellBack)]
    assert ["upgrade Reverie, or fork it" in why for why in told] == [True, True]


@pytest.mark.requirement("K1")
def test_the_terminal_shows_a_log_of_a_newer_reverie_and_answers_no_prompt_in_it(
    place: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written_by_newer(place, {"schema": 99})
    before = place.log.read_bytes()
    monkeypatch.setenv("REVERIE_HOME", str(place.home))
    monkeypatch.chdir(place.work)
    monkeypatch.setattr("reverie.cli.chat.run", lambda options, settings, **_: anyio.run(_opened, options, settings))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for words in (["-c"], ["--resume", "S"], ["chat", "--continue"]):
        assert run(words) == 0, words
        shown = capsys.readouterr()
        assert "hello" in shown.out
        assert len(shown.err.splitlines()) == 1
        assert "written by a newer Reverie" in shown.err
    assert run(["-c", "go on"]) != 0
    assert "upgrade Reverie, or fork it" in capsys.readouterr().err
    assert place.log.read_bytes() == before


async def _opened(options: Any, settings: Settings) -> int:
    model = ScriptedModel("fine", capabilities=Capabilities(True, window=200_000))
    async with Agent(model=model, cwd=options.cwd, session=options.session, settings=settings):
        return 0


@pytest.mark.requirement("K1")
def test_an_unknown_decision_that_changes_no_request_is_passed_over(place: Home) -> None:
    written_by_newer(place, {"decision": "hologram_seen", "layer": "x", "moves_prefix": False}, "decision")

    async def steps() -> None:
        async with place.open() as session:
            await session.say("on")

    anyio.run(steps)
    assert place.said("S") == ["hello", "on"]


@pytest.mark.requirement("K1")
def test_the_check_above_detects_a_writer_that_does_not_look(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    written_by_newer(place, {"schema": 99})
    monkeypatch.setattr(writer, "newer_entry", lambda entry: "")

    async def steps() -> None:
        async with place.open() as session:
            await session.say("on")

    anyio.run(steps)
    assert place.said("S") == ["hello", "on"]


@pytest.mark.requirement("K1")
def test_reading_commands_work_on_a_newer_log_and_an_import_forks_it(
    place: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written_by_newer(place, {"schema": 99})
    monkeypatch.setenv("REVERIE_HOME", str(place.home))
    monkeypatch.chdir(place.work)

    for words in (["sessions"], ["show", "S"], ["context", "S"], ["export", "S", "-o", str(place.root / "fork.jsonl")]):
        assert run(words) == 0, words
        assert capsys.readouterr().err.count("newer Reverie") == (words[0] in ("show", "context")), words
    assert run(["import", str(place.root / "fork.jsonl")]) == 0

    async def steps() -> View:
        async with place.open("S-fork") as session:
            await session.say("on")
            return session.view

    assert anyio.run(steps).messages()[0]["content"][0]["text"] == "hello"


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("lose", [empty_log, remove_log])
def test_a_log_that_vanishes_after_a_compaction_leaves_at_least_the_messages_in_view(
    place: Home, lose: Callable[[Home], None]
) -> None:
    async def steps() -> tuple[str, list[Any], list[Any]]:
        async with place.open() as session:
            for number in range(12):
                await session.say(f"question {number}: " + f"word{number} " * 400)
                reply = {"role": "assistant", "model": MODEL, "content": [{"type": "text", "text": f"answer {number}"}]}
                await session.observe({**reply, "id": f"m{number}", "stop_reason": "end_turn", "usage": {}})
            await session.compact()
            shown = session.view.messages()
            lose(place)
            with pytest.raises(LogLost) as lost:
                await session.say("after")
        async with place.open(lost.value.session) as rescued:
            return lost.value.session, shown, rescued.view.messages()

    name, shown, rescued = anyio.run(steps)
    assert canonical({"messages": rescued}) == canonical({"messages": shown})
    if lose is remove_log:
        assert any("question 0" in text for text in place.said(name)), "the file was still open"
