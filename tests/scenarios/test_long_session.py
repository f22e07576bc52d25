"""One long session through ``reverie chat --print``: compactions, kills and changes from outside, by each method.

After every compaction and every resume the next request holds the newest value of each standing item exactly once,
after any older one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import Memory, load_settings
from reverie.conversation.log import parse_log
from reverie.testing.messages_server import MessagesServer

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("reverie"))
PROMPTS = 14
READS = 6
OPEN = {1: (1, 2, 3), 6: (2, 3), 12: (3,)}
"""The steps that are open after the list of a prompt."""
KILLED = {5: 4, 10: 3}
"""The turn of a prompt at which the process is killed."""
WEST, EAST = "XXX+12", "XXX-14"  # 26 hours apart, so that the day differs at any time

SERVER = """
from mcp.server import MCPServer

server = MCPServer("harbour", instructions="MCP-VALUE: ask the harbour master before each departure.")

@server.tool(structured_output=False)
def tide() -> str:
    "Return the tide."
    return "high"

server.run()
"""


def use(name: str, /, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def todo(*states: str) -> dict[str, Any]:
    steps = [{"content": f"STEP-VALUE-{number}", "status": state} for number, state in enumerate(states, 1)]
    return use("TodoWrite", todos=steps)


class Brain:
    """Replies by prompt and turn, and the truth of the session so far."""

    def __init__(self, *, thinks: bool) -> None:
        self.thinks = thinks
        self.prompt = 0
        self.turn = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.kills = dict(KILLED)
        self.asked: list[dict[str, Any]] = []
        """The requests of the conversation, without forks."""
        self.truth: dict[str, tuple[str, ...]] = {}
        """For each item the markers of its values, the newest last."""
        self.known: list[str] = []
        """The memories, which the index names; recall may show one as well."""
        self.open: tuple[int, ...] = ()
        """The open steps, which the call or standing context says."""
        self.wrong: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Any:
        last = str(request["messages"][-1]["content"])
        if "<reverie-fork" in last:
            return "<summary>The harbour was surveyed.</summary>" if 'source="compact"' in last else "Nothing."
        self.asked.append(request)
        self.check(request)
        self.turn += 1
        if self.process is not None and self.kills.get(self.prompt) == self.turn:
            del self.kills[self.prompt]
            self.process.send_signal(signal.SIGKILL)
        said = self.reply()
        thought = {"type": "thinking", "thinking": f"Thought {self.prompt}.{self.turn}."}
        return [thought, *said] if self.thinks else said

    def reply(self) -> list[dict[str, Any]]:
        special = {
            (1, 1): todo("in_progress", "pending", "pending"),
            (2, 1): use("Skill", name="deploy"),
            (6, 1): todo("completed", "in_progress", "pending"),
            (12, 1): todo("completed", "completed", "in_progress"),
        }.get((self.prompt, self.turn))
        if special is not None:
            self.open = OPEN.get(self.prompt, self.open)
            return [special]
        if self.turn <= READS:
            return [use("Read", file_path=f"file_{self.prompt:02}_{self.turn}.txt")]
        return [{"type": "text", "text": f"Prompt {self.prompt} is done."}]

    def check(self, request: dict[str, Any]) -> None:
        """Compare the request with the truth."""
        texts = [text for message in request["messages"] for text in texts_of(message["content"])]
        for key, markers in self.truth.items():
            at = [[number for number, text in enumerate(texts) if marker in text] for marker in markers]
            if len(at[-1]) != 1:
                self.wrong.append(f"{self.prompt}.{self.turn}: {key} {markers[-1]} stands {len(at[-1])} times")
            elif any(older and older[-1] > at[-1][0] for older in at[:-1]):
                self.wrong.append(f"{self.prompt}.{self.turn}: {key}: an older value comes after the newest")

        expected = [*self.known, *(f"STEP-VALUE-{number}" for number in self.open)]
        self.wrong += [f"{self.prompt}.{self.turn}: no {one}" for one in expected if not any(one in t for t in texts)]

    def now(self, key: str, marker: str) -> None:
        self.truth[key] = (*(one for one in self.truth.get(key, ()) if one != marker), marker)


def texts_of(content: Any) -> list[str]:
    """Return the texts of a message, block by block; the input of a call is a text too."""
    if isinstance(content, str):
        return [content]
    return [str(block.get("text") or block.get("content") or block.get("input") or "") for block in content]


def day(zone: str) -> str:
    """Return the date in a time zone, as the agent says it."""
    command = [sys.executable, "-c", "import time; print(time.strftime('Today is %A, %Y-%m-%d.'))"]
    return subprocess.run(command, env={"TZ": zone}, capture_output=True, check=True, text=True).stdout.strip()


class Harbour:
    """A project, a home and the process of each prompt."""

    def __init__(self, tmp_path: Path, server: MessagesServer, brain: Brain, model: str, settings: str) -> None:
        self.brain, self.server, self.model = brain, server, model
        self.project, self.home = tmp_path / "project", tmp_path / "home"
        self.project.mkdir()
        self.home.mkdir()
        (tmp_path / "server.py").write_text(SERVER)
        skill = self.home / "skills" / "deploy"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(
            "---\nname: deploy\ndescription: Deploy the harbour.\n---\nSKILL-VALUE: in steps.\n"
        )
        (self.home / "config.toml").write_text(
            f"""{settings}
