"""Payloads of hosts: one of each event, in the form of their documentation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Payloads = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory a host works in."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def payloads(tmp_path: Path, project: Path) -> Payloads:
    """Return a host's payloads by event."""
    transcript = str(tmp_path / "transcript.jsonl")

    def claude(event: str, **more: Any) -> dict[str, Any]:
        common = {"session_id": "abc-123", "transcript_path": transcript, "cwd": str(project)}
        return {**common, "permission_mode": "default", "hook_event_name": event, **more}

    def cursor(event: str, **more: Any) -> dict[str, Any]:
        return {
            "conversation_id": "conv-1",
            "generation_id": "gen-1",
            "model": "some-model",
            "hook_event_name": event,
            "cursor_version": "2.9.1",
            "workspace_roots": [str(project)],
            "user_email": "someone@example.com",
            "transcript_path": transcript,
            **more,
        }

    def of(host: str) -> dict[str, dict[str, Any]]:
        bash = {"stdout": "x" * 40_000, "stderr": "", "interrupted": False, "isImage": False}
        if host in ("claude-code", "codex", "qwen", "opencode"):
            found = {
                "SessionStart": claude("SessionStart", source="startup", model="some-model"),
                "UserPromptSubmit": claude("UserPromptSubmit", prompt="How do we test the repository layer?"),
                "PreToolUse": claude(
                    "PreToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_use_id="toolu_01"
                ),
                "PostToolUse": claude(
                    "PostToolUse",
                    tool_name="Bash",
                    tool_input={"command": "make"},
                    tool_response=bash,
                    tool_use_id="toolu_01",
                ),
                "PreCompact": claude("PreCompact", trigger="auto", custom_instructions=""),
                "PostCompact": claude("PostCompact", trigger="auto", compact_summary="..."),
                "Stop": claude("Stop", stop_hook_active=False, last_assistant_message="Done."),
                "SessionEnd": claude("SessionEnd", reason="other"),
                "Notification": claude("Notification", message="waiting"),
            }
            if host == "codex":
                found = {event: {**body, "turn_id": "t1", "model": "some-model"} for event, body in found.items()}
            return found
        if host == "gemini":
            base = {"timestamp": "2026-11-16T10:00:00Z"}
            return {
                "SessionStart": claude("SessionStart", source="startup", **base),
                "BeforeAgent": claude("BeforeAgent", prompt="How do we test the repository layer?", **base),
                "PreCompress": claude("PreCompress", trigger="auto", **base),
                "AfterAgent": claude("AfterAgent", prompt="p", prompt_response="r", stop_hook_active=False, **base),
                "SessionEnd": claude("SessionEnd", reason="exit", **base),
            }
        return {
            "sessionStart": cursor("sessionStart", session_id="conv-1", is_background_agent=False),
            "beforeSubmitPrompt": cursor("beforeSubmitPrompt", prompt="How do we test it?", attachments=[]),
            "postToolUse": cursor(
                "postToolUse", tool_name="MCP:db", tool_input={}, tool_output="z" * 60_000, tool_use_id="t1", duration=5
            ),
            "preCompact": cursor("preCompact", trigger="auto", context_usage_percent=85, message_count=100),
            "stop": cursor("stop", status="completed", loop_count=0),
            "sessionEnd": cursor("sessionEnd", session_id="conv-1", reason="completed"),
        }

    return of
