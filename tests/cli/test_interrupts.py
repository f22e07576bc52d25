"""Esc and Ctrl-C in the interactive chat, on a real terminal: they end the running work in every state."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import stdio

import plain_mcp_server
from agent_stage import Stage, plays, use
from reverie.cli.terminal.commands import COMMANDS
from reverie.events import QueryEnded
from reverie.runtime.agent import interrupt
from reverie.runtime.agent.agent import Agent
from reverie.testing.messages_server import MessagesServer
from reverie.tools import mcp_server
from reverie.tools.tool import Access, NoPreview, Output

COMMAND = str(Path(sys.executable).with_name("reverie"))
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-~]|[0-~])")
BOUND_SECONDS = 60.0
ESC, CTRL_C, CTRL_R, CTRL_U = b"\x1b", b"\x03", b"\x12", b"\x15"
LOOKS = ("cost", "permissions")
"""Commands typed while work runs; with --torture, every one that may be."""


class Terminal:
    """``reverie chat`` on a terminal: type keys, and wait until the screen has shown a text."""

    def __init__(self, process: subprocess.Popen[bytes], parent: int) -> None:
        self.process = process
        self._parent = parent
        self._shown = b""
        self._at = 0
        """Position in the output at the last keys."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._parent, 65_536):
                self._shown += piece
        except OSError:
            pass

    def text(self, start: int = 0) -> str:
        return SEQUENCE.sub(b"", self._shown[start:]).decode("utf-8", "replace")

    def press(self, keys: str | bytes) -> None:
        """Type keys; what is waited for afterwards is looked for behind what is on the screen now."""
        self._at = len(self._shown)
        os.write(self._parent, keys.encode() if isinstance(keys, str) else keys)

    def until(self, *texts: str) -> str:
        """Wait until all texts were shown since the last keys, in this order, and return what was shown."""
        deadline = time.monotonic() + BOUND_SECONDS
        pattern = re.compile(".*?".join(map(re.escape, texts)), re.DOTALL)
        while pattern.search(shown := self.text(self._at)) is None:
            if time.monotonic() > deadline:
                pytest.fail(f"{texts} did not come; shown:\n{self.text()[-3_000:]}")
            time.sleep(0.05)
        return shown


@contextmanager
def chatting(server: MessagesServer, cwd: Path, *arguments: str) -> Generator[Terminal]:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in KEYS}
    environment |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "x", "TERM": "xterm-256color"}
    environment |= {"REVERIE_SWITCH_EXTRACTION": "off", "REVERIE_SWITCH_NOTES": "off"}
    command = [COMMAND, "chat", "--model", "anthropic:claude-sonnet-5", "--cwd", str(cwd), *arguments]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    try:
        yield Terminal(process, parent)
    finally:
        process.kill()
        process.wait()
        os.close(parent)


