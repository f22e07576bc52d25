"""The gateway records sessions as foreign ones, with their bill, and never a credential."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reverie import FileStorage, Library
from reverie.conversation.decisions import CallRecorded, PrefixRendered, decision_of
from reverie.conversation.entries import ASSISTANT, DECISION, Entry
from reverie.runtime.session.ledger import LedgerStore
from reverie.servers.gateway import recorder
from reverie.servers.gateway.exchange import SeenExchange
from reverie.servers.gateway.recorder import Recorder
from reverie.settings import Settings, load_settings
from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer

MODEL = "claude-sonnet-4-5"
TOOLS = [{"name": "Bash", "input_schema": {"type": "object"}}]
CANARY = "sk-canary-0f9e8d7c6b5a49382716"
WAIT_SECONDS = 30.0
Message = dict[str, Any]


class Seen:
    """A recorder in a home, and exchanges made by hand."""

    def __init__(self, home: Path) -> None:
        self.home, self.told = home, list[str]()
        self.recorder = Recorder(Settings(home=home), self.told.append)
        self.at = 1_790_000_000.0

    def ask(
        self, messages: list[Message], reply: str, api: str = "messages", tools: Any = TOOLS, **headers: str
    ) -> str | None:
        self.at += 5
        body = {"model": MODEL, "max_tokens": 10, "system": "You help.", "tools": tools, "messages": messages}
        answer = {
            "id": f"msg_{self.at:.0f}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [{"type": "text", "text": reply}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 5},
        }
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.recorder.take(
            SeenExchange(
                api,
                self.at,
                200,
                True,
                named,
                {"content-type": "application/json"},
                json.dumps(body).encode(),
                json.dumps(answer).encode(),
            )
        )

    def texts(self, key: str | None) -> list[str]:
        assert key is not None
        view = Library(FileStorage(self.home)).view(key)
        return [text_of(message) for message in view.messages()]

    def entries(self, key: str | None) -> list[Entry]:
        assert key is not None
        return list(Library(FileStorage(self.home)).load(key).entries)

    def restart(self) -> None:
        self.recorder.__exit__(None, None, None)
        self.recorder = Recorder(Settings(home=self.home), self.told.append)


def text_of(message: Message) -> str:
    content = message["content"]
    return (
        content if isinstance(content, str) else " ".join(str(block.get("text") or block["type"]) for block in content)
    )


@pytest.fixture
def seen(home: Path) -> Iterator[Seen]:
    made = Seen(home)
    yield made
    made.recorder.__exit__(None, None, None)


def said(*texts: str) -> list[Message]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


@pytest.mark.requirement("G2")
def test_requests_with_one_session_header_are_one_session_with_its_bill(seen: Seen) -> None:
    first = seen.ask(said("one"), "two", x_claude_code_session_id="s-1")
    second = seen.ask(said("one", "two", "three"), "four", x_claude_code_session_id="s-1")
    assert first == second
    assert first is not None
    assert first.endswith("/gateway-s-1.jsonl")
    assert seen.texts(first) == ["one", "two", "three", "four"]
    entries = seen.entries(first)
    assert all(entry.imported for entry in entries)
    decisions = [decision_of(entry.body) for entry in entries if entry.kind == DECISION]
    assert [type(one) for one in decisions] == [PrefixRendered, CallRecorded, CallRecorded]
    with LedgerStore(seen.home) as ledger:
        totals = ledger.by("session")["gateway-s-1"]
    assert (totals.calls, totals.actual.read) == (2, 1_800)
    assert totals.usd > 0
    assert seen.told == []


@pytest.mark.requirement("G2")
def test_without_a_header_a_request_that_has_the_last_one_whole_goes_on_with_it(seen: Seen) -> None:
    first = seen.ask(said("one"), "two")
    assert seen.ask(said("one", "two", "three"), "four") == first
    again = seen.ask(said("one"), "another start with the same words")
    assert again != first
    seen.restart()
    assert seen.ask(said("one", "two", "three", "four", "five"), "six") == first
    assert seen.texts(first) == ["one", "two", "three", "four", "five", "six"]


@pytest.mark.requirement("G2")
def test_only_the_sessions_used_last_stay_in_memory_and_others_go_on_from_their_logs(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_MAX_SESSIONS", 2)
    keys = [seen.ask(said(f"one {name}"), "two", x_session_id=name) for name in "abcd"]
    unnamed = seen.ask(said("hello"), "two")
    assert len(seen.recorder._known) == len(seen.recorder._accounts) == 2
    assert seen.ask(said("one a", "two", "three"), "four", x_session_id="a") == keys[0]
    assert seen.texts(keys[0]) == ["one a", "two", "three", "four"]
    assert seen.ask(said("one b"), "two", x_session_id="b") == keys[1]
    assert seen.ask(said("hello", "two", "three"), "four") == unnamed
    assert seen.texts(unnamed) == ["hello", "two", "three", "four"]
    assert len(seen.recorder._known) == len(seen.recorder._accounts) == 2


@pytest.mark.requirement("G2")
def test_forks_and_sub_agents_are_agents_of_their_session(seen: Seen) -> None:
    main = seen.ask(said("one", "two", "three"), "four")
    fork = seen.ask(said("one", "two", "another way"), "its reply")
    assert fork is not None
    assert main is not None
    assert fork == f"{main.removesuffix('.jsonl')}.agent-1.jsonl"
    title = seen.ask(said("give a title"), "A title", tools=[], x_session_id="s")
    assert title is None  # it waits for the main conversation, which names the project
    main = seen.ask(said("one"), "two", x_session_id="s")
    agent = seen.ask(said("do a part"), "done", x_session_id="s", tools=[{**TOOLS[0], "name": "Read"}])
    child = seen.ask(said("a child session"), "done", x_session_id="child", x_parent_session_id="s")
    assert Library(FileStorage(seen.home)).recorded_agents(str(main)) == sorted(
        [f"{str(main).removesuffix('.jsonl')}.agent-{name}.jsonl" for name in ("1", "2", "child")]
    )
    assert {agent, child} < set(Library(FileStorage(seen.home)).recorded_agents(str(main)))


@pytest.mark.requirement("G2")
def test_messages_that_a_client_replaces_leave_the_view_and_stay_in_the_log(seen: Seen) -> None:
    key = seen.ask(said("one", "two", "three"), "four", x_session_id="s")
    seen.ask(said("a summary of the past"), "go on", x_session_id="s")
    assert seen.texts(key) == ["a summary of the past", "go on"]
    assert {"one", "two", "three", "four"} < {text_of(one.message) for one in seen.entries(key) if one.message}


def test_a_reply_is_known_again_when_the_client_sends_it_without_its_thinking(seen: Seen) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    key = seen.ask(said("one"), "two", x_session_id="s")
    back = [
        *said("one"),
        {"role": "assistant", "content": [{"type": "text", "text": "two ", "cache_control": {"type": "ephemeral"}}]},
    ]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a file"}
    seen.ask([*back, *said("three")], "four", x_session_id="s")
    assert len([entry for entry in seen.entries(key) if entry.kind == ASSISTANT]) == 2
    seen.ask(
        [*back, *said("three"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}],
        "five",
        x_session_id="s",
    )
    assert seen.texts(key)[-3:] == ["tool_use", "tool_result", "five"]


@pytest.mark.parametrize("shape", ["chat", "responses"])
@pytest.mark.requirement("G2")
def test_the_other_apis_are_recorded_too(shape: str, home: Path, gateway: Callable[..., Any]) -> None:
    server = ChatServer(lambda body: [{"type": "text", "text": "Hello."}])
    with server, gateway(server.base_url.removesuffix("/v1")) as world:
        for words in (["hi"], ["hi", "Hello.", "more"]):
            said_so = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(words)]
            body = (
                {"model": "gpt-4.1", "messages": said_so} if shape == "chat" else {"model": "gpt-5", "input": said_so}
            )
            path = "/v1/chat/completions" if shape == "chat" else "/v1/responses"
            world.post(path, {**body, "stream": True}, {"authorization": f"Bearer {CANARY}", "session-id": "s-9"})
        key = world.recorded("gateway-s-9", 4)
    assert [text_of(one).split()[-1] for one in Library(FileStorage(home)).view(key).messages()] == [
        "hi",
        "Hello.",
        "more",
        "Hello.",
    ]


# -- the process


class World:
    """A running gateway."""

    def __init__(self, url: str, home: Path, process: subprocess.Popen[str]) -> None:
        self.url, self.home, self.process = url, home, process

    def post(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def recorded(self, name: str, messages: int) -> str:
        """Wait until a session has so many messages and return its key."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            library = Library(FileStorage(self.home))
            for key in sorted(library.keys()):
                if key.endswith(f"/{name}.jsonl") and len(library.view(key).messages()) == messages:
                    return key
            time.sleep(0.05)
        raise AssertionError(f"{name} was not recorded")


