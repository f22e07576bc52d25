"""Images of any kind, through every way in: each later request is accepted, also after a restart."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from pictures import image_block, pdf, pdf_block, png
from prefixes import extends
from reverie import Agent, Session, Settings
from reverie.conversation.decisions import ImagesDropped
from reverie.conversation.wire import blocks as wire_blocks
from reverie.conversation.wire.blocks import as_blocks
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.images import ImageHead, base64_head, image_problem, media_in
from reverie.conversation.wire.validate import Limits, problems
from reverie.errors import ImageRefused
from reverie.events import DecisionMade, Event, QueryEnded
from reverie.model_facts import facts_of
from reverie.models.anthropic import AnthropicModel
from reverie.models.scripted_model import ScriptedModel
from reverie.runtime.session.offload import offloader as intake
from reverie.settings import Switches
from reverie.storage.files import FileStorage
from reverie.testing.messages_server import MessagesServer
from reverie.tools import ToolContext
from reverie.tools.mcp_content import output_of
from reverie.tools.read import Read

CHECKED, FREE = "claude-opus-5-5", "claude-opus-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Look", "input_schema": {"type": "object"}}]
TALL = [png(1280, 9000)]
MANY = [png(2560, 1440)] * 22
HEAVY = [png(64, 64, at_least_bytes=11_000_000)]
TOTAL = [png(64, 64, at_least_bytes=3_400_000)] * 8
BROKEN = [b"\x89PNG\r\n\x1a\n" + b"\0" * 600]
LOADS = {"tall": TALL, "many": MANY, "heavy": HEAVY, "total": TOTAL, "broken": BROKEN}
Door = Callable[[Session, str, bytes, Path], Awaitable[object]]


async def by_read(session: Session, call: str, data: bytes, folder: Path) -> None:
    (folder / "picture.png").write_bytes(data)
    output = await Read().run({"file_path": "picture.png"}, ToolContext(cwd=folder))
    await session.result(call, output.content, is_error=output.is_error)


async def by_mcp(session: Session, call: str, data: bytes, folder: Path) -> None:
    text = base64.b64encode(data).decode() if data is not BROKEN[0] else "this is no base64"
    await session.result(
        call, output_of({"content": [{"type": "image", "mimeType": "image/png", "data": text}]}).content
    )


async def by_result(session: Session, call: str, data: bytes, folder: Path) -> None:
    await session.result(call, [{"type": "text", "text": "see"}, image_block(data, "image/jpeg")])


async def by_message(session: Session, call: str, data: bytes, folder: Path) -> None:
    await session.result(call, "below")
    await session.say([{"type": "text", "text": "see"}, image_block(data)])
    await session.attach([image_block(data if len(data) < 1_000_000 else "QUI")])


DOORS: dict[str, Door] = {"read": by_read, "mcp": by_mcp, "result": by_result, "message": by_message}


def faults(request: dict[str, Any], model: str) -> Iterator[str]:
    """Yield the reasons for which a provider would refuse this request, by the public rules about images."""
    facts = facts_of(model)
    shown = [image for message in request["messages"] for _, image in media_in(as_blocks(message))]
    yield from (problem.text for problem in problems(request, limits=Limits(max_images=facts.max_images)))
    yield from filter(None, (image_problem(image, facts, len(shown) > facts.many_images) for image in shown))
    if len(shown) > facts.max_images:
        yield f"{len(shown)} images"
    if len(json.dumps(request)) > 32_000_000:
        yield "the body is too large"


def settings_in(home: Path) -> Settings:
    return Settings(home, switches=Switches(notes=False, memory=False))


def session_in(home: Path, **more: Any) -> Session:
    return Session.open("s", storage=FileStorage(home), settings=settings_in(home), cwd=home, **more)


async def asked(session: Session, model: str) -> dict[str, Any]:
    return await session.prepare(model=model, max_tokens=1_000, tools=TOOLS)


def reply(number: int) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Look", "input": {"n": number}}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    usage = {"input_tokens": 10, "output_tokens": 10}
    body = {"id": f"msg_{number}", "role": "assistant", "content": [thinking, call], "stop_reason": "tool_use"}
    return {**body, "usage": usage}


async def talk(home: Path, model: str, door: Door, load: list[bytes]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Show each picture in a turn of its own; return all requests, and the one after a restart."""
    sent: list[dict[str, Any]] = []
    home.mkdir(exist_ok=True)
    async with session_in(home / "home") as session:
        await session.say("look at the pictures")
        for number, data in enumerate(load):
            sent.append(await asked(session, model))
            (call,) = await session.observe(reply(number))
            await door(session, call.id, data, home)
        sent.append(await asked(session, model))
    async with session_in(home / "home") as session:
        return sent, await asked(session, model)


