"""The MCP server driven by the official client: every tool, bad calls, many clients, long work, and odd peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Memory
from reverie.runtime.places.projects import project_slug

pytest.importorskip("mcp")

import jsonschema_rs

REVERIE = str(Path(sys.executable).with_name("reverie"))
WAIT_SECONDS = 60.0
RULE = "The user wants commit messages in the imperative mood, never in the past tense."


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "REVERIE_HOME": str(home)}


async def told(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its structured answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


async def refused(client: Any, tool: str, **arguments: Any) -> str:
    """Call a tool that should refuse and return why."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    assert "Traceback" not in result.content[0].text
    return result.content[0].text


TOOLS = {"recall", "remember", "forget", "search_sessions", "read_back", "status"}


async def use_every_tool(client: Any, home: Path, directory: Path, cut: str, **where: str) -> set[str]:
    """Go through all tools as an agent would, hold each answer against the tool's own schema; return their names."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    used: set[str] = set()

    async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        used.add(tool)
        answer = await told(client, tool, **arguments, **where)
        jsonschema_rs.validate(tools[tool].output_schema, answer)
        return answer

    assert (await ask("recall", query="commit messages"))["memories"] == []
    saved = await ask("remember", text=RULE, type="feedback", why="said twice", name="Imperative commits")
    assert (saved["changed"], saved["trust"], saved["waits_for_review"]) == (True, "agent", False)
    (found,) = (await ask("recall", query="how do I word commit messages?"))["memories"]
    assert (found["file"], found["trust"]) == (saved["file"], "agent")
    assert RULE in found["text"]
    assert found["text"].startswith("<memory-")
    assert all(word in found["text"] for word in (saved["source"], 'written="today"'))
    odd = await ask("remember", text="The page says to deploy on Fridays only.", type="project", from_untrusted=True)
    assert (odd["trust"], odd["waits_for_review"]) == ("unconfirmed", True)
    (hit, *_) = (await ask("search_sessions", query="crooked fence"))["messages"]
    assert "crooked fence" in hit["snippet"]
    read = await ask("read_back", handle=hit["handle"], session=hit["session"])
    assert read["text"] == "Please mend the crooked fence"
    part = await ask("read_back", handle="toolu_big", offset=7, limit=6)
    assert (part["text"], part["from"], part["next_offset"]) == ("line 2", "file", 13)
    stored = f"{home}/projects/{project_slug(directory)}/fence-1/tool-results/toolu_big.txt"
    assert (await ask("read_back", handle=stored, offset=10**6))["text"] == ""
    lines = (await ask("read_back", handle="toolu_big.txt", find="LINE 999"))["matches"]
    assert [one["text"] for one in lines] == ["line 999", *(f"line 999{digit}" for digit in range(10))]
    listed = (await ask("read_back", handle=cut))["text"]  # one level: each message has a handle of its own
    leaf = next(line.split()[0] for line in listed.split("\n") if line.endswith("short and sweet"))
    assert (await ask("read_back", handle=leaf))["text"] == "short and sweet"
    assert (await ask("read_back", handle=cut, find="mend the CROOKED"))["matches"][0]["text"].startswith("Please mend")
    stands = await ask("status")
    assert (stands["memories"], stands["pending_reviews"], stands["sessions"]) == (2, 1, 1)
    assert (stands["index_lines"], stands["project"]) == (2, project_slug(directory))
    assert stands["switches"]["memory"] is True
    assert (await ask("forget", memory=saved["file"], dry_run=True))["files"] == [saved["file"]]
    gone = await ask("forget", memory="Imperative commits", why="they changed their mind")
    assert (gone["files"], gone["undo"]) == ([saved["file"]], f"reverie memory undo {gone['change']}")
    gone = await ask("forget", source=odd["source"])
    assert gone["files"] == [odd["file"]]
    assert (await ask("status"))["memories"] == 0
    assert used == set(tools)
    return used


@pytest.mark.requirement("B6")
@pytest.mark.slow
def test_every_tool_works_over_stdio(
    over_stdio: Any, stock: Callable[..., str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home, project = tmp_path_factory.mktemp("home"), tmp_path
    cut = stock(home, project)

    async def drive() -> None:
        async with over_stdio(home, project) as client:
            assert client.protocol_version == "2026-07-28"
            assert await use_every_tool(client, home, project, cut) == TOOLS
            assert "Absolute path" not in str((await client.list_tools()).tools), "the working directory says it"
            assert await search_long(client, home, project, stock) >= 12

    anyio.run(drive)


@pytest.mark.requirement("B6")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.slow
def test_every_tool_works_over_http(http: Any, over_http: Any, stock: Callable[..., str], mode: str) -> None:
    project = http.project / f"every-{mode}"
    project.mkdir()
    cut = stock(http.home, project)

    async def drive() -> None:
        async with over_http(http, mode=mode) as client:
            assert await use_every_tool(client, http.home, project, cut, project=str(project)) == TOOLS

    anyio.run(drive)


def test_tools_say_when_to_use_them_and_what_they_do(http: Any, over_http: Any) -> None:
    async def drive() -> None:
        async with over_http(http) as client:
            assert "data from the past" in client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for tool in tools.values():
                assert "Use it" in tool.description
                assert tool.title
                assert tool.annotations.open_world_hint is False
                assert tool.output_schema["type"] == tool.input_schema["type"] == "object"
            hints = {
                name: (tool.annotations.read_only_hint, tool.annotations.destructive_hint)
                for name, tool in tools.items()
            }
            changing = {"remember": (False, False), "forget": (False, True)}
            assert hints == {**dict.fromkeys(hints, (True, False)), **changing}
            (index,) = (await client.list_resources()).resources
            assert (await client.read_resource(index.uri)).contents[0].mime_type == "text/markdown"

    anyio.run(drive)


BAD_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("recall", {}, "query"),
    ("recall", {"query": ""}, "query"),
    ("recall", {"query": "   "}, "empty"),
    ("recall", {"query": 7}, "query"),
    ("recall", {"query": "x", "limit": 0}, "limit"),
    ("recall", {"query": "x", "limit": 10**30}, "limit"),
    ("recall", {"query": "x" * 2_001}, "query"),
    ("recall", {"query": "x", "nonsense": 1}, "nonsense"),
    ("remember", {"text": RULE}, "type"),
    ("remember", {"text": RULE, "type": "gossip"}, "type"),
    ("remember", {"text": RULE, "type": "feedback", "scope": "team"}, "team_memory"),
    ("remember", {"text": "The token is ghp_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zC1dF3", "type": "reference"}, "secret"),
    ("forget", {}, "either"),
    ("forget", {"memory": "x", "source": "y"}, "either"),
    ("forget", {"memory": "no such thing"}, "no memory"),
    ("forget", {"memory": "../../../etc/passwd.md"}, "cannot be used"),
    ("search_sessions", {"query": "x", "all_projects": True}, "all_projects"),
    ("read_back", {"handle": "toolu_nothing"}, "handle"),
    ("read_back", {"handle": "x", "session": "no-such-session"}, "search_sessions"),
    ("read_back", {"handle": "/etc/passwd"}, "is not in this project"),
    ("read_back", {"handle": "projects/../../x/tool-results/y.txt"}, "is not in this project"),
    ("read_back", {"handle": "projects/x/y/tool-results/z.txt"}, "is not in this project's sessions"),
    ("status", {"project": "/etc"}, "not served here"),
    ("status", {"project": "relative/path"}, "not served here"),
    ("status", {"project": "/\0"}, "not served here"),
]


def test_bad_calls_are_refused_with_what_to_do_instead(http: Any, over_http: Any) -> None:
    project = http.project / "bad"
    project.mkdir()

    async def drive() -> None:
        from mcp import MCPError

        async with over_http(http) as client:
            for tool, arguments, reason in BAD_CALLS:
                where = {} if "project" in arguments else {"project": str(project)}
                assert reason in await refused(client, tool, **arguments, **where), (tool, arguments)
            with pytest.raises(MCPError, match="the tools are recall"):
                await client.call_tool("dance", {})
            with pytest.raises(MCPError, match="there is only"):
                await client.read_resource("file:///etc/passwd")
            assert (await told(client, "status", project=str(project)))["memories"] == 0

    anyio.run(drive)


@pytest.mark.requirement("B6")
@pytest.mark.slow
def test_a_hundred_calls_at_once_a_second_server_and_the_command_line_share_one_memory(
    http: Any, over_http: Any, over_stdio: Any, stock: Callable[..., str], torture: bool
) -> None:
    project = http.project / "crowd"
    project.mkdir()
    stock(http.home, project)
    crowd = 500 if torture else 100
    where = {"project": str(project)}

    async def drive() -> None:
        async with over_http(http) as one, over_stdio(http.home, project) as other, anyio.create_task_group() as tasks:

            async def act(number: int) -> None:
                client, at = (one, where) if number % 2 else (other, {})
                match number % 5:
                    case 0 | 1 | 2:
                        words = f"Service number {number} is run by team {number * 7} and pages person {number * 13}."
                        assert (await told(client, "remember", text=words, type="project", why="asked", **at))[
                            "changed"
                        ]
                    case 3:
                        await told(client, "recall", query=f"who runs service number {number - 1}", **at)
                    case _:
                        assert (await told(client, "search_sessions", query="crooked fence", **at))["messages"]

            for number in range(crowd):
                tasks.start_soon(act, number)
            command = [REVERIE, "memory", "add", "--type", "user", "The user breeds Dexter cattle in Devon."]
            done = await anyio.run_process(command, cwd=project, env=environment(http.home), check=False)
            assert done.returncode == 0, done.stderr
        memory = Memory.open(project, home=http.home)
        saved = sum(number % 5 < 3 for number in range(crowd)) + 1
        listed = (memory.path / "MEMORY.md").read_text().splitlines()
        assert len(memory.list()) == len(listed) == len(set(listed)) == saved == len(memory.log())
        assert [one for one in memory.lint() if one.file != "MEMORY.md" or not torture] == []  # 301 lines are too many
        assert {head.trust for head in memory.list()} == {"user", "agent"}

    anyio.run(drive)


def test_a_client_that_calls_itself_the_user_is_not_believed(http: Any, over_http: Any) -> None:
    from mcp_types import Implementation

    project = http.project / "posing"
    project.mkdir()

    async def drive() -> None:
        async with over_http(http, client_info=Implementation(name="user", version="1")) as client:
            saved = await told(client, "remember", text=RULE, type="feedback", why="I say so", project=str(project))
            assert saved["trust"] == "agent"

    anyio.run(drive)
    memory = Memory.open(project, home=http.home)
    assert [entry.who for entry in memory.log()] == ["mcp:user"]
    assert [head.trust for head in memory.list()] == ["agent"]


def test_what_was_forgotten_comes_back_byte_for_byte(http: Any, over_http: Any) -> None:
    project = http.project / "undone"
    project.mkdir()
    memory = Memory.open(project, home=http.home)
    file = memory.save(RULE, type="feedback", why="they said so").path
    before = file.read_bytes(), (memory.path / "MEMORY.md").read_bytes()

    async def drive() -> str:
        async with over_http(http) as client:
            return (await told(client, "forget", memory=file.name, project=str(project)))["change"]

    change = anyio.run(drive)
    assert not file.exists()
    memory.undo(change)
    assert (file.read_bytes(), (memory.path / "MEMORY.md").read_bytes()) == before


def many_sessions(home: Path, project: Path, stock: Callable[..., str], count: int) -> None:
    for number in range(count):
        stock(home, project, name=f"s{number}", words=f"session number {number} about turnips")


async def search_long(client: Any, home: Path, directory: Path, stock: Callable[..., str], **where: str) -> int:
    """Search over sessions nobody has read yet: cancelled at the first report, then to the end with reports.

    Return the number of sessions that the last report names.
    """
    many_sessions(home, directory, stock, 12)
    steps: list[tuple[float, float | None]] = []
    with anyio.CancelScope() as scope:

        async def stop(done: float, total: float | None, message: str | None) -> None:
            scope.cancel()

        await client.call_tool("search_sessions", {"query": "turnips", **where}, progress_callback=stop)
    assert scope.cancelled_caught, "it was to be cancelled at the first report"

    async def note(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total))

    many_sessions(home, directory / "other", stock, 3)
    result = await client.call_tool("search_sessions", {"query": "turnips", **where}, progress_callback=note)
    assert len(result.structured_content["messages"]) == 10
    assert steps
    assert steps[0][0] == 0
    assert (steps[0][1] or 0) >= 3
    steps.clear()
    await client.call_tool("read_back", {"handle": "toolu_none", **where}, progress_callback=note)
    return int(steps[0][1] or 0)  # looking for a handle reports too


@pytest.mark.requirement("B6")
def test_a_long_search_says_how_far_it_is_and_can_be_cancelled(
    http: Any, over_http: Any, stock: Callable[..., str]
) -> None:
    project = http.project / "long"
    project.mkdir()

    async def drive() -> None:
        async with over_http(http) as client:
            assert await search_long(client, http.home, project, stock, project=str(project)) >= 12

    anyio.run(drive)


@pytest.mark.slow
def test_odd_lines_on_stdin_do_not_stop_it_and_the_end_of_stdin_does(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    good = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}}
    call = {"name": "recall", "arguments": {"query": "\ud800"}, "_meta": meta}
    odd = {"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": call}
    lines = [
        b"not json",
        b"",
        b"\xff\xfe\x00",
        b"[" * 5_000,
        b'{"jsonrpc": "2.0"}',
        b"[1, 2]",
        b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}',
        b'"' + b"x" * 1_000_000 + b'"',
        json.dumps(odd).encode(),
        json.dumps(good).encode(),
    ]
    environ = environment(tmp_path_factory.mktemp("home"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([REVERIE, "mcp"], cwd=tmp_path, env=environ, **pipes) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers = iter(lambda: json.loads(server.stdout.readline()), None)
        answer = next(one for one in answers if one.get("id") == 7)
        assert len(answer["result"]["tools"]) == 6
        server.stdin.close()
        assert server.wait(WAIT_SECONDS) == 0
        assert server.stdout.read() == b""
