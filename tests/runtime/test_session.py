"""The public session API: durable messages, valid requests, one writer at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, InputError, Session, SessionBusy, SessionError, load_settings
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.errors import SessionReadOnly
from reverie.events import CacheBroken, DecisionMade, Event, FellBack, InboxDrained, LogDamaged, SessionOpened
from reverie.models import ScriptedModel
from reverie.runtime.places.projects import inbox_key, log_key, project_slug
from reverie.runtime.session.inbox import post
from reverie.storage.files import FileStorage

MODEL = "claude-sonnet-4-5"
READ: dict[str, Any] = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def reply(*blocks: dict[str, Any], id: str = "msg_1", **rest: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": list(blocks),
        "usage": usage,
        **rest,
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": "/a"}}


def run(steps: Callable[[], Any]) -> None:
    anyio.run(steps)


@pytest.mark.parametrize(("id", "warnings"), [("t1", 1), ("t2", 0)])
def test_a_call_with_the_id_of_an_earlier_one_is_told(tmp_path: Path, id: str, warnings: int) -> None:
    told: list[Event] = []

    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path) as session:
            await session.say("What is in /a?")
            await session.prepare(model=MODEL, max_tokens=100, tools=[READ])
            await session.observe(reply(call("t1")))
            await session.result("t1", "wood")
            await session.observe(reply(text("Wood."), id="msg_2"))
        async with Session.open("s", cwd=tmp_path) as session:
            session.listen(told.append)
            await session.say("And now?")
            await session.prepare(model=MODEL, max_tokens=100, tools=[READ])
            await session.observe(reply(call(id), id="msg_3"))

    run(steps)
    found = [event.why for event in told if isinstance(event, FellBack) and event.what == "model"]
    assert len(found) == warnings
    assert all("the reply calls Read with the id 't1' of an earlier call" in why for why in found)


@pytest.mark.requirement("K1", "K11")
def test_a_conversation_survives_the_process_that_had_it(tmp_path: Path):
    async def steps() -> None:
        async with Session.open("repo-42", cwd=tmp_path) as session:
            await session.say("What is in /a?")
            first = await session.prepare(model=MODEL, max_tokens=100, system="Be brief.", tools=[READ])
            calls = await session.observe(reply(call("t1")))
            assert [(one.id, one.name, one.input) for one in calls] == [("t1", "Read", {"file_path": "/a"})]
            await session.result("t1", "hello")
            sent = await session.prepare(model=MODEL, max_tokens=100, system="Be brief.", tools=[READ])
            assert extends(canonical(first), canonical(sent))
        async with Session.open("repo-42", cwd=tmp_path) as session:
            again = await session.prepare(model=MODEL, max_tokens=100, system="Be brief.", tools=[READ])
            assert canonical(again) == canonical(sent)
            assert await session.observe(reply(text("It says hello."), id="msg_2")) == []

    run(steps)


@pytest.mark.requirement("K13")
def test_a_second_writer_gets_a_clear_error_a_read_only_view_or_the_inbox(tmp_path: Path):
    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path) as session:
            await session.say("hello")
            with pytest.raises(SessionBusy, match="pid"):
                async with Session.open("s", cwd=tmp_path):
                    pass
            async with Session.open("s", cwd=tmp_path, mode="read") as reader:
                assert reader.view.messages() == [{"role": "user", "content": "hello"}]
                with pytest.raises(SessionReadOnly, match="inbox"):
                    await reader.say("me too")
            storage = FileStorage(load_settings().home)
            slug = project_slug(tmp_path)
            Session.post("s", "The build is red.", cwd=tmp_path, sender="ci")
            with pytest.raises(InputError, match="empty"):
                Session.post("s", " ", cwd=tmp_path)
            events: list[Event] = []
            session.listen(events.append)
            request = await session.prepare(model=MODEL, max_tokens=9)
            assert "The build is red." in str(request["messages"])
            assert InboxDrained("s", 1) in events
            again = await session.prepare(model=MODEL, max_tokens=9)
            assert str(again["messages"]).count("The build is red.") == 1
            assert list(storage.list(inbox_key(slug, "s"))) == []

    run(steps)


@pytest.mark.requirement("K13")
def test_a_command_taken_in_just_before_a_crash_is_not_shown_twice(tmp_path: Path):
    async def steps() -> None:
        storage = InMemoryStorage()
        slug = project_slug(tmp_path)
        inbox = inbox_key(slug, "s")
        post(storage, inbox, "note", {"text": "only once"})
        (key,) = storage.list(inbox)
        document = storage.read(key)
        assert document is not None
        async with Session.open("s", cwd=tmp_path, storage=storage) as session:
            await session.say("hello")
            await session.prepare(model=MODEL, max_tokens=9)
            storage.write(key, document.data)  # the crash came between the log and the inbox
            request = await session.prepare(model=MODEL, max_tokens=9)
        assert str(request["messages"]).count("only once") == 1

    run(steps)


@pytest.mark.requirement("K13")
def test_the_lease_is_free_again_when_its_process_dies(tmp_path: Path, home: Path):
    script = (
        "import sys, anyio\nfrom reverie import Session\n"
        "async def main():\n"
        f"    async with Session.open('s', cwd={str(tmp_path)!r}) as session:\n"
        "        await session.say('hello')\n        print('open', flush=True)\n        sys.stdin.read()\n"
        "anyio.run(main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"

        async def refused() -> None:
            with pytest.raises(SessionBusy):
                async with Session.open("s", cwd=tmp_path):
                    pass

        run(refused)
    finally:
        process.kill()
        process.communicate(timeout=60)

    async def resumed() -> None:
        async with Session.open("s", cwd=tmp_path) as session:
            assert session.view.messages() == [{"role": "user", "content": "hello"}]

    run(resumed)


@pytest.mark.requirement("K8", "C1")
@pytest.mark.slow
def test_whatever_order_things_are_said_in_each_request_is_valid_and_extends_the_last(seed: int):
    async def steps(number: int) -> None:
        rng = Random(number)
        async with Session.open("s", storage=InMemoryStorage()) as session:
            sent: list[bytes] = []
            open_calls: list[str] = []
            for step in range(30):
                match rng.randrange(5):
                    case 0:
                        await session.say(f"message {step}")
                    case 1:
                        await session.attach(f"attachment {step}")
                    case 2 if open_calls:
                        await session.result(open_calls.pop(rng.randrange(len(open_calls))), "x" * rng.randrange(50))
                    case 3 if session.view.groups:
                        request = await session.prepare(model=MODEL, max_tokens=50, tools=[READ])
                        assert problems(request) == []
                        assert extends(sent, canonical(request))
                        sent = canonical(request)
                    case _:
                        ids = [f"t{step}_{one}" for one in range(rng.randrange(3))]
                        open_calls.extend(ids)
                        await session.observe(reply(text("ok"), *map(call, ids), id=f"m{step}"))

    for number in range(60):
        anyio.run(steps, seed + number)


def test_a_call_result_must_name_a_call_of_this_session():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            with pytest.raises(InputError, match="observe"):
                await session.result("toolu_unknown", "x")
            with pytest.raises(SessionError, match="say"):
                await session.prepare(model=MODEL, max_tokens=9)
            with pytest.raises(InputError):
                await session.say("  ")
            with pytest.raises(InputError, match="provider's reply"):
                await session.observe(7)
            with pytest.raises(InputError, match="assistant"):
                await session.observe({"role": "user", "content": []})

    run(steps)


@pytest.mark.parametrize(
    ("tools", "options", "named"),
    [
        ([{"name": "no good", "input_schema": {"type": "object"}}], {}, "no good"),
        ([READ, READ], {}, "Read"),
        ([READ], {"tool_choice": {"type": "tool", "name": "Absent"}}, "tool_choice"),
        ([], {"thinking": {"type": "enabled", "budget_tokens": 3}}, "thinking"),
    ],
)
def test_tools_and_options_a_provider_would_refuse_are_refused_before_anything_is_logged(
    tools: list[dict[str, Any]], options: dict[str, Any], named: str
):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("hello")
            with pytest.raises(InputError, match=named):
                await session.prepare(model=MODEL, max_tokens=9, tools=tools, **options)
            assert session.view.facts.prefix is None

    run(steps)


@pytest.mark.requirement("K4")
def test_a_changed_system_prompt_is_a_logged_decision_that_moves_the_prefix():
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            events: list[Event] = []
            session.listen(events.append)
            await session.say("hello")
            await session.prepare(model=MODEL, max_tokens=9, system="one")
            await session.prepare(model=MODEL, max_tokens=9, system="one")
            await session.prepare(model=MODEL, max_tokens=9, system="two")
            made = [event.decision.cause.moves_prefix for event in events if isinstance(event, DecisionMade)]
            assert made == [False, True]

    run(steps)


@pytest.mark.requirement("K4", "V6")
@pytest.mark.parametrize("model", [MODEL, "claude-opus-5-5"])
@pytest.mark.parametrize(
    "given",
    [
        {"system": "Work in /caf\udce9."},
        {"tools": [{**READ, "input_schema": {"type": "object", "required": ("file_path",)}}]},
        {"tools": [{**READ, "description": "Read \ud800."}]},
        {"stop_sequences": ("END",)},
    ],
)
def test_a_prompt_that_the_log_keeps_in_another_form_is_rendered_once(model: str, given: dict[str, Any]):
    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            made: list[str] = []
            session.listen(lambda event: made.append(type(getattr(event, "decision", None)).__name__))
            sent: list[list[bytes]] = []
            for number in range(3):
                await session.say("hello")
                sent.append(
                    canonical(await session.prepare(**{"model": model, "max_tokens": 9, "tools": [READ], **given}))
                )
                await session.observe(reply(text("yes"), id=f"m{number}"))
            assert [one for one in made if one.startswith("Prefix")] == ["PrefixRendered"]
            assert [len(one) - len(sent[0]) for one in sent] == [0, 2, 4]

    run(steps)


def test_text_that_no_request_can_hold_is_made_plain_in_side_questions_and_notes_of_the_user():
    model = ScriptedModel("<summary>It goes on.</summary>")

    async def steps() -> None:
        async with Session.open("s", storage=InMemoryStorage(), model=model) as session:
            for number in range(6):
                await session.say("word " * 2_000)
                await session.prepare(model=MODEL, max_tokens=9)
                usage = {"input_tokens": 2_000 * (number + 1), "output_tokens": 5}
                await session.observe(reply(text("yes"), id=f"m{number}", usage=usage))
            await session.fork("What is \ud800?")
            await session.compact(instructions="Keep \ud800.")
            assert await session.set_context("caf\udce9", "open") is not None
            assert await session.set_context("caf\udce9", "open") is None
            assert await session.remove_context("caf\udce9") is not None

    run(steps)
    assert sum("?" in str(request) for request in model.requests) == 2
    for request in model.requests:
        json.dumps(request, ensure_ascii=False).encode()


@pytest.mark.requirement("K7")
def test_a_call_whose_input_does_not_fit_its_tool_says_so_and_is_sent_back_as_it_came():
    async def steps() -> None:
        strict = {**READ, "input_schema": {"type": "object", "required": ["file_path"]}}
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("hello")
            await session.prepare(model=MODEL, max_tokens=9, tools=[strict])
            wrong = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "/a"}}
            (one,) = await session.observe(reply(wrong))
            assert one.problem is not None
            assert "file_path" in one.problem
            await session.result("t1", one.problem, is_error=True)
            request = await session.prepare(model=MODEL, max_tokens=9, tools=[strict])
            assert request["messages"][1]["content"] == [wrong]

    run(steps)


@pytest.mark.requirement("K3", "F3")
def test_opening_a_damaged_log_names_the_line_and_goes_on(tmp_path: Path, home: Path):
    async def steps() -> None:
        async with Session.open("s", cwd=tmp_path) as session:
            await session.say("one")
        path = home / log_key(project_slug(tmp_path), "s")
        path.write_bytes(path.read_bytes() + b'{"half": \n' + b'{"torn')
        events: list[Event] = []
        again = Session.open("s", cwd=tmp_path)
        again.listen(events.append)
        async with again as session:
            await session.say("two")
            assert session.view.messages()[0]["content"] == [text("one"), text("two")]
        assert SessionOpened("s", 2, "write") in events
        assert [event.line for event in events if isinstance(event, LogDamaged)] == [3]
        async with Session.open("s", cwd=tmp_path, mode="read") as session:
            assert len(session.view.messages()[0]["content"]) == 2

    run(steps)


def test_text_no_file_can_hold_is_made_plain_in_view_and_log_alike():
    async def steps() -> None:
        storage = InMemoryStorage()
        async with Session.open("s", storage=storage) as session:
            await session.say("broken \ud83d emoji")
            live = await session.prepare(model=MODEL, max_tokens=9)
        async with Session.open("s", storage=storage) as session:
            assert canonical(await session.prepare(model=MODEL, max_tokens=9)) == canonical(live)

    run(steps)


@pytest.mark.requirement("F5")
def test_an_inbox_file_nobody_can_read_is_said_and_set_aside():
    async def steps() -> None:
        storage = InMemoryStorage()
        inbox = inbox_key(project_slug(Path(".")), "s")
        storage.write(f"{inbox}/1.json", b"\xff not json")
        async with Session.open("s", storage=storage) as session:
            events: list[Event] = []
            session.listen(events.append)
            await session.say("hello")
            await session.prepare(model=MODEL, max_tokens=9)
        assert any(isinstance(event, FellBack) and event.what == "inbox" for event in events)
        kept = storage.read(f"{inbox}-unread/1.json")
        assert kept is not None
        assert kept.data == b"\xff not json"
        assert list(storage.list(inbox)) == []

    run(steps)


@pytest.mark.requirement("C5", "K11")
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("announced", [True, False])
def test_a_clearing_before_a_resume_is_no_cache_break(resumed: bool, announced: bool):
    """A logged clearing explains the smaller cache read after a resume; a break without one is reported."""
    storage, events = InMemoryStorage(), list[Event]()
    results = 8

    async def talk(session: Session, number: int, read: int) -> None:
        await session.prepare(model=MODEL, max_tokens=100, system="Be brief.", tools=[READ])
        usage = {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": 60_000 - read,
        }
        await session.observe(reply(call(f"t{number}"), id=f"msg_{number}", usage=usage))
        await session.result(f"t{number}", f"line {number} " * 4_000)

    async def steps() -> None:
        async with Session.open("s", storage=storage) as session:
            await session.say("Read everything.")
            for number in range(results):
                await talk(session, number, 50_000 if number else 0)
            if announced:
                assert await session.trim(target_tokens=1_000) is not None
            if not resumed:
                session.listen(events.append)
                await talk(session, results, 5_000)
        if resumed:
            async with Session.open("s", storage=storage) as session:
                session.listen(events.append)
                await talk(session, results, 5_000)

    run(steps)
    assert any(isinstance(event, CacheBroken) for event in events) == (not announced)


@pytest.mark.requirement("C5")
def test_a_cold_cache_after_a_resume_is_not_called_a_change_of_messages():
    storage, events = InMemoryStorage(), list[Event]()

    async def ask(session: Session, text: str, read: int) -> None:
        await session.say(text)
        await session.prepare(model=MODEL, max_tokens=100, system="Be brief.")
        usage = {"cache_read_input_tokens": read, "cache_creation_input_tokens": 60_000 - read}
        await session.observe(
            reply(
                {"type": "text", "text": "Yes."},
                id=f"msg_{text}",
                usage=usage | {"input_tokens": 1, "output_tokens": 5},
            )
        )

    async def steps() -> None:
        async with Session.open("s", storage=storage) as session:
            await ask(session, "One?", 0)
            await ask(session, "Two?", 50_000)
        async with Session.open("s", storage=storage) as session:
            session.listen(events.append)
            await ask(session, "Three?", 0)

    run(steps)
    assert [event.reason for event in events if isinstance(event, CacheBroken)] == ["server"]
