"""The archive: sessions of other agents are kept, extended, never shortened, never doubled."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.decisions import Cause, Redacted, body_of
from reverie.conversation.entries import DECISION, USER, Entry, encode_entry
from reverie.conversation.view import View
from reverie.errors import StorageError
from reverie.importers import read_session, usual_places
from reverie.importers.import_result import RecordSource, SessionDraft
from reverie.runtime.archive import Keeper, KeepReport
from reverie.runtime.archive.recordings import DELETED, Recordings, described, project_of
from reverie.runtime.library import Library
from reverie.runtime.places.archive_index import NAME as INDEX
from reverie.runtime.places.archive_index import load_index
from reverie.runtime.places.projects import project_slug
from reverie.servers.gateway.exchange import SeenExchange
from reverie.servers.gateway.recorder import Recorder
from reverie.settings import Settings
from reverie.storage.files import FileStorage
from reverie.values import replace

SAMPLES = Path(__file__).parents[1] / "importers" / "samples"
DAY = 86_400.0


class Machine:
    """A user's home with sessions of several agents, and the library that keeps them."""

    def __init__(self, root: Path) -> None:
        self.user = root / "user"
        self.home = root / "library"
        self.home.mkdir(parents=True)
        self.now = 2_000_000_000.0

    def keep(self, *, dry_run: bool = False) -> KeepReport:
        storage = FileStorage(self.home)
        try:
            return Keeper(storage, self.home, usual_places(self.user, {}), dry_run=dry_run).keep(self.now)
        finally:
            storage.close()

    def path(self, agent: str, session: str) -> Path:
        where = {
            "claude-code": f".claude/projects/-p/{session}.jsonl",
            "codex": f".codex/sessions/2026/11/17/rollout-2026-11-17T10-00-00-{session}.jsonl",
            "gemini": f".gemini/tmp/p/chats/session-{session}.jsonl",
            "qwen": f".qwen/projects/-p/chats/{session}.jsonl",
        }
        return self.user / where[agent]

    def write(self, agent: str, session: str, lines: list[bytes]) -> Path:
        path = self.path(agent, session)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        os.utime(path, (self.now, self.now))
        return path

    def log(self, session: str) -> list[Entry]:
        (key,) = [key for key in self.keys if key.endswith(f"/{session}.jsonl")]
        return list(self.library.load(key).entries)

    def said(self, session: str) -> list[str]:
        return [json.dumps(entry.message) for entry in self.log(session) if entry.message is not None]

    @property
    def library(self) -> Library:
        return Library(FileStorage(self.home))

    @property
    def keys(self) -> list[str]:
        return self.library.keys()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def lines_of(agent: str, session: str, turns: int) -> list[bytes]:
    """Return the lines of a session with so many turns, each a prompt and a reply; equal calls give equal lines."""
    rows: list[dict[str, Any]] = []
    if agent == "codex":
        rows.append(
            {"timestamp": "2026-11-17T10:00:00Z", "type": "session_meta", "payload": {"id": session, "cwd": "/p"}}
        )
    if agent == "gemini":
        rows.append({"sessionId": session, "projectHash": "h", "startTime": "2026-11-17T10:00:00Z", "kind": "main"})
    for turn in range(turns):
        asked, told, parent = f"{session}-u{turn}", f"{session}-a{turn}", f"{session}-a{turn - 1}" if turn else None
        at = {"timestamp": f"2026-11-17T10:{turn // 60:02}:{turn % 60:02}.000Z"}
        words = f"{session} question {turn}", f"{session} answer {turn}"
        both = {"sessionId": session, "cwd": "/p", **at}
        first = {"type": "user", "uuid": asked, "parentUuid": parent, **both}
        second = {"type": "assistant", "uuid": told, "parentUuid": asked, **both}
        if agent == "claude-code":
            reply = {"id": told, "role": "assistant", "model": "m", "content": [{"type": "text", "text": words[1]}]}
            rows += [
                {**first, "message": {"role": "user", "content": words[0]}},
                {**second, "message": reply},
            ]
        elif agent == "codex":
            for role, kind, text in (("user", "input_text", words[0]), ("assistant", "output_text", words[1])):
                item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
                rows.append({**at, "type": "response_item", "payload": item})
        elif agent == "gemini":
            rows += [
                {"id": asked, **at, "type": "user", "content": [{"text": words[0]}]},
                {"id": told, **at, "type": "gemini", "content": words[1], "model": "m"},
            ]
        else:
            rows += [
                {**first, "message": {"role": "user", "parts": [{"text": words[0]}]}},
                {**second, "message": {"role": "model", "parts": [{"text": words[1]}]}},
            ]
    return [json.dumps(row).encode() + b"\n" for row in rows]


