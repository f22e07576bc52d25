"""The Anthropic client with the middleware, on a model that refuses thinking once content before it has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx2
import pytest
from anthropic import Middleware

from pictures import image_block, png
from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import Compacted, CompactionFailed, CompactionPrepared, ThinkingDropped
from reverie.integrations import anthropic as integration
from reverie.integrations import anthropic_wire
from reverie.integrations.anthropic import reverie_middleware
from reverie.integrations.sync_session import sync_session
from reverie.layers.l2_trim import TrimPolicy
from reverie.runtime.session.compact.background import BackgroundCompaction
from reverie.settings import Switches
from reverie.testing.messages_server import MessagesServer
from thinking_model import Heard, ThinkingModel

CHECKED = "claude-opus-5-5"
WINDOW = 60_000
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
ASK: dict[str, Any] = {"model": CHECKED, "max_tokens": 1_000, "system": "Be brief.", "tools": [READ]}
READS = 5
_SUMMARY = "reverie-summary"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def lines_of(call: Any) -> str:
    return "\n".join(f"{call.id} line {line} = {line * 7}" for line in range(450))


class Host:
    """A loop that keeps its whole history, for either client, with streams or without."""

    def __init__(self, client: Any, *, stream: bool = False) -> None:
        self.client, self.stream = client, stream
        self.messages: list[dict[str, Any]] = []
        self.asked = dict(ASK)

    def results(self, reply: Any) -> bool:
        """Take a reply into the history, with the results of its calls; return whether there were calls."""
        self.messages.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        found = [{"type": "tool_result", "tool_use_id": call.id, "content": lines_of(call)} for call in calls]
        self.messages += [{"role": "user", "content": found}] if found else []
        return bool(calls)

    def ask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        while self.results(self._send()):
            pass

    def _send(self) -> Any:
        if not self.stream:
            return self.client.messages.create(**self.asked, messages=self.messages)
        with self.client.messages.stream(**self.asked, messages=self.messages) as events:
            return events.get_final_message()

    async def aask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        while self.results(await self._asend()):
            pass

    async def _asend(self) -> Any:
        if not self.stream:
            return await self.client.messages.create(**self.asked, messages=self.messages)
        async with self.client.messages.stream(**self.asked, messages=self.messages) as events:
            return await events.get_final_message()


def opened(**changes: Any) -> Session:
    quiet = Switches(notes=False, extraction=False, dream=False)
    settings = Settings(home=Path("unused"), preset="faithful", window_tokens=WINDOW, switches=quiet, **changes)
    return Session.open("checked", storage=InMemoryStorage(), settings=settings)


def sync_client(server: MessagesServer) -> Any:
    return anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0)


def async_client(server: MessagesServer) -> Any:
    return anthropic.AsyncAnthropic(base_url=server.base_url, api_key="any", max_retries=0)


def summary_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == _SUMMARY]


def wait_for(done: Callable[[], Any]) -> None:
    """Wait until something holds, a minute at most."""
    pause = threading.Event()
    for _ in range(6_000):
        if done():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen within a minute")


async def await_for(done: Callable[[], Any]) -> None:
    with anyio.fail_after(60):
        while not done():
            await anyio.sleep(0.01)


def after_summary(server: MessagesServer) -> list[dict[str, Any]]:
    """Return the requests of the conversation that begin with a summary."""
    return [one for one in server.requests if "compaction" not in one and one["messages"][0]["role"] == "assistant"]


def check_long_run(server: MessagesServer, heard: Heard) -> None:
    """Check that the provider compacted, and that it neither refused anything nor lost thinking of kept turns."""
    assert (server.refusals, server.calls_without_thinking) == ([], set())
    assert {one.method for one in heard.decisions(Compacted)} == {"provider"}
    assert (heard.decisions(ThinkingDropped), heard.fallbacks) == ([], [])
    for request in (later := after_summary(server)):
        replies = [one["content"] for one in request["messages"][1:] if one["role"] == "assistant"]
        assert replies
        assert all("thinking" in blocks[0]["type"] for blocks in replies)
    assert later


@pytest.mark.slow
@pytest.mark.requirement("V2", "V4", "V5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_long_loop_is_compacted_by_the_provider_and_never_refused(stream: bool) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        with sync_session(opened()) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)), stream=stream)
            for number in range(6):
                host.ask(f"Prompt {number}: read on.")
                wait_for(lambda: not summary_threads())  # a person reads the answer meanwhile
        check_long_run(server, heard)
    assert summary_threads() == []


@pytest.mark.slow
@pytest.mark.requirement("V2", "V4", "V5")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_so_is_a_long_loop_of_an_asynchronous_client(stream: bool, anyio_backend: str) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        async with opened() as session, async_client(server) as bare:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)), stream=stream)
            for number in range(6):
                await host.aask(f"Prompt {number}: read on.")
        check_long_run(server, heard)


def until_asked(host: Host, server: MessagesServer) -> None:
    """Go on until a summary was asked for."""
    for number in range(20):
        if any("compaction" in one for one in server.requests):
            return
        host.ask(f"Prompt {number}: read on.")
    raise AssertionError("no summary was asked for")


@contextmanager
def held_summary() -> Iterator[tuple[MessagesServer, Any, Host, Heard, Session]]:
    """Yield a conversation whose summary the provider writes until its gate is opened."""
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        gate = server.hold_stream()
        with sync_session(opened()) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)))
            until_asked(host, server)
            yield server, gate, host, heard, session


@pytest.mark.slow
@pytest.mark.requirement("V5")
def test_replies_do_not_wait_for_the_summary_and_the_next_request_after_it_uses_it() -> None:
    with held_summary() as (server, gate, host, heard, _):
        sent = len(server.requests)
        host.messages.append({"role": "user", "content": "Meanwhile: is it done?"})
        host.results(host._send())
        assert len(server.requests) == sent + 1  # and no second request for a summary
        assert (heard.decisions(CompactionPrepared), after_summary(server)) == ([], [])
        gate.open()
        wait_for(lambda: heard.decisions(CompactionPrepared))
        host.results(host._send()) if host.messages[-1]["role"] == "user" else host.ask("Go on.")
        assert "Meanwhile: is it done?" in repr(after_summary(server)[0]["messages"])
        check_long_run(server, heard)


@pytest.mark.slow
@pytest.mark.requirement("V5")
@pytest.mark.parametrize("waits", [True, False], ids=["as it is", "without the wait"])
def test_a_full_window_waits_for_the_summary_that_is_on_its_way(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        gate, real = server.hold_stream(), BackgroundCompaction.wait

        async def wait(self: BackgroundCompaction, seconds: float) -> None:
            if waits:
                gate.open()
                await real(self, seconds)

        monkeypatch.setattr(BackgroundCompaction, "wait", wait)
        with sync_session(opened(trim=TrimPolicy(mode="off"))) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)))
            for number in range(3):
                host.ask(f"Prompt {number}: read on.")
            assert gate.is_open is waits
            gate.open()
        assert server.refusals == []
        assert ("provider" in {one.method for one in heard.decisions(Compacted)}) is waits
        assert bool(heard.decisions(ThinkingDropped)) is not waits


@pytest.mark.slow
@pytest.mark.requirement("V5")
def test_a_client_and_a_session_that_close_leave_no_thread_behind() -> None:
    with held_summary() as (_, gate, _, heard, _):
        pass
    gate.open()
    wait_for(lambda: not summary_threads())
    assert (heard.decisions(CompactionFailed), heard.fallbacks) == ([], [])


@pytest.mark.slow
@pytest.mark.requirement("V5")
async def test_nor_a_task(anyio_backend: str) -> None:
    import asyncio

    before = asyncio.all_tasks()
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        gate = server.hold_stream()
        async with async_client(server) as bare:
            async with opened() as session:
                heard = Heard(session)
                host = Host(bare.with_middleware(reverie_middleware(session)))
                for number in range(20):
                    await host.aask(f"Prompt {number}: read on.")
                    if any("compaction" in one for one in server.requests):
                        break
                assert len(asyncio.all_tasks() - before) == 1
            await await_for(lambda: asyncio.all_tasks() == before)
        gate.open()
    assert (heard.decisions(CompactionPrepared), heard.fallbacks) == ([], [])


PROGRAM = """
import anthropic
from test_anthropic_thinking import Host, opened, reverie_middleware, sync_session, until_asked

