"""Recordings that today's programs wrote, with their texts shortened.

Claude Code 2.1.326, Codex 0.169, Gemini CLI 0.61, Qwen Code 0.24, opencode 1.18, Copilot CLI 1.0.102 and Kimi Code 2.1,
each against a scripted server.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from reverie.cache.prices import listed_window
from reverie.cli.costs.window_usage import window_usage
from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.tokens.estimate import estimate_request
from reverie.conversation.view import View
from reverie.importers import ImportedSession, chains, find_sessions, format_of, read_session
from reverie.replay.compare import compare
from reverie.replay.recording import recording_of
from reverie.replay.report import program_bill
from reverie.settings import Settings
from reverie.values import replace

pytestmark = pytest.mark.requirement("A4", "D3")
SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> ImportedSession:
    return read_session(SAMPLES / name)[0]


def compactions(found: ImportedSession) -> list[Compacted]:
    decisions = (decision_of(entry.body) for entry in found.entries if entry.kind == "decision")
    return [one for one in decisions if isinstance(one, Compacted)]


def texts(found: ImportedSession) -> str:
    return json.dumps(list(View().fold_all(found.entries).messages()), ensure_ascii=False)


def as_text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, sort_keys=True)


def of_one_text(message: dict[str, Any]) -> tuple[str, str]:
    """Return a message's role and content; the host sends a system message as a text or as one block."""
    content = message["content"]
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        content = content[0]["text"]
    return message["role"], as_text(content)


@pytest.mark.parametrize("name", ["claude-code-compacted", "claude-code-parallel"])
def test_the_window_of_claude_code_is_the_request_on_the_wire(name: str) -> None:
    found = sample(f"{name}.jsonl")
    wire = json.loads((SAMPLES / f"{name}.wire.json").read_text())
    assert found.window is not None
    assert list(map(of_one_text, found.window[: len(wire)])) == list(map(of_one_text, wire))
    assert [message["role"] for message in found.window[len(wire) :]] == ["assistant"]
    usage = window_usage(found, settings=Settings(home=Path("home")), lookup=listed_window)
    assert usage["messages"] == len(wire) + 1
    sent = estimate_request(wire)
    assert abs(estimate_request(found.window[: len(wire)]) - sent) <= 0.03 * sent
    assert usage["total_tokens"] + usage["beside_messages_tokens"] == usage["count"]


def test_a_window_with_a_message_that_the_file_does_not_hold_is_not_claimed(tmp_path: Path) -> None:
    lines = (SAMPLES / "claude-code-parallel.jsonl").read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(line for line in lines if '"api-request-blob"' not in line))
    assert read_session(cut)[0].window is None