AGENTS = ("claude-code", "codex", "gemini", "qwen")


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_grew_is_extended_and_one_that_shrank_stays(agent: str, machine: Machine) -> None:
    machine.write(agent, "s1", lines_of(agent, "s1", 3))
    assert [(one.format, one.kept, one.added) for one in machine.keep().agents] == [(agent, 1, 1)]
    before = machine.log("s1")
    machine.write(agent, "s1", lines_of(agent, "s1", 5))
    assert [(one.kept, one.added, one.grown) for one in machine.keep().agents] == [(1, 0, 1)]
    after = machine.log("s1")
    assert after[: len(before)] == before
    assert len(machine.said("s1")) == 10
    machine.write(agent, "s1", lines_of(agent, "s1", 2))
    assert [(one.kept, one.grown) for one in machine.keep().agents] == [(1, 0)]
    assert machine.log("s1") == after
    machine.path(agent, "s1").unlink()
    assert [(one.kept, one.gone) for one in machine.keep().agents] == [(1, 1)]
    assert machine.log("s1") == after


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_lost_its_beginning_is_extended_by_its_end(agent: str, machine: Machine) -> None:
    lines = lines_of(agent, "s1", 6)
    head = 1 if agent in ("codex", "gemini") else 0
    machine.write(agent, "s1", lines[: head + 6])
    machine.keep()
    machine.write(agent, "s1", [*lines[:head], *lines[head + 4 :]])
    machine.keep()
    said = machine.said("s1")
    assert len(said) == len(set(said)) == 12
    shown = json.dumps(list(View().fold_all(machine.log("s1")).messages()))
    assert all(f"question {turn}" in shown for turn in range(6))


@pytest.mark.requirement("A1")
def test_messages_that_the_program_went_back_from_leave_the_view_and_stay_in_the_log(machine: Machine) -> None:
    lines = lines_of("claude-code", "s1", 4)
    machine.write("claude-code", "s1", lines)
    machine.keep()
    other = json.loads(lines[-2])
    other |= {"uuid": "other", "parentUuid": "s1-a1", "message": {"role": "user", "content": "another way"}}
    machine.write("claude-code", "s1", [*lines, json.dumps(other).encode() + b"\n"])
    machine.keep()
    shown = json.dumps(list(View().fold_all(machine.log("s1")).messages()))
    assert "another way" in shown
    assert "question 3" not in shown
    assert any("question 3" in text for text in machine.said("s1"))
    machine.keep()
    assert len(machine.said("s1")) == 9


@pytest.mark.requirement("A1")
def test_a_session_that_the_user_deleted_from_the_library_stays_deleted(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    (key,) = machine.keys
    machine.library.remove(key)
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 3))
    assert machine.keep().agents == ()
    assert machine.keys == []


