"""A turn waits for the disk once, and nothing leaves the process before it is on disk."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Memory, Session, Settings, StorageError
from reverie.cli.terminal.commands import make_skill
from reverie.conversation.entries import META
from reverie.conversation.log import parse_log
from reverie.layers.l7_relay import RelayPolicy
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.team.progress import Narrator
from reverie.runtime.memory.recall import SessionRecall
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.session.ledger import LedgerStore
from reverie.runtime.session.log import MAX_LATER, SessionLog, StorageThread
from reverie.runtime.session.standing_context import StandingContext
from reverie.settings import Switches
from reverie.storage import log_files
from reverie.storage.files import FileStorage
from reverie.storage.log_files import LogFiles
from reverie.tools.tool import Access, NoPreview, Output

MODEL = "claude-sonnet-4-5"
READ: dict[str, Any] = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


class Disk:
    """A record of the bytes of each file that a power failure would leave, and of the hops to a worker thread.

    As Linux does, it takes the bytes of a failed flush for flushed: only a flush after another write saves them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = self.hops = 0
        self.fails = False
        self._safe: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        fdatasync, pwrite, run_sync = os.fdatasync, os.pwrite, anyio.to_thread.run_sync

        def recorded(descriptor: int) -> None:
            found = os.fstat(descriptor)
            if self.fails:
                self._lost.setdefault(found.st_ino, self._safe.get(found.st_ino, 0))
                raise OSError(5, "the disk failed")
            fdatasync(descriptor)
            self.syncs += 1
            safe = min(found.st_size, self._lost.get(found.st_ino, found.st_size))
            self._safe[found.st_ino] = max(safe, self._safe.get(found.st_ino, 0))

        def written(descriptor: int, data: bytes, start: int) -> int:
            number = os.fstat(descriptor).st_ino
            if start <= self._lost.get(number, -1) <= start + len(data):
                del self._lost[number]
            return pwrite(descriptor, data, start)

        async def counted(*given: Any, **more: Any) -> Any:
            self.hops += 1
            return await run_sync(*given, **more)

        monkeypatch.setattr(os, "fdatasync", recorded)
        monkeypatch.setattr(os, "pwrite", written)
        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)

        run = StorageThread.run

        async def counted_too(thread: StorageThread, *given: Any) -> Any:
            self.hops += 1
            return await run(thread, *given)

        monkeypatch.setattr(StorageThread, "run", counted_too)

    def lines(self, path: Path) -> tuple[int, int]:
        """Return how many entries of a log are on disk, and how many there are."""
        return len(parse_log(self.safe_bytes(path)).entries), len(parse_log(path.read_bytes()).entries)

    def safe_bytes(self, path: Path) -> bytes:
        return path.read_bytes()[: self._safe.get(path.stat().st_ino, 0)]

    def is_safe(self, path: Path) -> bool:
        safe, all = self.lines(path)
        return safe == all


