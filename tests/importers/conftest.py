"""Small generated recordings, one per format and generation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reverie.importers import ImportedSession, read_session

SESSION = "11111111-2222-4333-8444-555555555555"


def claude_line(number: int, kind: str, parent: int | None, content: Any = None, **more: Any) -> dict[str, Any]:
    """Return one line as Claude Code would write it."""
    row: dict[str, Any] = {
        "parentUuid": None if parent is None else f"uuid-{parent}",
        "isSidechain": False,
        "cwd": "/home/ada/shop",
        "sessionId": SESSION,
        "type": kind,
        "uuid": f"uuid-{number}",
        "timestamp": f"2026-03-01T10:00:{number % 60:02d}.000Z",
    }
    if kind == "system":
        row["content"] = content
    if kind == "user":
        row["message"] = {"role": "user", "content": content}
    if kind == "assistant":
        usage = {
            "input_tokens": 3,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 100,
            "output_tokens": 9,
        }
        id = more.pop("id", f"msg_{number}")
        model = more.pop("model", "claude-opus-4-5")
        row["message"] = {"id": id, "role": "assistant", "model": model, "content": content, "usage": usage}
        row["requestId"] = f"req_{number}"
    return {**row, **more}


def use(id: str, name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"path": id}}


def result(id: str, text: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def claude_code() -> bytes:
    """A linear session with two parallel calls, a compaction and bookkeeping between."""
    return jsonl(
        [
            {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
            claude_line(1, "user", None, "fix the till"),
            claude_line(2, "assistant", 1, [text("Looking.")], id="msg_a"),
            claude_line(3, "assistant", 2, [use("toolu_1")], id="msg_a"),
            claude_line(4, "assistant", 3, [use("toolu_2")], id="msg_a"),
            claude_line(5, "progress", 3, data={"type": "bash_progress"}),
            claude_line(6, "user", 3, [result("toolu_1")]),
            claude_line(7, "user", 4, [result("toolu_2")]),
            claude_line(8, "assistant", 7, [text("Both read.")]),
            claude_line(
                9,
                "system",
                None,
                "Conversation compacted",
                subtype="compact_boundary",
                logicalParentUuid="uuid-8",
                compactMetadata={"trigger": "manual", "preTokens": 4321},
            ),
            claude_line(10, "user", 9, "They fixed half of the till.", isCompactSummary=True),
            claude_line(11, "user", 10, "now the other half"),
            claude_line(12, "assistant", 11, [text("Done.")]),
            {"type": "summary", "summary": "Till repairs", "leafUuid": "uuid-12"},
        ]
    )


def codex_rows() -> list[dict[str, Any]]:
    def item(number: int, payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
        return {"timestamp": f"2026-03-01T11:00:{number:02d}.000Z", "type": kind, "payload": payload}

    def said(role: str, words: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}

    def counted(total: int, given: int, cached: int, out: int) -> dict[str, Any]:
        last = {"input_tokens": given, "cached_input_tokens": cached, "output_tokens": out, "total_tokens": given + out}
        info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
        return {"type": "token_count", "info": info, "rate_limits": {}}

    call = {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call_1"}
    patch = {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "call_2"}
    meta = {"id": SESSION, "cwd": "/home/ada/shop", "base_instructions": {"text": "You are Codex."}}
    return [
        item(0, meta, "session_meta"),
        item(1, said("developer", "sandbox is read-only")),
        item(1, said("user", "<environment_context>linux</environment_context>")),
        item(2, {"model": "gpt-5-codex", "cwd": "/home/ada/shop"}, "turn_context"),
        item(3, said("user", "list the files")),
        item(3, {"type": "user_message", "message": "list the files"}, "event_msg"),
        item(4, {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}),
        item(5, said("assistant", "Listing.")),
        item(6, call),
        item(6, patch),
        item(7, counted(1010, 1000, 800, 10), "event_msg"),
        item(8, {"type": "function_call_output", "call_id": "call_1", "output": "a.py"}),
        item(
            8, {"type": "custom_tool_call_output", "call_id": "call_2", "output": {"content": "no", "success": False}}
        ),
        item(9, counted(1010, 1000, 800, 10), "event_msg"),
        item(10, said("assistant", "One file.")),
        item(11, counted(2120, 1100, 1000, 10), "event_msg"),
        item(12, {"message": "The user listed files; there is one."}, "compacted"),
        item(13, said("user", "thanks")),
    ]


def codex() -> bytes:
    return jsonl(codex_rows())


def codex_bare() -> bytes:
    """The first generation: a head without a type, then bare response items."""
    shell = {"type": "exec", "command": ["ls"]}
    return jsonl(
        [
            {"id": SESSION, "timestamp": "2025-05-07T17:24:21.500Z", "instructions": "Be brief."},
            {"record_type": "state"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
            {"type": "local_shell_call", "call_id": "call_9", "status": "completed", "action": shell},
            {"type": "function_call_output", "call_id": "call_9", "output": '{"output":"a.py"}'},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a.py"}]},
        ]
    )


def pi() -> bytes:
    usage = {"input": 10, "output": 5, "cacheRead": 90, "cacheWrite": 7, "cost": {"total": 0.25}}
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig=="}
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "a"}}

    def said(message: dict[str, Any]) -> dict[str, Any]:
        return {"type": "message", "timestamp": "2026-01-01T00:00:00.000Z", "message": message}

    reply = {"role": "assistant", "model": "claude-opus-4-5", "usage": usage, "stopReason": "toolUse"}
    zero = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0}}
    aborted = {"role": "assistant", "content": [], "usage": zero, "stopReason": "aborted", "errorMessage": "aborted"}
    shell = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}
    rows: list[dict[str, Any]] = [
        {"type": "session", "id": SESSION, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/home/ada", "modelId": "m"},
        said({"role": "user", "content": [text("read a")]}),
        said({**reply, "content": [thought, call]}),
        said({"role": "toolResult", "toolCallId": "t1", "toolName": "read", "content": [text("A")], "isError": True}),
        said({**reply, "content": [text("It is A.")], "stopReason": "stop"}),
        said({"role": "user", "content": "and b?"}),
        said(aborted),
        {
            "type": "compaction",
            "timestamp": "2026-01-01T00:01:00.000Z",
            "summary": "They read a.",
            "firstKeptEntryIndex": 5,
            "tokensBefore": 112,
        },
        said(shell),
        {"type": "model_change", "timestamp": "2026-01-01T00:02:00.000Z", "provider": "x", "modelId": "m2"},
        said({"role": "user", "content": "go on"}),
    ]
    return jsonl(rows)


def mini_document() -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    answer = {"finish_reason": "stop", "message": {"role": "assistant", "content": "THOUGHT: look"}}
    response = {"id": "gen-1", "model": "gemini", "created": 1763506508, "usage": usage, "choices": [answer]}
    return {
        "info": {"model_stats": {"instance_cost": 0.5, "api_calls": 1}, "config": {"model": {"model_name": "gemini"}}},
        "messages": [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "Fix it."},
            {"role": "assistant", "content": "THOUGHT: look", "extra": {"response": response, "cost": 0.5}},
            {"role": "user", "content": "<returncode>0</returncode>"},
            {"role": "assistant", "content": "THOUGHT: done", "extra": {"response": {**response, "id": "gen-2"}}},
        ],
        "trajectory_format": "mini-swe-agent-1",
        "instance_id": "shop__till-1",
    }


def mini_swe_agent() -> bytes:
    return json.dumps(mini_document(), indent=2).encode()


def mini_swe_agent_compact() -> bytes:
    return json.dumps(mini_document()).encode()


def swe_agent() -> bytes:
    call = {"function": {"name": "bash", "arguments": '{"command":"ls"}'}, "id": "call_x", "type": "function"}
    action = {"role": "assistant", "content": "Look.", "thought": "Look.", "action": "ls", "tool_calls": [call]}
    seen = {"role": "tool", "content": "a.py", "tool_call_ids": ["call_x"]}
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "SETTING"},
        {"role": "user", "content": "A demonstration", "is_demo": True},
        {"role": "user", "content": "Solve it"},
        action,
        seen,
        action,
        {**seen, "content": "b.py"},
    ]
    for message in history:
        message["agent"] = "main"
    step = {"action": "ls", "observation": "a.py", "response": "Look.", "state": {"working_dir": "/testbed"}}
    document = {
        "environment": "main",
        "trajectory": [step],
        "history": history,
        "info": {"model_stats": {"instance_cost": 1.5}},
        "replay_config": '{"agent": {"model": {"name": "gpt-4o"}}}',
    }
    return json.dumps(document, indent=2).encode()


def openhands_run(name: str) -> dict[str, Any]:
    def called(id: str, response: str) -> dict[str, Any]:
        calls = [
            {"id": one, "type": "function", "function": {"name": "execute_bash", "arguments": '{"command":"ls"}'}}
            for one in ("toolu_01", "toolu_02")
        ]
        usage = {"prompt_tokens": 50, "completion_tokens": 4}
        choice = {"finish_reason": "tool_calls", "message": {"content": "Looking.", "tool_calls": calls}}
        made = {"id": response, "model": "llama", "usage": usage, "choices": [choice]}
        return {"tool_call_id": id, "function_name": "execute_bash", "model_response": made}

    def act(at: int, id: str, response: str) -> dict[str, Any]:
        return {"id": at, "source": "agent", "action": "run", "args": {}, "tool_call_metadata": called(id, response)}

    def saw(at: int, id: str, response: str, words: str) -> dict[str, Any]:
        return {"id": at, "observation": "run", "content": words, "tool_call_metadata": called(id, response)}

    tool = {
        "type": "function",
        "function": {"name": "execute_bash", "description": "Run.", "parameters": {"type": "object"}},
    }
    return {
        "instance_id": name,
        "metadata": {"llm_config": {"model": "openai/llama"}},
        "metrics": {"accumulated_cost": 0.75},
        "history": [
            {
                "id": 0,
                "source": "agent",
                "action": "system",
                "args": {"content": "You are OpenHands.", "tools": [tool]},
            },
            {"id": 1, "source": "user", "action": "message", "args": {"content": "Fix the till."}},
            {"id": 2, "source": "user", "action": "recall", "args": {}},
            {"id": 3, "observation": "recall", "content": "Added", "extras": {"microagent_knowledge": []}},
            act(4, "toolu_01", "gen-1"),
            saw(5, "toolu_01", "gen-1", "a.py"),
            act(6, "toolu_02", "gen-1"),
            saw(7, "toolu_02", "gen-1", "b.py"),
            act(8, "toolu_01", "gen-2"),
            saw(9, "toolu_01", "gen-2", "c.py"),
            {"id": 10, "observation": "error", "content": "the model could not be reached"},
        ],
    }


def openhands() -> bytes:
    return jsonl([openhands_run("shop__till-1"), openhands_run("shop__till-2")])


MAKERS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "claude-code": ("session.jsonl", claude_code),
    "codex": ("rollout-1.jsonl", codex),
    "codex-bare": ("rollout-0.jsonl", codex_bare),
    "pi": ("pi.jsonl", pi),
    "mini-swe-agent": ("mini.traj.json", mini_swe_agent),
    "mini-swe-agent-compact": ("mini.json", mini_swe_agent_compact),
    "swe-agent": ("swe.traj", swe_agent),
    "openhands": ("output.jsonl", openhands),
}


class Recordings:
    """Recordings by name, as bytes and as they are read; and the small pieces they are made of."""

    names = tuple(MAKERS)
    session = SESSION
    line = staticmethod(claude_line)
    use = staticmethod(use)
    result = staticmethod(result)
    text = staticmethod(text)
    jsonl = staticmethod(jsonl)
    codex_rows = staticmethod(codex_rows)
    openhands_run = staticmethod(openhands_run)
    mini_document = staticmethod(mini_document)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bytes_of(self, name: str) -> bytes:
        return MAKERS[name][1]()

    def import_bytes(self, data: bytes, name: str = "session.jsonl") -> list[ImportedSession]:
        path = self.folder / name
        path.write_bytes(data)
        return read_session(path)

    def import_rows(self, rows: list[dict[str, Any]]) -> list[ImportedSession]:
        return self.import_bytes(jsonl(rows))

    def imported(self, name: str) -> list[ImportedSession]:
        return self.import_bytes(self.bytes_of(name), MAKERS[name][0])


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(tmp_path_factory.mktemp("recordings"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as opened:
        for name, table in json.loads((Path(__file__).parent / "samples" / "opencode.json").read_text()).items():
            opened.execute(table["sql"])
            for row in table["rows"]:
                columns = ", ".join(f"`{column}`" for column in row)
                opened.execute(f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(row))})", [*row.values()])
        opened.commit()
    return path
