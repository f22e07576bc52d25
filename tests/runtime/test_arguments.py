"""Arguments of a wrong type: the public API refuses them, names the argument and says which values it accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Agent, InMemoryStorage, InputError, Memory, Session, SessionNotFound
from reverie.integrations.sync_session import SyncSession
from reverie.models import ScriptedModel
from reverie.runtime.session.replies import Call

MODEL = "claude-sonnet-4-5"
CONTENT = "text or a list of content blocks"
TOOL: dict[str, Any] = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
NO_CONTENT: list[Any] = [
    b"x",
    5,
    {"a": 1},
    ("a",),
    ["a"],
    [5],
    [{"a": 1}],
    [{"type": 5}],
    [{"type": "text", "text": 5}],
]


@pytest.mark.parametrize("content", NO_CONTENT, ids=repr)
def test_what_is_no_content_is_refused_and_leaves_no_entry(tmp_path: Path, content: Any) -> None:
    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path, storage=InMemoryStorage()) as session:
            before = len(list(session.view.entries()))
            with pytest.raises(InputError, match=f"the message .*{CONTENT}"):
                await session.say(content)
            with pytest.raises(InputError, match=f"the attachment .*{CONTENT}"):
                await session.attach(content)
            assert len(list(session.view.entries())) == before
            await session.say("hello")
            with pytest.raises(InputError, match=f"system .*{CONTENT}"):
                await session.prepare(model=MODEL, max_tokens=9, system=content)
        async with Agent(model=ScriptedModel(["done"]), cwd=tmp_path, storage=InMemoryStorage()) as agent:
            with pytest.raises(InputError, match=f"the prompt .*{CONTENT}"):
                _ = [event async for event in agent.ask(content)]

    anyio.run(steps)


def test_an_image_without_a_source_is_refused(tmp_path: Path) -> None:
    with SyncSession.open("s", cwd=tmp_path, storage=InMemoryStorage()) as session:
        for image in ({"type": "image"}, {"type": "image", "source": "a.png"}):
            with pytest.raises(InputError, match="the message has a block 'image' without a source"):
                session.say([image])


def test_content_blocks_of_every_type_are_accepted(tmp_path: Path) -> None:
    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path, storage=InMemoryStorage()) as session:
            image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
            await session.say([{"type": "text", "text": "What is this?"}, image])
            system = [{"type": "text", "text": "Be brief."}]
            request = await session.prepare(model=MODEL, max_tokens=9, system=system, tools=(TOOL,))
            assert request["system"][0]["text"] == "Be brief."
            assert [block["type"] for block in request["messages"][0]["content"]] == ["text", "image"]

    anyio.run(steps)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": [print]}, "built-in function print.* is no tool: pass a function with @tool, or a declaration"),
        ({"tools": ["look"]}, "'look' is no tool"),
        ({"tools": TOOL}, "tools is of type dict: pass a list of tools"),
        ({"tools": 5}, "tools is of type int: pass a list of tools"),
        ({"tools": [TOOL], "tool_choice": "auto"}, "tool_choice='auto' would be refused"),
        ({"max_tokens": "100"}, "max_tokens='100' .* valid integer"),
        ({"max_tokens": 10**9}, f"the provider of {MODEL}: .* maximum allowed number of output tokens for this model"),
        ({"model": 5}, "model is of type int: pass text"),
        ({"betas": "context-1m"}, "betas is of type str: pass a list of names"),
        ({"messages": []}, "leave messages out, and call say()"),
    ],
    ids=repr,
)
def test_an_option_of_a_wrong_type_is_refused_by_its_name(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with SyncSession.open("s", cwd=tmp_path, storage=InMemoryStorage()) as session:
        session.say("hello")
        with pytest.raises(InputError, match=said):
            session.prepare(**{"model": MODEL, "max_tokens": 9, **options})
        assert session.prepare(model=MODEL, max_tokens=9)["max_tokens"] == 9


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (5, {}, "the session's name is of type int"),
        ("s", {"cwd": 5}, "cwd is of type int"),
        ("s", {"memory": "yes"}, "memory is of type str: pass True or False"),
        ("s", {"mode": "rd"}, "mode is 'rd': pass 'write' or 'read'"),
        ("s", {"subject": 5}, "subject is of type int"),
        ("s", {"model": "claude-opus-5"}, "model is of type str: pass a Model, such as open_model(NAME)"),
        ("s", {"storage": "/tmp"}, "storage is of type str: pass FileStorage(...), InMemoryStorage()"),
        ("s", {"settings": {"preset": "thrifty"}}, "settings is of type dict: pass the result of load_settings()"),
    ],
    ids=repr,
)
def test_a_session_is_not_opened_by_a_wrong_argument(
    tmp_path: Path, name: Any, options: dict[str, Any], said: str
) -> None:
    storage = InMemoryStorage()
    with pytest.raises(InputError, match=re.escape(said)):
        Session.open(name, **{"cwd": tmp_path, "storage": storage, **options})
    assert not list(storage.list("projects"))


def test_reading_a_session_that_does_not_exist_says_so_and_one_of_a_gone_directory_works(tmp_path: Path) -> None:
    async def steps() -> None:
        storage = InMemoryStorage()
        with pytest.raises(SessionNotFound, match="no session 's' to read"):
            async with Session.open("s", cwd=tmp_path, storage=storage, mode="read"):
                pass
        async with Session.open("s", cwd=tmp_path / "work", storage=storage, mode="write") as session:
            await session.say("hello")
        (tmp_path / "work").rmdir()
        async with Session.open("s", cwd=tmp_path / "work", storage=storage, mode="read") as session:
            assert session.view.messages() == [{"role": "user", "content": "hello"}]

    (tmp_path / "work").mkdir()
    anyio.run(steps)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": [print]}, "is no tool: pass a function with @tool"),
        ({"tools": [TOOL]}, "is no tool"),
        ({"tools": 5}, "tools is of type int"),
        ({"mode": "rd"}, "mode is 'rd': pass one of default"),
        ({"system": 5}, "system is of type int"),
        ({"session": 5}, "the session's name is of type int"),
        ({"cwd": 5}, "cwd is of type int: pass the path of a directory"),
        ({"cwd": "/no/such/place"}, "cwd '/no/such/place' is not a directory: pass one that exists"),
        ({"cwd": __file__}, "is not a directory"),
        ({"model": 5}, "model is of type int: pass the name of a model, or a Model"),
        ({"storage": "files"}, "storage is of type str: pass FileStorage"),
        ({"settings": {}}, "settings is of type dict: pass the result of load_settings"),
        ({"approve": "yes"}, "approve is of type str: pass a function"),
        ({"on_control": 5}, "on_control is of type int: pass a function"),
        ({"clock": 5}, "clock is of type int: pass a function"),
        ({"bridge": 5}, "bridge is of type int: pass a Bridge"),
        ({"name": 5}, "the agent's name is of type int: pass text"),
        ({"subject": 5}, "subject is of type int: pass text"),
        ({"hooks": [print]}, "hooks is of type list: pass a dict of lists of functions by event"),
        ({"hooks": {"before_tol": [print]}}, "no event of hooks is called 'before_tol': use session_start"),
        ({"hooks": {"before_tool": print}}, r"hooks\['before_tool'\] is of type builtin.*: pass a list of functions"),
        ({"hooks": {"before_tool": ["print"]}}, "a hook of 'before_tool' is of type str: pass a function"),
        ({"max_turns": "3"}, "max_turns is of type str: pass a whole number that is at least 1"),
        ({"max_turns": 0}, "max_turns is 0: pass a whole number"),
        ({"budget_usd": "3"}, "budget_usd is of type str: pass a number that is at least 0"),
        ({"budget_usd": float("nan")}, "budget_usd is nan"),
        ({"budget_usd": -1}, "budget_usd is -1"),
        ({"budget_usd": True}, "budget_usd is True"),
    ],
    ids=repr,
)
def test_an_agent_is_not_opened_by_a_wrong_argument(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    async def steps() -> None:
        with pytest.raises(InputError, match=said):
            async with Agent(**{"model": ScriptedModel(["done"]), "cwd": tmp_path, **options}):
                pass

    anyio.run(steps)


def test_what_is_no_text_is_refused_by_its_name(tmp_path: Path) -> None:
    memory: Any = Memory(tmp_path)
    for refused, said in (
        (lambda: memory.recall(None), "the question is of type NoneType: pass text"),
        (lambda: memory.get(None), "the memory's name is of type NoneType"),
        (lambda: memory.save(b"x", type="user"), "text is of type bytes"),
        (lambda: Memory.open(5), "project is of type int: pass the path of a directory"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(InputError, match=said):
            refused()
    with SyncSession.open("s", cwd=tmp_path, storage=InMemoryStorage()) as opened:
        session: Any = opened
        for refused, said in (
            (lambda: session.set_context(5, "a"), "key is of type int"),
            (lambda: session.set_context("k", b"a"), "text is of type bytes"),
            (lambda: session.expand(5), "the handle is of type int"),
            (lambda: session.restore("toolu_1"), "tool_use_ids is of type str: pass a list of ids"),
            (lambda: session.trim("all"), "target_tokens is of type str: pass a whole number that is at least 0"),
            (lambda: session.trim(-1), "target_tokens is -1"),
            (lambda: session.listen(5), "listener is of type int: pass a function"),
            (lambda: session.run("toolu_1", []), "call is of type str: pass a call that observe() returned"),
            (lambda: session.run(Call("toolu_1", "look", {}), 5), "tools is of type int: pass a list of tools"),
        ):
            with pytest.raises(InputError, match=re.escape(said)):
                refused()


def test_an_open_agent_refuses_a_wrong_argument_and_stays_as_it_is(tmp_path: Path) -> None:
    async def steps() -> None:
        async with Agent(model=ScriptedModel(["done"]), cwd=tmp_path, storage=InMemoryStorage()) as opened:
            agent: Any = opened
            with pytest.raises(InputError, match="mode is 'Plan': pass one of default"):
                agent.mode = "Plan"
            assert agent.mode == "default"
            for refused, said in (
                (lambda: agent.approve_plan("all"), "mode is 'all'"),
                (lambda: agent.use_model(5), "the model's name is of type int: pass text"),
                (lambda: agent.spawn(5), "prompt is of type int: pass text"),
            ):
                with pytest.raises(InputError, match=said):
                    await refused()
            with pytest.raises(InputError, match="listener is of type int"):
                agent.listen(5)

    anyio.run(steps)
