"""Forks on a server that checks the content before every thinking block: none of their requests is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session
from reverie.conversation.decisions import Cause, Replacement, ResultsCleared
from reverie.errors import ModelError
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.session.forks import ForkReply, Forks, ForkState, ForkToolResult
from reverie.runtime.session.host import SessionHost
from reverie.runtime.session.replies import Call
from reverie.testing.messages_server import ManualClock, MessagesServer
from reverie.testing.messages_server.replies import ServerReply
from thinking_desk import Desk

MODEL = "claude-opus-5-5"
START = 1_790_000_000.0
TOOLS: list[dict[str, Any]] = [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}]
ROUNDS = 4
OPTIONS: dict[str, Any] = {"max_tokens": 1_000, "thinking": {"type": "adaptive", "display": "summarized"}}
THOUGHT = {"type": "thinking", "thinking": "Hm."}
PAUSED = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}


def brain(request: dict[str, Any]) -> Any:
    """Think, then read; a fork thinks and reads twice, then answers, and is paused once on the way."""
    forked = [at for at, message in enumerate(request["messages"]) if "<reverie-fork" in str(message["content"])]
    turn = sum(message["role"] == "assistant" for message in request["messages"][forked[0] if forked else 0 :])
    thought = {"type": "thinking", "thinking": f"Thought {turn}."}
    read = {"type": "tool_use", "name": "Read", "input": {"page": turn}}
    if not forked:
        return [thought, {"type": "text", "text": f"Page {turn}."}, read]
    last = request["messages"][-1]
    if turn == 0:
        return [thought, {"type": "text", "text": "\n\n"}, read]
    if turn == 1 and last["role"] == "user":
        return ServerReply([thought, PAUSED], "pause_turn")
    if last["role"] == "assistant":
        return [{"type": "thinking", "thinking": "It never came."}, {**read, "input": {"page": 9}}]
    return [thought, {"type": "text", "text": "Seven ships."}]


async def read(call: Call, state: ForkState) -> ForkToolResult:
    return ForkToolResult("The page is empty.")


def thinking_in(request: dict[str, Any]) -> list[str]:
    blocks = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def forked(
    act: Callable[[Session], Awaitable[Any]], *, model: str = MODEL
) -> tuple[MessagesServer, ForkReply | Exception, list[dict[str, Any]], Session]:
    """Let a session read some pages, act on it, and fork it; return the server, the answer, and the fork's requests."""

    async def steps() -> tuple[MessagesServer, ForkReply | Exception, list[dict[str, Any]], Session]:
        clock = ManualClock(START)
        async with MessagesServer(brain, clock=clock) as server:
            own = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            other = AnthropicModel(model, base_url=server.base_url, api_key="any")
            async with Session.open("s", storage=InMemoryStorage(), clock=lambda: clock.now) as session:
                await session.say("Read the harbour book.")
                for _ in range(ROUNDS):
                    request = await session.prepare(model=MODEL, system="Careful.", tools=TOOLS, **OPTIONS)
                    for call in await session.observe((await own.complete(request)).body):
                        await session.result(call.id, "Every ship that came in. " * 40)
                await act(session)
                before = len(server.requests)
                answer: ForkReply | Exception
                try:
                    answer = await Forks(session.parts.host, other).ask(
                        "How many?", source="test", max_tokens=500, tools=read, max_turns=6
                    )
                except Exception as error:
                    answer = error
                sent = server.requests[before:]
                request = await session.prepare(model=MODEL, system="Careful.", tools=TOOLS, **OPTIONS)
                await own.complete(request)
            await own.aclose()
            await other.aclose()
            return server, answer, sent, session

    return anyio.run(steps)


async def nothing(session: Session) -> None:
    pass


async def clears(session: Session) -> None:
    """Clear the first result, as a user may ask for: the thinking after it is bound to content that is gone."""
    first = session.view.results[0].tool_use_id
    cause = Cause("trim", "asked for", moves_prefix=True)
    await session.log.decide(ResultsCleared(cause, [Replacement(first, "[cleared]")]))


