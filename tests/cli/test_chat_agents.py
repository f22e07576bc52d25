"""``reverie chat`` and other agents: its name, messages to the user, and work that still runs in the background."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reverie import Mailbox
from reverie.cli.main import run
from reverie.testing.messages_server import MessagesServer

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
COMMAND = str(Path(sys.executable).with_name("reverie"))
MODEL = "anthropic:claude-sonnet-5"

Brain = Callable[[dict[str, Any]], Any]


def text_of(request: dict[str, Any]) -> str:
    """Return the last message of a request as text."""
    return json.dumps(request["messages"][-1]["content"])


def use(name: str, **given: Any) -> dict[str, Any]:
    """Return a tool call as a scripted reply has it."""
    return {"type": "tool_use", "name": name, "input": given}


class Chat:
    """``reverie chat`` in an empty project, on a server whose replies a function gives."""

    def __init__(self, project: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = project
        self.requests: list[dict[str, Any]] = []
        self._capfd = capfd
        self._monkeypatch = monkeypatch
        project.mkdir()

    @contextmanager
    def served(self, brain: Brain) -> Generator[MessagesServer]:
        """Run a provider whose model is ``brain``, and point the environment at it."""
        with MessagesServer(brain) as server:
            for key in KEYS:
                self._monkeypatch.delenv(key, raising=False)
            self._monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
            self._monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of the tests")
            self._monkeypatch.setenv("REVERIE_SWITCH_EXTRACTION", "off")
            yield server
            assert server.errors == []
        self.requests = server.requests

    def run(self, brain: Brain, *arguments: str) -> tuple[int, str, str]:
        """Run the command once; return exit code, stdout and stderr."""
        with self.served(brain):
            self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
            code = run(["chat", "--model", MODEL, "--cwd", str(self.project), *arguments])
        out, err = self._capfd.readouterr()
        return code, out, err


@pytest.fixture
def chat(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Chat:
    """Return a chat in an empty project."""
    return Chat(tmp_path / "project", capfd, monkeypatch)


# -- names and messages


@pytest.mark.requirement("L7.5")
def test_a_message_to_the_user_is_on_stderr_and_an_event_in_the_stream(chat: Chat) -> None:
    letter = use("SendMessage", to="user", message="Red \x1b[2Jagain.")

    def brain(request: dict[str, Any]) -> Any:
        return "Sent." if "Shown to the user" in text_of(request) else [letter]

    assert chat.run(brain, "--print", "go", "--name", "builder") == (
        0,
        "Sent.\n",
        "reverie: message from builder: Red again.\n",
    )
    out = chat.run(brain, "--print", "go", "--output-format", "stream-json")[1]
    (told,) = [event for event in map(json.loads, out.splitlines()) if event["event"] == "user_messaged"]
    assert "again." in told["text"]


@pytest.mark.requirement("L7.5")
def test_a_name_that_is_taken_is_one_line_and_exit_code_2(chat: Chat) -> None:
    def brain(request: dict[str, Any]) -> Any:
        return "Hello."

    with Mailbox(Path(os.environ["REVERIE_HOME"]), "default", "builder") as other:
        other.acquire()
        code, out, err = chat.run(brain, "--print", "Hello", "--name", "builder")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "an agent named builder runs in team default already" in err
    assert chat.requests == []
    assert chat.run(brain, "--print", "Hello", "--name", "builder")[:2] == (0, "Hello.\n")
    assert "address of the user" in chat.run(brain, "--print", "Hello", "--name", "user")[2]


# -- work in the background


class Team:
    """A main agent that starts one agent in the background and reports its result, and that agent."""

    def __init__(self, *, is_slow: bool = False, calls: list[dict[str, Any]] | None = None) -> None:
        self.gate = threading.Event()
        self._is_slow = is_slow
        task = use("Agent", description="count the files", prompt="Count them.", kind="general", background=True)
        self._calls = calls if calls is not None else [task]

    def __call__(self, request: dict[str, Any]) -> Any:
        """Answer as the main agent or as the agent that it started."""
        if "another agent has started" in json.dumps(request["system"]):
            if self._is_slow:
                self.gate.wait(60)
            return "There are seven."
        messages = json.dumps(request["messages"])
        if "agent-result" in text_of(request):
            return "It counted seven." if "There are seven." in messages else "It was killed."
        return "Started it; I will report." if "tool_result" in text_of(request) else self._calls


@pytest.mark.requirement("L7.4")
def test_print_waits_for_agents_in_the_background_and_their_results_are_reported(chat: Chat) -> None:
    code, out, err = chat.run(Team(), "--print", "Count the files.")
    assert (code, out, err) == (0, "Started it; I will report.\nIt counted seven.\n", "")
    said = [message for message in chat.requests[-1]["messages"] if message["role"] == "user"]
    assert json.dumps(said).count("Count the files.") == 1  # nobody speaks for the user


@pytest.mark.requirement("L7.4")
def test_the_json_answer_has_the_report_too(chat: Chat) -> None:
    found = json.loads(chat.run(Team(), "--print", "Count the files.", "--output-format", "json")[1])
    assert found["result"] == "Started it; I will report.\n\nIt counted seven."
    assert found["turns"] == 3


@pytest.mark.requirement("L7.4")
def test_an_agent_that_does_not_end_in_time_is_named_and_the_next_run_says_that_it_was_killed(chat: Chat) -> None:
    team = Team(is_slow=True)
    try:
        code, out, err = chat.run(team, "--print", "Count the files.", "--wait", "0")
    finally:
        team.gate.set()
    assert (code, out) == (0, "Started it; I will report.\n")
    assert "is stopped before its end" in err
    assert "count the files" in err
    assert chat.run(Team(), "--print", "And?", "--continue")[1] == "It was killed.\n"


def test_a_command_that_still_runs_is_named(chat: Chat) -> None:
    team = Team(calls=[use("Bash", command="sleep 1000", run_in_background=True)])
    code, out, err = chat.run(team, "--print", "Go.", "--permission-mode", "bypass")
    assert (code, out) == (0, "Started it; I will report.\n")
    assert err == "reverie: command shell_1 is stopped before its end: sleep 1000\n"


def test_a_pipe_without_print_waits_too(chat: Chat) -> None:
    code, out, _ = chat.run(Team(), "Count the files.")
    assert code == 0
    assert out.rstrip().endswith("It counted seven.")


@pytest.mark.slow
def test_an_interrupt_ends_the_wait_for_agents(chat: Chat) -> None:
    team = Team(is_slow=True)
    with chat.served(team):
        command = [COMMAND, "chat", "-p", "Count the files.", "--model", MODEL, "--cwd", str(chat.project)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "Started it; I will report.\n"  # now it waits
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        team.gate.set()
    assert (process.returncode, out) == (130, "")
    assert "is stopped before its end" in err
    assert "Traceback" not in err
