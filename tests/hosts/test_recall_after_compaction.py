"""Recall in a host's session: a memory that the host's compaction removed can be recalled again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import Memory
from reverie.hosts.hook import answer
from reverie.hosts.session_state import SessionState

Ask = Callable[..., dict[str, Any]]

COMPACTIONS = [
    ("claude-code", "SessionStart", {"source": "compact"}),
    ("claude-code", "SessionStart", {"source": "clear"}),
    ("claude-code", "PostCompact", {"trigger": "auto"}),
    ("codex", "SessionStart", {"source": "compact"}),
    ("codex", "PostCompact", {"trigger": "manual"}),
    ("gemini", "SessionStart", {"source": "clear"}),
    ("gemini", "PreCompress", {"trigger": "auto"}),
]
PROMPTS = {"claude-code": "UserPromptSubmit", "codex": "UserPromptSubmit", "gemini": "BeforeAgent"}


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave work in the queue."""
    monkeypatch.setenv("REVERIE_WORKER", "off")


@pytest.fixture
def ask(project: Path) -> Ask:
    """Return a function that sends a host's event and returns the answer, in a project with one memory."""
    rule = "Integration tests use the real Postgres database, never mocks"
    Memory.open(project).save(rule, type="feedback", why="a mock hid a migration")

    def send(host: str, event: str, **more: Any) -> dict[str, Any]:
        payload = {"session_id": "k1", "conversation_id": "k1", "cwd": str(project), **more}
        return json.loads(answer(["--host", host, event], json.dumps(payload).encode()) or "{}")

    return send


def recalled(ask: Ask, host: str) -> bool:
    """Return whether the prompt of the finding brings the memory."""
    said = ask(host, PROMPTS[host], prompt="how do we run integration tests against the database?")
    return "a mock hid a migration" in json.dumps(said)


@pytest.mark.requirement("W6", "R7")
@pytest.mark.parametrize(("host", "event", "more"), COMPACTIONS)
def test_a_memory_is_recalled_again_after_the_host_compacted(
    ask: Ask, host: str, event: str, more: dict[str, str]
) -> None:
    assert recalled(ask, host)
    assert not recalled(ask, host), "the model still sees it"
    ask(host, event, **more)
    assert recalled(ask, host)
    assert not recalled(ask, host)


@pytest.mark.requirement("W6")
def test_a_host_that_keeps_its_history_is_not_shown_the_same_again(ask: Ask) -> None:
    assert recalled(ask, "claude-code")
    for event, more in (
        ("SessionStart", {"source": "resume"}),
        ("PreCompact", {"trigger": "auto"}),  # a later hook may still stop this compaction
        ("Stop", {"source": "compact"}),
    ):
        ask("claude-code", event, **more)
        assert not recalled(ask, "claude-code"), event


@pytest.mark.requirement("W6")
def test_cursor_recalls_again_after_its_compaction_began(ask: Ask) -> None:
    def shown() -> bool:
        ask("cursor", "beforeSubmitPrompt", prompt="how do we run integration tests against the database?")
        return "a mock hid" in json.dumps(ask("cursor", "postToolUse", tool_name="Shell", tool_output="ok"))

    assert shown()
    assert not shown()
    ask("cursor", "preCompact", trigger="auto")
    assert shown()


@pytest.mark.requirement("W6")
def test_twin_a_state_that_forgets_nothing_is_caught(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionState, "forget_shown", lambda _: None)
    assert recalled(ask, "claude-code")
    ask("claude-code", "SessionStart", source="compact")
    assert not recalled(ask, "claude-code")


@pytest.mark.requirement("W6", "R4", "F5")
def test_the_user_is_told_once_when_the_limit_stops_recall_and_it_returns_with_the_compaction(
    ask: Ask, project: Path
) -> None:
    memory = Memory.open(project)
    for number in range(40):
        memory.save(
            f"Service number {number} is deployed by the harbour pipeline. " * 90,
            type="reference",
            name=f"harbour pipeline {number}",
            description=f"The harbour pipeline deploys service number {number}",
        )
    messages: list[str] = []
    shown_bytes = 0

    def prompt(number: int) -> str:
        nonlocal shown_bytes
        said = ask("claude-code", "UserPromptSubmit", prompt=f"harbour pipeline of service number {number}?")
        text = said.get("hookSpecificOutput", {}).get("additionalContext", "")
        shown_bytes += len(text.encode())
        messages.extend([said["systemMessage"]] if "systemMessage" in said else [])
        return text

    for number in range(30):
        prompt(number)
    assert 55_000 < shown_bytes <= 61_440
    [message] = messages
    assert "61,440 bytes (recall.session_bytes)" in message
    ask("claude-code", "SessionStart", source="compact")
    assert prompt(31)
    assert messages == [message]