class Sent:
    requests = []

def seen(request, call_next):
    Sent.requests.append(request.json)
    return call_next(request)

with sync_session(opened()) as session:
    chain = [reverie_middleware(session), seen]
    until_asked(Host(anthropic.Anthropic(base_url={url!r}, api_key="any", middleware=chain)), Sent)
"""


@pytest.mark.slow
@pytest.mark.requirement("V5")
def test_a_program_ends_while_a_summary_is_being_written(tmp_path: Path) -> None:
    here = Path(__file__).parent
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server:
        gate = server.hold_stream()
        paths = os.pathsep.join(map(str, (here, here.parent / "support")))
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(url=server.base_url)],
            env={**os.environ, "PYTHONPATH": paths},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        gate.open()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class LostConnection(Middleware):
    """Loses the connection of every request for a summary."""

    def handle(self, request: Any, call_next: Any) -> Any:
        if "compaction" in request.json:
            raise anthropic.APIConnectionError(message="no way", request=httpx2.Request("POST", "http://nowhere"))
        return call_next(request)


@pytest.mark.slow
@pytest.mark.requirement("V5")
def test_a_summary_that_fails_is_an_event_and_the_conversation_goes_on() -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        with sync_session(opened()) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session), LostConnection()))
            for number in range(6):
                host.ask(f"Prompt {number}: read on.")
                wait_for(lambda: not summary_threads())
        assert server.refusals == []
        assert 1 <= len(heard.decisions(CompactionFailed)) <= 4  # the breaker stops further tries
        assert "compact in the background: the request failed: no way" in heard.fallbacks


BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
IMAGE = "messages.0.content.1.image.source.base64.data: Could not process image"


@pytest.mark.requirement("V2", "V8")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_refused_thinking_and_refused_images_are_repaired_and_sent_again(stream: bool) -> None:
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        with sync_session(opened()) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)), stream=stream)
            host.messages.append(
                {"role": "user", "content": [{"type": "text", "text": "Look."}, image_block(png(9, 9))]}
            )
            host.results(host._send())
            server.fail(400, message=BOUND)
            host.results(host._send())
            assert server.requests[-1]["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
            server.fail(400, message=IMAGE)
            host.results(host._send())
            assert '"image"' not in repr(server.requests[-1]["messages"]).replace("'", '"')
        assert [message for _, message in server.refusals] == [BOUND, IMAGE]
        assert [one.split(":")[0] for one in heard.fallbacks] == ["thinking", "images", "thinking"]
        assert len(heard.decisions(ThinkingDropped)) == 1  # the image came before all thinking


@pytest.mark.requirement("V2", "V6")
@pytest.mark.parametrize("names_betas", [True, False], ids=["as it is", "without the betas"])
def test_changed_prompts_and_new_tools_are_told_at_the_end(names_betas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not names_betas:
        real = anthropic_wire.with_body
        monkeypatch.setattr(
            integration, "with_body", lambda request, sent: real(request, {**sent, "extra_headers": {}})
        )
    with MessagesServer(ThinkingModel(READS).reply, preserved_thinking="error") as server, sync_client(server) as bare:
        with sync_session(opened()) as session:
            heard = Heard(session)
            host = Host(bare.with_middleware(reverie_middleware(session)))
            host.ask("One.")
            host.asked["system"] = "Be brief.\nAnswer in French."
            host.asked["tools"] = [READ, {**READ, "name": "Write"}]
            if names_betas:
                host.ask("Two.")
            else:
                with pytest.raises(anthropic.BadRequestError):  # the host's own request changes the prefix
                    host.ask("Two.")
        last = server.requests[-1]
        assert bool(server.refusals) is not names_betas
        assert ("French" in repr(last["system"])) is not names_betas
        assert ("tool_addition" in repr(last["messages"])) is names_betas
        assert heard.decisions(ThinkingDropped) == []
