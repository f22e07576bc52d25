"""The agent over the Agent Client Protocol, driven by the protocol package's own client over real pipes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

acp = pytest.importorskip("acp", reason="the extra acp is not installed")

from acp.client.connection import ClientSideConnection  # noqa: E402
from acp.exceptions import RequestError  # noqa: E402
from acp.helpers import audio_block, image_block, resource_link_block, text_block  # noqa: E402
from acp.schema import (  # noqa: E402
    AllowedOutcome,
    DeniedOutcome,
    EmbeddedResourceContentBlock,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    McpServerStdio,
    RequestPermissionResponse,
    SseMcpServer,
    TextResourceContents,
)
from acp.stdio import spawn_agent_process  # noqa: E402

from reverie.cli.hosts.acp import EditorCommands  # noqa: E402
from reverie.cli.terminal.calls import call_title  # noqa: E402
from reverie.cli.terminal.sessions import remove_if_unused  # noqa: E402
from reverie.errors import InputError  # noqa: E402
from reverie.servers.acp.content import prompt_of, servers_of  # noqa: E402
from reverie.servers.acp.editor_session import EditorSession  # noqa: E402
from reverie.servers.acp.server import AcpServer, ServerOptions, serve  # noqa: E402
from reverie.servers.acp.transport import LineTransport  # noqa: E402
from reverie.settings.records import McpServer  # noqa: E402
from reverie.testing.messages_server import MessagesServer  # noqa: E402

MODEL = "anthropic:claude-sonnet-5"
COMMAND = (sys.executable, "-m", "reverie", "acp", "--model", MODEL)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
STEPS = [{"content": "Look", "status": "completed"}, {"content": "Mend", "status": "in_progress"}]
BOUND_SECONDS = 300

pytestmark = [pytest.mark.slow, pytest.mark.requirement("H4")]


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def answering(request: dict[str, Any]) -> Any:
    """Answer like a model that has one trick for each prompt."""
    content = request["messages"][-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if any(block["type"] == "tool_result" for block in blocks):
        return "Done."
    said = "\n".join(block.get("text", "") for block in blocks)
    if "call [" in said:
        calls, _ = json.JSONDecoder().raw_decode(said, said.index("call [") + len("call "))
        return [use(each["name"], **each["input"]) for each in calls]
    if "write it" in said:
        return [{"type": "text", "text": "I write."}, use("Write", file_path="note.txt", content="new\n")]
    if "edit it" in said:
        return [use("Read", file_path="old.txt"), use("Edit", file_path="old.txt", old_string="one", new_string="two")]
    if "plan it" in said:
        return [use("TodoWrite", todos=STEPS)]
    if "sleep" in said:
        return [use("Bash", command="sleep 600; touch never")]
    return f"I saw {sum(block['type'] == 'image' for block in blocks)} images."


class Editor:
    """An editor that records all updates and answers every question in the same way."""

    def __init__(self, answer: str = "once") -> None:
        self.answer = answer
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[Any, list[Any]]] = []
        self.seen = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.seen.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, options))
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    def of(self, kind: str, session: str = "") -> list[Any]:
        return [one for name, one in self.updates if one.session_update == kind and session in ("", name)]

    def said(self, session: str = "", kind: str = "agent_message_chunk") -> str:
        return "".join(one.content.text for one in self.of(kind, session))

    async def until(self, is_true: Callable[[], object]) -> None:
        while not is_true():
            self.seen.clear()
            await asyncio.wait_for(self.seen.wait(), BOUND_SECONDS)


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    with MessagesServer(answering) as running:
        yield running
        assert running.errors == []


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "old.txt").write_text("one\n")
    return folder


@pytest.fixture
def environment(server: MessagesServer, home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "ANTHROPIC_BASE_URL": server.base_url,
        "ANTHROPIC_API_KEY": "a key of the tests",
        "REVERIE_HOME": str(home),
        "REVERIE_SWITCH_EXTRACTION": "off",
    }


Connected = Callable[[Editor], Any]


async def introduced(agent: Any) -> None:
    found = await agent.initialize(protocol_version=1)
    assert found.protocol_version == 1
    assert found.agent_info.name == "reverie"
    assert found.agent_capabilities.load_session
    assert found.agent_capabilities.prompt_capabilities.image


@pytest.fixture
def spawned(environment: dict[str, str]) -> Connected:
    """Return a context that starts ``reverie acp`` and yields the package's own connection over its pipes."""

    @asynccontextmanager
    async def start(editor: Editor) -> AsyncGenerator[Any]:
        waits = {"limit": 1 << 24, "shutdown_timeout": BOUND_SECONDS}
        async with spawn_agent_process(
            cast(Any, editor), *COMMAND, env=environment, use_unstable_protocol=True, transport_kwargs=waits
        ) as (agent, process):
            await introduced(agent)
            yield agent
        assert process.returncode == 0  # the end of its input ends it, and no error does

    return start