@pytest.mark.parametrize("sent", ["hello", [{"type": "text", "text": "hello"}]])
def test_a_prompt_is_found_in_a_request_as_a_text_and_as_a_block(sent: Any, tmp_path: Path) -> None:
    """Claude Code makes a block of the last prompt, and its transcript has the text."""
    message = json.dumps({"content": sent, "role": "user"}, sort_keys=True, separators=(",", ":"))
    both = {"sessionId": "s", "timestamp": "2026-11-17T10:00:00.000Z"}
    asked = {"type": "user", "uuid": "u", "parentUuid": None, **both, "message": {"role": "user", "content": "hello"}}
    reply = {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    rows = [
        asked,
        {"type": "api-request", "id": "r", "keep": 0, "tail": [sha256(message.encode()).hexdigest()], **both},
        {"type": "assistant", "uuid": "a", "parentUuid": "u", **both, "message": reply, "requestRef": "r"},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_session(path)[0].window == [
        {"role": "user", "content": sent},
        {"role": "assistant", "content": reply["content"]},
    ]


def test_the_program_s_own_bill_is_matched_to_the_cent_with_the_calls_it_does_not_record() -> None:
    found = sample("claude-code-compacted.jsonl")
    assert found.bill is not None
    assert found.bill.other_usage["claude-opus-5-5"].read == 13_144  # the compaction's own call
    report = compare([recording_of(found, "one")], policies=["recorded"])
    bill = program_bill(report)
    assert bill is not None
    assert bill["program_usd"] == pytest.approx(0.1603714)
    assert bill["priced_usd"] == pytest.approx(bill["program_usd"], rel=1e-6)
    bare = compare([recording_of(replace(found, bill=None), "one")], policies=["recorded"])
    assert program_bill(bare) is None


def test_attachments_are_what_the_host_sent_and_never_the_human(tmp_path: Path) -> None:
    found = sample("claude-code-parallel.jsonl")
    kinds = {
        entry.body["attachment"]["type"]: entry.message is not None
        for entry in found.entries
        if entry.kind == "attachment"
    }
    assert "prompt_snapshot" not in kinds
    assert found.skipped["bookkeeping: prompt_snapshot"] == 2
    assert kinds["environment"] is True
    usage = window_usage(found, settings=Settings(home=Path("home")), lookup=listed_window)
    assert usage["by_category"]["human"] < usage["by_category"]["context"]


def test_an_attachment_of_an_older_file_is_its_text_and_never_its_json(recordings: Any) -> None:
    rows = [
        recordings.line(0, "user", None, "hi"),
        recordings.line(1, "attachment", 0, attachment={"type": "prompt_snapshot", "systemPrompt": ["You are " * 900]}),
        recordings.line(2, "attachment", 1, attachment={"type": "hook_success", "stdout": "{}"}),
        recordings.line(3, "attachment", 2, attachment={"type": "todo", "items": [{"id": 1}]}),
        recordings.line(4, "attachment", 3, attachment={"type": "hook_additional_context", "content": ["be brief"]}),
    ]
    [found] = recordings.import_rows(rows)
    shown = [entry.message for entry in found.entries if entry.kind == "attachment"]
    assert [one["content"] if one else None for one in shown] == [None, None, "be brief"]


def segment_rows(recordings: Any) -> list[dict[str, Any]]:
    """Return a compaction whose kept messages stay children of the messages before it."""
    segment = {"headUuid": "uuid-2", "anchorUuid": "uuid-5", "tailUuid": "uuid-3"}
    return [
        recordings.line(0, "user", None, "first task " + "word " * 4000),
        recordings.line(1, "assistant", 0, [recordings.text("done 1")]),
        recordings.line(2, "user", 1, "second task"),
        recordings.line(3, "assistant", 2, [recordings.text("done 2")]),
        recordings.line(
            4,
            "system",
            None,
            subtype="compact_boundary",
            logicalParentUuid="uuid-3",
            content="Conversation compacted",
            compactMetadata={"trigger": "manual", "preTokens": 9000, "preservedSegment": segment},
        ),
        recordings.line(5, "user", 4, "Summary: first task was done.", isCompactSummary=True),
        recordings.line(6, "user", 3, "third task"),
        recordings.line(7, "assistant", 6, [recordings.text("done 3")]),
    ]


def test_a_compaction_is_seen_though_its_kept_messages_hang_on_the_past(
    recordings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [found] = recordings.import_rows(segment_rows(recordings))
    shown = texts(found)
    assert "Summary: first task" in shown
    assert all(word in shown for word in ("second task", "third task"))
    assert "word word" not in shown
    assert "abandoned branch" not in found.skipped

    def without_segments(nodes: list[chains.Node]) -> chains.Branch:
        return chains.newest_branch([replace(node, preserved="", boundary=False) for node in nodes])

    monkeypatch.setattr("reverie.importers.claude_code.newest_branch", without_segments)
    [blind] = recordings.import_rows(segment_rows(recordings))
    assert "word word" in texts(blind)


def test_a_message_without_a_session_id_belongs_to_the_session_of_its_file(recordings: Any) -> None:
    rows = [recordings.line(0, "user", None, "one"), recordings.line(1, "assistant", 0, [recordings.text("1")])]
    stray = {key: value for key, value in recordings.line(9, "user", None, "early").items() if key != "sessionId"}
    found = recordings.import_rows([stray, *rows, recordings.line(2, "user", 1, "two")])
    assert [one.session_id for one in found] == [recordings.session]
    assert all(word in texts(found[0]) for word in ("early", "one", "two"))


def test_an_agent_of_claude_code_is_a_session_of_its_own_with_its_window() -> None:
    found = sample("claude-code-agent.jsonl")
    assert found.agent is not None
    assert found.session_id.endswith(f".agent-{found.agent}")
    assert found.window is not None
    assert len(found.window) == 3


def test_a_compaction_of_codex_keeps_the_user_s_messages_word_for_word() -> None:
    found = sample("codex-compacted.jsonl")
    [cut] = compactions(found)
    assert "First task." in json.dumps(cut.attachments)
    shown = texts(found)
    assert "First task." in shown
    assert "After it, count." in shown
    assert not any(reason.startswith("unknown") for reason in found.skipped)
    assert cut.trigger == "auto"


def test_a_compaction_that_nobody_spoke_before_was_asked_for(recordings: Any) -> None:
    rows = [json.loads(line) for line in (SAMPLES / "codex-compacted.jsonl").read_text().splitlines()]
    said = [row for row in rows if row["payload"].get("role") != "user"]
    [found] = recordings.import_rows(said)
    assert compactions(found)[0].trigger == "manual"


def test_an_agent_of_codex_is_named_after_its_parent_and_without_the_inherited_past() -> None:
    found = sample("codex-agent.jsonl")
    assert found.agent == "/root/counter"
    assert found.session_id == "01a1eac6-3b79-7a83-aa95-6d34530e0e59.agent-01a1eac6-3c13-73b2-8be5-16c0b6aae393"
    assert "Use an agent." not in texts(found)
    assert found.skipped["inherited from its parent"] == 8


def test_a_resumed_gemini_chat_holds_every_message_and_result_once() -> None:
    found = sample("gemini-resumed.jsonl")
    results = [
        block["tool_use_id"]
        for message in View().fold_all(found.entries).messages()
        for block in message["content"]
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]
    assert len(results) == len(set(results)) == 3
    assert texts(found).count("Look at the notes.") == 1
    replies = {entry.reply["id"]: entry.reply for entry in found.entries if entry.kind == "assistant"}
    assert [one["usage"]["input_tokens"] for one in replies.values()] == [6020, 6075, 6349, 6633, 6687]
    assert found.entries[1].kind == "attachment"  # the host's own context is not the human


def test_a_gemini_chat_that_grew_repeats_the_entries_it_had(tmp_path: Path) -> None:
    lines = (SAMPLES / "gemini-resumed.jsonl").read_text().splitlines(keepends=True)
    whole = [entry.uuid for entry in sample("gemini-resumed.jsonl").entries]
    for count in range(3, len(lines)):
        part = tmp_path / "gemini-resumed.jsonl"
        part.write_text("".join(lines[:count]))
        uuids = [entry.uuid for entry in read_session(part)[0].entries]
        assert uuids == [uuid for uuid in whole if uuid in set(uuids)], count


def test_a_gemini_chat_names_its_project_by_the_file_beside_it(tmp_path: Path) -> None:
    chats = tmp_path / "p" / "chats"
    chats.mkdir(parents=True)
    (tmp_path / "p" / ".project_root").write_text("/home/ada/notes")
    copied = chats / "session.jsonl"
    copied.write_bytes((SAMPLES / "gemini-resumed.jsonl").read_bytes())
    assert read_session(copied)[0].cwd == "/home/ada/notes"


def test_an_agent_of_qwen_is_a_session_of_its_own(recordings: Any) -> None:
    rows = [json.loads(line) for line in (SAMPLES / "qwen-compressed.jsonl").read_text().splitlines()[:4]]
    [found] = recordings.import_rows([{**row, "agentId": "general-1", "isSidechain": True} for row in rows])
    assert (found.agent, found.session_id) == ("general-1", f"{rows[0]['sessionId']}.agent-general-1")


def test_a_short_qwen_chat_is_not_taken_for_claude_code(tmp_path: Path) -> None:
    lines = (SAMPLES / "qwen-compressed.jsonl").read_text().splitlines(keepends=True)
    short = tmp_path / "short.jsonl"
    short.write_text("".join(lines[:4]))
    [found] = read_session(short)
    assert (found.format, len(found.messages)) == ("qwen", 2)


def test_a_compressed_qwen_chat_is_read_with_its_summary_calls_and_usage() -> None:
    found = sample("qwen-compressed.jsonl")
    [cut] = compactions(found)
    assert (cut.trigger, cut.tokens_before) == ("manual", 19_784)
    assert cut.summary.startswith("<state_snapshot>")
    shown = texts(found)
    assert "Count them." in shown
    assert "Look at the notes." not in shown
    assert found.cwd == "/home/ada/notes"
    assert not any(reason.startswith("unknown") for reason in found.skipped)


def test_a_session_of_copilot_is_read_with_its_compaction_usage_and_agent() -> None:
    main, agent = read_session(SAMPLES / "copilot-compacted.jsonl")
    [cut] = compactions(main)
    assert (cut.trigger, cut.tokens_before) == ("manual", 12_039)
    shown = texts(main)
    assert "Use an agent." in shown
    assert "Look at the notes." not in shown
    assert main.cwd == agent.cwd == "/home/ada/notes"
    assert agent.session_id == f"{main.session_id}.agent-{agent.agent}"
    assert "Count the lines." in texts(agent)
    replies = [entry.reply["usage"] for entry in main.entries if entry.kind == "assistant"]
    assert (replies[0]["input_tokens"], replies[0]["cache_read_input_tokens"]) == (6608, 6607)
    assert not any(reason.startswith("unknown") for reason in main.skipped)


def test_a_session_of_kimi_is_read_by_its_folder_and_keeps_the_user_s_words(tmp_path: Path) -> None:
    for agent in ("main", "agent-0"):
        folder = tmp_path / "session_1" / "agents" / agent
        folder.mkdir(parents=True)
        (folder / "wire.jsonl").write_bytes((SAMPLES / "kimi-compacted.jsonl").read_bytes())
    [found] = read_session(tmp_path / "session_1" / "agents" / "main" / "wire.jsonl")
    [sub] = read_session(tmp_path / "session_1" / "agents" / "agent-0" / "wire.jsonl")
    assert (found.session_id, found.agent) == ("session_1", None)
    assert (sub.session_id, sub.agent) == ("session_1.agent-agent-0", "agent-0")
    [cut] = compactions(found)
    assert "Look at the notes." in json.dumps(cut.attachments)
    assert (found.cwd, found.model, len(found.tools or [])) == ("/home/ada/notes", "gpt-x", 1)
    said = [entry for entry in found.entries if entry.kind == "user"]
    assert sum("Look at the notes." in json.dumps(entry.message) for entry in said) == 1


def test_the_database_of_opencode_gives_sessions_agents_and_compactions(database: Path) -> None:
    before = sorted(path.name for path in database.parent.iterdir())
    assert format_of(database) == "opencode"
    assert list(find_sessions(database.parent)) == [database]
    main, agent, compacted = read_session(database)
    assert sorted(path.name for path in database.parent.iterdir()) == before
    assert agent.session_id.startswith(f"{main.session_id}.agent-")
    assert agent.agent == "general"
    [cut] = compactions(compacted)
    assert cut.first_kept is not None
    shown = texts(compacted)
    assert "Count them again." in shown
    assert "wc -l notes.txt" in shown  # the tail that opencode kept
    assert "Full output saved" not in shown
    assert compacted.cwd == "/home/ada/notes"


def test_an_exported_session_of_opencode_is_the_same_session(database: Path, tmp_path: Path) -> None:
    whole = read_session(database)[2]
    with closing(sqlite3.connect(database)) as opened:
        info = json.loads(json.dumps({"id": whole.session_id, "directory": whole.cwd, "title": whole.title}))
        parts = opened.execute("SELECT id, message_id, data FROM part ORDER BY id").fetchall()
        rows = opened.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (whole.session_id,)
        ).fetchall()
    messages = [
        {
            "info": {**json.loads(data), "id": id},
            "parts": [{**json.loads(part), "id": name} for name, of, part in parts if of == id],
        }
        for id, data in rows
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"info": info, "messages": messages}, indent=2))
    [exported] = read_session(path)
    assert [entry.body for entry in exported.entries[1:]] == [entry.body for entry in whole.entries[1:]]


def test_a_file_that_is_another_database_is_named_as_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE other (id)")
        opened.commit()
    assert format_of(path) is None


WRONG: list[Any] = [None, True, -1, 2**70, "", "x", [], [None], [[]], {}, {"type": 7}, ["x", {}]]


def retyped(value: Any, chance: random.Random) -> Any:
    """Return the value with some of its parts replaced by something of another type."""
    if chance.random() < 0.02:
        return chance.choice(WRONG)
    if isinstance(value, dict):
        return {key: retyped(item, chance) for key, item in value.items()}
    return [retyped(item, chance) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.glob("*.jsonl")))
def test_values_of_the_wrong_type_never_raise(name: str, recordings: Any, seed: int) -> None:
    chance = random.Random(f"{name}:{seed}")
    rows = [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
    for _ in range(5):
        found = recordings.import_rows([row for row in (retyped(row, chance) for row in rows) if isinstance(row, dict)])
        assert all(entry.uuid and entry.kind for one in found for entry in one.entries)


def test_a_damaged_database_of_opencode_is_read_as_far_as_it_holds(database: Path, seed: int) -> None:
    chance = random.Random(seed)
    with closing(sqlite3.connect(database)) as opened:
        for table in ("part", "message"):
            for id, data in opened.execute(f"SELECT id, data FROM {table}").fetchall():
                broken = data[:-3] if chance.random() < 0.1 else json.dumps(retyped(json.loads(data), chance))
                opened.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (broken, id))
        opened.commit()
    assert len(read_session(database)) == 3


def test_a_short_chat_of_qwen_is_not_taken_for_one_of_claude_code(tmp_path: Path) -> None:
    common = {"sessionId": "q", "timestamp": "2026-11-16T10:00:00.000Z", "cwd": "/p"}
    said = [("user", {"message": {"role": "user", "parts": [{"text": "mend the fence"}]}}, None)]
    said.append(("system", {"subtype": "ui_telemetry", "systemPayload": {}}, "0"))
    said.append(("assistant", {"message": {"role": "model", "parts": [{"text": "done."}]}}, "1"))
    rows = [
        {**common, "type": kind, "uuid": str(at), "parentUuid": parent, **more}
        for at, (kind, more, parent) in enumerate(said)
    ]
    chat = tmp_path / "chat.jsonl"
    chat.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [found] = read_session(chat)
    assert (found.format, "mend the fence" in str(found.entries)) == ("qwen", True)