@pytest.fixture(scope="module")
def server() -> Iterator[MessagesServer]:
    with MessagesServer(lambda request: "fine", checks_thinking=False) as opened:
        yield opened


async def answered(server: MessagesServer, request: dict[str, Any]) -> None:
    model = AnthropicModel(request["model"], base_url=server.base_url, api_key="any")
    assert (await model.complete(request)).body["content"]
    await model.aclose()


@pytest.mark.requirement("V8", "K8")
@pytest.mark.slow
@pytest.mark.parametrize("pillow", [True, False])
@pytest.mark.parametrize(("model", "door"), [(FREE, "result"), *((CHECKED, door) for door in DOORS)])
@pytest.mark.parametrize("load", LOADS)
def test_every_later_request_is_accepted(
    load: str,
    door: str,
    model: str,
    pillow: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: MessagesServer,
) -> None:
    monkeypatch.setattr(intake, "can_scale", lambda: pillow)
    sent, again = anyio.run(talk, tmp_path, model, DOORS[door], LOADS[load])
    assert [fault for request in [*sent, again] for fault in faults(request, model)] == []
    assert canonical(again) == canonical(sent[-1])
    anyio.run(answered, server, again)
    if model == CHECKED:  # nothing that was sent changes, so no thinking is lost
        for before, after in pairwise(sent):
            assert extends(canonical(before), canonical(after))
    shown = [one for _, one in media_in(block for message in again["messages"] for block in as_blocks(message))]
    assert shown or load == "broken" or (not pillow and load in ("tall", "heavy"))


async def as_it_is(self: object, log: object, content: Any) -> Any:
    return content


@pytest.mark.requirement("V8")
@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_a_session_that_died_of_an_image_lives_again(load: str, tmp_path: Path) -> None:
    async def steps() -> dict[str, Any]:
        async with session_in(tmp_path / "home") as session:
            return await asked(session, CHECKED)

    with pytest.MonkeyPatch.context() as older:
        older.setattr(intake.ImageIntake, "admitted", as_it_is)
        older.setattr(wire_blocks, "_sendable", lambda image: image)
        older.setattr("reverie.conversation.wire.images.ImageTotals.excess", lambda self, limits: "")
        _, dead = anyio.run(talk, tmp_path, CHECKED, by_mcp, LOADS[load])
    assert list(faults(dead, CHECKED))
    assert list(faults(anyio.run(steps), CHECKED)) == []


