"""Tools of real MCP servers, over stdio and over HTTP, that work, fail, hang and die."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.settings import McpServer
from reverie.tools.context import ToolContext
from reverie.tools.mcp import McpTools
from reverie.tools.mcp_content import MAX_NAME_CHARS, output_of, schema_of, tool_names
from reverie.tools.tool import Output
from reverie.values import replace

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what the SDK leaves of the processes it has ended, so that no later test is blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


SERVER = '''
import os, sys
from pathlib import Path
import anyio
from mcp.server import MCPServer
from mcp_types import CallToolResult, ResourceLink, TextContent, ImageContent

server = MCPServer("things")

@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@server.tool(structured_output=False)
def show() -> CallToolResult:
    return CallToolResult(content=[
        TextContent(type="text", text="a dot"),
        ImageContent(type="image", data="aGk=", mime_type="image/png"),
        ResourceLink(type="resource_link", uri="file:///a.txt", name="a"),
    ])

@server.tool(name="odd name/with.dots", structured_output=False)
def odd() -> str:
    return os.environ.get("SECRET_FOR_SERVER", "") + "|" + os.environ.get("NOT_FOR_SERVER", "") + "|" + os.getcwd()

@server.tool(structured_output=False)
def fail() -> str:
    raise ValueError("no such thing")

@server.tool(structured_output=False)
async def wait(marker: str) -> str:
    Path(marker + ".began").touch()
    try:
        await anyio.sleep_forever()
    except BaseException:
        Path(marker + ".cancelled").touch()
        raise
    return "never"

@server.tool(structured_output=False)
def pid() -> str:
    return str(os.getpid())

@server.tool(structured_output=False)
def die() -> str:
    os._exit(3)
'''
STDIO = SERVER + "\nserver.run()\n"
HTTP = (
    SERVER
    + """
import socket, uvicorn
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(64)  # whoever comes before it serves waits, and is not refused
print(listening.getsockname()[1], flush=True)
from starlette.responses import PlainTextResponse
app = server.streamable_http_app()
async def guarded(scope, receive, send):
    if scope["type"] == "http" and (b"x-key", b"open sesame") not in scope["headers"]:
        return await PlainTextResponse("who are you?", 401)(scope, receive, send)
    await app(scope, receive, send)