class Place:
    """A session in files and its log."""

    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "home", root / "work"
        self.work.mkdir()
        self.session = Session.open("S", cwd=self.work, settings=Settings(self.home))
        self.log = self.home / log_key(project_slug(self.work), "S")
        self.turns = 0

    async def prepare(self) -> None:
        await self.session.prepare(model=MODEL, max_tokens=1_000, system="s", tools=[READ])

    async def observe(self, *, calls: bool = True) -> None:
        self.turns += 1
        use = {"type": "tool_use", "id": f"t{self.turns}", "name": "Read", "input": {"file_path": "/a"}}
        content = [{"type": "text", "text": f"step {self.turns}"}, *([use] if calls else [])]
        usage = {"input_tokens": 10, "output_tokens": 5}
        await self.session.observe(
            {"id": f"m{self.turns}", "role": "assistant", "model": MODEL, "content": content, "usage": usage}
        )

    async def result(self) -> None:
        await self.session.result(f"t{self.turns}", f"line {self.turns}\n" * 30)

    async def turn(self) -> None:
        await self.observe()
        await self.result()
        await self.prepare()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(log_files, "_FLUSH_AFTER_SECONDS", 3_600)  # no flush by a clock while a test counts
    return Disk(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def cost_of_turns(place: Place, disk: Disk, turns: int = 5) -> tuple[int, int]:
    """Return the flushes and the hops of some turns, after some that warm up."""
    async with place.session as session:
        await session.say("go")
        await place.prepare()
        await place.turn()
        before = disk.syncs, disk.hops
        for _ in range(turns):
            await place.turn()
        return disk.syncs - before[0], disk.hops - before[1]


@pytest.mark.requirement("K2")
def test_a_turn_waits_for_the_disk_once_and_goes_to_a_thread_once(place: Place, disk: Disk):
    assert anyio.run(cost_of_turns, place, disk) == (5, 5)
    assert disk.lines(place.log)[1] == 3 + 6 * 4  # each turn: reply, call, result, decision about the result


def test_the_count_detects_a_turn_that_waits_for_each_line(place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch):
    append = SessionLog.append

    async def eager(self: SessionLog, kind: str, body: dict[str, Any], *, sync: bool = True) -> Any:
        return await append(self, kind, body)

    monkeypatch.setattr(SessionLog, "append", eager)
    syncs, hops = anyio.run(cost_of_turns, place, disk)
    assert syncs > 5
    assert hops > 5


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("logs", [False, True])
def test_the_disk_writes_while_the_request_is_built_and_the_request_waits_for_lines_logged_meanwhile(
    place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch, logs: bool
):
    begun, seen = threading.Event(), list[bool]()
    flush, before_request = log_files.flush, StandingContext.before_request

    def flushed(descriptor: int) -> None:
        begun.set()
        flush(descriptor)

    async def built(standing: StandingContext) -> None:
        seen.append(begun.wait(10))
        if logs:
            await place.session.log.append(META, {"note": 1}, sync=False)
        await before_request(standing)

    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            monkeypatch.setattr(StandingContext, "before_request", built)
            monkeypatch.setattr(log_files, "flush", flushed)
            for turn in range(1, 4):
                begun.clear()
                await place.turn()
                assert seen == [True] * turn
                assert disk.is_safe(place.log)

    anyio.run(steps)


async def unsafe_moments(place: Place, disk: Disk) -> list[str]:
    """Return the calls that returned before the whole log was on disk, of those that promise it."""
    found: list[str] = []

    def look(name: str) -> None:
        if not disk.is_safe(place.log):
            found.append(name)

    async with place.session as session:
        await session.say("go")
        look("say")
        await place.prepare()
        look("prepare")
        await place.observe()
        await place.result()
        await session.sync()
        look("sync")
        await place.prepare()
        look("second prepare")
        await place.observe(calls=False)
        look("last reply")
        await session.say("again")
        await place.prepare()
        await place.observe()
        await place.result()
    look("close")
    return found


@pytest.mark.requirement("K2")
def test_a_request_a_last_reply_and_a_close_wait_for_the_disk(place: Place, disk: Disk):
    assert anyio.run(unsafe_moments, place, disk) == []


def test_the_look_at_the_disk_detects_a_request_that_does_not_wait(
    place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    async def never(self: SessionLog) -> None:
        pass

    monkeypatch.setattr(SessionLog, "sync_briefly", never)
    monkeypatch.setattr(SessionLog, "begin_sync", lambda self: None)  # its flush may end before the request does
    assert "second prepare" in anyio.run(unsafe_moments, place, disk)


@pytest.mark.requirement("K2")
def test_a_killed_process_loses_no_reply_and_no_result_although_the_disk_was_not_waited_for(place: Place, disk: Disk):
    """The operating system has each line when its call returns, and that is all that a kill leaves."""

    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            await place.observe()
            assert disk.lines(place.log) == (3, 5)  # the reply and its call are written, not yet flushed
            await place.result()
            kinds = [entry.kind for entry in parse_log(place.log.read_bytes()).entries]
            assert kinds[-3:] == ["assistant", "decision", "user"]

    anyio.run(steps)


@pytest.mark.requirement("K2")
def test_a_flush_that_fails_stops_the_request_and_the_next_one_flushes_again(place: Place, disk: Disk):
    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            await place.observe()
            await place.result()
            disk.fails = True
            with pytest.raises(StorageError, match="the disk failed"):
                await place.prepare()
            with pytest.raises(StorageError, match="the disk failed"):
                await place.prepare()
            disk.fails = False
            assert not disk.is_safe(place.log)
            await place.prepare()
            assert disk.is_safe(place.log)
            assert [entry.kind for entry in session.view.history] == ["user", "assistant", "user"]

    anyio.run(steps)


@pytest.mark.requirement("K2")
def test_a_failed_flush_in_the_background_fails_the_call_that_waits_for_it_and_the_bytes_are_written_again(
    tmp_path: Path, disk: Disk
):
    storage, path = FileStorage(tmp_path), tmp_path / "a.jsonl"
    logs: LogFiles = storage._logs  # pyright: ignore[reportPrivateUsage]
    with storage.unsynced("a.jsonl"):
        storage.append("a.jsonl", b"1")
    log = logs._logs["a.jsonl"]  # pyright: ignore[reportPrivateUsage]
    disk.fails = True
    with pytest.raises(StorageError, match="the disk failed"):
        log.flush()  # as the thread does; a call that waits for it goes on before the thread drops the log
    disk.fails = False
    with pytest.raises(StorageError, match="the disk failed"):
        storage.append("a.jsonl", b"2", expect=2)
    storage.append("a.jsonl", b"2", expect=2)
    assert disk.safe_bytes(path) == path.read_bytes() == b"1\n2\n"
    with storage.unsynced("a.jsonl"):
        storage.append("a.jsonl", b"3")
    disk.fails = True
    logs.flush()
    disk.fails = False
    with pytest.raises(StorageError, match="the disk failed"):
        storage.sync("a.jsonl", expect=6)
    storage.sync("a.jsonl", expect=6)
    assert disk.safe_bytes(path) == path.read_bytes()
    storage.close()


def test_known_bad_a_flush_that_is_only_tried_again_saves_nothing(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_files._LogFile, "write_again", lambda self: None)
    storage = FileStorage(tmp_path)
    disk.fails = True
    with pytest.raises(StorageError, match="the disk failed"):
        storage.append("a.jsonl", b"1")
    disk.fails = False
    storage.append("a.jsonl", b"2")
    assert disk.safe_bytes(tmp_path / "a.jsonl") == b""
    storage.close()


@pytest.mark.requirement("K2")
def test_a_close_that_cannot_flush_raises_and_ends_the_flush_thread(place: Place, disk: Disk):
    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            await place.observe()
            assert "reverie-flush" in [thread.name for thread in threading.enumerate()]
            disk.fails = True

    with pytest.raises(StorageError, match="the disk failed"):
        anyio.run(steps)
    assert "reverie-flush" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.requirement("K2")
def test_lines_that_no_call_waits_for_are_flushed_in_the_background(
    place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_files, "_FLUSH_AFTER_SECONDS", 0.0)

    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            await place.observe()
            with anyio.fail_after(60):
                while not disk.is_safe(place.log):
                    await anyio.sleep(0.01)
            assert disk.is_safe(place.log), "while the session is open"

    anyio.run(steps)


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("kind", ["recall", "progress", "skill"])
def test_a_request_beside_the_conversation_leaves_after_the_lines_before_it_are_on_disk(
    place: Place, disk: Disk, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_files, "_FLUSH_AFTER_SECONDS", 60.0)
    seen: list[bool] = []

    def answer(_: object) -> str:
        seen.append(disk.is_safe(place.log))
        return "none"

    async def steps() -> None:
        model: Any = ScriptedModel(answer, name="scripted:small")
        async with place.session as session:
            await session.say("Why does the ferry stop?")
            await place.prepare()
            await place.observe()
            await place.result()
            assert not disk.is_safe(place.log)
            if kind == "recall":
                Memory(place.home / "memory").save("The ferry stops at night", type="project", why="no lamp")
                recall = SessionRecall(session.parts.host, place.home / "memory", model)
                recall.start("Why does the ferry stop?")
                await recall.take()
            elif kind == "progress":
                member: Any = SimpleNamespace(line="", names=())
                monkeypatch.setattr(Narrator, "_is_fork_cheaper", lambda *_: False)
                await Narrator(member, session, lambda: model, model, RelayPolicy(), say=print).once()
            else:
                agent = SimpleNamespace(session=session, model=model)
                transcript = SimpleNamespace(note=lambda *_: None)
                chat: Any = SimpleNamespace(agent=agent, settings=session.settings, transcript=transcript)
                await make_skill(chat, "")

    anyio.run(steps)
    assert seen
    assert all(seen)


@pytest.fixture
def slow_flush(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk whose flush takes until the event is set."""
    go, begun = threading.Event(), threading.Event()
    fdatasync = os.fdatasync

    def slow(descriptor: int) -> None:
        begun.set()
        assert go.wait(60)
        fdatasync(descriptor)

    monkeypatch.setattr(log_files, "flush", slow)
    go.begun = begun  # type: ignore[attr-defined]
    yield go
    go.set()


@pytest.mark.requirement("K2")
def test_an_append_does_not_wait_for_a_flush_and_a_sync_does(tmp_path: Path, slow_flush: Any):
    storage = FileStorage(tmp_path)
    logs: LogFiles = storage._logs  # pyright: ignore[reportPrivateUsage]
    with storage.unsynced("a.jsonl"):
        storage.append("a.jsonl", b"1")
    waiting = threading.Event()

    class AnnouncedLock:
        """A lock that tells when a thread has to wait for it."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            if not self.lock.acquire(blocking=False):
                waiting.set()
                self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    logs._logs["a.jsonl"].flushing = AnnouncedLock()  # type: ignore[attr-defined, assignment]
    flusher = threading.Thread(target=logs.flush)
    flusher.start()
    assert slow_flush.begun.wait(60)
    with storage.unsynced("a.jsonl"):
        storage.append("a.jsonl", b"2")  # would hang here
    done = threading.Event()
    waiter = threading.Thread(target=lambda: (storage.sync("a.jsonl", expect=4), done.set()))
    waiter.start()
    assert waiting.wait(60)
    assert not done.is_set()
    slow_flush.set()
    assert done.wait(60)
    flusher.join(60)
    waiter.join(60)
    assert storage.load("a.jsonl") == b"1\n2\n"
    storage.close()


@pytest.mark.requirement("K2")
@pytest.mark.parametrize("kind", ["other", "none", "checkout", "reads"])  # an agent or a message needs no permission
def test_an_agent_waits_for_the_disk_before_a_tool_that_changes_something(tmp_path: Path, disk: Disk, kind: str):
    place = Place(tmp_path)
    seen: list[bool] = []

    class Act(NoPreview):
        name, description, input_schema, max_chars = "act", "Act.", {"type": "object", "properties": {}}, None

        def access(self, input: Any, context: Any) -> Access:
            return Access("read" if kind == "reads" else kind, str(place.work))

        async def run(self, input: Any, context: Any) -> Output:
            seen.append(disk.is_safe(log))
            return Output("done")

    log = place.home / log_key(project_slug(place.work), "A")
    replies = [[{"type": "tool_use", "name": "act", "input": {}}], "done"]
    settings = Settings(place.home, switches=Switches(extraction=False, recall=False))
    agent = Agent(
        model=ScriptedModel(replies, capabilities=Capabilities(True, window=200_000)),
        tools=[Act()],
        cwd=place.work,
        settings=settings,
        session="A",
        mode="bypass",
    )

    async def steps() -> None:
        async with agent:
            async for _ in agent.ask("go"):
                pass
            assert disk.is_safe(log)  # the end of a query is an acknowledgement too

    anyio.run(steps)
    assert seen == [kind != "reads"]


@pytest.mark.requirement("K2")
def test_a_hook_before_a_tool_and_the_request_of_a_fork_wait_for_the_disk(tmp_path: Path, disk: Disk):
    place, seen = Place(tmp_path), list[tuple[str, bool]]()
    log = place.home / log_key(project_slug(place.work), "A")
    (place.work / "a").write_text("text")

    class Model(ScriptedModel):
        def stream(self, request: Any) -> Any:
            seen.append(("request", disk.is_safe(log)))
            return super().stream(request)

    async def hook(event: Any) -> None:
        seen.append(("hook", disk.is_safe(log)))

    use = {"type": "tool_use", "name": "Read", "input": {"file_path": "a"}}
    model = Model([[use], "done", "forked"], capabilities=Capabilities(True, window=200_000))
    settings = Settings(place.home, switches=Switches(extraction=False, recall=False))
    agent = Agent(model=model, cwd=place.work, settings=settings, session="A", hooks={"before_tool": [hook]})

    async def steps() -> None:
        async with agent:
            async for _ in agent.ask("go"):
                pass
            await agent.session.log.append(META, {"note": 1}, sync=False)
            await agent.session.fork("what?")

    anyio.run(steps)
    assert seen == [(name, True) for name in ("request", "hook", "request", "request")]


@pytest.mark.requirement("C6")
def test_the_ledger_has_every_call_when_a_query_ends_and_lags_a_few_turns_before(place: Place, disk: Disk):
    def calls() -> int:
        with LedgerStore(place.home) as ledger:
            return len(ledger.calls())

    async def steps() -> None:
        async with place.session as session:
            await session.say("go")
            await place.prepare()
            for turn in range(1, 2 * MAX_LATER):
                await place.turn()
                assert turn - MAX_LATER < calls() <= turn
            await place.observe(calls=False)
            assert calls() == 2 * MAX_LATER

    anyio.run(steps)


@pytest.mark.requirement("C6")
def test_the_calls_that_a_killed_process_did_not_enter_are_entered_when_the_session_is_opened(
    place: Place, disk: Disk, monkeypatch: pytest.MonkeyPatch
):
    async def killed() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(LedgerStore, "enter_all", lambda self, calls: False)  # the process ends before
            async with place.session as session:
                await session.say("go")
                await place.prepare()
                for _ in range(3):
                    await place.turn()

    async def resumed() -> None:
        async with Session.open("S", cwd=place.work, settings=Settings(place.home)) as session:
            await session.say("again")

    with LedgerStore(place.home) as ledger:
        assert ledger.enter_all([])
    anyio.run(killed)
    with LedgerStore(place.home) as ledger:
        assert ledger.calls() == []
    anyio.run(resumed)
    with LedgerStore(place.home) as ledger:
        assert [call.source for call in ledger.calls()] == ["main"] * 3


def test_a_storage_without_files_needs_no_thread(disk: Disk):
    async def steps() -> None:
        async with Session.open("S", storage=InMemoryStorage()) as session:
            await session.say("go")
            await session.prepare(model=MODEL, max_tokens=100)
            before = disk.hops
            await session.observe({"id": "m", "role": "assistant", "model": MODEL, "content": "hello"})
            assert disk.hops == before

    anyio.run(steps)


def test_a_log_has_one_thread_that_ends_with_it(place: Place, disk: Disk):
    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "reverie-log"]

    async def steps() -> list[str]:
        async with place.session as session:
            await session.say("go")
            for _ in range(3):
                await place.turn()
            return threads()

    assert anyio.run(steps) == ["reverie-log"]
    for one in threading.enumerate():
        if one.name == "reverie-log":
            one.join(60)
    assert threads() == []


def test_a_session_goes_on_in_a_thread_after_the_main_thread_has_ended(tmp_path: Path):
    program = f"""
import threading
from pathlib import Path
from reverie import Settings, SyncSession

def work():
    with SyncSession.open("S", settings=Settings(Path({str(tmp_path)!r}))) as session:
        session.say("go")
        threading.main_thread().join(60)
        session.say("go on")
        print(len(session.prepare(model={MODEL!r}, max_tokens=100)["messages"][0]["content"]))

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_caller_that_is_cancelled_leaves_the_thread_to_the_next_one():
    async def steps() -> str:
        thread, begun, go = StorageThread(), threading.Event(), threading.Event()

        def slow() -> str:
            begun.set()
            go.wait(60)
            return "slow"

        first = asyncio.create_task(thread.run(slow))
        await asyncio.to_thread(begun.wait, 60)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go.set()
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)
        said = await thread.run(lambda: "next")
        thread.close()
        return said

    assert anyio.run(steps) == "next"
