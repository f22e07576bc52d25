"""A LangChain agent with our middleware: previews in its state, separate threads, a fallback for failures."""

from __future__ import annotations

from typing import Any

import pytest

from pictures import image_block, pdf, pdf_block, png
from reverie import InMemoryStorage, Session
from reverie.conversation.wire.canonical import canonical
from reverie.errors import StorageError
from reverie.events import DecisionMade, FellBack
from reverie.integrations.sync_session import sync_session
from reverie.testing.messages_server import MessagesServer

LOG = "\n".join(f"2026-03-02 08:{at % 60:02} row {at} locked" for at in range(4_000))
CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat log"}}


def bash(command: str) -> str:
    """Run a command."""
    return LOG


def first_call_then_words(request: dict[str, Any]) -> Any:
    asked = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
    return "It was locked." if any(block["type"] == "tool_result" for block in asked) else [CALL]


def model_of(server: MessagesServer) -> Any:
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(
        model_name="claude-sonnet-4-6", api_key="any", base_url=server.base_url, max_tokens=500, max_retries=0
    )


def agent_of(server: MessagesServer, session: Any, model: Any = None) -> Any:
    """Return an agent; what it needs takes seconds to import, and only who runs these tests waits for it."""
    from langchain.agents import create_agent
    from langchain_core.tools import StructuredTool
    from langgraph.checkpoint.memory import InMemorySaver

    from reverie.integrations.langchain import ReverieMiddleware

    middleware = ReverieMiddleware(session)
    tool = StructuredTool.from_function(bash, name="Bash")
    return create_agent(
        model or model_of(server), [tool], system_prompt="Help.", middleware=[middleware], checkpointer=InMemorySaver()
    )


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def test_the_state_keeps_the_preview_and_the_log_the_whole() -> None:
    from langchain_core.messages import ToolMessage

    with (
        MessagesServer(first_call_then_words) as server,
        sync_session(Session.open("a", storage=InMemoryStorage())) as session,
    ):
        agent = agent_of(server, session)
        state = agent.invoke({"messages": [("user", "what happened?")]}, thread("1"))
        (kept,) = [one for one in state["messages"] if isinstance(one, ToolMessage)]
        assert len(str(kept.content)) < len(LOG) / 10
        assert (kept.tool_call_id, kept.status) == ("t1", "success")
        assert session.parts.stored(session.view, "t1").decode() == LOG
        assert state["messages"][-1].text == "It was locked."
        sent = server.requests[-1]
        assert sent["messages"][-1]["content"][-1]["cache_control"]["type"] == "ephemeral"
        assert sent["system"][-1]["cache_control"]["type"] == "ephemeral"
        assert server.refusals == []
        assert [entry.kind for entry in session.view.history] == ["user", "assistant", "user", "assistant"]
        assert session.view.history[1].reply["usage"]["output_tokens"] > 0


async def test_threads_have_sessions_of_their_own_also_when_asked_asynchronously(anyio_backend: str) -> None:
    with MessagesServer(first_call_then_words) as server:
        one, two = (Session.open(name, storage=InMemoryStorage()) for name in ("one", "two"))
        async with one, two:
            model = model_of(server)
            agent = agent_of(server, {"1": one, "2": two}.__getitem__, model)
            for name, text in (("1", "first?"), ("2", "second?"), ("1", "and then?")):
                await agent.ainvoke({"messages": [("user", text)]}, thread(name))
            await model._async_client.close()  # LangChain keeps it for as long as the process lives
            said = [session.view.history[0].message["content"] for session in (one, two)]
            assert ["first" in str(said[0]), "second" in str(said[1])] == [True, True]
            assert (len(one.view.history), len(two.view.history)) == (6, 4)
            assert server.refusals == []


def test_a_session_that_fails_leaves_the_agent_as_it_was() -> None:
    class Full(InMemoryStorage):
        def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
            if b'"kind":"meta"' not in line:
                raise StorageError("the disk is full", path=key)
            super().append(key, line, expect=expect)

    heard: list[Any] = []
    with MessagesServer(first_call_then_words) as server, sync_session(Session.open("f", storage=Full())) as session:
        session.listen(heard.append)
        state = agent_of(server, session).invoke({"messages": [("user", "hm?")]}, thread("1"))
        assert state["messages"][-1].text == "It was locked."
        assert server.requests[-1]["messages"][-1]["content"][0]["content"] == LOG
        assert {one.why for one in heard if type(one).__name__ == "FellBack"} == {"the disk is full"}


def test_an_error_of_the_provider_is_the_agents_and_a_refusal_sends_its_own_request() -> None:
    heard: list[Any] = []
    with (
        MessagesServer(lambda request: "fine") as server,
        sync_session(Session.open("e", storage=InMemoryStorage())) as session,
    ):
        session.listen(heard.append)
        agent = agent_of(server, session)
        server.fail(529)
        with pytest.raises(Exception, match="529"):
            agent.invoke({"messages": [("user", "one")]}, thread("1"))
        server.fail(400, message="messages.0: something new is required")
        assert agent.invoke({"messages": [("user", "two")]}, thread("2"))["messages"][-1].text == "fine"
        assert "cache_control" not in str(server.requests[-1]["messages"])
        assert any("something new" in one.why for one in heard if type(one).__name__ == "FellBack")