@pytest.mark.requirement("A1")
def test_a_deleted_session_returns_neither_by_a_history_nor_by_its_first_pass_nor_by_a_hook(machine: Machine) -> None:
    path = machine.write("claude-code", "s1", lines_of("claude-code", "s1", 1))
    history = machine.user / ".claude" / "history.jsonl"
    row = {"display": "s1 question 0", "timestamp": 1_794_000_000_000, "project": "/p", "sessionId": "s1"}
    [found] = read_session(path)
    Recordings(machine.library).file(found, "p-1", path)
    machine.library.remove(machine.keys[0])
    assert (machine.keep().keys, machine.keys) == ((), [])
    history.write_text(json.dumps(row) + "\n")
    report = machine.keep()
    assert (report.lost, machine.keys) == (0, [])
    guarded = Recordings(machine.library, index=load_index(str(machine.home)))
    assert guarded.file(found, "p-1", path)[1] == DELETED
    assert guarded.file(replace(found, session_id="s1.agent-x"), "p-1", path)[1] == DELETED
    Recordings(machine.library).file(found, "p-1", path)  # as `reverie import` does
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    assert len(machine.said("s1")) == 4


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("copy", [False, True])
def test_of_a_session_and_its_copy_the_deleted_one_stays_deleted(copy: bool, machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 1))
    machine.keep()
    append(machine, USER, {"message": {"role": "user", "content": "mine"}})
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    gone, left = sorted(machine.keys, key=lambda key: ("/s1-" in key) != copy)
    machine.library.remove(gone)
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 3))
    assert machine.keep().keys == (() if copy else (left,))
    assert machine.keys == [left]


@pytest.mark.requirement("A1")
def test_a_session_that_cannot_be_stored_is_tried_again_and_the_others_of_its_file_are_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = machine.user / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as opened:
        opened.execute(
            "CREATE TABLE session (id, parent_id, directory, title, agent, cost, time_created, time_updated)"
        )
        opened.execute("CREATE TABLE message (id, session_id, time_created, time_updated, data)")
        opened.execute("CREATE TABLE part (id, message_id, session_id, time_created, time_updated, data)")
        for name, made in (("o1", 1_794_000_000_000), ("o2", 4e15)):  # no calendar has the second time
            opened.execute("INSERT INTO session VALUES (?, NULL, '/p', 't', NULL, 0, 1, 1)", (name,))
            about = json.dumps({"role": "user", "time": {"created": made}})
            opened.execute("INSERT INTO message VALUES (?, ?, 1, 1, ?)", (f"m-{name}", name, about))
            part = json.dumps({"type": "text", "text": "hello"})
            opened.execute("INSERT INTO part VALUES (?, ?, ?, 1, 1, ?)", (f"p-{name}", f"m-{name}", name, part))
        opened.commit()
    machine.write("codex", "c1", lines_of("codex", "c1", 1))
    write = FileStorage.write

    def full(self: FileStorage, key: str, *arguments: Any, **named: Any) -> Any:
        if key.endswith(("/o1.jsonl", "/c1.jsonl")):
            raise StorageError("disk full", path=key)
        return write(self, key, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(FileStorage, "write", full)
        assert [why for _, why in machine.keep().failed] == ["disk full", "disk full"]
    assert len(machine.said("o2")) == 1
    assert (len(machine.keys), machine.keep().failed, len(machine.keys)) == (1, (), 3)
    assert machine.keep().read == 0


@pytest.mark.requirement("A1")
def test_a_reader_that_breaks_on_one_file_does_not_end_the_pass(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = machine.write("codex", "bad", lines_of("codex", "bad", 1))
    machine.write("qwen", "good", lines_of("qwen", "good", 1))

    def broken(path: Any) -> Any:
        return 1 // 0 if str(path) == str(bad) else read_session(path)

    monkeypatch.setattr("reverie.runtime.archive.keeper.read_session", broken)
    assert [name for name, _ in machine.keep().failed] == [str(bad)]
    assert len(machine.said("good")) == 2


@pytest.mark.requirement("A1")
def test_a_compressed_session_is_kept_once_its_package_is_there(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = machine.write("codex", "c1", [zstandard.compress(b"".join(lines_of("codex", "c1", 1)))])
    path.rename(f"{path}.zst")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "zstandard", None)
        assert len(machine.keep().failed) == 1
        assert machine.keep().failed == ()
    assert len(machine.keep().keys) == 1


@pytest.mark.requirement("A1")
def test_a_secret_that_the_user_took_out_stays_out_when_the_session_grows(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    (log,) = machine.home.rglob("projects/*/s1.jsonl")
    log.write_text(log.read_text().replace("answer 1", "[redacted]"))
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 3))
    machine.keep()
    assert "answer 2" in log.read_text()
    assert "answer 1" not in log.read_text()


@pytest.mark.requirement("A1")
def test_a_session_that_the_user_continued_here_is_not_mixed_with_the_host_s(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    append(machine, USER, {"message": {"role": "user", "content": "mine"}})
    before = machine.log("s1")
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 3))
    machine.keep()
    assert machine.log("s1") == before
    copies = [key for key in machine.keys if "/s1-" in key]
    assert len(copies) == 1


