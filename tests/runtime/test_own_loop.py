"""The caller's own loop: memory in one word, any reply, and errors that say how to open a session."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Agent, InMemoryStorage, InputError, Memory, Session, SessionError, load_settings
from reverie.conversation.decisions import MemoriesExtracted
from reverie.errors import SessionReadOnly
from reverie.events import DecisionMade, Event
from reverie.models import ScriptedModel, open_model
from reverie.ports import Reply
from reverie.settings import Settings, Switches
from reverie.testing.chat_server import ChatServer
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
RULE = "Use the real database in tests of the repository layer, never a mock."
WISH = "Never touch the billing module without asking."


def reply(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"id": f"m{number}", "role": "assistant", "model": MODEL, "content": content}


class Talk:
    """Own-loop sessions of one project, and their events."""

    def __init__(self, folder: Path, **switches: bool) -> None:
        self.folder = folder
        known = load_settings()
        self.settings: Settings = replace(known, switches=replace(known.switches, **switches))
        self.memory = Memory.open(folder, settings=replace(known, switches=Switches()))
        self.storage = InMemoryStorage()
        self.events: list[Event] = []
        self.replies = 0

    def open(self, name: str, **options: Any) -> Session:
        given = {"cwd": self.folder, "settings": self.settings, "storage": self.storage, "memory": True, **options}
        session = Session.open(name, **given)
        session.listen(self.events.append)
        return session

    async def turn(self, session: Session, words: str) -> str:
        """Say something, and return the messages of the request that follows as text."""
        await session.say(words)
        await session.prepare(model=MODEL, max_tokens=500, system="Be brief.")
        shown = json.dumps(session.view.messages())
        self.replies += 1
        await session.observe(reply("Understood.", self.replies))
        return shown

    @property
    def extracted(self) -> list[MemoriesExtracted]:
        made = [event.decision for event in self.events if isinstance(event, DecisionMade)]
        return [decision for decision in made if isinstance(decision, MemoriesExtracted)]


def talk(tmp_path: Path, steps: Callable[[Talk], Awaitable[None]], **switches: bool) -> None:
    async def run() -> None:
        with anyio.fail_after(60):
            await steps(Talk(tmp_path, **switches))

    anyio.run(run)


@pytest.mark.requirement("U1")
@pytest.mark.parametrize("memory", [True, False])
def test_an_own_loop_is_shown_the_index_and_the_memory_that_fits_and_both_survive_a_cut(
    tmp_path: Path, memory: bool
) -> None:
    async def steps(talk: Talk) -> None:
        talk.memory.save(RULE, type="feedback", name="Real database in tests", description="Tests use a database")
        async with talk.open("s", memory=memory) as session:
            first = await talk.turn(session, "How do tests of the repository layer reach the database?")
            assert ("Real database in tests" in first, RULE in first) == (memory, memory)
            for number in range(6):
                await talk.turn(session, f"Go on with part {number}, please. " + "word " * 4_000)
            await session.compact()
            after = await talk.turn(session, "And now?")
            assert (RULE in after) == memory
        async with talk.open("s", memory=memory) as session:
            resumed = await talk.turn(session, "Go on.")
            assert resumed.startswith(after[:-1])

    talk(tmp_path, steps)


@pytest.mark.requirement("U1")
@pytest.mark.parametrize("extraction", [True, False])
def test_without_a_model_a_wish_repeated_across_sessions_is_extracted(tmp_path: Path, extraction: bool) -> None:
    async def steps(talk: Talk) -> None:
        for name in ("one", "two"):
            async with talk.open(name) as session:
                await talk.turn(session, f"Please fix the invoice page. {WISH}")
                await talk.turn(session, "Thank you for that.")
        assert [one.usage["by"] for one in talk.extracted] == (["local"] if extraction else [])
        assert [one.trust for one in talk.memory.list()] == (["unconfirmed"] if extraction else [])

    talk(tmp_path, steps, extraction=extraction)


@pytest.mark.requirement("U1")
def test_a_given_model_writes_the_memories_and_no_model_is_asked_without_one(tmp_path: Path) -> None:
    rule = {"name": "Billing", "description": "Ask before billing", "type": "feedback", "text": WISH, "why": "it broke"}
    model = ScriptedModel(lambda _: json.dumps({"memories": [rule]}), name=f"scripted:{MODEL}")

    async def steps(talk: Talk) -> None:
        talk.settings = replace(talk.settings, model_aliases={"small": "nobody:here"})
        async with talk.open("local") as session:
            await talk.turn(session, WISH)
        assert (model.requests, talk.extracted) == ([], [])
        talk.settings = replace(talk.settings, model_aliases={})
        async with talk.open("asked", model=model) as session:
            await talk.turn(session, f"{WISH} It broke in March.")
        assert [one.usage["by"] for one in talk.extracted] == ["model"]
        assert [one.name for one in talk.memory.list()] == ["Billing"]

    talk(tmp_path, steps)


def test_a_loop_with_memory_that_fails_or_is_cancelled_closes_its_session(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        async def fails() -> None:
            async with talk.open("s") as session:
                raise KeyError("mine", await talk.turn(session, "Where is the invoice page?"))

        with pytest.raises(KeyError, match="mine"):
            await fails()
        with anyio.CancelScope() as scope:
            async with talk.open("s") as session:
                await session.say("And the cart?")
                scope.cancel()
                await session.prepare(model=MODEL, max_tokens=9)
        assert scope.cancelled_caught
        async with talk.open("s") as session:  # the lease is free, and nothing said is lost
            assert "And the cart?" in json.dumps(session.view.messages())

    talk(tmp_path, steps)


def test_memory_that_is_switched_off_or_only_read_shows_nothing(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        talk.memory.save(RULE, type="feedback", name="Real database in tests", description="Tests use a database")
        async with talk.open("s") as session:
            assert RULE not in await talk.turn(session, "How do tests of the repository layer reach the database?")
        async with talk.open("s", mode="read") as session:
            assert session.view.length

    talk(tmp_path, steps, memory=False)


@pytest.mark.requirement("U1")
def test_a_reply_of_our_own_models_can_be_observed(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        async with talk.open("s", memory=False) as session:
            await session.say("hello")
            answer = await ScriptedModel(["Good day."]).complete(await session.prepare(model=MODEL, max_tokens=9))
            assert isinstance(answer, Reply)
            assert await session.observe(answer) == []
            assert session.view.messages()[-1]["content"][0]["text"] == "Good day."
            with pytest.raises(InputError, match="not object"):
                await session.observe(object())

    talk(tmp_path, steps)


def test_the_chat_test_server_streams_to_our_own_adapter_and_the_reply_is_observed(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        with ChatServer(lambda _: "Good day.") as server:
            environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none needed here"}
            model = open_model("openai:gpt-4.1", environ=environ)
            async with talk.open("s", memory=False) as session:
                await session.say("hello")
                request = await session.prepare(model=model.model_id, max_tokens=9)
                pieces = [piece async for piece in model.stream(request)]
                assert await session.observe(pieces[-1]) == []
                assert session.view.messages()[-1]["content"][0]["text"] == "Good day."
            assert (len(pieces) > 1, server.requests[0]["stream"]) == (True, True)
            await model.aclose()

    talk(tmp_path, steps)


def test_a_session_that_was_not_entered_says_how_to_enter_it(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        session = talk.open("s", memory=False)
        for act in (session.say("hi"), session.prepare(model=MODEL, max_tokens=9), session.observe(reply("x", 1))):
            with pytest.raises(SessionReadOnly, match=r"async with.*SyncSession"):
                await act
        with pytest.raises(SessionError, match=r"async with.*SyncSession"), session:
            pass
        async with session:
            await session.say("hi")
        with pytest.raises(SessionReadOnly, match="is closed"):
            await session.say("hi")

    talk(tmp_path, steps)


def test_an_empty_model_name_is_refused_and_never_another_model_asked(tmp_path: Path) -> None:
    async def steps(talk: Talk) -> None:
        async with talk.open("s", memory=False) as session:
            await session.say("hi")
            with pytest.raises(InputError, match="model's name is empty"):
                await session.prepare(model=" ", max_tokens=9)
        with pytest.raises(InputError, match="model's name is empty"):
            Agent(model="", cwd=tmp_path)

    talk(tmp_path, steps)
