"""The Anthropic client with ``reverie_middleware(session)`` in an unchanged loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from reverie import InMemoryStorage, Memory, Session
from reverie.conversation.decisions import Snipped
from reverie.errors import StorageError
from reverie.events import DecisionMade
from reverie.integrations.anthropic import ReverieMemoryTool, reverie_middleware
from reverie.integrations.sync_session import sync_session
from reverie.testing.messages_server import MessagesServer
from tool_script import SYSTEM, TOOLS

MODEL = "claude-sonnet-4-6"
ASK = {"model": MODEL, "max_tokens": 1_000, "system": SYSTEM}
MARKED = {"cache_control": {"type": "ephemeral"}}


def loop(client: Any, scene: Any, *, stream: bool = False) -> list[dict[str, Any]]:
    """Hold the conversation as anybody would write it: the whole history, every time, its end marked for the cache."""
    messages: list[dict[str, Any]] = []
    for ask in scene.script.prompts:
        messages.append({"role": "user", "content": ask})
        while True:
            if stream:
                with client.messages.stream(**ASK, tools=TOOLS, messages=messages, extra_body=MARKED) as events:
                    reply = events.get_final_message()
            else:
                reply = client.messages.create(**ASK, tools=TOOLS, messages=messages, **MARKED)
            messages.append({"role": "assistant", "content": reply.content})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                break
            results = [(call.id, scene.script.run(call.name, call.input)) for call in calls]
            messages.append({"role": "user", "content": [result(*one) for one in results]})
    return messages


async def aloop(client: Any, scene: Any) -> None:
    messages: list[dict[str, Any]] = []
    for ask in scene.script.prompts:
        messages.append({"role": "user", "content": ask})
        while True:
            reply = await client.messages.create(**ASK, tools=TOOLS, messages=messages)
            messages.append({"role": "assistant", "content": reply.content})
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                break
            results = [(call.id, scene.script.run(call.name, call.input)) for call in calls]
            messages.append({"role": "user", "content": [result(*one) for one in results]})


def result(called: str, content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": called, "content": content}


def plain_client(scene: Any) -> Any:
    return anthropic.Anthropic(base_url=scene.server.base_url, api_key="any", max_retries=0)


@pytest.mark.requirement("B6")
def test_a_loop_that_knows_nothing_of_us_is_logged_whole_and_breaks_only_where_the_log_says_why(
    scene: Callable[..., Any],
) -> None:
    within = scene(60)
    with sync_session(within.open()) as session, plain_client(within) as client:
        messages = loop(client.with_middleware(reverie_middleware(session)), within)
        said = session.view.history
    assert (within.server.refusals, within.fallbacks) == ([], [])
    assert len(within.server.requests) == within.script.said
    assert len([entry for entry in said if entry.kind == "assistant"]) == within.script.said
    assert len([one for one in messages if one["role"] == "assistant"]) == within.script.said
    assert 0 < within.breaks() <= within.moves() + len(trims(within))


def trims(scene: Any) -> list[Any]:
    return [one for one in scene.events if type(one).__name__ == "ResultsTrimmed"]


def test_streams_are_seen_as_whole_replies(scene: Callable[..., Any]) -> None:
    whole, streamed = scene(6), scene(6)
    for one, stream in ((whole, False), (streamed, True)):
        with sync_session(one.open()) as session, plain_client(one) as client:
            loop(client.with_middleware(reverie_middleware(session)), one, stream=stream)
            replies = [entry.message["content"] for entry in session.view.history if entry.kind == "assistant"]
            usages = [
                entry.reply["usage"]["output_tokens"] for entry in session.view.history if entry.kind == "assistant"
            ]
        assert one.fallbacks == []
        one.seen = replies, usages
    assert streamed.seen == whole.seen
    assert [without(body, "stream", "cache_control") for body in streamed.server.requests] == whole.server.requests


def without(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}


async def test_an_asynchronous_client_sends_the_same(scene: Callable[..., Any], anyio_backend: str) -> None:
    first, second = scene(6), scene(6)
    with sync_session(first.open()) as session, plain_client(first) as client:
        loop(client.with_middleware(reverie_middleware(session)), first)
    async with (
        second.open() as session,
        anthropic.AsyncAnthropic(base_url=second.server.base_url, api_key="any") as client,
    ):
        await aloop(client.with_middleware(reverie_middleware(session)), second)
    assert (first.fallbacks, second.fallbacks) == ([], [])
    assert second.server.requests == first.server.requests


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


class Talk:
    """A short conversation with a server that answers every request in a word."""

    def __init__(self, server: MessagesServer, client: Any, session: Session) -> None:
        self.server, self.client, self.session = server, client, session
        self.events: list[Any] = []
        session.listen(self.events.append)

    def ask(self, *texts: str, **options: Any) -> str:
        """Send a history of sayings and replies in turn."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
        given = {**ASK, "messages": messages, **options}
        return self.client.messages.create(**given).content[0].text

    @property
    def sent(self) -> list[tuple[str, str]]:
        """What the last request says."""
        return [(one["role"], text_of(one["content"])) for one in self.server.requests[-1]["messages"]]

    @property
    def snips(self) -> list[str]:
        made = [one.decision for one in self.events if isinstance(one, DecisionMade)]
        return [one.cause.reason for one in made if isinstance(one, Snipped)]

    @property
    def fallbacks(self) -> list[str]:
        return [one.why for one in self.events if type(one).__name__ == "FellBack"]


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@pytest.fixture
def talk() -> Iterator[Talk]:
    with MessagesServer(lambda request: f"reply {len(request['messages'])}") as server:
        client = anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0)
        with client, sync_session(Session.open("talk", storage=InMemoryStorage())) as session:
            yield Talk(server, client.with_middleware(reverie_middleware(session)), session)