def append(machine: Machine, kind: str, body: dict[str, Any]) -> None:
    """Append an entry of Reverie's own to the only log."""
    storage = FileStorage(machine.home)
    (key,) = Library(storage).keys()
    storage.append(key, encode_entry(Entry("own", None, "2026-11-17T11:00:00.000Z", "s1", kind, body)))
    storage.close()


@pytest.mark.requirement("A1")
def test_recovered_prompts_that_the_user_continued_here_stay_when_the_session_returns(machine: Machine) -> None:
    history = machine.user / ".claude" / "history.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text('{"display": "lost", "timestamp": 1794000000000, "project": "/p", "sessionId": "s1"}\n')
    machine.keep()
    append(machine, USER, {"message": {"role": "user", "content": "mine"}})
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    assert "mine" in machine.said("s1")[-1]
    assert len(machine.keys) == 2


@pytest.mark.requirement("A1")
def test_a_title_with_a_redacted_secret_does_not_return_when_the_session_grows(machine: Machine) -> None:
    def titled(turns: int) -> list[bytes]:
        return [
            b'{"type": "ai-title", "aiTitle": "use hunter2", "sessionId": "s1"}\n',
            *lines_of("claude-code", "s1", turns),
        ]

    machine.write("claude-code", "s1", titled(1))
    machine.keep()
    (log,) = machine.home.rglob("projects/*/s1.jsonl")
    assert "hunter2" in log.read_text()
    log.write_text(log.read_text().replace("hunter2", "[redacted]"))
    append(machine, DECISION, body_of(Redacted(Cause("user", "redact"), 1, 1)))
    machine.write("claude-code", "s1", titled(2))
    machine.keep()
    assert "answer 1" in log.read_text()
    assert "hunter2" not in log.read_text()


@pytest.mark.requirement("A1")
def test_stored_results_come_along_under_their_calls_and_no_other_file_does(machine: Machine, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "preview"}
    both = {"sessionId": "s1", "cwd": "/p", "timestamp": "2026-11-17T10:00:00.000Z"}
    rows = [
        {"type": "user", "uuid": "u", "parentUuid": None, **both, "message": {"role": "user", "content": "go"}},
        {"type": "assistant", "uuid": "a", "parentUuid": "u", **both,
         "message": {"id": "m", "role": "assistant", "content": [use]}},
        {"type": "user", "uuid": "r", "parentUuid": "a", **both, "message": {"role": "user", "content": [result]},
         "toolUseResult": {"persistedOutputPath": "/elsewhere/s1/tool-results/b7.txt"}},
    ]  # fmt: skip
    path = machine.write("claude-code", "s1", [json.dumps(row).encode() + b"\n" for row in rows])
    stored = path.with_suffix("") / "tool-results"
    stored.mkdir(parents=True)
    (stored / "b7.txt").write_text("the whole output")
    (stored / "link.txt").symlink_to(secret)
    machine.keep()
    kept = {file.name: file.read_text() for file in machine.home.rglob("tool-results/*")}
    assert kept == {"toolu_1.txt": "the whole output"}