def test_messages_of_other_makers_are_told_in_the_wires_shape() -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from reverie.integrations.langchain_messages import LangChainTranslator, reply_blocks

    called = AIMessage("Look.", tool_calls=[{"name": "Bash", "args": {"a": 1}, "id": "t1", "type": "tool_call"}])
    messages = [HumanMessage([{"type": "text", "text": "hi"}]), called]
    messages.append(ToolMessage("out", tool_call_id="t1", status="error"))
    history = LangChainTranslator()
    assert history.history(messages[:2]) == history.history(messages)[:2]
    told = history.history(messages)
    assert (
        told[1]["content"]
        == reply_blocks(called)
        == [
            {"type": "text", "text": "Look."},
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"a": 1}},
        ]
    )
    assert told[2]["content"][0]["is_error"] is True
    assert history.continues([*messages, HumanMessage("more")])
    messages[0].content[0]["text"] = "rather"
    assert not history.continues(messages)


PIXEL = {"type": "image", "base64": image_block(png(1, 1))["source"]["data"], "mime_type": "image/png"}
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
PAPER = {"type": "file", "base64": pdf_block(pdf(1))["source"]["data"], "mime_type": "application/pdf"}


def test_images_and_files_of_langchains_own_forms_reach_the_model_and_stay_where_they_were() -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    called = AIMessage("", tool_calls=[{"name": "Bash", "args": {"command": "x"}, "id": "t1", "type": "tool_call"}])
    history: list[Any] = [HumanMessage([{"type": "text", "text": "see"}, PIXEL, PAPER, LINK]), called]
    history.append(ToolMessage([{"type": "text", "text": "drawn"}, PIXEL], tool_call_id="t1"))
    heard: list[Any] = []
    with (
        MessagesServer(lambda request: "fine") as server,
        sync_session(Session.open("i", storage=InMemoryStorage())) as session,
    ):
        session.listen(heard.append)
        agent = agent_of(server, session)
        for name in ("1", "2"):
            state = agent.invoke({"messages": history}, thread(name))
            history = [*state["messages"], HumanMessage("and?")]
        first, second = (request["messages"] for request in server.requests)
        kinds = [["text", "image", "document", "image"], ["text", "image"]]
        for sent in (first, second):
            assert [
                [one["type"] for one in part] for part in (sent[0]["content"], sent[2]["content"][0]["content"])
            ] == kinds
        assert canonical({"messages": second[:3]}) == canonical({"messages": first})
        assert server.refusals == []
        assert not [one for one in heard if isinstance(one, FellBack)]
        assert not [one for one in heard if isinstance(one, DecisionMade) and one.decision.cause.layer == "host"]


@pytest.mark.parametrize(("marks", "later"), [(True, "human"), (False, "system")])
def test_the_systems_words_among_the_messages_are_sent_as_such_where_the_provider_takes_them(
    marks: bool, later: str
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    from reverie.integrations.langchain_messages import LangChainTranslator

    history = [
        SystemMessage("Help."),
        HumanMessage("hi"),
        AIMessage("yes?"),
        HumanMessage("so"),
        SystemMessage("Brief."),
    ]
    told = LangChainTranslator()
    wired = told.history([*history, HumanMessage("go on")])
    assert [message.get("stands", False) for message in wired] == [True, False, False, False, True, False]
    joined = [
        {"role": "user", "content": [*wired[0]["content"], {"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": wired[2]["content"]},
        {"role": "user", "content": [{"type": "text", "text": "so"}, *wired[4]["content"]]},
    ]
    sent = told.translated_back(joined, marks)
    assert [message.type for message in sent][:3] == ["system", "human", "ai"]
    assert sent[-1].type == later
    assert "Brief." in str(sent[-1].content)


def test_an_image_that_a_tool_gave_back_is_shown_and_the_mark_of_another_is_not() -> None:
    from langchain_core.messages import ToolMessage

    from reverie.integrations.history_pieces import Placeholders
    from reverie.integrations.langchain_messages import LangChainTranslator, result_content, with_preview

    marked = {**PIXEL, "extras": {"cache_control": {"type": "ephemeral"}, "title": "a"}}
    message = ToolMessage([{"type": "text", "text": "drawn"}, marked], tool_call_id="t1")
    shown = result_content(message, Placeholders())
    assert "cache_control" not in str(LangChainTranslator().history([message]))
    assert with_preview(message, shown) is message
    cut = with_preview(message, [{"type": "text", "text": "cut"}, *shown[1:]])
    assert cut.content == [{"type": "text", "text": "cut"}, {**PIXEL, "extras": {"title": "a"}}]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio
