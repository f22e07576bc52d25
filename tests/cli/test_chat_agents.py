"""``reverie chat`` and other agents: its name, messages to the user, and work that still runs in the background."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reverie import Mailbox
from reverie.cli.main import run
from reverie.testing.messages_server import MessagesServer

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
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