class Provider:
    """A model that starts long work when it is asked to, or never answers."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def __call__(self, request: dict[str, Any]) -> Any:
        content = request["messages"][-1]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for said in reversed([str(block["text"]) for block in blocks if block["type"] == "text"]):
            if "keep quiet" in said:
                self.gate.wait(BOUND_SECONDS * 2)
            for word, (name, given) in CALLS.items():
                if word in said:
                    return [use(name, **given)]
        return "All right."


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "long work": ("Bash", {"command": "sleep 600"}),
    "stubborn work": ("Bash", {"command": "trap '' TERM INT; echo $$ > pid; while true; do sleep 600; done"}),
    "call the server": ("mcp__slow__task_0", {}),
    "ask me": ("Bash", {"command": "touch x"}),
    "plan it": ("Plan", {"action": "write", "text": "# A plan"}),
}


@pytest.fixture
def provider() -> Generator[tuple[MessagesServer, Provider]]:
    brain = Provider()
    with MessagesServer(brain) as server:
        yield server, brain
        brain.gate.set()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_an_interrupt_ends_the_work_in_every_state(
    provider: tuple[MessagesServer, Provider], tmp_path: Path, torture: bool
) -> None:
    # The keys of vim, which type otherwise after Esc, have their turn below.
    anytime = [name for name, one in COMMANDS.items() if one.anytime and name not in ("quit", "vim")]
    assert set(LOOKS) <= set(anytime)
    with chatting(provider[0], tmp_path, "--permission-mode", "bypass") as chat:
        chat.until("bypass")
        # After a command of the chat that was typed meanwhile, in a mode that has no question to stop at.
        for name in anytime if torture else LOOKS:
            chat.press("long work\r")
            chat.until("○ Bash(sleep 600)")
            chat.press(f"/{name}\r")
            chat.until("Esc interrupts")
            chat.press(ESC)
            chat.until("Bash(sleep 600) stopped", "Interrupted.")
        chat.press("stubborn work\r")
        chat.until("○ Bash(trap")
        while not (tmp_path / "pid").exists():
            time.sleep(0.02)
        chat.press(CTRL_C)
        chat.until("stopped", "Interrupted.")
        pid = int((tmp_path / "pid").read_text())
        deadline = time.monotonic() + BOUND_SECONDS
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_alive(pid)
        for keys, shown in [
            ("!sleep 600\r", "!sleep 600"),
            ("keep quiet\r", "thinking"),
            ("/compact keep quiet\r", "compacting"),
        ]:
            chat.press(keys)
            chat.until(shown)
            chat.press("/cost\r")
            chat.until("in this session")
            chat.press(ESC)
            chat.until("Interrupted.")
        # An open menu and an open search do not swallow the key.
        for keys in ("/co", CTRL_R):
            chat.press("long work\r")
            chat.until("○ Bash(sleep 600)")
            chat.press(keys)
            chat.until("/compact" if keys == "/co" else "search")
            chat.press(ESC)
            chat.until("Interrupted.")
            chat.press(CTRL_U)
        # Lines that wait go back into the input.
        chat.press("long work\r")
        chat.until("○ Bash(sleep 600)")
        chat.press("and then this\r")
        chat.until("and then this (waiting)")
        chat.press(ESC)
        chat.until("Interrupted.", "> and then this")
        chat.press(CTRL_U)
        interrupt_questions(chat)
        # With the keys of vim, Esc leaves the insert mode only while nothing runs.
        chat.press("/uncompact\r")  # it waits until nothing runs
        chat.until("no compaction to undo")
        chat.press("/vim\r")
        chat.until("the keys of vim are on")
        chat.press("hello wor")
        chat.press(ESC)
        chat.until(":")
        chat.press("ald\r")
        chat.until("world", "All right.")
        chat.press("/mode bypass\r")
        chat.until("mode: bypass")
        chat.press("long work\r")
        chat.until("○ Bash(sleep 600)")
        chat.press("a draft")
        chat.press(ESC)
        chat.until("Interrupted.")
        chat.press(CTRL_U)
        assert not (tmp_path / "x").exists()
        chat.press(b"\x04")
        assert chat.process.wait(BOUND_SECONDS) == 0


def interrupt_questions(chat: Terminal) -> None:
    """Interrupt every kind of question, and see that the chat goes on."""
    chat.press("/mode default\r")
    chat.until("mode: default")
    for prompt, question, key in [
        ("ask me", "Allow Bash?", ESC),
        ("ask me", "why? ", CTRL_C),
        ("plan it", "Approve the plan?", ESC),
        ("plan it", "which changes? ", ESC),
    ]:
        chat.press(f"{prompt}\r")
        if question.endswith("? "):
            chat.until("t  no, and")
            chat.press("t")
        chat.until(question)
        chat.press(key)
        chat.until("Interrupted.")
    chat.press("hello\r")
    chat.until("All right.")


# -- MCP servers that hang

HANGING = """
import json, os, signal, sys, time
sys.path.insert(0, {support!r})
from plain_mcp_server import answer
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == {method!r}:
        with open({pid!r} + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename({pid!r} + ".new", {pid!r})
        time.sleep(600)
    if "id" in request:
        said = answer(request["method"], request.get("params") or {{}}, "", 1)
        said = {{"error": {{"code": -32601, "message": "no"}}}} if said is None else {{"result": said}}
        print(json.dumps({{"jsonrpc": "2.0", "id": request["id"], **said}}), flush=True)
"""
"""A server that hangs in a method for good, and ends neither with its input nor by SIGTERM."""


def hang_in(method: str, tmp_path: Path, reverie_home: Path) -> Path:
    """Set up a hanging server for the chat, and return the file in which it writes its process id when it hangs."""
    script, pid = tmp_path / "server.py", tmp_path / "pid"
    support = str(Path(plain_mcp_server.__file__).parent)
    script.write_text(HANGING.format(support=support, method=method, pid=str(pid)))
    reverie_home.mkdir(parents=True, exist_ok=True)
    server = {"command": sys.executable, "args": [str(script)]}
    lines = [f"{name} = {json.dumps(value)}" for name, value in server.items()]
    (reverie_home / "config.toml").write_text("\n".join(["[mcp_servers.slow]", *lines, "timeout_seconds = 600"]))
    return pid


def await_file(path: Path) -> int:
    deadline = time.monotonic() + BOUND_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            pytest.fail(f"{path.name} did not come")
        time.sleep(0.02)
    return int(path.read_text())


@pytest.mark.slow
def test_an_interrupt_ends_a_call_of_an_mcp_server_that_hangs(
    provider: tuple[MessagesServer, Provider], tmp_path: Path
) -> None:
    pid_file = hang_in("tools/call", tmp_path, Path(os.environ["REVERIE_HOME"]))
    with chatting(provider[0], tmp_path, "--permission-mode", "bypass") as chat:
        chat.until("bypass")
        chat.press("call the server\r")
        chat.until("○ mcp__slow__task_0")
        pid = await_file(pid_file)
        chat.press(ESC)
        chat.until("Interrupted.")
        assert is_alive(pid), "the interrupt waited for the server"
        chat.press(b"\x04")
        assert chat.process.wait(BOUND_SECONDS) == 0
        assert not is_alive(pid)


@pytest.mark.slow
@pytest.mark.parametrize("key", [ESC, CTRL_C])
def test_an_interrupt_ends_the_opening_of_an_mcp_server_that_hangs(
    provider: tuple[MessagesServer, Provider], tmp_path: Path, key: bytes
) -> None:
    pid_file = hang_in("initialize", tmp_path, Path(os.environ["REVERIE_HOME"]))
    with chatting(provider[0], tmp_path) as chat:
        pid = await_file(pid_file)
        chat.press(key)
        chat.process.wait(BOUND_SECONDS)
        assert not is_alive(pid)


def test_the_waits_for_a_server_that_ends_fit_into_the_two_seconds_of_an_interrupt() -> None:
    """Known waits instead of a measured time; the SDK's own would be too long."""
    assert {*mcp_server._LIMITS} <= {*vars(stdio)}, "the SDK has no such limits any more"
    assert sum(getattr(stdio, name) for name in mcp_server._LIMITS) > 2
    assert sum(mcp_server.OPENING_SECONDS) <= 0.5
    assert sum(mcp_server.CLOSING_SECONDS) <= 1.75


# -- a tool that cannot be cancelled


class Hanging(NoPreview):
    """A tool that waits in a thread, which no cancellation reaches."""

    name = "Hanging"
    description = "Wait."
    max_chars: float | None = None

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.interrupt: Callable[[], None] = lambda: None
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}

    def access(self, input: Any, context: Any) -> Access:
        return Access("none")

    async def run(self, input: Any, context: Any) -> Output:
        await anyio.to_thread.run_sync(self._wait)
        return Output("waited")

    def _wait(self) -> None:
        anyio.from_thread.run_sync(self.interrupt)
        threading.Timer(0.5, self.gate.set).start()
        self.gate.wait(BOUND_SECONDS)


def ended_before_the_tool(tmp_path: Path) -> bool:
    """Interrupt a query whose tool hangs; return whether the query ended while the tool still did."""
    tool = Hanging()

    async def steps(agent: Agent) -> bool:
        async for event in agent.ask("go"):
            if isinstance(event, QueryEnded):
                assert event.end == "aborted"
                return not tool.gate.is_set()
        return False

    async def main() -> bool:
        stage = Stage(tmp_path, {"main": plays([use("Hanging")], "Done.")}, tools=[tool])
        agent = stage.agent()
        tool.interrupt = agent.interrupt
        with anyio.fail_after(BOUND_SECONDS):
            async with agent:
                return await steps(agent)

    return anyio.run(main)


def test_a_tool_that_cannot_be_cancelled_does_not_hold_up_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.01)
    assert ended_before_the_tool(tmp_path)

    async def awaited(work: Any) -> Any:
        return await work

    monkeypatch.setattr("reverie.runtime.agent.tool_runs.left_on_cancel", awaited)
    assert not ended_before_the_tool(tmp_path)