@pytest.fixture
def connected(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Connected:
    """Return a context that yields the package's own connection to a server in this process, over a socket."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    @asynccontextmanager
    async def start(editor: Editor, model: str | None = MODEL) -> AsyncGenerator[Any]:
        ours, theirs = socket.socketpair()
        transport = LineTransport(*await asyncio.open_connection(sock=ours))
        reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 24)
        server = AcpServer(ServerOptions(model), title=call_title, commands=EditorCommands(), on_close=remove_if_unused)
        serving = asyncio.create_task(serve(server, transport))
        agent = ClientSideConnection(cast(Any, editor), writer, reader, use_unstable_protocol=True)
        try:
            await introduced(agent)
            yield agent
        finally:
            await agent.close()
            writer.close()
            await serving

    return start


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, BOUND_SECONDS))


def test_a_session_is_made_prompted_closed_and_resumed(spawned: Connected, place: Path) -> None:
    async def first(editor: Editor) -> str:
        async with spawned(editor) as agent:
            made = await agent.new_session(cwd=str(place), mcp_servers=[])
            assert made.modes.current_mode_id == "default"
            await editor.until(lambda: editor.of("available_commands_update"))
            names = {one.name for one in editor.of("available_commands_update")[0].available_commands}
            assert {"compact", "context", "memory"} <= names
            assert not {"quit", "vim"} & names
            ended = await agent.prompt(session_id=made.session_id, prompt=[text_block("write it")])
            assert ended.stop_reason == "end_turn"
            assert editor.said() == "I write.Done."
            assert (place / "note.txt").read_text() == "new\n"
            sleeping = asyncio.create_task(agent.prompt(session_id=made.session_id, prompt=[text_block("sleep")]))
            await editor.until(lambda: editor.of("tool_call_update")[-1].status == "in_progress")
            await agent.cancel(session_id=made.session_id)
            assert (await sleeping).stop_reason == "cancelled"
            await agent.close_session(session_id=made.session_id)
            with pytest.raises(RequestError, match="is open: send session/new or session/load"):
                await agent.prompt(session_id=made.session_id, prompt=[text_block("hello")])
            return made.session_id

    async def steps() -> None:
        editor = Editor()
        name = await first(editor)
        (asked, options), (command, _) = editor.asked
        assert command.kind == "execute"
        assert asked.content[0].type == "diff"
        assert (asked.content[0].path, asked.content[0].new_text) == (str(place / "note.txt"), "new\n")
        assert [one.kind for one in options] == ["allow_once", "allow_always", "allow_always", "reject_once"]
        usage = editor.of("usage_update")
        assert len(usage) >= 3  # one for each of the two replies, and one at the end of the turn
        assert usage[-1].used > 0
        assert usage[-1].size >= 200_000
        assert usage[-1].cost.amount > 0
        assert usage[-1].cost.currency == "USD"
        calls = [one for _, one in editor.updates if getattr(one, "tool_call_id", "") == asked.tool_call_id]
        assert [one.status for one in calls] == ["pending", "in_progress", "completed"]
        again = Editor()
        async with spawned(again) as agent:
            listed = await agent.list_sessions(cwd=str(place))
            assert [one.session_id for one in listed.sessions] == [name]
            await agent.load_session(cwd=str(place), session_id=name, mcp_servers=[])
            assert again.said(kind="user_message_chunk").startswith("write itsleep")
            assert again.said() == "I write.Done."
            assert again.of("tool_call_update")[0].status == "completed"
            assert again.of("usage_update")[-1].cost.amount == pytest.approx(usage[-1].cost.amount)
            ended = await agent.prompt(session_id=name, prompt=[text_block("look"), image_block(PIXEL, "image/png")])
            assert ended.stop_reason == "end_turn"
            assert again.said() == "I write.Done.Done."
            await agent.close_session(session_id=name)
            quiet = len(again.updates)
            await agent.resume_session(cwd=str(place), session_id=name, mcp_servers=[])
            kinds = {one.session_update for _, one in again.updates[quiet:]}
            assert kinds == {"available_commands_update", "usage_update"}  # the editor has the conversation

    run(steps())


@pytest.mark.parametrize("answer", ["no", "cancelled", "nonsense"])
def test_a_refused_call_fails_and_changes_nothing(connected: Connected, place: Path, answer: str) -> None:
    async def steps() -> None:
        editor = Editor(answer)
        async with connected(editor) as agent:
            made = await agent.new_session(cwd=str(place), mcp_servers=[])
            ended = await agent.prompt(session_id=made.session_id, prompt=[text_block("write it")])
            assert ended.stop_reason == "end_turn"
            assert editor.of("tool_call_update")[-1].status == "failed"
            assert not (place / "note.txt").exists()

    run(steps())


def test_edits_show_the_passage_steps_become_a_plan_and_modes_are_told(connected: Connected, place: Path) -> None:
    async def steps() -> None:
        editor = Editor("always-0-session")
        async with connected(editor) as agent:
            made = await agent.new_session(cwd=str(place), mcp_servers=[])
            name = made.session_id
            with pytest.raises(RequestError, match="there is no mode 'wild': the modes are default"):
                await agent.set_session_mode(session_id=name, mode_id="wild")
            await agent.set_session_mode(session_id=name, mode_id="accept-edits")
            assert editor.of("current_mode_update")[-1].current_mode_id == "accept-edits"
            await agent.prompt(session_id=name, prompt=[text_block("edit it")])
            assert (place / "old.txt").read_text() == "two\n"
            assert editor.asked == []
            read, edit = editor.of("tool_call")
            assert (read.kind, edit.kind) == ("read", "edit")
            assert edit.locations[0].path == str(place / "old.txt")
            assert (edit.content[0].old_text, edit.content[0].new_text) == ("one", "two")
            await agent.prompt(session_id=name, prompt=[text_block("plan it")])
            [plan] = editor.of("plan")
            assert [(one.content, one.status) for one in plan.entries] == [
                ("Look", "completed"),
                ("Mend", "in_progress"),
            ]

    run(steps())


def test_a_cancel_ends_the_turn_and_two_sessions_work_at_once(
    connected: Connected, server: MessagesServer, place: Path, tmp_path: Path
) -> None:
    async def steps() -> None:
        editor = Editor("once")
        async with connected(editor) as agent:
            one = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            two = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            sleeping = asyncio.create_task(agent.prompt(session_id=one, prompt=[text_block("sleep")]))
            await editor.until(lambda: any(each.status == "in_progress" for each in editor.of("tool_call_update", one)))
            with pytest.raises(RequestError, match="this session is answering a prompt"):
                await agent.prompt(session_id=one, prompt=[text_block("and me")])
            other = await agent.prompt(session_id=two, prompt=[text_block("hello")])
            assert (other.stop_reason, editor.said(two)) == ("end_turn", "I saw 0 images.")
            await agent.cancel(session_id=one)
            await agent.cancel(session_id="nobody")  # changes nothing
            assert (await sleeping).stop_reason == "cancelled"
            after = await agent.prompt(session_id=one, prompt=[text_block("hello")])
            assert after.stop_reason == "end_turn"
            assert editor.said(one) == "Done."

    run(steps())


def test_each_turn_ends_with_its_usage(connected: Connected, place: Path) -> None:
    async def steps() -> None:
        editor = Editor()
        async with connected(editor) as agent:
            name = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            await editor.until(lambda: editor.of("usage_update"))
            for text in ("hello", "write it", "/todos", "edit it", "sleep"):
                before = len(editor.updates)
                turn = asyncio.create_task(agent.prompt(session_id=name, prompt=[text_block(text)]))
                if text == "sleep":
                    await editor.until(lambda: editor.of("tool_call_update")[-1].status == "in_progress")
                    await agent.cancel(session_id=name)
                await turn
                new = [one for _, one in editor.updates[before:]]
                assert new[-1].session_update == "usage_update"
                assert new[-1].size >= 200_000

    run(steps())


def test_a_turn_without_its_usage_is_found_out(
    connected: Connected, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = EditorSession._put
    monkeypatch.setattr(
        EditorSession,
        "_put",
        lambda self, *updates: put(self, *(one for one in updates if len(updates) > 1 or not is_usage(one))),
    )
    with pytest.raises(AssertionError):
        test_each_turn_ends_with_its_usage(connected, place)


def is_usage(update: Any) -> bool:
    return update.session_update == "usage_update"


def test_a_cancel_while_the_user_is_asked_runs_nothing(connected: Connected, place: Path) -> None:
    class Undecided(Editor):
        """An editor whose user is asked and does not answer."""

        async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
            self.asked.append((tool_call, options))
            self.seen.set()
            await asyncio.Event().wait()

    async def steps() -> None:
        editor = Undecided()
        async with connected(editor) as agent:
            name = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            asking = asyncio.create_task(agent.prompt(session_id=name, prompt=[text_block("write it")]))
            await editor.until(lambda: editor.asked)
            await agent.cancel(session_id=name)
            assert (await asking).stop_reason == "cancelled"
            assert not (place / "note.txt").exists()

    run(steps())


def test_prompts_and_servers_of_an_editor_have_a_form_here() -> None:
    link = resource_link_block("a b", "file:///tmp/a%20b.txt")
    text = EmbeddedResourceContentBlock(
        type="resource", resource=TextResourceContents(uri="file:///c.py", text="x = 1")
    )
    found = prompt_of([text_block("see"), link, text, image_block(PIXEL, "image/png")])
    assert (found.text, found.files) == ("see", ["/tmp/a b.txt"])
    assert [one["type"] for one in found.blocks] == ["text", "text", "text", "image"]
    assert found.blocks[2]["text"] == "/c.py:\n```\nx = 1\n```"
    assert prompt_of([resource_link_block("web", "https://a.b/c")]).files == []
    for bad, why in (([audio_block("", "audio/wav")], "audio is not supported"), ([text_block(" ")], "is empty")):
        with pytest.raises(InputError, match=why):
            prompt_of(bad)
    local = McpServerStdio(name="my tools", command="/bin/x", args=["-y"], env=[EnvVariable(name="A", value="b")])
    remote = HttpMcpServer(type="http", name="far", url="https://a.b", headers=[HttpHeader(name="K", value="v")])
    servers = servers_of([local, remote])
    assert servers["my-tools"] == McpServer(command="/bin/x", args=("-y",), env={"A": "b"})
    assert servers["far"] == McpServer(url="https://a.b", headers={"K": "v"})
    with pytest.raises(InputError, match="must use stdio or HTTP"):
        servers_of([SseMcpServer(type="sse", name="old", url="https://a.b", headers=[])])


def test_slash_commands_files_and_the_users_own_commands(
    connected: Connected, server: MessagesServer, place: Path, home: Path
) -> None:
    (home / "commands").mkdir()
    (home / "commands" / "greet.md").write_text("Say hello to $1.\n")

    async def steps() -> None:
        editor = Editor()
        async with connected(editor) as agent:
            unused = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            await agent.close_session(session_id=unused)
            with pytest.raises(RequestError, match="has no session"):  # nothing was said in it
                await agent.load_session(cwd=str(place), session_id=unused, mcp_servers=[])
            name = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            await agent.prompt(session_id=name, prompt=[text_block("/todos")])
            assert "the todo list is empty" in editor.said()
            await agent.prompt(session_id=name, prompt=[text_block("look"), image_block(PIXEL, "image/png")])
            assert editor.said().endswith("I saw 1 images.")
            server.requests.clear()
            await agent.prompt(session_id=name, prompt=[text_block("/rules add Never use tabs")])
            assert "holds from now on" in editor.said()
            assert server.requests == []  # no model was asked
            await agent.prompt(session_id=name, prompt=[text_block("/greet Ann")])
            assert "Say hello to Ann." in json.dumps(server.requests[-1]["messages"])
            link = resource_link_block("old.txt", f"file://{place}/old.txt")
            await agent.prompt(session_id=name, prompt=[text_block("see"), link])
            sent = json.dumps(server.requests[-1]["messages"])
            assert f"The user attached {place}/old.txt" in sent
            await agent.prompt(session_id=name, prompt=[text_block("/nothing of ours")])
            assert "/nothing of ours" in json.dumps(server.requests[-1]["messages"])  # no command: a prompt

    run(steps())


def spoken(environment: dict[str, str], lines: list[Any]) -> tuple[list[dict[str, Any]], bytes]:
    """Send lines to a server, close its input, and return the messages on stdout, all of which must be messages."""

    async def steps() -> tuple[bytes, bytes]:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, stdin=-1, stdout=-1, stderr=-1, env=environment, limit=1 << 24
        )
        assert process.stdin is not None
        assert process.stdout is not None
        text = b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)
        process.stdin.write(text)
        await process.stdin.drain()
        process.stdin.close()
        answers = [await asyncio.wait_for(process.stdout.readline(), BOUND_SECONDS) for _ in lines]
        rest, errors = await asyncio.wait_for(process.communicate(), BOUND_SECONDS)
        assert process.returncode == 0
        return b"".join(answers) + rest, errors

    out, errors = asyncio.run(steps())
    return [json.loads(line) for line in out.splitlines()], errors


def test_invalid_messages_get_clear_errors_and_do_no_harm(environment: dict[str, str], place: Path) -> None:
    def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    cases: list[tuple[Any, int, str]] = [
        (b"{not json", -32700, "this line is no JSON"),
        (b"\xff\xfe", -32700, "this line is no JSON"),
        ([request(1, "initialize")], -32600, "lists of messages are not supported"),
        ({"jsonrpc": "2.0", "id": 2}, -32600, "a message has a method"),
        ({"jsonrpc": "2.0", "id": [3], "result": {}}, -32600, "the id of a message"),
        ({"jsonrpc": "2.0", "id": 4, "method": "session/new", "params": [1]}, -32600, "are a JSON object"),
        (request(5, "session/fly"), -32601, "Method not found"),
        (request(6, "session/new", cwd=7, mcpServers=[]), -32602, "cwd: Input should be a valid string"),
        (request(7, "session/new", cwd="here", mcpServers=[]), -32602, "no directory with an absolute path"),
        (request(8, "session/new"), -32602, "Field required"),
        (request(9, "session/prompt", sessionId="x", prompt=[{"type": "text", "text": "y"}]), -32002, "is open"),
        (request(10, "session/load", cwd=str(place), sessionId="../x", mcpServers=[]), -32602, "name a session"),
        (request(11, "session/load", cwd=str(place), sessionId="none", mcpServers=[]), -32002, "has no session"),
    ]
    found, errors = spoken(environment, [line for line, _, _ in cases])
    assert b"Traceback" not in errors
    by_id = {str(one["id"]): one["error"] for one in found if one["id"] is not None}
    nameless = [one["error"] for one in found if one["id"] is None]
    for line, code, text in cases:
        id = line.get("id") if isinstance(line, dict) else None
        error = by_id[str(id)] if isinstance(id, int) else next(one for one in nameless if text in one["message"])
        assert (error["code"], text in error["message"]) == (code, True), (line, error)


@pytest.mark.parametrize("source", ["</dev/null", "<&-", "<README.md"])
def test_an_input_that_is_no_pipe_is_refused_in_one_line(
    environment: dict[str, str], tmp_path: Path, source: str
) -> None:
    (tmp_path / "README.md").write_text("no message\n")
    line = ["sh", "-c", f'exec "$@" {source}', "sh", *COMMAND]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, timeout=BOUND_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), done
    assert b"must be pipes of an editor" in done.stderr


def test_without_a_model_a_new_session_says_how_to_get_one(
    connected: Connected, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(key)

    async def steps() -> None:
        async with connected(Editor(), None) as agent:
            with pytest.raises(RequestError, match="ANTHROPIC_API_KEY"):
                await agent.new_session(cwd=str(place), mcp_servers=[])

    run(steps())


HIDDEN = "git status\n[a]: $(touch${IFS}PWNED)\n<!-- \u202e -->\n````\ntouch PWNED"


@pytest.mark.requirement("S1")
def test_an_editor_shows_a_call_whole_before_it_asks(connected: Connected, place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (place / "linked").symlink_to(tmp_path / "elsewhere")
    (place / "twice.txt").write_text("one one\n")
    calls = [
        use("Bash", command=HIDDEN, run_in_background=True),
        use("Read", file_path="twice.txt"),
        use("Edit", file_path="twice.txt", old_string="one", new_string="two\u202e", replace_all=True),
        use("Write", file_path="linked/new.txt", content="x"),
    ]

    async def steps() -> None:
        editor = Editor(answer="no")
        async with connected(editor) as agent:
            name = (await agent.new_session(cwd=str(place), mcp_servers=[])).session_id
            await agent.prompt(session_id=name, prompt=[text_block(f"call {json.dumps(calls)}")])
        shown = {call.title.partition("(")[0]: (call.content, options) for call, options in editor.asked}
        texts = {
            tool: [one.content.text for one in content if one.type == "content"] for tool, (content, _) in shown.items()
        }
        whole = HIDDEN.replace("\u202e", "<U+202E>")
        assert texts["Bash"][0] == f"`````\n{whole}\n(run_in_background: true)\n`````"
        assert "Always in this session: this exact command" in [one.name for one in shown["Bash"][1]]
        assert "(replace_all: true)" in texts["Edit"][0]
        assert "two<U+202E>" in texts["Edit"][0]
        assert f"linked/new.txt → {tmp_path}/elsewhere/new.txt" in texts["Write"][0]
        assert not (place / "PWNED").exists()

    run(steps())
