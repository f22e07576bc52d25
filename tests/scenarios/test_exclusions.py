"""Features that exclude each other never run together: each pair, with both of them due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import ClearingBoundaryMoved, Collapsed, Compacted, ResultsCleared
from reverie.errors import SessionError
from reverie.events import BackgroundChanged, DecisionMade, Event
from reverie.layers.l2_trim.policy import TrimPolicy
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.session.forks import Forks, ForkState, ForkToolResult
from reverie.runtime.session.replies import Call
from reverie.settings import Switches
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}]
PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "
ALONE = {"priced_trim": False, "idle_trim": False, "offload": False}
WINDOW = 24_000


class Filling:
    """A session that is filled turn by turn, and every event of it."""

    def __init__(self, home: Path, *, model: Any = None, trim: TrimPolicy | None = None, **switches: bool) -> None:
        settings = Settings(home, window_tokens=WINDOW, switches=Switches(**{**ALONE, **switches}))
        settings = replace(settings, trim=trim) if trim is not None else settings
        self.session = Session.open(
            "s", storage=InMemoryStorage(), settings=settings, clock=lambda: 1.79e9, model=model
        )
        self.events: list[Event] = []
        self.turns = 0
        self.session.listen(self.events.append)

    async def turn(self) -> dict[str, Any]:
        """Ask, answer with a call, give its result; return what was asked."""
        request = await self.session.prepare(model=MODEL, max_tokens=1_000, tools=TOOLS)
        self.turns += 1
        use = {"type": "tool_use", "id": f"t{self.turns}", "name": "Read", "input": {"file_path": f"p{self.turns}.py"}}
        await self.session.observe({"id": f"m{self.turns}", "role": "assistant", "model": MODEL, "content": [use]})
        await self.session.result(f"t{self.turns}", f"part {self.turns}\n" + PROSE * 40)
        return request

    def decided(self, kind: type[Any]) -> list[Any]:
        """Return the decisions of a kind."""
        made = [event.decision for event in self.events if isinstance(event, DecisionMade)]
        return [one for one in made if isinstance(one, kind)]


@pytest.mark.requirement("F4", "L4.17")
@pytest.mark.parametrize("collapse", [True, False])
def test_while_spans_collapse_nothing_is_compacted_by_itself(tmp_path: Path, collapse: bool) -> None:
    async def steps() -> None:
        filling = Filling(tmp_path, collapse=collapse)
        async with filling.session as session:
            for number in range(20):
                await session.say(f"Question {number}?")
                await filling.turn()
                await filling.turn()
        assert bool(filling.decided(Collapsed)) == collapse
        assert bool(filling.decided(Compacted)) != collapse

    anyio.run(steps)


def said_by(request: dict[str, Any]) -> Any:
    """Answer notes with notes, and a wish for a summary with one."""
    last = str(request["messages"][-1]["content"])
    if "nine sections" in last:
        return "<summary>" + "All ships are written down. " * 40 + "</summary>"
    return '<section name="Current State">\nAll ships are written down.\n</section>'


@pytest.mark.requirement("F4", "L4.1", "L4.2")
@pytest.mark.parametrize("notes", [True, False])
def test_a_compaction_is_from_notes_or_full_and_never_both(tmp_path: Path, notes: bool) -> None:
    async def steps() -> None:
        model = ScriptedModel(said_by)
        filling = Filling(tmp_path, model=model, notes=notes, compact_from_notes=notes)
        async with filling.session as session:
            await session.say("Read all of it.")
            while not filling.decided(Compacted):
                await filling.turn()
                with anyio.fail_after(60):
                    await session.parts.notes.wait(60)
        made = filling.decided(Compacted)
        asked = sum("nine sections" in str(request["messages"][-1]) for request in model.requests)
        assert [one.method for one in made] == ["notes" if notes else "full"]
        assert bool(asked) != notes

    anyio.run(steps)


@pytest.mark.requirement("F4", "L4.1")
def test_nothing_is_compacted_from_inside_a_fork(tmp_path: Path) -> None:
    async def steps() -> None:
        filling = Filling(tmp_path, auto_compact=False, notes=False)
        calls = iter([[{"type": "tool_use", "id": "f1", "name": "Read", "input": {}}], "Done."])
        model = ScriptedModel(lambda request: next(calls))
        async with filling.session as session:
            await session.say("Read all of it.")
            while session.view.token_count.threshold_tokens < session.thresholds.auto_compact:
                await filling.turn()
            switches = replace(session.settings.switches, auto_compact=True)
            session.settings = replace(session.settings, switches=switches)

            async def tools(call: Call, state: ForkState) -> ForkToolResult:
                await session.parts.compact.before_request()
                return ForkToolResult("looked")

            await Forks(session.parts.host, model).ask(
                "What tide?", source="test", max_tokens=100, tools=tools, max_turns=2
            )
            assert filling.decided(Compacted) == []
            await session.parts.compact.before_request()  # the same moment, outside the fork
            assert len(filling.decided(Compacted)) == 1

    anyio.run(steps)


@pytest.mark.requirement("F4", "L2.9")
@pytest.mark.parametrize("mode", ["provider", "client"])
def test_results_are_cleared_here_or_by_the_provider_and_never_by_both(tmp_path: Path, mode: Any) -> None:
    async def steps() -> None:
        trim = replace(TrimPolicy(), mode=mode)
        filling = Filling(tmp_path, trim=trim, compact=False, budget_trim=True, priced_trim=True)
        async with filling.session as session:
            await session.say("Read all of it.")
            requests = [await filling.turn() for _ in range(24)]
            if mode == "provider":
                with pytest.raises(SessionError, match="the provider clears"):
                    await session.trim(1_000)
            else:
                await session.trim(1_000)
        by_provider = ["context_management" in request for request in requests]
        assert any(by_provider) == bool(filling.decided(ClearingBoundaryMoved)) == (mode == "provider")
        assert bool(filling.decided(ResultsCleared)) == (mode == "client")

    anyio.run(steps)


@pytest.mark.requirement("F4", "L5.3")
@pytest.mark.parametrize("own", [True, False])
def test_what_the_agent_saves_itself_is_not_extracted_as_well(tmp_path: Path, own: bool) -> None:
    save = {"type": "tool_use", "name": "Memory", "input": {"action": "save", "type": "feedback"}}
    save["input"] |= {"text": "Indent with tabs in every file.", "name": "Tabs", "why": "the user asked for it"}

    def answer(request: dict[str, Any]) -> Any:
        if "<reverie-fork" in str(request["messages"][-1]):
            return '{"memories": []}'
        done = any(message["role"] == "assistant" for message in request["messages"])
        return [save] if own and not done else "Noted."

    async def steps() -> None:
        model = ScriptedModel(answer)
        settings = Settings(tmp_path / "home", switches=Switches(recall=False, dream=False, notes=False))
        (tmp_path / "work").mkdir()
        states: list[str] = []

        def hear(event: Event) -> None:
            if isinstance(event, BackgroundChanged):
                states.append(event.state)

        agent = Agent(model=model, cwd=tmp_path / "work", session="s", settings=settings, mode="bypass")
        agent.listen(hear)
        async with agent:
            async for _ in agent.ask("Please remember: indent with tabs in every file."):
                pass
        forks = [request for request in model.requests if "<reverie-fork" in str(request["messages"][-1])]
        assert bool(forks) != own
        assert ("skipped" in states) == own

    anyio.run(steps)