@pytest.mark.requirement("A1")
def test_an_agent_s_transcript_is_kept_beside_its_session(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 1))
    agent = machine.path("claude-code", "s1").with_suffix("") / "subagents" / "agent-abc.jsonl"
    agent.parent.mkdir(parents=True)
    rows = [json.loads(line) | {"isSidechain": True, "agentId": "abc"} for line in lines_of("claude-code", "s1", 1)]
    agent.write_bytes(b"".join(json.dumps({**row, "uuid": f"x{row['uuid']}"}).encode() + b"\n" for row in rows))
    report = machine.keep()
    assert [(one.kept, one.added) for one in report.agents] == [(1, 1)]
    assert sorted(key.rsplit("/", 1)[1] for key in machine.keys) == ["s1.agent-abc.jsonl", "s1.jsonl"]


@pytest.mark.requirement("A1")
def test_prompts_of_deleted_sessions_are_recovered_once_and_give_way_to_the_session(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 1))
    rows = [
        {"display": "s1 question 0", "timestamp": 1_794_000_000_000, "project": "/p", "sessionId": "s1"},
        {"display": "lost one", "timestamp": 1_794_000_000_000, "project": "/gone", "sessionId": "s2"},
        {"display": "lost two", "timestamp": 1_794_000_001_000, "project": "/gone", "sessionId": "s2",
         "pastedContents": {"1": {"content": "pasted"}}},
        {"display": "older", "timestamp": 1_704_000_000_000, "project": "/gone"},
    ]  # fmt: skip
    history = machine.user / ".claude" / "history.jsonl"
    history.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (machine.user / ".codex").mkdir()
    (machine.user / ".codex" / "history.jsonl").write_text(
        '{"session_id": "c1", "ts": 1794000000, "text": "codex prompt"}\n'
    )
    for _ in range(2):
        report = machine.keep()
        assert (report.lost, report.prompts) == (3, 4)
    assert len(machine.said("s2")) == 2
    assert "pasted" in machine.said("s2")[1]
    with history.open("a") as stream:
        stream.write(json.dumps({**rows[1], "display": "lost three", "timestamp": 1_794_000_002_000}) + "\n")
    assert machine.keep().prompts == 5
    assert len(machine.said("s2")) == 3
    machine.write("claude-code", "s2", lines_of("claude-code", "s2", 2))
    machine.keep()
    assert len(machine.said("s2")) == 4


@pytest.mark.requirement("A1")
def test_prompts_that_hooks_heard_never_stand_beside_the_session(machine: Machine) -> None:
    """The worker files prompts where it could read no transcript, before or after a pass."""
    draft = SessionDraft("hooks", "s1", RecordSource("s1 of gemini", ()))
    draft.say("user", "user", "s1 question 0")
    storage = FileStorage(machine.home)
    Recordings(Library(storage)).file(draft.done(), "p-1", Path("s1"))
    machine.write("gemini", "s1", lines_of("gemini", "s1", 2))
    machine.keep()
    Recordings(Library(storage)).file(draft.done(), "p-1", Path("s1"))
    storage.close()
    assert len(machine.keys) == 1
    assert len(machine.said("s1")) == 4


@pytest.mark.requirement("A1")
def test_the_report_says_what_agents_delete_soon_by_their_own_settings(machine: Machine) -> None:
    for name, days in (("old", 25), ("new", 2)):
        path = machine.write("claude-code", name, lines_of("claude-code", name, 1))
        os.utime(path, (machine.now - days * DAY, machine.now - days * DAY))
    machine.write("codex", "c", lines_of("codex", "c", 1))
    claude, codex = machine.keep().agents
    assert (claude.due, claude.days_kept, codex.due, codex.days_kept) == (1, 30.0, 0, None)
    assert (claude.first_due_days, codex.first_due_days) == (pytest.approx(5.0), None)
    (machine.user / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 90}')
    assert machine.keep().agents[0].due == 0
    gemini = machine.write("gemini", "g", lines_of("gemini", "g", 1))
    os.utime(gemini, (machine.now - 25 * DAY, machine.now - 25 * DAY))
    assert {one.format: one.due for one in machine.keep().agents}["gemini"] == 1
    (machine.user / ".gemini" / "settings.json").write_text('{"general": {"sessionRetention": {"enabled": false}}}')
    assert {one.format: one.due for one in machine.keep().agents}["gemini"] == 0