def test_a_rewritten_saying_leaves_the_view_and_the_log_keeps_both(talk: Talk) -> None:
    talk.ask("one")
    talk.ask("one", "reply 1", "two")
    talk.ask("one", "reply 1", "two, rather", "reply 3", "three")
    assert talk.sent[2][1] == "two, rather"
    assert talk.snips == ["the host removed or rewrote 2 messages of its history"]
    assert [text_of(entry.message["content"]) for entry in talk.session.view.history] == [
        "one",
        "reply 1",
        "two",
        "reply 3",
        "two, rather",
        "reply 3",
        "three",
        "reply 5",
    ]


def test_a_reply_that_is_asked_for_again_replaces_the_first(talk: Talk) -> None:
    talk.ask("one")
    talk.ask("one")
    assert talk.sent == [("user", "one")]
    assert len(talk.snips) == 1


def test_a_history_whose_past_was_dropped_goes_on(talk: Talk) -> None:
    talk.ask("one")
    talk.ask("one", "reply 1", "two")
    talk.ask("two", "reply 3", "three")
    assert [text for _, text in talk.sent] == ["two", "reply 3", "three"]
    assert len([entry for entry in talk.session.view.history if entry.kind == "user"]) == 3


def test_replies_that_came_by_another_way_are_taken_in(talk: Talk) -> None:
    talk.ask("example", "example reply", "one")
    assert talk.sent == [("user", "example"), ("assistant", "example reply"), ("user", "one")]
    assert talk.fallbacks == []


def test_another_conversation_on_the_same_client_passes_as_it_is(talk: Talk) -> None:
    talk.ask("one")
    talk.ask("one", "reply 1", "two")
    talk.ask("Give this chat a title.", system="You write titles.")
    assert talk.server.requests[-1]["messages"] == [{"role": "user", "content": "Give this chat a title."}]
    assert "session of its own" in talk.fallbacks[0]
    talk.ask("one", "reply 1", "two", "reply 3", "three")
    assert len(talk.sent) == 5
    assert talk.snips == []


def test_words_put_into_the_models_mouth_pass_as_they_are(talk: Talk) -> None:
    talk.ask("one", "Once upon a", model="claude-opus-4-5")
    assert talk.server.requests[-1]["messages"][-1] == {"role": "assistant", "content": "Once upon a"}
    assert len(talk.fallbacks) == 1


