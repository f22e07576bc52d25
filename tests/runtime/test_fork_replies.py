"""Side questions to models that misbehave: whatever a model replies, the next request is one a provider accepts."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session
from reverie.conversation.wire.validate import problems
from reverie.errors import ModelError
from reverie.ports import Capabilities, Reply, ReplyDelta
from reverie.runtime.session.forks import Forks, ForkState, ForkToolResult
from reverie.runtime.session.replies import Call

MODELS = ("claude-sonnet-4-5", "claude-opus-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-fable-5-2")
START = 1_790_000_000.0
MAX_TURNS = 4
TOOLS: list[dict[str, Any]] = [{"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}]
BLANKS = ("", " ", "\n\n", "\t \n", "\u00a0")
NAMES = ("Read", "Read", "re ad", "", "x" * 200, "Größe", "functions.Read", None, 7)
INPUTS = ({"file_path": "/a"}, {}, [], "x", None, 3, '{"file_path": "/a"}')
USES = ("server_tool_use", "mcp_tool_use")
RESULTS = ("web_search_tool_result", "mcp_tool_result")
STOPS = ("end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", "stop_sequence", "new_reason", None)
OUTPUTS = ("read it", "", " ", None, [], [{"type": "text", "text": ""}], [{"type": "image"}], {"a": 1}, b"\xff")


class Misbehaving:
    """A model that gives the replies it is told to, and keeps what it was asked."""

    capabilities = Capabilities(caching=True)

    def __init__(self, name: str, replies: list[dict[str, Any]]) -> None:
        self.name = self.model_id = name
        self.replies = iter(replies)
        self.requests: list[dict[str, Any]] = []

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        self.requests.append(dict(request))
        yield Reply(next(self.replies))

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        async for piece in self.stream(request):
            assert isinstance(piece, Reply)
            return piece
        raise AssertionError

    async def aclose(self) -> None:
        pass


class Mischief:
    """Replies that break the rules, drawn by chance."""

    def __init__(self, chance: random.Random, model: str) -> None:
        self.chance = chance
        self.model = model

    def id(self) -> Any:
        known = ("t1", "s1", f"u{self.chance.randrange(6)}", f"u{self.chance.randrange(10**6)}")
        return self.chance.choice((*known, *known, "", "a b", "i" * 300, "ü", None, 5))

    def block(self) -> Any:
        pick = self.chance.choice
        call = {"id": self.id(), "name": pick(NAMES), "input": pick(INPUTS)}
        return pick(
            (
                {"type": "text", "text": pick(BLANKS)},
                {"type": "text", "text": pick(("I look.", "Done.", 7, None)), "citations": pick((None, [], {}))},
                {"type": "tool_use", "id": f"v{self.chance.randrange(10**6)}", "name": "Read", "input": {}},
                {"type": "tool_use", **call, "caller": {"type": "direct"}, "extra": True},
                {"type": "tool_use", **call},
                {
                    "type": pick(("server_tool_use", "mcp_tool_use")),
                    **call,
                    **pick(({}, {"server_name": "m", "new": 1})),
                },
                {"type": pick(RESULTS), "tool_use_id": self.id(), "content": [], **pick(({}, {"new": 1}))},
                {"type": "thinking", "thinking": "Hm.", "signature": pick(("sig", "", None))},
                {"type": "redacted_thinking", "data": pick(("data", "", 1))},
                {"type": pick(("hologram", "tool_result", "image", "", None)), "content": "?", "source": {}},
                {"type": "compaction", "content": pick(("Summary.", None)), "signature": pick(("sig", None))},
                {"type": "mcp_tool_listing", "mcp_server_name": pick(("m", None)), "tools": []},
                {"type": "fallback", "to": pick(({"model": "m"}, None)), "from": {"model": "n"}},
                {},
                pick((None, "bare", 3, [])),
            )
        )

    def reply(self) -> dict[str, Any]:
        pick = self.chance.choice
        content: Any = [self.block() for _ in range(self.chance.randrange(6))]
        if self.chance.random() < 0.5:
            content.append({"type": "tool_use", "id": self.id(), "name": "Read", "input": {"file_path": "/a"}})
        if content and self.chance.random() < 0.2:
            content.append(content[0])
        if self.chance.random() < 0.05:
            content = pick(("", " \n", "text", None, {}, 5))
        body = {"role": "assistant", "model": self.model, "content": content, "stop_reason": pick(STOPS)}
        usage = pick(({"input_tokens": 9, "output_tokens": 9}, {}, None, {"input_tokens": "many"}))
        return {**body, "id": pick((None, "", "m1", f"f{self.chance.randrange(99)}")), "usage": usage}


async def opened(session: Session, chance: random.Random) -> None:
    """Let a conversation come to one of the places at which it may be forked."""
    model = chance.choice(MODELS)
    await session.say("Read /a.")
    await session.prepare(model=model, max_tokens=1_000, system="Careful.", tools=TOOLS)
    if chance.random() < 0.1:
        return
    calls = [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/a"}}]
    paused = [{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}]
    said = [{"type": "text", "text": "Reading."}]
    content = said + chance.choice(([], calls, paused, [*calls, {**calls[0], "id": "t2"}]))
    usage = {"input_tokens": 10, "output_tokens": 5}
    await session.observe({"id": "m1", "role": "assistant", "model": model, "content": content, "usage": usage})
    if chance.random() < 0.5 and session.view.unanswered():
        await session.result("t1", "hello")


async def asked(number: int) -> tuple[list[dict[str, Any]], str]:
    """Fork a conversation with a model that misbehaves; return the requests, and the error if there was one."""
    chance = random.Random(number)
    name = chance.choice(MODELS)
    mischief = Mischief(chance, name)
    model = Misbehaving(name, [mischief.reply() for _ in range(MAX_TURNS)])

    async def tools(call: Call, state: ForkState) -> ForkToolResult:
        return ForkToolResult(chance.choice(OUTPUTS), is_error=chance.random() < 0.3, allowed=chance.random() < 0.9)

    error = ""
    async with Session.open("s", storage=InMemoryStorage(), clock=lambda: START) as session:
        await opened(session, chance)
        try:
            await Forks(session.parts.host, model).ask(
                "Look.", source="test", max_tokens=300, tools=tools, max_turns=MAX_TURNS
            )
        except ModelError as raised:
            error = str(raised)
    return model.requests, error


async def refused(numbers: range) -> tuple[list[str], int, int]:
    """Return why a provider would refuse requests of these runs, the number of requests, and of forks that failed."""
    wrong: list[str] = []
    sent = failed = 0
    for number in numbers:
        requests, error = await asked(number)
        sent += len(requests)
        failed += bool(error)
        wrong += [f"{number}: {problem.text}" for request in requests for problem in problems(request)]
    return wrong, sent, failed


@pytest.mark.requirement("V9", "L7.1")
@pytest.mark.slow
def test_whatever_a_model_replies_the_forks_next_request_is_valid(torture: bool, seed: int) -> None:
    many = 5_000 if torture else 300
    wrong, sent, failed = anyio.run(refused, range(seed, seed + many))
    print(f"{many} forks, {sent} requests, {len(wrong)} problems, {failed} without an answer")
    assert wrong == []
    assert sent > 1.5 * many  # most forks have a second turn


def test_a_fork_that_appends_replies_as_they_came_is_refused(seed: int) -> None:
    """The known-bad twin: the second request is the first one, the reply and its results."""

    async def second_requests() -> list[str]:
        wrong: list[str] = []
        for number in range(seed, seed + 100):
            first = (await asked(number))[0][0]
            content: Any = Mischief(random.Random(number), MODELS[0]).reply()["content"]
            blocks = content if isinstance(content, list) else []
            calls = [one for one in blocks if isinstance(one, dict) and one.get("type") == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.get("id"), "content": "x"} for call in calls]
            said = [{"role": "assistant", "content": content}, {"role": "user", "content": results or "Go on."}]
            wrong += [problem.text for problem in problems({**first, "messages": [*first["messages"], *said]})]
        return wrong

    wrong = anyio.run(second_requests)
    assert any("non-whitespace" in text or "non-empty" in text for text in wrong)
    assert any("ids must be unique" in text for text in wrong)
    assert len(wrong) > 100
