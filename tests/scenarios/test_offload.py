"""Layer 1 in a session: a big result never enters the view whole, unless the disk fails and an event says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.decisions import ResultOffloaded
from reverie.conversation.wire.validate import problems
from reverie.errors import StorageError
from reverie.events import DecisionMade, EntryAppended, Event, FellBack
from reverie.layers.l2_trim.policy import CLEARED
from reverie.runtime.places.projects import log_key, project_slug

MODEL = "claude-sonnet-4-5"
BASH: dict[str, Any] = {"name": "Bash", "input_schema": {"type": "object"}}
BIG = "".join(f"line {number} of a long build\n" for number in range(4_000))


def reply(*ids: str, number: int = 1) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": one, "name": "Bash", "input": {"command": "make"}} for one in ids]
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"id": f"m{number}", "role": "assistant", "model": MODEL, "content": calls, "usage": usage}


async def ask(session: Session) -> dict[str, Any]:
    return await session.prepare(model=MODEL, max_tokens=100, tools=[BASH])


def run(steps: Callable[[], Any]) -> None:
    anyio.run(steps)


@pytest.mark.requirement("L1.1")
@pytest.mark.parametrize("output", [BIG, BIG.encode(), [{"type": "text", "text": BIG}], {"log": BIG}])
def test_a_big_result_is_on_disk_before_it_enters_the_view(tmp_path: Path, home: Path, output: Any):
    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path) as session:
            seen: list[tuple[str, str]] = []

            def watch(event: Event) -> None:
                if isinstance(event, (EntryAppended, DecisionMade)):
                    seen.append((type(event).__name__, str(session.view.messages())))

            session.listen(watch)
            await session.say("build it")
            await ask(session)
            await session.observe(reply("t1"))
            await session.result("t1", output)
            decision = session.view.offloaded("t1")
            assert isinstance(decision, ResultOffloaded)
            assert (home / decision.path).stat().st_size == decision.size
            assert all("line 3999" not in shown for _, shown in seen)  # at no moment was it shown whole
            request = await ask(session)
            assert "<persisted-output>" in str(request["messages"][2])
            assert "line 3999" not in str(request)
            assert problems(request) == []
            assert b"line 3999" in await session.read_back("t1")
        log = (home / log_key(project_slug(tmp_path), "s")).read_bytes()
        assert b"line 3999" not in log

    run(steps)


@pytest.mark.requirement("L1.1")
@pytest.mark.parametrize(("output", "shown"), [("", "no output"), ("short", "short"), ("x" * 30_000, "x" * 30_000)])
def test_every_other_result_is_looked_at_and_shown(output: str, shown: str):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("build it")
            await ask(session)
            await session.observe(reply("t1"))
            await session.result("t1", output)
            assert shown in str(session.view.messages()[-1])
            assert await session.read_back("t1") == output.encode()

    run(steps)


class FullDisk(InMemoryStorage):
    """A store whose disk is full where results go; the log still has room."""

    full = True

    def write(self, key: str, data: bytes, **options: Any) -> Any:
        if self.full and "/tool-results/" in key:
            raise StorageError(f"cannot write {key}: no space left on device", path=key)
        return super().write(key, data, **options)


@pytest.mark.requirement("L1.9")
def test_when_the_disk_fails_the_result_passes_whole_an_event_says_so_and_later_layers_catch_it():
    async def steps() -> None:
        storage, now, events = FullDisk(), [1_767_225_600.0], list[Event]()
        opened = Session.open("s", storage=storage, settings=load_settings(), clock=lambda: now[0])
        opened.listen(events.append)
        async with opened as session:
            await session.say("build it")
            for number in range(7):
                await ask(session)
                await session.observe(reply(f"t{number}", number=number))
                await session.result(f"t{number}", f"{number}\n{BIG}")
            told = [event for event in events if isinstance(event, FellBack) and event.what == "offload"]
            assert len(told) == 7
            assert "no space left" in told[0].why
            assert "t0" in told[0].why
            request = await ask(session)
            assert problems(request) == []
            assert str(request).count("line 3999") == 7
            storage.full = False
            now[0] += 4_000  # the cache is cold: layer 2 clears what layer 1 could not move
            request = await ask(session)
            assert CLEARED in str(request)
            assert str(request).count("line 3999") == 5
            assert await session.read_back("t0") == f"0\n{BIG}".encode()

    run(steps)


@pytest.mark.requirement("L1.9")
def test_when_the_disk_fails_under_many_results_together_they_pass_whole_too():
    async def steps() -> None:
        events: list[Event] = []
        opened = Session.open("s", storage=FullDisk())
        opened.listen(events.append)
        async with opened as session:
            await session.say("build it")
            await ask(session)
            ids = [f"t{number}" for number in range(9)]
            await session.observe(reply(*ids))
            for one in ids:
                await session.result(one, f"{one} " * 9_000)
            request = await ask(session)
            assert problems(request) == []
            assert any(isinstance(event, FellBack) and event.what == "offload" for event in events)
            for one in ids:
                assert f"{one} {one} {one}" in str(request)
            assert "<persisted-output>" not in str(request)

    run(steps)


def test_a_session_that_keeps_quiet_about_a_full_disk_is_caught():
    async def steps() -> None:
        events: list[Event] = []
        opened = Session.open("s", storage=FullDisk())
        emit = opened.log.emit
        opened.log.emit = lambda event: None if isinstance(event, FellBack) else emit(event)
        opened.listen(events.append)
        async with opened as session:
            await session.say("build it")
            await ask(session)
            await session.observe(reply("t1"))
            await session.result("t1", BIG)
        assert not any(isinstance(event, FellBack) for event in events)

    run(steps)