def test_a_field_that_resembles_another_goes_to_the_provider_as_the_host_sent_it(talk: Talk) -> None:
    with pytest.raises(anthropic.BadRequestError, match="callbacks"):  # which the provider does not know
        talk.client.messages.create(
            model=MODEL,
            max_tokens=9,
            messages=[{"role": "user", "content": "one"}],
            extra_body={"callbacks": ["trace"]},
        )
    assert talk.server.requests[0]["callbacks"] == ["trace"]
    assert "the provider: callbacks: Extra inputs are not permitted" in talk.fallbacks[0]


def test_other_endpoints_are_left_alone(talk: Talk) -> None:
    counted = talk.client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hello there"}])
    assert counted.input_tokens > 0
    assert talk.client.models.retrieve(MODEL).id == MODEL
    assert (talk.session.view.length, talk.fallbacks) == (0, [])


def test_a_tool_runner_that_lets_the_provider_hold_its_history_is_held_here_instead(tmp_path: Any) -> None:
    note = {"command": "create", "path": "/memories/a.md", "file_text": "no mocks"}
    call = {"type": "tool_use", "id": "t1", "name": "memory", "input": note}
    memory = Memory(tmp_path / "memory")
    with (
        MessagesServer(lambda request: "kept" if len(request["messages"]) > 1 else [call]) as server,
        sync_session(Session.open("runner", storage=InMemoryStorage())) as session,
        anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0) as bare,
    ):
        runner = bare.with_middleware(reverie_middleware(session)).beta.messages.tool_runner(
            **ASK, tools=[ReverieMemoryTool(memory)], messages=[{"role": "user", "content": "remember: no mocks"}]
        )
        assert runner.until_done().content[0].text == "kept"
        assert server.refusals == []
        assert [len(request["messages"]) for request in server.requests] == [1, 3]
        assert [request["tools"][0]["name"] for request in server.requests] == ["memory", "memory"]
        assert [one.file for one in memory.list()] == ["a.md"]


def test_raw_and_beta_calls_go_the_same_way(talk: Talk) -> None:
    asked = {**ASK, "messages": [{"role": "user", "content": "one"}]}
    assert talk.client.messages.with_raw_response.create(**asked).parse().content[0].text == "reply 1"
    with talk.client.messages.with_streaming_response.create(**asked) as response:
        assert response.parse().content[0].text == "reply 1"
    assert talk.client.beta.messages.create(**asked).content[0].text == "reply 1"
    assert len([entry for entry in talk.session.view.history if entry.kind == "assistant"]) == 3


def test_an_error_of_the_provider_reaches_the_host_and_nothing_is_logged_twice(talk: Talk) -> None:
    talk.server.fail(529)
    with pytest.raises(anthropic.APIStatusError) as caught:
        talk.ask("one")
    assert caught.value.status_code == 529
    talk.server.fail(500, times=1)
    assert (
        talk.client.with_options(max_retries=2)
        .messages.create(**ASK, messages=[{"role": "user", "content": "one"}])
        .content[0]
        .text
        == "reply 1"
    )
    assert [entry.kind for entry in talk.session.view.history] == ["user", "assistant"]


def test_a_stream_that_breaks_off_is_not_logged(talk: Talk) -> None:
    talk.server.cut_stream(400)
    asked = {**ASK, "messages": [{"role": "user", "content": "one"}]}
    with (
        pytest.raises(Exception, match=r"(?i)peer closed|incomplete|connection|ended"),
        talk.client.messages.stream(**asked) as events,
    ):
        events.get_final_message()
    assert [entry.kind for entry in talk.session.view.history] == ["user"]
    assert talk.ask("one") == "reply 1"


def test_a_store_that_fails_costs_the_host_nothing() -> None:
    class Full(InMemoryStorage):
        full = False

        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            if self.full:
                raise StorageError("the disk is full", path=key)
            super().append(key, line, expect=expect)

    storage = Full()
    with (
        MessagesServer(lambda request: "fine") as server,
        sync_session(Session.open("full", storage=storage)) as session,
        anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0) as bare,
    ):
        talk = Talk(server, bare.with_middleware(reverie_middleware(session)), session)
        storage.full = True
        assert talk.ask("one") == "fine"
        assert talk.server.requests[-1]["messages"] == [{"role": "user", "content": "one"}]
        assert talk.fallbacks == ["the disk is full"]
        storage.full = False
        assert talk.ask("one", "fine", "two") == "fine"
        assert [text for _, text in talk.sent] == ["one", "fine", "two"]
        assert len(talk.fallbacks) == 1