@pytest.fixture
def gateway(home: Path, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def start(upstream: str, *more: str, shell: str = "") -> Iterator[World]:
        env = {**os.environ, "REVERIE_HOME": str(load_settings().home)}
        words = [sys.executable, "-m", "reverie", "gateway", "--port", "0", "--json", "--upstream", upstream, *more]
        with open(tmp_path / "gateway.err", "w") as errors:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        assert process.stdout is not None
        try:
            yield World(json.loads(process.stdout.readline())["url"], home, process)
        finally:
            process.terminate()
            process.wait(WAIT_SECONDS)
            process.stdout.close()

    return start


def ask(world: World, *words: str, key: str = CANARY, **more: Any) -> tuple[int, bytes]:
    body = {"model": MODEL, "max_tokens": 100, "tools": TOOLS, "messages": said(*words), **more}
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01", "x-claude-code-session-id": "s-1"}
    return world.post(f"/v1/messages?key={key}", body, headers)


@pytest.mark.slow
@pytest.mark.requirement("G2", "G5")
def test_a_running_gateway_records_live_and_no_file_holds_a_key(
    home: Path, tmp_path: Path, gateway: Callable[..., Any]
) -> None:
    with MessagesServer(lambda body: f"You sent {CANARY}.") as server, gateway(server.base_url) as world:
        assert ask(world, "one")[0] == 200
        reply = f"You sent {CANARY}."
        status, body = ask(world, "one", reply, f"what is {CANARY}?", stream=True)
        assert status == 200
        assert b"message_stop" in body
        world.recorded("gateway-s-1", 4)
        server.fail(401, message=f"invalid key {CANARY}")
        assert ask(world, "one", reply, "more")[0] == 401
        bearer = {"authorization": f"Bearer {CANARY}", "anthropic-version": "2023-06-01"}
        world.post("/v1/messages/count_tokens", {"model": MODEL, "messages": said("x")}, bearer)
    files = [path for path in [*home.rglob("*"), tmp_path / "gateway.err"] if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in files)
    assert any(path.name == "ledger.sqlite" for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


def test_a_recorder_that_is_not_told_the_key_would_record_it(seen: Seen) -> None:
    key = seen.ask(said(f"my key is {CANARY}"), "ok")
    assert CANARY in (seen.home / str(key)).read_text()


@pytest.mark.slow
@pytest.mark.requirement("G1")
@pytest.mark.parametrize("trouble", ["no space", "locked ledger", "broken store"])
def test_requests_pass_when_nothing_can_be_recorded(
    trouble: str, home: Path, tmp_path: Path, gateway: Callable[..., Any]
) -> None:
    home.mkdir(parents=True, exist_ok=True)
    locked = None
    if trouble == "locked ledger":
        LedgerStore(home).by("session")
        locked = sqlite3.connect(home / "ledger.sqlite")
        locked.execute("BEGIN EXCLUSIVE")
    elif trouble == "broken store":
        (home / "projects").write_text("a file where a folder should be")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)); " if trouble == "no space" else ""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import os, sys\nif 'record' in sys.orig_argv: {limit or 'pass'}\n")
    os.environ["PYTHONPATH"] = str(site)
    try:
        with MessagesServer(lambda body: "Hello.") as server, gateway(server.base_url) as world:
            for _ in range(5):
                status, body = ask(world, "one")
                assert (status, b"Hello." in body) == (200, True)
            assert len(server.requests) == 5
            why = {"no space": "File too large", "locked ledger": "database is locked", "broken store": "projects"}
            deadline = time.monotonic() + WAIT_SECONDS
            while why[trouble] not in (told := (tmp_path / "gateway.err").read_text()) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert why[trouble] in told
            if locked is not None:
                locked.close()
    finally:
        del os.environ["PYTHONPATH"]