[hooks]
session_start = ["echo HOOK-VALUE: the pier is closed."]
[mcp_servers.harbour]
command = "{sys.executable}"
args = ["{tmp_path / "server.py"}"]
"""
        )
        for prompt in range(1, PROMPTS + 1):
            for turn in range(1, READS + 1):
                lines = (f"{prompt}.{turn} line {line} of the survey of the harbour" for line in range(180))
                (self.project / f"file_{prompt:02}_{turn}.txt").write_text("\n".join(lines))
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC", "OPENAI"))},
            **{"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "x", "REVERIE_HOME": str(self.home)},
            "TZ": WEST,
        }
        self.memory = Memory.open(self.project, settings=load_settings(home=self.home, project=self.project))

    def rules(self, text: str) -> None:
        (self.project / "AGENTS.md").write_text(f"{text}: tie every boat.\n")
        self.brain.now("instructions", text)

    def ask(self, number: int, text: str) -> int:
        """Ask in a process of its own and return its exit code."""
        brain = self.brain
        brain.prompt, brain.turn = number, 0
        more = ["--continue"] if number > 1 else []
        mode = ["--permission-mode", "bypass", "--cwd", str(self.project)]
        process = subprocess.Popen(
            [COMMAND, "chat", "--print", text, "--model", self.model, *mode, *more],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        brain.process = process
        out, err = process.communicate(timeout=120)
        assert process.returncode in (0, -signal.SIGKILL), (out, err)
        return process.returncode

    def midnight(self) -> None:
        self.environ["TZ"] = EAST
        self.brain.now("date", day(EAST))

    def methods(self) -> list[str]:
        """Return the methods of the session's compactions."""
        log = max((self.home / "projects").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
        bodies = [entry.body for entry in parse_log(log.read_bytes()).entries]
        return [body["method"] for body in bodies if body.get("decision") == "compacted"]


def played(harbour: Harbour) -> None:
    brain = harbour.brain
    harbour.rules("RULES-VALUE-1")
    harbour.memory.save("The zebra ferry leaves at noon: ZEBRA-VALUE", type="feedback", why="asked often")
    for key, marker in (("hook", "HOOK-VALUE"), ("mcp", "MCP-VALUE")):
        brain.now(key, marker)
    changes: dict[int, Callable[[], None]] = {
        4: lambda: harbour.rules("RULES-VALUE-2"),
        8: lambda: harbour.midnight(),
        9: lambda: harbour.rules("RULES-VALUE-3"),
    }
    brain.now("date", day(WEST))
    brain.known = ["ZEBRA-VALUE"]
    for number in range(1, PROMPTS + 1):
        changes.get(number, lambda: None)()
        if number == 7:
            harbour.memory.save("The lighthouse is painted: LIGHT-VALUE", type="project", why="told today")
            brain.known.append("LIGHT-VALUE")
        text = "When does the zebra ferry leave?" if number in (3, 11) else f"Survey part {number}."
        code = harbour.ask(number, text)
        assert (code != 0) == (number in KILLED)
        if number in KILLED:
            assert harbour.ask(number, "Go on where you stopped.") == 0
        if number == 2:
            brain.now("skill", "SKILL-VALUE")


_QUIET = "window_tokens = 40000\n[switches]\nextraction = false\ndream = false\n"
_NO_TRIM = '[trim]\nmode = "off"\n'  # else clearing keeps the window too small for a compaction
METHODS = {
    "notes": ("claude-sonnet-4-5", _QUIET + _NO_TRIM),
    "full": ("claude-sonnet-4-5", _QUIET + "compact_from_notes = false\n" + _NO_TRIM),
    "provider": ("claude-opus-5-5", _QUIET),
}


@pytest.mark.requirement("W4", "W5", "L4.4", "L4.9", "Q2")
@pytest.mark.parametrize("method", METHODS)
def test_after_every_compaction_and_resume_the_model_knows_the_newest_value_of_each_item(
    tmp_path: Path, method: str, torture: bool
) -> None:
    if method != "provider" and not torture:
        pytest.skip("takes a minute: --torture plays the session by every method")
    model, settings = METHODS[method]
    brain = Brain(thinks=method == "provider")
    with MessagesServer(brain, summary=lambda _: "The harbour was surveyed.") as server:
        harbour = Harbour(tmp_path, server, brain, model, settings)
        played(harbour)
        assert server.refusals == []
        assert server.errors == []
    assert brain.wrong == []
    assert len(brain.asked) >= 90
    methods = harbour.methods()
    print(f"{method}: {len(brain.asked)} requests, compactions {methods}")
    assert methods.count(method) >= 3