async def test_a_synchronous_client_in_the_sessions_own_event_loop_says_why_it_goes_alone(anyio_backend: str) -> None:
    with MessagesServer(lambda request: "fine") as server:
        async with Session.open("here", storage=InMemoryStorage()) as session:
            with anthropic.Anthropic(base_url=server.base_url, api_key="any") as bare:
                talk = Talk(server, bare.with_middleware(reverie_middleware(session)), session)
                assert talk.ask("one") == "fine"
                assert "would block the event loop" in talk.fallbacks[0]


def test_a_host_that_comes_back_finds_its_conversation(tmp_path: Any) -> None:
    big = "\n".join(f"line {number}" for number in range(20_000))
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat log"}}
    history: list[dict[str, Any]] = [{"role": "user", "content": "read it"}]
    sent: list[list[Any]] = []
    with MessagesServer(lambda request: [use] if len(request["messages"]) == 1 else "read") as server:
        for more in (
            [],
            [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result("t1", big)]}],
            [{"role": "assistant", "content": "read"}, {"role": "user", "content": "thanks"}],
        ):
            history += more
            with sync_session(Session.open("back", cwd=tmp_path)) as session:
                with anthropic.Anthropic(base_url=server.base_url, api_key="any") as bare:
                    client = bare.with_middleware(reverie_middleware(session))
                    client.messages.create(**ASK, tools=TOOLS, messages=history)
                said = [entry.kind for entry in session.view.history]
            sent.append(server.requests[-1]["messages"])
    assert said == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert len(str(sent[1])) < len(big) / 10
    assert [len(one) for one in sent] == [1, 3, 5]


def test_a_result_the_host_rewrote_is_shown_as_rewritten(talk: Talk) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "env"}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result("t1", "token=hunter2")]},
    ]
    talk.client.messages.create(**ASK, tools=TOOLS, messages=history)
    history[2] = {"role": "user", "content": [result("t1", "[redacted]")]}
    history += [{"role": "assistant", "content": "reply 3"}, {"role": "user", "content": "go on"}]
    talk.client.messages.create(**ASK, tools=TOOLS, messages=history)
    assert "hunter2" not in str(talk.server.requests[-1]["messages"])
    assert "[redacted]" in str(talk.server.requests[-1]["messages"])


@pytest.mark.requirement("Q5", "V12")
def test_a_prompt_that_is_too_long_is_compacted_and_sent_again(scene: Callable[..., Any]) -> None:
    one = scene(20, window=22_000)
    with sync_session(one.open()) as session, plain_client(one) as client:
        loop(client.with_middleware(reverie_middleware(session)), one)
    assert one.script.said == len([usage for usage in one.server.usages])
    assert [status for status, _ in one.server.refusals] == [400]  # the limit that it names is learned
    assert any(type(event).__name__ == "CompactionEnded" for event in one.events)


@pytest.mark.requirement("Q5", "V12")
def test_several_refusals_of_one_request_are_survived(scene: Callable[..., Any]) -> None:
    one = scene(20)
    with sync_session(one.open()) as session, plain_client(one) as client:
        ours = client.with_middleware(reverie_middleware(session))
        history = loop(ours, one)
        one.server.fail(400, message="prompt is too long", times=2)
        reply = ours.messages.create(**ASK, tools=TOOLS, messages=[*history, {"role": "user", "content": "And now?"}])
    assert reply.content
    assert len([event for event in one.events if type(event).__name__ == "CompactionEnded"]) == 2
    assert one.fallbacks == []


@pytest.mark.requirement("B6")
def test_several_conversations_in_one_process_do_not_meet(scene: Callable[..., Any]) -> None:
    one, other = scene(8, seed=1), scene(8, seed=2)
    with sync_session(one.open("one")) as first, sync_session(other.open("other")) as second:
        for each, session in ((one, first), (other, second)):
            with plain_client(each) as client:
                loop(client.with_middleware(reverie_middleware(session)), each)
        assert first.view.history[0].message != second.view.history[0].message
    assert one.fallbacks == other.fallbacks == []
