"""Screens of the chat at two sizes, kept as text: work with steps, a failing run, steering, agents, approval, resizing.

``pytest --write-screens tests/scenarios/test_terminal_screens.py`` writes them anew; look at each before you commit it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_stage import use
from reverie.testing.messages_server import MessagesServer
from tmux_terminal import WAIT_SECONDS, Terminal, chat, chat_environment

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.timeout(300),
    pytest.mark.slow,
]

SCREENS = Path(__file__).parent / "screens"
RUN_TESTS = """
import os, time
for number in range(1, 10):
    print(f"tests/test_calc.py::test_case_{number} PASSED", flush=True)
while not os.path.exists("go_on"):
    time.sleep(0.02)
print("E   assert average([]) == 0\\nE   ZeroDivisionError: division by zero", flush=True)
raise SystemExit("1 failed, 9 passed")
"""
STEPS = ("Read the failing test", "Find the cause", "Repair average() for empty lists", "Run the tests again")
STORY = "\n\n".join(f"Paragraph number {number} of the story says something of its own." for number in range(12))
WIDE = 3_000
LEAST_LINES = 8
CHANGING = (
    (r"^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ", "* "),  # the spinner
    (r" \(\d+ s\)| \d+ s\b", ""),  # durations
    (r"\b(general)-[0-9a-f]{8}", r"\1-0"),  # ids of agents
    (r"\$\d+\.\d+", "$0"),
    (r"\d[\d.,]*k? tokens", "N tokens"),
    (r"^  window .*(\n  .*)?", "  <footer>"),
)


class Brain:
    """The main agent with its tasks, and the agent that it starts."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def __call__(self, request: dict[str, Any]) -> Any:
        if "another agent has started" in json.dumps(request["system"]):
            self.gate.wait(WAIT_SECONDS)
            return "There are seven."
        last = json.dumps(request["messages"][-1])
        if "agent-result" in last:
            return "The agent counted **seven** files."
        if "toolu_" not in last:
            return self._begin(last)
        results = json.dumps(request["messages"][-2])
        if "test_all.py" in results:
            return "One test fails: `average()` divides by zero." if "Skip" not in last else "I skip the slow ones."
        if "Explore" in results:
            return [steps(1), use("Bash", command="python3 test_all.py --verbose")]
        return "It counts now; I will report." if '"Agent"' in results else "Written."

    def _begin(self, prompt: str) -> Any:
        if "fix the tests" in prompt:
            return [steps(0), use("Explore", what="calc.py"), use("Read", file_path="calc.py")]
        if "run them again" in prompt:
            return [use("Bash", command="python3 test_all.py")]
        if "count the files" in prompt:
            task = {"description": "count the files", "prompt": "Count them.", "kind": "general"}
            return [use("Agent", **task, background=True)]
        if "write the table" in prompt:
            return [use("Write", file_path="table.py", content="".join(f"row_{at} = {at}\n" for at in range(WIDE)))]
        return STORY


def steps(done: int) -> dict[str, Any]:
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
    found = zip(STEPS, states, strict=False)
    return use("TodoWrite", todos=[{"content": one, "status": state} for one, state in found])


