"""State that decides requests or reports comes from the log: a session that is opened again has all of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.decisions import CallRecorded, PrefixAmended, PrefixRendered, decision_of
from reverie.conversation.entries import ASSISTANT
from reverie.conversation.log import parse_log
from reverie.events import CacheBroken, Event
from reverie.settings import Switches
from reverie.values import replace
from thinking_desk import CHECKED, READ, SYSTEM, Desk

MODEL = "claude-sonnet-4-5"
LONG = "You are careful and brief. " * 600


class Talk:
    """A session in memory, opened anew by ``again``; its clock is moved by hand."""

    def __init__(self, **switches: bool) -> None:
        self.storage = InMemoryStorage()
        self.now = 1_790_000_000.0
        self.events: list[Event] = []
        quiet = {"notes": False, "priced_trim": False, "idle_trim": False, "offload": False, **switches}
        self.settings = replace(load_settings(), switches=Switches(**quiet))
        self.session = self.opened()
        self.replies = 0
        self.sent = 0

    def opened(self) -> Session:
        session = Session.open("s", storage=self.storage, settings=self.settings, clock=lambda: self.now)
        session.listen(self.events.append)
        return session

    async def again(self) -> None:
        await self.session.__aexit__(None, None, None)
        self.session = self.opened()
        await self.session.__aenter__()

    def run(self, steps: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.session.__aenter__()
            try:
                await steps()
            finally:
                await self.session.__aexit__(None, None, None)

        anyio.run(main)

    async def prepare(self, **given: Any) -> dict[str, Any]:
        asked = {"model": MODEL, "max_tokens": 500, "system": LONG, "tools": [READ], **given}
        return await self.session.prepare(**asked)

    async def ask(self, words: str = "Go on.", *, read: int | None = None, **given: Any) -> None:
        """Take a turn whose reply reports so many tokens read from the cache: all that could be, if None."""
        await self.session.say(words)
        request = await self.prepare(**given)
        size = len(repr(request)) // 4
        await self.session.observe(self.reply(size, self.sent if read is None else read, given.get("model", MODEL)))
        self.sent = size

    def reply(self, size: int, read: int, model: str = MODEL, **more: Any) -> dict[str, Any]:
        self.replies += 1
        written = {"ephemeral_5m_input_tokens": size - read, "ephemeral_1h_input_tokens": 0}
        usage = {
            "input_tokens": 0,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": size - read,
            "cache_creation": more.pop("written", written),
            "output_tokens": 5,
        }
        content = [{"type": "text", "text": f"Answer {self.replies}."}]
        return {
            "id": f"m{self.replies}",
            "role": "assistant",
            "model": model,
            "content": content,
            "usage": usage,
            **more,
        }

    def entries(self) -> list[Any]:
        (key,) = [key for key in self.storage.list("") if key.endswith(".jsonl")]
        return parse_log(self.storage.load(key) or b"").entries

    def decisions(self, kind: type[Any]) -> list[Any]:
        found = (decision_of(entry.body) for entry in self.entries() if entry.kind == "decision")
        return [one for one in found if isinstance(one, kind)]

    def breaks(self) -> list[str]:
        return [one.reason for one in self.events if isinstance(one, CacheBroken)]


# -- the last reply


@pytest.mark.parametrize("again", [False, True])
def test_a_reply_that_is_passed_twice_is_logged_and_billed_once(again: bool) -> None:
    talk = Talk()

    async def steps() -> None:
        await talk.session.say("Read.")
        await talk.prepare()
        call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
        reply = {**talk.reply(900, 0), "content": [call]}
        first = await talk.session.observe(reply)
        if again:
            await talk.again()
        assert await talk.session.observe(reply) == first != []
        other = {**reply, "id": "another", "content": [{"type": "text", "text": "Done."}]}
        await talk.session.result("t1", "x")
        await talk.prepare()
        await talk.session.observe(other)

    talk.run(steps)
    assert [entry.reply["id"] for entry in talk.entries() if entry.kind == ASSISTANT] == ["m1", "another"]
    assert [call.message_id for call in talk.decisions(CallRecorded)] == ["m1", "another"]


def test_a_reply_whose_bill_was_cut_off_is_billed_when_it_is_passed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk()

    async def steps() -> None:
        await talk.session.say("Go.")
        await talk.prepare()
        reply = talk.reply(900, 0)
        with monkeypatch.context() as broken:
            broken.setattr(talk.session.parts.accounts, "after", lambda *given, **more: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await talk.session.observe(reply)
        await talk.again()
        await talk.session.observe(reply)
        await talk.session.observe(reply)

    talk.run(steps)
    assert [entry.kind for entry in talk.entries()].count(ASSISTANT) == 1
    assert len(talk.decisions(CallRecorded)) == 1


def test_replies_without_an_id_and_with_the_same_words_are_two_replies() -> None:
    talk = Talk()

    async def steps() -> None:
        for _ in range(2):
            await talk.session.say("Is it done?")
            await talk.prepare()
            reply = {**talk.reply(900, 0), "content": [{"type": "text", "text": "Yes."}], "id": None}
            await talk.session.observe(reply)
            await talk.again()
            await talk.session.observe(reply)

    talk.run(steps)
    assert [entry.kind for entry in talk.entries()].count(ASSISTANT) == 2


# -- requests


@pytest.mark.parametrize("asked", [False, True])
def test_a_reload_that_was_asked_for_before_the_end_of_a_process_happens_in_the_next(asked: bool) -> None:
    talk = Talk()

    async def steps() -> None:
        await talk.ask()
        if asked:
            await talk.session.reload()
        await talk.again()
        await talk.ask(system=f"{LONG}\nOne more rule.")
        await talk.ask(system=f"{LONG}\nOne more rule.\nAnd one more.")  # a reload is for one request

    talk.run(steps)
    assert [one.cause.reason for one in talk.decisions(PrefixRendered)][1:] == ["a reload was asked for"] * asked
    assert len(talk.decisions(PrefixAmended)) == 2 - asked


def test_the_betas_of_the_last_request_hold_after_a_resume() -> None:
    talk = Talk()

    async def steps() -> None:
        await talk.ask(betas=["context-management-2025-06-27"])
        before = talk.session.parts.policy.betas, talk.session.parts.trim.policy, talk.session.thresholds
        await talk.again()
        assert (talk.session.parts.policy.betas, talk.session.parts.trim.policy, talk.session.thresholds) == before
        assert before[0] == ("context-management-2025-06-27",)
        await talk.ask(betas=["context-management-2025-06-27"])

    talk.run(steps)
    assert len(talk.decisions(PrefixRendered)) == 1


@pytest.mark.requirement("V2")
def test_thinking_is_bound_to_its_request_also_if_another_process_takes_the_reply() -> None:
    async def bound(again: bool) -> Any:
        desk = Desk()
        desk.calls = False
        session = desk.session()
        await session.__aenter__()
        await session.say("Think.")
        request = await session.prepare(model=CHECKED, max_tokens=500, system=SYSTEM, tools=[READ])
        reply = await desk.models[CHECKED].complete(request)
        if again:
            await session.__aexit__(None, None, None)
            session = desk.session()
            await session.__aenter__()
        await session.observe(reply.body)
        assert session.parts.thinking.binds
        await desk.ask(session, "And again.")
        await session.__aexit__(None, None, None)
        assert desk.refusals == []
        return next(entry.body.get("bound") for entry in desk.entries() if entry.kind == ASSISTANT)

    async def main() -> None:
        expected = await bound(again=False)
        assert expected
        assert await bound(again=True) == expected

    anyio.run(main)


# -- the blame for a cache break


@pytest.mark.requirement("C5", "L4.16")
@pytest.mark.parametrize("again", [False, True], ids=["one process", "resumed"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("nothing", "server"),
        ("a clearing", None),
        ("a compaction", None),
        ("an undo", None),
        ("a model", "model changed"),
        ("the tools", "tools[1] added"),
        ("a pause", "idle over 5 min"),
        ("an hour", "idle over 1 h"),
    ],
)
def test_a_cache_break_after_a_resume_has_the_same_reason_as_in_one_process(
    change: str, reason: str | None, again: bool
) -> None:
    talk = Talk()

    async def steps() -> None:
        given: dict[str, Any] = {}
        for number in range(6):
            await talk.session.say(f"Question {number}")
            request = await talk.prepare()
            size = len(repr(request)) // 4
            call = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"n": number}}
            await talk.session.observe({**talk.reply(size, talk.sent), "content": [call]})
            await talk.session.result(f"t{number}", f"part {number} " * 900)
            talk.sent = size
        await talk.ask()
        if change == "a clearing":
            assert await talk.session.trim(0) is not None
        elif change in ("a compaction", "an undo"):
            await talk.session.compact()
            if change == "an undo":
                await talk.session.undo()
        elif change == "a model":
            given = {"model": "claude-haiku-4-5"}
        elif change == "the tools":
            given = {"tools": [READ, {**READ, "name": "Grep"}]}
        talk.now += {"a pause": 400.0, "an hour": 4_000.0}.get(change, 1.0)
        if again:
            await talk.again()
        assert talk.breaks() == []
        await talk.ask(read=0, **given)
        assert talk.breaks() == ([reason] if reason is not None else [])

    talk.run(steps)


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("again", [False, True], ids=["one process", "resumed"])
def test_an_hour_of_life_is_known_after_a_resume(again: bool) -> None:
    talk = Talk()

    async def steps() -> None:
        await talk.session.say("One.")
        size = len(repr(await talk.prepare())) // 4
        lasting = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": size}
        await talk.session.observe(talk.reply(size, 0, written=lasting))
        await talk.session.say("Two.")
        await talk.prepare()
        nothing = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
        await talk.session.observe(talk.reply(size, size, written=nothing))  # it writes nothing new
        if again:
            await talk.again()
        talk.now += 400.0
        await talk.ask(read=0)
        assert talk.breaks() == ["server"]

    talk.run(steps)


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("again", [False, True], ids=["one process", "resumed"])
def test_the_same_clearing_by_the_provider_excuses_one_break_only(again: bool) -> None:
    talk = Talk()
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 700}

    async def steps() -> None:
        await talk.ask()
        for read in (0, 0):
            await talk.session.say("Go on.")
            size = len(repr(await talk.prepare())) // 4
            reply = talk.reply(size, read, context_management={"applied_edits": [edit]})
            await talk.session.observe(reply)
            if again:
                await talk.again()
        assert talk.breaks() == ["server"]

    talk.run(steps)