@pytest.mark.requirement("A3")
def test_a_session_is_filed_under_the_directory_it_ran_in_and_counts_as_foreign(
    machine: Machine, tmp_path: Path
) -> None:
    [found] = read_session(SAMPLES / "qwen-compressed.jsonl")
    assert project_of(found).startswith("notes-")
    assert project_of(replace(found, cwd=str(tmp_path))) == project_slug(tmp_path)
    assert project_of(replace(found, cwd="")).startswith("qwen-")
    machine.write("codex", "s1", lines_of("codex", "s1", 1))
    machine.keep()
    (key,) = machine.keys
    assert machine.library.describe(key).imported
    assert all(entry.imported for entry in machine.log("s1"))


def test_a_recorded_prompt_binds_no_thinking_of_a_program_that_sent_other_bytes() -> None:
    [found] = read_session(SAMPLES / "claude-code-parallel.jsonl")
    prefixes = [entry.body.get("decision") for entry in described(found, "s1")]
    assert prefixes.count("prefix_rendered") == 1
    place, reply = next((at, one) for at, one in enumerate(found.entries) if one.kind == "assistant")
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}]}
    entries = list(found.entries)
    entries[place] = replace(reply, body={**reply.body, "message": thought})
    bound = described(replace(found, entries=tuple(entries)), "s1")
    assert "prefix_rendered" not in [entry.body.get("decision") for entry in bound]
    assert bound[0].body["recorded"]["system"]


@pytest.mark.requirement("A2")
def test_an_unchanged_machine_is_neither_read_nor_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in AGENTS:
        machine.write(agent, f"{agent}-1", lines_of(agent, f"{agent}-1", 2))
    machine.keep()
    before = {path: path.stat().st_mtime_ns for path in machine.home.rglob("*") if path.is_file()}
    opened: list[str] = []
    read = read_session
    monkeypatch.setattr(
        "reverie.runtime.archive.keeper.read_session", lambda path: opened.append(str(path)) or read(path)
    )
    assert machine.keep().read == 0
    assert opened == []
    machine.path("qwen", "qwen-1").touch()
    assert machine.keep().read == 1  # the counter counts
    assert len(opened) == 1
    now = {path: path.stat().st_mtime_ns for path in machine.home.rglob("*") if path.is_file()}
    assert {path for path in now if now[path] != before.get(path)} <= {machine.home / INDEX, *_locks(machine)}


def _locks(machine: Machine) -> set[Path]:
    return {path for path in machine.home.rglob("*") if path.suffix == ".lock" or path.name == ".reverie-lock"}


def test_a_file_that_no_reader_knows_fails_once_and_is_read_again_when_it_changes(machine: Machine) -> None:
    path = machine.write("codex", "odd", [b"no rollout\n"])
    machine.write("codex", "empty", [])
    assert [name for name, _ in machine.keep().failed] == [str(path)]
    assert (machine.keep().failed, machine.keep().read) == ((), 0)
    assert [name for name, _ in machine.keep().failed_before] == [str(path)]
    machine.write("codex", "odd", lines_of("codex", "odd", 1))
    assert [one.added for one in machine.keep().agents] == [1]
    assert machine.keep().failed_before == ()
    machine.write("codex", "other", [b"still no rollout\n"])
    machine.keep()
    index = machine.home / INDEX
    index.write_bytes(index.read_bytes().replace(b"codex copilot", b"codex"))  # as an older version left it
    assert len(machine.keep().failed) == 1


def test_a_dry_run_reports_the_same_and_writes_nothing(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    report = machine.keep(dry_run=True)
    assert [(one.kept, one.added) for one in report.agents] == [(1, 1)]
    assert list(machine.home.iterdir()) == []


def test_a_damaged_index_is_made_again_without_a_double(machine: Machine) -> None:
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 2))
    machine.keep()
    before = machine.log("s1")
    (machine.home / INDEX).write_bytes(b"{broken")
    assert [(one.kept, one.added, one.grown) for one in machine.keep().agents] == [(1, 0, 0)]
    assert machine.log("s1") == before


