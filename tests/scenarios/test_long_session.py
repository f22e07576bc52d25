"""One long session through ``reverie chat --print``: compactions, kills and changes from outside, by each method.

After every compaction and every resume the next request holds the newest value of each standing item exactly once,
after any older one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import plain_mcp_server
from reverie import Memory, load_settings
from reverie.conversation.log import parse_log
from reverie.testing.messages_server import MessagesServer

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("reverie"))
PROMPTS = 14
SHORT = (1, 2, 3, 5, 7, 9, 12)
"""The prompts that are asked without ``--torture``; every change happens."""
READS = 6
OPEN = {1: (1, 2, 3), 6: (2, 3), 12: (3,)}
"""The steps that are open after the list of a prompt."""
KILLED = {5: 4, 10: 3}
"""The turn of a prompt at which the process is killed."""
WEST, EAST = "XXX+12", "XXX-14"  # 26 hours apart, so that the day differs at any time

Value = tuple[str, ...]
"""The words by which a text shows a value; all of them."""


def use(name: str, /, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def todo(prompt: int, *states: str) -> dict[str, Any]:
    steps = [{"content": step(prompt, number), "status": state} for number, state in enumerate(states, 1)]
    return use("TodoWrite", todos=steps)


def step(prompt: int, number: int) -> str:
    """Return the words of a step as the list of a prompt has them."""
    return f"STEP-VALUE-{number} (list {prompt})"


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
        self.truth: dict[str, tuple[Value, ...]] = {}
        """For each item its values, the newest last."""
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
            (1, 1): todo(1, "in_progress", "pending", "pending"),
            (2, 1): use("Skill", name="deploy"),
            (6, 1): todo(6, "completed", "in_progress", "pending"),
            (12, 1): todo(12, "completed", "completed", "in_progress"),
        }.get((self.prompt, self.turn))
        if special is not None:
            if self.prompt in OPEN:
                self.now("steps", *(step(self.prompt, number) for number in OPEN[self.prompt]))
            return [special]
        if self.turn <= READS:
            return [use("Read", file_path=f"file_{self.prompt:02}_{self.turn}.txt")]
        return [{"type": "text", "text": f"Prompt {self.prompt} is done."}]

    def check(self, request: dict[str, Any]) -> None:
        """Compare the request with the truth."""
        texts = texts_of(request["messages"])
        for key, values in self.truth.items():
            at = [[n for n, text in enumerate(texts) if all(mark in text for mark in value)] for value in values]
            if len(at[-1]) != 1:
                self.wrong.append(f"{self.prompt}.{self.turn}: {key} {values[-1]} stands {len(at[-1])} times")
            elif any(older and older[-1] > at[-1][0] for older in at[:-1]):
                self.wrong.append(f"{self.prompt}.{self.turn}: {key}: an older value comes after the newest")

    def now(self, key: str, *value: str) -> None:
        """Note the newest value of an item by the words that a text with it has."""
        self.truth[key] = (*(one for one in self.truth.get(key, ()) if one != value), value)


def texts_of(messages: list[dict[str, Any]]) -> list[str]:
    """Return the texts of messages, block by block; the input of a call and its result are one text."""
    texts: list[str] = []
    calls: dict[str, int] = {}
    for message in messages:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            text = str(block.get("text") or block.get("content") or block.get("input") or "")
            if block.get("tool_use_id") in calls:
                texts[calls[block["tool_use_id"]]] += text
                continue
            if block.get("type") == "tool_use":
                calls[block["id"]] = len(texts)
            texts.append(text)
    return texts


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
        (tmp_path / "instructions.txt").write_text("MCP-VALUE: ask the harbour master before each departure.")
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
args = ["{plain_mcp_server.__file__}", "{tmp_path / "instructions.txt"}", "1"]
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


def played(harbour: Harbour, prompts: Sequence[int]) -> None:
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
    brain.now("index", "<memory-index", "ZEBRA-VALUE")
    for number in range(1, PROMPTS + 1):
        changes.get(number, lambda: None)()
        if number == 7:
            harbour.memory.save("The lighthouse is painted: LIGHT-VALUE", type="project", why="told by the user")
            brain.now("index", "<memory-index", "LIGHT-VALUE")
            brain.now("recalled light", "**Why:** told by the user", "LIGHT-VALUE")
        text = "When does the zebra ferry leave?" if number in (3, 11) else f"Survey part {number}."
        text = "How is the lighthouse painted today?" if number == 7 else text
        if number == 3:
            brain.now("recalled zebra", "**Why:** asked often", "ZEBRA-VALUE")
        if number not in prompts:
            continue
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
        played(harbour, range(1, PROMPTS + 1) if torture else SHORT)
        assert server.refusals == []
        assert server.errors == []
    assert brain.wrong == []
    assert len(brain.asked) >= (90 if torture else 45)
    methods = harbour.methods()
    print(f"{method}: {len(brain.asked)} requests, compactions {methods}")
    assert methods.count(method) >= 3
