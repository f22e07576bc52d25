"""A home that commit c4e14bb wrote opens, and its sessions go on byte for byte."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from prefixes import extends
from reverie import Mailbox, Memory, Session, load_settings
from reverie.cli.main import run
from reverie.conversation.decisions import decision_of
from reverie.conversation.entries import DECISION, seconds
from reverie.conversation.log import parse_log
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.events import Event, FellBack
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session.ledger import LedgerStore
from reverie.settings import Settings

ARCHIVE = Path(__file__).parent / "fixtures" / "home_c4e14bb.tar.gz"
SESSIONS = ["plain", "offload", "trim", "notes", "compacted", "undone"]


class OldHome:
    """The unpacked home, and the last request of each of its sessions."""

    def __init__(self, root: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(root, filter="data")
        self.home = root / "home"
        self.work = root / "work"
        self.work.mkdir()
        self.requests: Mapping[str, Any] = json.loads((root / "requests.json").read_text("utf-8"))
        (self.project,) = (self.home / "projects").iterdir()

    @property
    def settings(self) -> Settings:
        return load_settings(home=self.home, environ={})

    def open(self, name: str, **more: Any) -> Session:
        folder = f"projects/{self.project.name}/{name}"
        at = seconds(parse_log(self.log(name)).entries[-1].time) + 60  # the provider's cache is warm
        return Session.open(name, cwd=self.work, settings=self.settings, folder=folder, clock=lambda: at, **more)

    def log(self, name: str) -> bytes:
        return (self.project / f"{name}.jsonl").read_bytes()

    def decisions(self, name: str, since: int) -> list[Any]:
        entries = parse_log(self.log(name)).entries[since:]
        return [decision_of(entry.body) for entry in entries if entry.kind == DECISION]

    def count(self, name: str) -> int:
        return len(parse_log(self.log(name)).entries)


@pytest.fixture
def old(tmp_path: Path) -> OldHome:
    return OldHome(tmp_path)


async def _next_request(session: Session, known: Mapping[str, Any]) -> dict[str, Any]:
    await session.say("and the next question")
    return await session.prepare(model=known["model"], max_tokens=1000, system=known["system"], tools=known["tools"])


@pytest.mark.requirement("K11", "K4")
@pytest.mark.parametrize("name", SESSIONS)
def test_the_next_request_of_an_old_session_extends_its_last_one(old: OldHome, name: str) -> None:
    known, before, events = old.requests[name], old.count(name), list[Event]()

    async def steps() -> dict[str, Any]:
        async with old.open(name) as session:
            session.listen(events.append)
            return await _next_request(session, known)

    request = anyio.run(steps)
    assert extends(canonical(known["request"]), canonical(request))
    assert [one for one in old.decisions(name, before) if one.cause.moves_prefix] == []
    assert problems(request) == []
    assert [event.why for event in events if isinstance(event, FellBack)] == []


@pytest.mark.requirement("K11")
def test_the_check_above_detects_an_old_session_that_is_read_differently(old: OldHome) -> None:
    log = old.project / "trim.jsonl"
    lines = [line for line in log.read_bytes().splitlines(keepends=True) if b'"results_cleared"' not in line]
    log.write_bytes(b"".join(lines))

    async def steps() -> dict[str, Any]:
        async with old.open("trim") as session:
            return await _next_request(session, old.requests["trim"])

    assert not extends(canonical(old.requests["trim"]["request"]), canonical(anyio.run(steps)))


@pytest.mark.requirement("K11")
def test_an_old_agent_goes_on_with_the_prefix_of_its_log(old: OldHome, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedModel(lambda request: "Fine.", capabilities=Capabilities(True, window=200_000))
    before = old.count("agent")
    monkeypatch.setattr("reverie.runtime.agent.parts.project_slug", lambda cwd: old.project.name)

    async def steps() -> None:
        agent = Agent(model=model, cwd=old.work, session="agent", settings=old.settings)
        async for _ in agent.ask("go on"):
            pass

    anyio.run(steps)
    request = model.requests[0]
    assert "we use tabs" in str(request["messages"])
    assert problems(request) == []
    assert [one for one in old.decisions("agent", before) if one.cause.moves_prefix] == []
    assert extends(canonical(old.requests["agent"]["request"]), canonical(request))


@pytest.mark.requirement("K4")
def test_old_results_notes_memories_ledger_letters_and_settings_are_read(old: OldHome) -> None:
    async def results() -> bytes:
        async with old.open("offload", mode="read") as session:
            (handle,) = session.view.overrides.results
            return await session.read_back(handle)

    assert len(anyio.run(results)) > 40_000

    memory = Memory(old.project / "memory")
    assert [head.name for head in memory.list()] == ["use-tabs"]
    assert [entry.act for entry in memory.log()][-5:] == ["forgotten", "undone", "updated", "saved", "saved"]
    memory.undo()
    assert sorted(head.name for head in memory.list()) == ["parser-owner", "use-tabs"]

    with LedgerStore(old.home) as ledger:
        totals = ledger.by("session")
    assert {name for name in totals if totals[name].calls} >= set(SESSIONS)

    with Mailbox(old.home, "default", "reader") as reader:
        assert [letter.text for letter in reader.poll()] == ["the first letter", "the second letter"]

    assert old.settings.durability == "second"
    assert old.settings.offload_limits["Bash"] == 20_000


@pytest.mark.requirement("K4")
def test_commands_read_an_old_home(
    old: OldHome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REVERIE_HOME", str(old.home))
    monkeypatch.chdir(old.work)
    for words in (["sessions"], ["show", "compacted"], ["context", "trim"], ["stats"], ["search", "parser"]):
        assert run(words) == 0, (words, capsys.readouterr().err)
    assert "Traceback" not in capsys.readouterr().err