uvicorn.Server(uvicorn.Config(guarded, log_level="critical")).run(sockets=[listening])
"""
)


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    return ToolContext(cwd=tmp_path)


@pytest.fixture
def stdio(tmp_path: Path) -> McpServer:
    script = tmp_path / "server.py"
    script.write_text(STDIO)
    return McpServer(command=sys.executable, args=(str(script),), env={"SECRET_FOR_SERVER": "told"})


@pytest.fixture
def http_url(tmp_path: Path) -> Iterator[str]:
    script = tmp_path / "http_server.py"
    script.write_text(HTTP)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        finally:
            process.kill()


def within(seconds: float, body: Callable[[], Any]) -> Any:
    """Run an async test with a bound on all of it."""

    async def bounded() -> Any:
        with anyio.fail_after(seconds):
            return await body()

    return anyio.run(bounded)


async def until(path: Path) -> None:
    while not path.exists():
        await anyio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    """Wait until a process that was told to end has ended."""
    while alive(pid):
        await anyio.sleep(0.01)


def test_a_server_on_this_machine_lends_its_tools_and_ends_with_us(
    stdio: McpServer, context: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_FOR_SERVER", "private")

    async def act() -> int:
        async with McpTools({"things": stdio, "gone": McpServer(command="no-such-command")}, cwd=str(tmp_path)) as mcp:
            tools = {tool.name: tool for tool in mcp.tools}
            assert list(tools) == sorted(tools), "the order of tools is part of what is cached"
            assert len(mcp.problems) == 1
            assert mcp.problems[0].startswith("MCP server gone:")
            add = tools["mcp__things__add"]
            assert add.description == "Add two numbers."
            assert set(add.input_schema["properties"]) == {"a", "b"}
            assert add.access({}, context).kind == "other"
            assert (await add.run({"a": 2, "b": 3}, context)) == Output("5")
            shown = (await tools["mcp__things__show"].run({}, context)).content
            assert isinstance(shown, list)
            assert [block["type"] for block in shown] == ["text", "image", "text"]
            assert shown[2]["text"] == "[resource a: file:///a.txt]"
            odd = await tools["mcp__things__odd_name_with_dots"].run({}, context)
            assert odd.content == f"told||{tmp_path}", "a server is told only what it was given"
            failed = await tools["mcp__things__fail"].run({}, context)
            assert failed.is_error
            assert "fail" in str(failed.content)
            unfit = await add.run({"a": "x"}, context)
            assert unfit.is_error
            return int(str((await tools["mcp__things__pid"].run({}, context)).content))

    pid = within(100, act)
    within(60, lambda: gone(pid))


def test_a_call_that_is_cancelled_is_cancelled_at_the_server_and_the_next_one_works(
    stdio: McpServer, context: ToolContext, tmp_path: Path
) -> None:
    async def act() -> None:
        async with McpTools({"things": stdio}) as mcp:
            tools = {tool.name: tool for tool in mcp.tools}
            marker = tmp_path / "wait"
            async with anyio.create_task_group() as group:
                group.start_soon(tools["mcp__things__wait"].run, {"marker": str(marker)}, context)
                await until(tmp_path / "wait.began")
                group.cancel_scope.cancel()
            await until(tmp_path / "wait.cancelled")
            assert (await tools["mcp__things__add"].run({"a": 1, "b": 1}, context)).content == "2"

    within(100, act)


def test_a_server_that_dies_in_the_middle_is_an_error_and_takes_nothing_with_it(
    stdio: McpServer, context: ToolContext, tmp_path: Path
) -> None:
    async def act() -> None:
        async with McpTools({"mortal": stdio, "other": stdio}) as mcp:
            tools = {tool.name: tool for tool in mcp.tools}
            outputs: list[Output] = []

            async def wait() -> None:
                marker = str(tmp_path / "wait")
                outputs.append(await tools["mcp__mortal__wait"].run({"marker": marker}, context))

            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await until(tmp_path / "wait.began")
                outputs.append(await tools["mcp__mortal__die"].run({}, context))
            outputs.append(await tools["mcp__mortal__add"].run({"a": 1, "b": 1}, context))
            assert [output.is_error for output in outputs] == [True] * 3
            assert all("mortal" in str(output.content) for output in outputs)
            assert (await tools["mcp__other__add"].run({"a": 1, "b": 1}, context)).content == "2"

    within(100, act)


def test_a_server_that_does_not_answer_in_time_is_given_up(
    stdio: McpServer, context: ToolContext, tmp_path: Path
) -> None:
    silent = McpServer(command="sh", args=("-c", "echo still thinking >&2; exec sleep 600"))
    broken = McpServer(command=sys.executable, args=("-c", "raise SystemExit('no database')"))
    slow = McpServer(command=stdio.command, args=stdio.args, timeout_seconds=100.0)

    async def act(seconds: float) -> str:
        servers = {"silent": replace(silent, timeout_seconds=seconds), "broken": broken, "slow": slow}
        async with McpTools(servers) as mcp:
            problems = {problem.split(":")[0]: problem for problem in mcp.problems}
            assert set(problems) == {"MCP server silent", "MCP server broken"}
            assert "no database" in problems["MCP server broken"]
            assert {tool.name.split("__")[1] for tool in mcp.tools} == {"slow"}
            return problems["MCP server silent"]

    for seconds in (1.0, 30.0):  # on a busy machine it may not get to say anything within the first
        said = within(100, lambda seconds=seconds: act(seconds))
        assert f"did not answer in {seconds:g} s" in said
        if "(still thinking)" in said:
            break
    else:
        pytest.fail("it is not told what the server said")


def test_a_call_that_takes_too_long_is_given_up(http_url: str, context: ToolContext, tmp_path: Path) -> None:
    server = McpServer(url=http_url, headers={"x-key": "open sesame"})

    async def act() -> None:
        async with McpTools({"things": replace(server, timeout_seconds=50.0)}):
            pass  # a busy machine may take long over the first answer, which is not what is tried here
        for seconds in (2.0, 8.0, 50.0):  # until the call gets as far as the server
            async with McpTools({"things": replace(server, timeout_seconds=seconds)}) as mcp:
                tools = {tool.name: tool for tool in mcp.tools}
                if "mcp__things__wait" not in tools:
                    continue
                output = await tools["mcp__things__wait"].run({"marker": str(tmp_path / "wait")}, context)
                assert output == Output(f"The MCP server things did not answer in {seconds:g} s.", is_error=True)
                if (tmp_path / "wait.began").exists():
                    await until(tmp_path / "wait.cancelled")
                    return
        pytest.fail("no call got as far as the server")

    within(200, act)


def test_a_server_over_http_is_told_the_headers_it_was_given(http_url: str, context: ToolContext) -> None:
    servers = {
        "near": McpServer(url=http_url, headers={"x-key": "open sesame"}),
        "closed": McpServer(url=http_url),
        "nobody": McpServer(url="http://127.0.0.1:9/mcp"),
    }

    async def act() -> None:
        async with McpTools(servers) as mcp:
            tools = {tool.name: tool for tool in mcp.tools}
            assert (await tools["mcp__near__add"].run({"a": 2, "b": 3}, context)).content == "5"
            assert (await tools["mcp__near__fail"].run({}, context)).is_error
            assert sorted(problem.split(":")[0] for problem in mcp.problems) == [
                "MCP server closed",
                "MCP server nobody",
            ]
            died = await tools["mcp__near__die"].run({}, context)
            assert died.is_error

    within(100, act)


def test_what_is_raised_while_servers_run_comes_out_as_it_is(stdio: McpServer) -> None:
    async def act() -> None:
        async with McpTools({"things": stdio}):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        within(100, act)


def test_being_cancelled_while_servers_start_leaves_none_behind(tmp_path: Path) -> None:
    noting = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    noted = tmp_path / "pid"
    servers = {"slow": McpServer(command=sys.executable, args=("-c", noting, str(noted)), timeout_seconds=300)}

    async def act() -> None:
        async with anyio.create_task_group() as group:

            async def enter() -> None:
                async with McpTools(servers):
                    raise AssertionError("it never connects")

            group.start_soon(enter)
            await until(noted)
            while not noted.read_text():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    within(100, act)
    started = int(noted.read_text())
    within(60, lambda: gone(started))
    assert not alive(started)


def test_without_servers_nothing_is_loaded() -> None:
    code = (
        "import sys, anyio\nfrom reverie.tools.mcp import McpTools\n"
        "async def act():\n    async with McpTools({}) as mcp:\n        print(mcp.tools, mcp.problems)\n"
        "anyio.run(act)\nprint('mcp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[] []\nFalse\n"


def test_without_the_extra_the_problem_names_it() -> None:
    code = (
        "import sys, anyio\nsys.modules['mcp'] = None\n"
        "from reverie.settings import McpServer\nfrom reverie.tools.mcp import McpTools\n"
        "async def act():\n    async with McpTools({'a': McpServer(command='x')}) as mcp:\n"
        "        print(mcp.tools, mcp.problems)\nanyio.run(act)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "reverie[mcp]" in done.stdout


# -- names, schemas, content


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=80)), max_size=20))
def test_every_tool_has_a_name_of_its_own_that_a_provider_accepts(raw: list[tuple[str, str]]) -> None:
    names = tool_names(raw)
    assert set(names) == set(raw)
    assert len(set(names.values())) == len(names)
    assert all(len(name) <= MAX_NAME_CHARS and name.replace("-", "_").isidentifier() for name in names.values())
    assert names == tool_names(reversed(raw)), "the order in which a server lists its tools changes no name"


def test_names_that_would_be_the_same_are_told_apart() -> None:
    names = tool_names([("s", "a.b"), ("s", "a/b"), ("s", "x" * 80), ("s", "x" * 81)])
    assert names["s", "a.b"] == "mcp__s__a_b"
    assert names["s", "a/b"].startswith("mcp__s__a_b_")
    assert len({*names.values()}) == 4


def test_a_schema_the_provider_would_refuse_is_made_fit_and_said() -> None:
    assert schema_of({"properties": {"a": {}}}) == ({"properties": {"a": {}}, "type": "object"}, "")
    schema, problem = schema_of({"type": "object", "anyOf": [{"required": ["a"]}]})
    assert schema == {"type": "object"}
    assert "anyOf" in problem
    assert schema_of(None) == ({"type": "object"}, "")


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}}, "5"),
        ({"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [{"type": "text", "text": "two"}], "structuredContent": {"n": 2}}, 'two\n{"n": 2}'),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]},
            "[resource file:///a]\ninside",
        ),
        (
            {"content": [{"type": "audio", "mimeType": "audio/wav", "data": "aGk="}]},
            "[audio of type audio/wav, 3 bytes, cannot be shown]",
        ),
        (
            {"content": [{"type": "image", "mimeType": "picture", "data": "aGk="}]},
            "[image of type picture, 3 bytes, cannot be shown]",
        ),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": 7}]},
            "[image of type image/png, 0 bytes, cannot be shown]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "u", "mimeType": "x/y", "blob": "aGk="}}]},
            "[resource u of type x/y, 3 bytes, cannot be shown]",
        ),
        ({"content": [{"type": "hologram"}]}, "[content of an unknown kind: hologram]"),
    ],
)
def test_content_becomes_what_the_model_can_be_shown(result: dict[str, Any], content: str) -> None:
    assert output_of(result).content == content


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_whatever_a_server_answers_is_an_output(answer: Any) -> None:
    output = output_of({"content": [answer, {"type": answer}, {"type": "image", "data": answer}], "isError": answer})
    assert isinstance(output.content, str | list)
    assert output.is_error is (answer is True)


def test_processes_of_the_tests_are_gone() -> None:
    mine = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    started = [line for line in mine.splitlines() if "postgres_server.py" not in line]  # that one serves the whole run
    assert [line for line in started if "server.py" in line] == []