@pytest.mark.requirement("V9", "V2", "L7.1")
def test_a_branch_repeats_the_conversation_so_that_all_thinking_stays_valid() -> None:
    server, answer, sent, _ = forked(nothing)
    assert isinstance(answer, ForkReply), answer
    assert (answer.text, answer.turns) == ("Seven ships.", 4)
    assert server.refusals == []
    assert thinking_in(sent[0]) == [f"Thought {turn}." for turn in range(ROUNDS)]
    assert thinking_in(sent[1])[ROUNDS:] == ["Thought 0."]


@pytest.mark.requirement("V9", "V2")
def test_thinking_whose_content_changed_is_left_out_of_a_forks_requests_too() -> None:
    server, answer, sent, session = forked(clears)
    assert isinstance(answer, ForkReply), answer
    assert answer.text == "Seven ships."
    assert server.refusals == []
    assert thinking_in(sent[0]) == ["Thought 0."]  # before the result that was cleared
    assert thinking_in(sent[1]) == ["Thought 0.", "Thought 0."]  # and the fork's own
    assert session.view.overrides.thinking  # the session found the same for its own next request


def test_a_fork_that_sends_thinking_whose_content_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionHost, "branch_thinking", lambda *_: None)
    server, answer, _, _ = forked(clears)
    assert isinstance(answer, ModelError)
    assert "bound to a different conversation" in server.refusals[0][1]


@pytest.mark.requirement("V9", "V16")
@pytest.mark.parametrize("model", ["claude-haiku-5-5", "claude-haiku-4-5"])
def test_a_fork_on_another_model_sends_the_thinking_it_cannot_read_and_is_accepted(model: str) -> None:
    server, answer, sent, _ = forked(nothing, model=model)
    assert isinstance(answer, ForkReply), answer
    assert answer.text == "Seven ships."
    assert server.refusals == []
    assert sent[0]["model"] == model
    assert len(thinking_in(sent[0])) == ROUNDS


@pytest.mark.requirement("V2", "C1")
def test_thinking_after_a_call_that_the_provider_gave_up_is_dropped_before_it_is_refused() -> None:
    """The call was sent as it is while it could be resumed, and is text afterwards: thinking between is stale."""
    replies = iter(
        [
            ServerReply(
                [THOUGHT, {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}], "pause_turn"
            ),
            ServerReply([THOUGHT, {"type": "text", "text": "It never came."}]),
            ServerReply([THOUGHT, {"type": "text", "text": "Good."}]),
        ]
    )

    async def steps() -> MessagesServer:
        async with MessagesServer(lambda _: next(replies), clock=ManualClock(START)) as server:
            model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
                await session.say("Search.")
                for _ in range(3):
                    request = await session.prepare(model=MODEL, max_tokens=1_000, tools=TOOLS)
                    await session.observe((await model.complete(request)).body)
                    if session.view.length == 2 and len(session.view.groups[1].pieces) == 2:
                        await session.say("Never mind.")
            await model.aclose()
            return server

    server = anyio.run(steps)
    assert server.refusals == []
    assert [len(thinking_in(request)) for request in server.requests] == [0, 1, 1]


@pytest.mark.requirement("V9")
def test_a_fork_of_an_older_view_keeps_the_thinking_of_its_own_calls() -> None:
    async def played() -> Desk:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            older = session.view
            for words in ("Two.", "Three.", "Four."):
                await desk.ask(session, words)
            forks = Forks(session.parts.host, desk.models[MODEL], view=older)
            await forks.ask("How many?", source="test", max_tokens=500, tools=read, max_turns=4)
        return desk

    desk = anyio.run(played)
    assert (desk.refusals, desk.provider.calls.left_out) == ([], set())
    assert thinking_in(desk.requests()[-1]) == ["Thought 1.", "Thought 2.", "Thought 9."]
