"""No fallback is silent: each one emits an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.errors import StorageError
from reverie.events import Event, FellBack
from reverie.layers.l2_trim import TrimPolicy
from reverie.ports import Storage
from reverie.runtime.places.projects import inbox_key, project_slug
from reverie.values import replace

Steps = Callable[[Session], Awaitable[object]]
TOOLS: list[dict[str, Any]] = [{"name": "Bash", "input_schema": {"type": "object"}}]
USE = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
CALL: dict[str, Any] = {"id": "m1", "role": "assistant", "model": "claude-test", "content": [USE]}


class FullDisk(InMemoryStorage):
    """A store that cannot keep another document."""

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        raise StorageError("no space left", path=key)


def fallbacks(folder: Path, steps: Steps, *, storage: Storage | None = None, settings: Settings | None = None) -> Any:
    """Return what fell back while a session took these steps."""
    heard: list[Event] = []

    async def live() -> None:
        with anyio.fail_after(60):
            chosen = settings or load_settings()
            session = Session.open("s", cwd=folder, storage=storage or InMemoryStorage(), settings=chosen)
            session.listen(heard.append)
            async with session:
                await steps(session)

    anyio.run(live)
    return [event for event in heard if isinstance(event, FellBack)]


async def asked(session: Session) -> None:
    await session.say("Hello.")
    await session.prepare(model="claude-test", max_tokens=100, tools=TOOLS)
    await session.observe(CALL)


@pytest.mark.requirement("F5", "L1.9")
def test_a_result_that_could_not_be_stored_is_told(tmp_path: Path) -> None:
    async def steps(session: Session) -> None:
        await asked(session)
        await session.result("t1", "a long line of output\n" * 5_000)

    assert [event.what for event in fallbacks(tmp_path, steps, storage=FullDisk())] == ["offload"]


@pytest.mark.requirement("F5")
def test_tools_declared_by_name_alone_are_told(tmp_path: Path) -> None:
    async def steps(session: Session) -> None:
        await session.say("Hello.")
        await session.observe(CALL)
        await session.result("t1", "output")
        for _ in range(2):
            await session.prepare(model="claude-test", max_tokens=100)

    assert [event.what for event in fallbacks(tmp_path, steps)] == ["tools"]


@pytest.mark.requirement("F5")
def test_a_command_from_outside_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    storage = InMemoryStorage()
    storage.write(f"{inbox_key(project_slug(tmp_path), 's')}/broken.json", b"{ not a command")
    (event,) = fallbacks(tmp_path, asked, storage=storage)
    assert event.what == "inbox"
    assert "its bytes are at" in event.why


@pytest.mark.requirement("F5")
def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path, home: Path) -> None:
    (home / "ledger.sqlite").mkdir()
    heard: list[Event] = []

    async def live() -> None:
        session = Session.open("s", cwd=tmp_path)
        session.listen(heard.append)
        async with session:
            await asked(session)
            await session.result("t1", "output")
            await session.prepare(model="claude-test", max_tokens=100, tools=TOOLS)
            await session.observe({**CALL, "id": "m2", "usage": {"input_tokens": 5, "output_tokens": 5}})

    anyio.run(live)
    assert "ledger" in {event.what for event in heard if isinstance(event, FellBack)}


@pytest.mark.requirement("F5")
def test_where_nothing_is_the_matter_nothing_is_told(tmp_path: Path) -> None:
    async def steps(session: Session) -> None:
        await asked(session)
        await session.result("t1", "a long line of output\n" * 5_000)

    assert fallbacks(tmp_path, steps) == []


@pytest.mark.requirement("F5", "L2.3")
def test_a_provider_that_cannot_edit_its_cache_is_told_of_once(tmp_path: Path) -> None:
    settings = replace(load_settings(), trim=TrimPolicy(mode="cache_edit"))

    async def steps(session: Session) -> None:
        await asked(session)
        await session.result("t1", "output")
        await session.prepare(model="claude-test", max_tokens=100, tools=TOOLS)

    assert [event.what for event in fallbacks(tmp_path, steps, settings=settings)] == ["cache_edit"]


class FailingFlags:
    """A flag provider that is down."""

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        raise ConnectionError("no route")

    def get_object_value(self, flag_key: str, default_value: Any, /) -> Any:
        raise ConnectionError("no route")


@pytest.mark.requirement("F1", "F5")
def test_a_flag_provider_that_fails_is_told_of_once_and_the_settings_stand(tmp_path: Path) -> None:
    async def steps(session: Session) -> None:
        session.parts.policy.flags = FailingFlags()
        await asked(session)
        await session.result("t1", "output")
        await session.prepare(model="claude-test", max_tokens=100, tools=TOOLS)
        assert session.settings.switches.offload

    (event,) = fallbacks(tmp_path, steps)
    assert event.what == "flags"
    assert "no route" in event.why


class Limits:
    """A flag provider that gives limits by tool."""

    def get_boolean_value(self, flag_key: str, default_value: bool, /) -> bool:
        return default_value

    def get_object_value(self, flag_key: str, default_value: Any, /) -> Any:
        return {"Bash": 100, "Grep": -1, "Read": True} if flag_key == "reverie.offload_limits" else default_value


@pytest.mark.requirement("F1", "L1.2")
def test_a_flag_lowers_the_limit_of_a_tool_while_the_session_runs(tmp_path: Path) -> None:
    async def steps(session: Session) -> None:
        session.parts.policy.flags = Limits()
        await asked(session)
        await session.result("t1", "a line of output\n" * 20)
        assert session.view.offloaded("t1") is not None
        assert dict(session.settings.offload_limits) == {"Bash": 100}

    assert fallbacks(tmp_path, steps) == []