class Screens:
    """Compares the screens of a terminal with the kept ones."""

    def __init__(self, terminal: Terminal, folder: Path, *, is_written: bool) -> None:
        self.terminal = terminal
        self._folder = folder
        self._is_written = is_written

    def check(self, name: str, prompt: str) -> None:
        """Compare the screen from the last line with this prompt on."""
        path = self._folder / f"{name}.txt"
        if self._is_written:
            time.sleep(1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(stable(self.terminal.screen(), prompt))
        self.terminal.wait(lambda seen: have_one_end(stable(seen, prompt), path.read_text()))


def stable(screen: str, prompt: str) -> str:
    """Return the part of a screen that is the same in every run."""
    lines = [line.rstrip() for line in screen.rstrip().splitlines()]
    first = max((at for at, line in enumerate(lines) if line.startswith(f"> {prompt}")), default=0)
    text = "\n".join(lines[first:]) + "\n"
    for pattern, replacement in CHANGING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def have_one_end(one: str, other: str) -> bool:
    """Say whether two screens are equal from the bottom up to the top of the shorter one.

    How far the erased question had pushed the conversation up depends on how often it was drawn.
    """
    shorter, longer = sorted((one.splitlines(), other.splitlines()), key=len)
    return len(shorter) >= LEAST_LINES and longer[-len(shorter) :] == shorter


def unread(screen: str) -> str:
    """Return the line that counts the lines of a call that were not shown yet."""
    return next((line for line in screen.splitlines() if "more lines" in line and "Space" in line), "")


@pytest.fixture(params=[(80, 24), (120, 40)], ids=["80x24", "120x40"])
def screens(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Screens, Brain, MessagesServer, Path]]:
    columns, rows = request.param
    brain = Brain()
    project = Path(tempfile.mkdtemp(prefix="reverie-"))  # short, so that the first line is one row
    (project / "calc.py").write_text("def average(values):\n    return sum(values) / len(values)\n")
    (project / "test_all.py").write_text(RUN_TESTS)
    with MessagesServer(brain) as server:
        environ = {**chat_environment(server.base_url), "REVERIE_SWITCH_NOTES": "off"}
        terminal = Terminal(tmp_path, columns=columns, rows=rows, environ=environ)
        terminal.start(*chat(project, "--permission-mode", "bypass"))
        try:
            terminal.ready()
            folder = SCREENS / f"{columns}x{rows}"
            yield (
                Screens(terminal, folder, is_written=bool(request.config.getoption("--write-screens"))),
                brain,
                server,
                project,
            )
        finally:
            brain.gate.set()
            terminal.close()
            shutil.rmtree(project)
        assert server.errors == []


def test_the_screens_of_a_session(screens: tuple[Screens, Brain, MessagesServer, Path]) -> None:
    seen, brain, server, project = screens
    terminal = seen.terminal

    # Work with steps, a call that cannot run, and the last lines of a running command.
    terminal.enter("fix the tests")
    terminal.wait("test_case_9 PASSED")
    seen.check("steps", "fix the tests")
    terminal.press("C-o")
    terminal.wait(lambda page: "test_case_1 PASSED" in page and ">" not in page.splitlines()[-1])
    terminal.press("q")
    terminal.wait("Esc interrupts")
    (project / "go_on").touch()
    terminal.wait("average() divides by zero")
    terminal.ready()
    seen.check("failing", "fix the tests")

    # A message while a tool runs.
    (project / "go_on").unlink()
    terminal.enter("run them again")
    terminal.wait("○ Bash")
    terminal.wait("test_case_9 PASSED")
    terminal.enter("Skip the slow ones")
    terminal.wait("(waiting)")
    seen.check("steering", "run them again")
    (project / "go_on").touch()
    terminal.wait("I skip the slow ones.")
    terminal.ready()
    seen.check("steered", "run them again")

    # An agent in the background wakes the conversation when it ends.
    terminal.enter("count the files")
    terminal.wait("I will report.")
    terminal.ready()
    seen.check("agent", "count the files")
    brain.gate.set()
    terminal.wait("counted seven files")
    terminal.ready()
    seen.check("agent_ended", "count the files")

    # The approval of a long file counts what it does not show.
    terminal.press("BTab")
    terminal.wait("default mode")
    terminal.enter("write the table")
    terminal.wait("tell the model why")
    seen.check("approval", "write the table")
    rest = unread(terminal.screen())
    terminal.press("Space")
    terminal.wait(lambda page: unread(page) not in ("", rest) and "tell the model why" in page)
    terminal.press("y")
    terminal.wait("Written.")
    terminal.ready()
    assert len((project / "table.py").read_text().splitlines()) == WIDE
    seen.check("approved", "Allow")

    # A resize while a reply streams.
    gate = server.hold_stream(after_events=20)
    terminal.enter("tell a story")
    assert gate.reached.wait(WAIT_SECONDS)
    terminal.wait("Paragraph number 0")
    terminal.resize(terminal.columns * 3 // 4, terminal.rows * 3 // 4)
    terminal.wait(lambda page: "Esc interrupts" in page)
    seen.check("resized", "tell a story")
    gate.open()
    terminal.wait("number 11 of the story")
    terminal.ready()
    assert " ".join(terminal.everything().split()).count("Paragraph number 0 ") == 1