@pytest.mark.slow
def test_requests_pass_while_the_recorder_is_dead(home: Path, gateway: Callable[..., Any]) -> None:
    with MessagesServer(lambda body: "Hello.") as server, gateway(server.base_url) as world:
        ask(world, "one")
        world.recorded("gateway-s-1", 2)
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(world.process.pid)], capture_output=True, text=True)
        os.kill(int(found.stdout.split()[0]), 9)
        assert ask(world, "one", "Hello.", "two")[0] == 200
        assert ask(world, "one", "Hello.", "two", "Hello.", "three")[0] == 200


def test_compressed_replies_are_read(seen: Seen) -> None:
    body = json.dumps({"model": MODEL, "messages": said("one")}).encode()
    answer = {"type": "message", "id": "m", "content": [{"type": "text", "text": "two"}], "stop_reason": "end_turn"}
    key = seen.recorder.take(
        SeenExchange(
            "messages",
            1.0,
            200,
            True,
            {"content-encoding": "gzip"},
            {"content-encoding": "gzip"},
            gzip.compress(body),
            gzip.compress(json.dumps(answer).encode()),
        )
    )
    assert seen.texts(key) == ["one", "two"]
    seen.recorder.take(SeenExchange("messages", 1.0, 200, True, {"content-encoding": "odd"}, {}, body, b""))
    assert "its encoding 'odd' is unknown" in seen.told[0]


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_reply_that_unpacks_to_too_much_takes_no_more_memory_than_allowed(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    monkeypatch.setattr("reverie.servers.gateway.content.MAX_DECODED_BYTES", 100_000)
    pack = gzip.compress if coding == "gzip" else pytest.importorskip("zstandard").compress
    body, bomb = json.dumps({"model": MODEL, "messages": said("one")}).encode(), pack(bytes(50_000_000))
    tracemalloc.start()
    try:
        seen.recorder.take(SeenExchange("messages", 1.0, 200, True, {}, {"content-encoding": coding}, body, bomb))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_stream_that_breaks_off_is_recorded_as_far_as_it_came(seen: Seen) -> None:
    events = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": MODEL,
                "usage": {"input_tokens": 9},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half a re"}},
    ]
    stream = b"".join(b"event: x\ndata: " + json.dumps(one).encode() + b"\n\n" for one in events)
    body = json.dumps({"model": MODEL, "messages": said("one")}).encode()
    key = seen.recorder.take(
        SeenExchange(
            "messages", 1.0, 200, False, {}, {"content-type": "text/event-stream"}, body, stream + b"event: cut"
        )
    )
    assert seen.texts(key) == ["one", "half a re"]