@pytest.mark.requirement("V8")
@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_the_check_finds_a_session_that_takes_images_as_they_come(
    load: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known-bad twin: neither the way in nor the fold looks at an image, and no limit counts."""
    monkeypatch.setattr(intake.ImageIntake, "admitted", as_it_is)
    monkeypatch.setattr(wire_blocks, "_sendable", lambda image: image)
    monkeypatch.setattr("reverie.conversation.wire.images.ImageTotals.excess", lambda self, limits: "")
    _, again = anyio.run(talk, tmp_path, CHECKED, by_mcp, LOADS[load])
    assert list(faults(again, CHECKED))


@pytest.mark.requirement("V8")
@pytest.mark.parametrize("pillow", [True, False])
def test_the_original_is_read_back_by_the_handle_that_is_shown(
    pillow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "can_scale", lambda: pillow)

    async def steps() -> None:
        async with session_in(tmp_path) as session:
            await session.say([image_block(TALL[0])])
            request = await asked(session, CHECKED)
        *pictures, note = request["messages"][0]["content"]
        assert len(pictures) == pillow
        handle = note["text"].split("handle: ")[1].split("]")[0].split(". ")[0]
        async with session_in(tmp_path, mode="read") as session:
            assert await session.read_back(handle) == TALL[0]
        path = Path(note["text"].split("saved to: " if pillow else "Saved to: ")[1].splitlines()[0].split(", ")[0])
        assert path.suffix == ".png"
        assert path.read_bytes() == TALL[0]

    anyio.run(steps)


@pytest.mark.requirement("V8")
def test_a_scaled_copy_keeps_its_shape_and_white_space_and_types_are_put_right(tmp_path: Path) -> None:
    async def steps() -> None:
        async with session_in(tmp_path) as session:
            folded = base64.encodebytes(png(30, 20)).decode()
            await session.say([image_block(png(4000, 1000)), image_block(folded, "image/webp")])
            content = (await asked(session, CHECKED))["messages"][0]["content"]
        assert base64_head(content[0]["source"]["data"]) == ImageHead("image/png", 2000, 500)
        assert content[2]["source"] == image_block(png(30, 20))["source"]

    anyio.run(steps)


@pytest.mark.requirement("V8")
@pytest.mark.parametrize("model", [CHECKED, FREE])
def test_on_a_model_that_checks_the_past_new_images_stay_out_elsewhere_old_ones_leave(
    model: str, tmp_path: Path
) -> None:
    limit = facts_of(model).max_images
    dot = image_block(png(2, 2))

    async def steps() -> tuple[dict[str, Any], dict[str, Any]]:
        async with session_in(tmp_path) as session:
            await session.say([dot] * limit)
            before = await asked(session, model)
            (call,) = await session.observe(reply(1))
            await session.result(call.id, [dot, dot])
            return before, await asked(session, model)

    before, after = anyio.run(steps)
    assert list(faults(after, model)) == []
    assert extends(canonical(before), canonical(after)) is (model == CHECKED)
    newest = after["messages"][-1]["content"][0]["content"]
    assert [part["type"] for part in newest] == (["text", "text"] if model == CHECKED else ["image", "image"])
    if model == CHECKED:
        assert f"more than {limit} images" in newest[0]["text"]


@pytest.mark.requirement("V8")
def test_results_that_arrive_together_pass_no_limit(tmp_path: Path) -> None:
    """Several results are checked at once, so that each sees room for itself: the newest are dropped, unsent."""
    limit = facts_of(CHECKED).max_images
    dot = image_block(png(2, 2))

    async def steps() -> tuple[dict[str, Any], dict[str, Any]]:
        async with session_in(tmp_path) as session:
            await session.say([dot] * (limit - 1))
            before = await asked(session, CHECKED)
            both = reply(1)
            both["content"] += reply(2)["content"][1:]
            calls = await session.observe(both)
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(lambda id: session.result(id, [dot]), call.id)
            return before, await asked(session, CHECKED)

    before, after = anyio.run(steps)
    assert list(faults(after, CHECKED)) == []
    assert extends(canonical(before), canonical(after))


@pytest.mark.requirement("V8")
def test_a_refused_image_is_dropped_and_the_request_goes_again_once_for_each(tmp_path: Path) -> None:
    unliked = [image_block(png(size, size)) for size in (11, 12)]
    refused: list[tuple[int, int]] = []

    def answer(request: Any) -> Any:
        for at, message in enumerate(request["messages"]):
            for index, block in enumerate(as_blocks(message)):
                if {**block, "cache_control": None} in [{**one, "cache_control": None} for one in unliked]:
                    refused.append((at, index))
                    raise ImageRefused("could not process image", message_index=at, block_index=index)
        return "seen"

    events: list[Event] = []

    async def steps() -> None:
        for prompt in ([image_block(png(5, 5)), *unliked, image_block(png(6, 6))], "and again"):
            model = ScriptedModel(answer, name=f"scripted:{CHECKED}")
            agent = Agent(model=model, cwd=tmp_path, session="s", settings=settings_in(tmp_path / "home"))
            async with agent:
                async for event in agent.ask(prompt):
                    events.append(event)

    anyio.run(steps)
    assert [event.end for event in events if isinstance(event, QueryEnded)] == ["completed", "completed"]
    assert len(refused) == 2
    dropped = [one.decision for one in events if isinstance(one, DecisionMade)]
    assert [len(one.images) for one in dropped if isinstance(one, ImagesDropped)] == [1, 1]


@pytest.mark.requirement("V8")
def test_a_refusal_that_names_no_image_of_the_view_ends_the_query(tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        raise ImageRefused("no", message_index=7, block_index=7)

    async def steps() -> list[Event]:
        agent = Agent(model=ScriptedModel(answer), cwd=tmp_path, settings=settings_in(tmp_path / "home"))
        async with agent:
            return [event async for event in agent.ask("look")]

    end = anyio.run(steps)[-1]
    assert isinstance(end, QueryEnded)
    assert end.end == "model_error"


@pytest.mark.requirement("V8")
@pytest.mark.slow
@pytest.mark.parametrize("pillow", [True, False])
def test_an_agent_reads_a_tall_screenshot_and_goes_on_after_a_restart(
    pillow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "can_scale", lambda: pillow)
    (tmp_path / "tall.png").write_bytes(TALL[0])

    def answer(request: dict[str, Any]) -> Any:
        asks = len(request["messages"]) == 1
        return [{"type": "tool_use", "name": "Read", "input": {"file_path": "tall.png"}}] if asks else "a page"

    async def steps(address: str) -> list[str]:
        ends: list[str] = []
        for prompt in ("read tall.png", "what was it?"):
            model = AnthropicModel(CHECKED, base_url=address, api_key="any")
            agent = Agent(model=model, cwd=tmp_path, session="s", settings=settings_in(tmp_path / "home"))
            async with agent:
                ends += [event.end async for event in agent.ask(prompt) if isinstance(event, QueryEnded)]
        return ends

    with MessagesServer(answer) as server:
        assert anyio.run(steps, server.base_url) == ["completed", "completed"]
        assert server.refusals == []
        assert [fault for request in server.requests for fault in faults(request, CHECKED)] == []
        assert len(server.requests) == 3


async def with_documents(home: Path, model: str, documents: list[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Give a session one PDF after another; return the last request's blocks and the originals of those left out."""
    async with session_in(home / "home") as session:
        await session.say("look at the documents")
        for number, data in enumerate(documents):
            await asked(session, model)
            (call,) = await session.observe(reply(number))
            await session.result(call.id, [pdf_block(data)])
        request = await asked(session, model)
        assert [*faults(request, model)] == []
    results = [block for message in request["messages"] for block in as_blocks(message) if "tool_use_id" in block]
    shown = [block["content"][0] for block in results]
    stored = sorted((home / "home").rglob("document-*.pdf"))
    return shown, [one.read_bytes() for one in stored]


@pytest.mark.requirement("V8", "V10")
@pytest.mark.parametrize(("model", "most"), [(CHECKED, 600), (FREE, 100)])
def test_a_document_that_no_request_may_have_is_a_text_with_its_handle(model: str, most: int, tmp_path: Path) -> None:
    documents = [pdf(1), pdf(most + 1, packed=True), b"no PDF", pdf(2)]
    shown, stored = anyio.run(with_documents, tmp_path, model, documents)
    assert [block["type"] for block in shown] == ["document", "text", "text", "document"]
    assert shown[1]["text"].startswith(f"[Document not shown: it has more than {most} images or PDF pages (application")
    assert "Its handle: document-" in shown[1]["text"]
    assert shown[2]["text"].startswith("[Document not shown: The PDF specified was not valid.")
    assert sorted(stored) == sorted(documents[1:3])