# -- a machine that changes all the time, and passes that are killed


class World:
    """Sessions of four agents that grow, rotate, shrink and vanish; ``said`` is all that was ever on disk at a pass."""

    def __init__(self, machine: Machine, sessions: int, seed: int) -> None:
        self.machine = machine
        self.chance = random.Random(seed)
        self.turns: dict[tuple[str, str], int] = {}
        self.first: dict[tuple[str, str], int] = {}
        self.said: dict[str, set[int]] = {}
        self.made: set[str] = set()
        for number in range(sessions):
            self.put((AGENTS[number % 4], f"s{number}"), self.chance.randint(1, 6), 0)

    def put(self, name: tuple[str, str], turns: int, first: int) -> None:
        agent, session = name
        self.made.add(session)
        head = 1 if agent in ("codex", "gemini") else 0
        lines = lines_of(agent, session, turns)
        self.machine.write(agent, session, [*lines[:head], *lines[head + 2 * first :]])
        self.turns[name], self.first[name] = turns, first
        self.machine.now += 1

    def change(self) -> None:
        """Change a third of the sessions, after a pass has seen all of them."""
        for name in self.chance.sample(sorted(self.turns), len(self.turns) // 3):
            turns, first = self.turns[name], self.first[name]
            match self.chance.choice(["grow", "grow", "rotate", "truncate", "delete"]):
                case "grow":
                    self.put(name, turns + self.chance.randint(1, 4), first)
                case "rotate":
                    self.put(name, turns + 1, max(first, turns - 1))
                case "truncate":
                    self.put(name, max(first + 1, turns - 1), first)
                case _:
                    self.machine.path(*name).unlink(missing_ok=True)
                    del self.turns[name], self.first[name]
                    self.put((name[0], f"n{len(self.made)}"), self.chance.randint(1, 6), 0)

    def note(self) -> None:
        """Remember the turns that a completed pass must have kept."""
        for (_, session), turns in self.turns.items():
            self.said.setdefault(session, set()).update(range(self.first[(_, session)], turns))

    def check(self) -> None:
        """Assert that each turn that a pass saw is in the library, once."""
        library = self.machine.library
        found = {key.rsplit("/", 1)[1].removesuffix(".jsonl"): key for key in self.machine.keys}
        assert sorted(found) == sorted(self.said)
        for session, turns in self.said.items():
            texts = Counter(
                json.dumps(entry.message) for entry in library.load(found[session]).entries if entry.message
            )
            assert set(texts.values()) == {1}, session
            joined = "\n".join(texts)
            assert all(f"question {turn}" in joined and f"answer {turn}" in joined for turn in turns), session


PASS = """
import os, sys
from pathlib import Path
from reverie.importers import usual_places
from reverie.runtime.archive import Keeper
from reverie.storage.files import FileStorage
left, write = int(sys.argv[3]), FileStorage.write
def counted(*arguments, **named):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    return write(*arguments, **named)
FileStorage.write = counted
print("ready", flush=True)
sys.stdin.readline()
Keeper(FileStorage(sys.argv[1]), Path(sys.argv[1]), usual_places(Path(sys.argv[2]), {})).keep(0.0)
"""


def killed_pass(machine: Machine, *, writes: int = 0, seconds: float = 60.0) -> bool:
    """Run a pass in a process of its own that dies before a write, or after a time; return whether it died."""
    arguments = [sys.executable, "-c", PASS, str(machine.home), str(machine.user), str(writes)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.write(b"go\n")
        process.stdin.flush()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.requirement("A1", "A2")
def test_nothing_is_lost_or_doubled_when_sessions_change_and_passes_are_killed(
    machine: Machine, seed: int, torture: bool
) -> None:
    world = World(machine, 300 if torture else 24, seed)
    kills = 0
    for round in range(100 if torture else 3):
        chance = world.chance
        if torture and round % 2:
            kills += killed_pass(machine, seconds=chance.uniform(0.0, 0.5))
        else:
            kills += killed_pass(machine, writes=chance.randint(1, 2 if round else 20))
        machine.keep()
        world.note()
        world.check()
        assert machine.keep().read == 0, round
        world.change()
        if kills >= 50:
            break
    assert kills >= (50 if torture else 2)


@pytest.mark.requirement("A1")
def test_the_check_notices_a_lost_and_a_doubled_message(
    machine: Machine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(machine, 4, seed)
    machine.keep()
    world.note()
    world.check()
    shortened: Callable[..., Any] = lambda there, found, **_: list(found)  # noqa: E731
    monkeypatch.setattr("reverie.runtime.library.extended", shortened)
    name = next(one for one, turns in world.turns.items() if turns > 1)
    world.put(name, world.turns[name], world.turns[name] - 1)
    machine.keep()
    with pytest.raises(AssertionError):
        world.check()
    shutil.rmtree(machine.home)
    machine.home.mkdir()
    monkeypatch.setattr("reverie.runtime.library.extended", lambda there, found, **_: [*there, *found])
    machine.keep()
    machine.path(*name).touch()
    machine.keep()
    with pytest.raises(AssertionError):
        world.check()


def through_the_gateway(machine: Machine, session: str, turns: int, *, agent: str = "") -> str | None:
    """Record the turns of a session of Claude Code as its gateway sees them; return the key of the log."""
    key = None
    with Recorder(Settings(home=machine.home), lambda sentence: None) as recorder:
        for turn in range(turns):
            said = [text for one in range(turn) for text in (f"question {one}", f"answer {one}")]
            texts = [f"{session} {text}" for text in (*said, f"question {turn}")]
            messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
            answer = [{"type": "text", "text": f"{session} answer {turn}"}]
            reply = {"id": f"{session}-a{turn}", "role": "assistant", "model": "m", "content": answer}
            usage = {"input_tokens": 9, "output_tokens": 1}
            request = {"model": "m", "system": "s", "tools": [{"name": "Bash"}], "messages": messages}
            key = recorder.take(
                SeenExchange(
                    "messages",
                    machine.now + turn,
                    200,
                    True,
                    {"x-claude-code-session-id": session} | ({"x-claude-code-agent-id": agent} if agent else {}),
                    {},
                    json.dumps(request).encode(),
                    json.dumps({**reply, "type": "message", "stop_reason": "end_turn", "usage": usage}).encode(),
                )
            )
    return key


@pytest.mark.requirement("A1", "G2")
def test_a_session_that_the_gateway_recorded_is_not_filed_twice(machine: Machine) -> None:
    key = through_the_gateway(machine, "s1", 3)
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 3))
    report = machine.keep()
    assert machine.keys == [key]
    assert [(one.kept, one.added, one.grown) for one in report.agents] == [(1, 0, 0)]
    assert report.failed == ()
    machine.library.remove(str(key))
    machine.write("claude-code", "s1", lines_of("claude-code", "s1", 4))
    machine.keep()
    assert machine.keys == []  # the user deleted it, whichever way it comes


def test_replies_that_passed_the_gateway_by_are_kept_once_it_had_the_time_to_record_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = through_the_gateway(machine, "s1", 2)
    path = machine.write("claude-code", "s1", lines_of("claude-code", "s1", 4))
    last = read_session(path)[0].entries[-1].at
    monkeypatch.setattr("time.time", lambda: last + 5)
    assert machine.keep().failed == ()
    assert machine.keys == [key]
    monkeypatch.setattr("time.time", lambda: last + 500)
    machine.keep()
    assert len(machine.keys) == 2
    assert len(machine.said("s1")) == 8


def test_a_keeper_that_does_not_ask_the_gateway_is_found_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recordings, "_held_by_gateway", lambda self, recording, session: None)
    with pytest.raises(AssertionError):
        test_a_session_that_the_gateway_recorded_is_not_filed_twice(machine)
