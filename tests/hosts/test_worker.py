"""The worker: each queued job runs once, within its budget, and no process stays behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.entries import USER, Entry, encode_entry
from reverie.hosts.hook import answer
from reverie.hosts.queue import Job, Queue
from reverie.hosts.worker import work
from reverie.importers import read_session
from reverie.runtime.library import Library
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug
from reverie.storage.files import FileStorage

TOLD = "Releases must be cut on Tuesdays, because support is fully staffed then."


def home() -> Path:
    """Return the home of this test."""
    return Path(os.environ["REVERIE_HOME"])


def transcript(path: Path, project: Path, *said: str, session: str = "abc-123") -> Path:
    """Write a transcript as Claude Code does."""
    lines: list[dict[str, Any]] = []
    parent = None
    for number, text in enumerate(said):
        common = {"sessionId": session, "cwd": str(project), "version": "2.1.0", "isSidechain": False}
        stamp = f"2026-11-16T10:{number:02d}:00.000Z"
        asked = {"type": "user", "message": {"role": "user", "content": text}, "uuid": f"u{number}"}
        told = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
        body = {**told, "content": [{"type": "text", "text": "Understood."}], "usage": {"input_tokens": 9}}
        lines.append({**common, **asked, "parentUuid": parent, "timestamp": stamp})
        reply = {"type": "assistant", "message": body, "uuid": f"a{number}", "parentUuid": f"u{number}"}
        lines.append({**common, **reply, "timestamp": stamp})
        parent = f"a{number}"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def say_before(project: Path) -> None:
    """Write an earlier session of the project in which the user said the same."""
    said = {"message": {"role": "user", "content": "Cut releases only on Tuesdays, support is fully staffed then."}}
    storage = FileStorage(home())
    entry = Entry("before-1", None, "2026-11-01T10:00:00Z", "before", USER, said)
    storage.write(log_key(project_slug(project), "before"), encode_entry(entry) + b"\n")
    storage.close()


def call(event: str, project: Path, file: Path, **more: Any) -> None:
    """Call a hook as the host does, in this process."""
    common = {"session_id": "abc-123", "cwd": str(project), "transcript_path": str(file), "hook_event_name": event}
    assert json.loads(answer(["--host", "claude-code", event], json.dumps({**common, **more}).encode())) == {}


def test_the_time_limit_holds_between_jobs_and_the_rest_waits(project: Path, tmp_path: Path) -> None:
    queue = Queue(home())
    file = transcript(tmp_path / "transcript.jsonl", project, "Hello.")
    for number in range(5):
        queue.put(Job("claude-code", f"s-{number}", str(project), str(file)))
    ticks = iter([0.0, 1.0, 2.0, 599.0, *[600.0] * 99])
    assert len(work(home(), clock=lambda: next(ticks))) == 2
    assert len(queue.waiting_names()) == 3
    assert len(work(home())) == 3


@pytest.mark.requirement("B6", "D4", "L5.6")
def test_what_the_user_repeats_becomes_a_memory_once_and_the_session_is_found_later(
    project: Path, tmp_path: Path
) -> None:
    say_before(project)
    file = transcript(tmp_path / "t.jsonl", project, TOLD)
    call("UserPromptSubmit", project, file, prompt=TOLD)
    call("Stop", project, file)
    [done] = work(home())
    assert (done.problem, done.by, len(done.saved)) == ("", "local", 1)
    memory = Memory.open(project)
    [kept] = memory.list()
    assert "Tuesdays" in memory.get(kept.file).body
    assert (kept.trust, len(kept.source)) == ("unconfirmed", 2)
    assert work(home()) == []
    call("Stop", project, file)
    assert [one.saved for one in work(home())] == [()]
    file = transcript(tmp_path / "t.jsonl", project, TOLD, "Thanks.")
    call("SessionEnd", project, file)
    [ended] = work(home())
    assert (ended.saved, ended.filed) == ((), True)
    storage = FileStorage(home())
    assert Library(storage).view(f"projects/{project_slug(project)}/abc-123.jsonl").history
    storage.close()


@pytest.mark.requirement("A2")
def test_at_the_end_a_session_is_extended_and_its_agents_and_results_are_kept(project: Path, tmp_path: Path) -> None:
    file = transcript(tmp_path / "t.jsonl", project, "Hello.")
    call("SessionEnd", project, file)
    assert [one.filed for one in work(home())] == [True]
    side = tmp_path / "t"
    for name in ("subagents", "tool-results"):
        (side / name).mkdir(parents=True)
    rows = [json.loads(line) for line in transcript(tmp_path / "u.jsonl", project, "Count.").read_text().splitlines()]
    agent = [{**row, "uuid": f"x-{row['uuid']}", "isSidechain": True, "agentId": "a1"} for row in rows]
    (side / "subagents" / "agent-a1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in agent))
    (side / "subagents" / "agent-a2.jsonl").write_text("no transcript\n")
    (side / "tool-results" / "b7.txt").write_text("the whole output")
    call("SessionEnd", project, transcript(tmp_path / "t.jsonl", project, "Hello.", "Thanks."))
    assert [(one.filed, one.problem) for one in work(home())] == [(True, "")]
    folder = home() / "projects" / project_slug(project)
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {"abc-123.jsonl", "b7.txt"} <= names
    assert any(name.endswith(".agent-a1.jsonl") for name in names)
    assert "Thanks." in (folder / "abc-123.jsonl").read_text()


@pytest.mark.requirement("A1")
def test_a_session_that_the_user_deleted_is_not_filed_again_at_its_end(project: Path, tmp_path: Path) -> None:
    file = transcript(tmp_path / "t.jsonl", project, "Hello.")
    log = home() / "projects" / project_slug(project) / "abc-123.jsonl"
    for deleted in (False, True):
        call("SessionEnd", project, transcript(file, project, "Hello.", "Thanks."))
        assert [(one.filed, one.problem) for one in work(home())] == [(not deleted, "")]
        assert log.exists() is not deleted
        storage = FileStorage(home())
        Library(storage).remove(f"projects/{project_slug(project)}/abc-123.jsonl")
        storage.close()


def test_a_job_that_fails_or_is_garbage_stops_nothing(project: Path, tmp_path: Path) -> None:
    say_before(project)
    queue = Queue(home())
    queue.put(Job("claude-code", "gone", str(project), str(tmp_path / "gone.jsonl")))
    queue.put(Job("claude-code", "odd", "/nowhere/at/all", "relative"))
    (Path(queue.folder) / "job-garbage.json").write_text("{")
    good = transcript(tmp_path / "t.jsonl", project, TOLD)
    queue.put(Job("claude-code", "abc-123", str(project), str(good)))
    done = {one.session: one for one in work(home())}
    assert done["gone"].problem
    assert done["odd"].problem
    assert len(done["abc-123"].saved) == 1
    assert queue.waiting_names() == [], "what no job can be is taken away"


def test_a_stop_that_comes_while_the_worker_is_at_the_session_is_not_lost(project: Path, tmp_path: Path) -> None:
    queue, job = Queue(home()), Job("claude-code", "abc-123", str(project), str(tmp_path / "t.jsonl"))
    queue.put(job)
    [name] = queue.waiting_names()
    found = queue.read(name)
    assert found is not None
    queue.put(job)  # the same session, the same transcript: but more may have been said
    queue.remove(name, found[1])
    assert queue.waiting_names() == [name]


def test_what_is_left_just_before_a_worker_lets_go_is_done_by_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(home())
    first = transcript(tmp_path / "a.jsonl", project, TOLD)
    late = transcript(tmp_path / "b.jsonl", project, "Thanks.", session="late")
    queue.put(Job("claude-code", "abc-123", str(project), str(first)))
    waiting, looks = Queue.waiting_names, [0]

    def looked(self: Queue) -> list[str]:
        found = waiting(self)
        looks[0] += 1
        if looks[0] == 2:  # it has just seen that nothing waits, and still holds the lock
            assert found == []
            assert self.has_worker()
            self.put(Job("claude-code", "late", str(project), str(late)))
        return found

    monkeypatch.setattr(Queue, "waiting_names", looked)
    assert [one.session for one in work(home())] == ["abc-123", "late"]


def test_two_workers_at_once_do_a_job_once(project: Path, tmp_path: Path) -> None:
    queue = Queue(home())
    queue.put(Job("claude-code", "abc-123", str(project), str(transcript(tmp_path / "t.jsonl", project, TOLD))))
    with queue.worker_lock():
        assert work(home()) == [], "another one is at it"
    assert len(work(home())) == 1


@pytest.mark.slow
def test_a_session_that_kills_its_workers_is_left_alone_after_three(project: Path, tmp_path: Path) -> None:
    say_before(project)
    file = transcript(tmp_path / "t.jsonl", project, TOLD)
    queue, job = Queue(home()), Job("claude-code", "abc-123", str(project), str(file))
    code = (
        "import os, signal, sys; from pathlib import Path; import reverie.hosts.worker as worker\n"
        "worker._read_recording = lambda queue, job: os.kill(os.getpid(), signal.SIGKILL)\n"
        "worker.work(Path(sys.argv[1]))\n"
    )
    queue.put(job)
    for _ in range(3):
        killed = subprocess.run([sys.executable, "-c", code, str(home())], timeout=60)
        assert killed.returncode == -9
        assert len(queue.waiting_names()) == 1, "a worker that died leaves its job to the next"
    [left] = work(home())
    assert "3 workers died at this session" in left.problem
    assert queue.waiting_names() == []
    queue.put(job)
    assert len(work(home())[0].saved) == 1, "it is tried again when the session goes on"


def test_an_error_nobody_foresaw_stops_nothing(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_before(project)
    queue = Queue(home())
    odd, good = transcript(tmp_path / "odd.jsonl", project, TOLD), transcript(tmp_path / "t.jsonl", project, TOLD)
    queue.put(Job("claude-code", "odd", str(project), str(odd)))
    queue.put(Job("claude-code", "abc-123", str(project), str(good)))

    def read(path: str) -> Any:
        if "odd" in path:
            raise RecursionError("deep")
        return read_session(path)

    monkeypatch.setattr("reverie.hosts.worker.read_session", read)
    done = {one.session: one for one in work(home())}
    assert done["odd"].problem == "RecursionError: deep"
    assert len(done["abc-123"].saved) == 1


@pytest.mark.requirement("B6", "L5.6")
@pytest.mark.parametrize(("host", "prompted", "stopped", "ended"), [
    ("gemini", "BeforeAgent", "AfterAgent", "SessionEnd"),
    ("cursor", "beforeSubmitPrompt", "stop", "sessionEnd"),
    ("codex", "UserPromptSubmit", "Stop", "SessionEnd"),
])  # fmt: skip
def test_where_no_transcript_can_be_read_what_hooks_heard_is_looked_through(
    host: str, prompted: str, stopped: str, ended: str, project: Path, tmp_path: Path
) -> None:
    say_before(project)
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"sessionId": "s", "messages": []}))
    common: dict[str, Any] = {"session_id": "abc-123", "cwd": str(project)}
    common["transcript_path"] = str(own) if host == "cursor" else None

    def call_host(event: str, **more: Any) -> None:
        answer(["--host", host, event], json.dumps({**common, "hook_event_name": event, **more}).encode())

    call_host(prompted, prompt=TOLD)
    call_host(stopped, prompt_response="Understood.")
    [done] = work(home())
    assert (done.problem, len(done.saved)) == ("", 1)
    [kept] = Memory.open(project).list()
    assert kept.trust == "unconfirmed"
    call_host(ended)
    [again] = work(home())
    assert (again.problem, again.saved) == ("", ())
    storage = FileStorage(home())
    assert Library(storage).view(f"projects/{project_slug(project)}/abc-123.jsonl").history
    storage.close()


def test_what_is_known_of_a_session_goes_long_after_its_end(project: Path, tmp_path: Path) -> None:
    queue = Queue(home())
    job = Job("claude-code", "abc-123", str(project), str(transcript(tmp_path / "t.jsonl", project, TOLD)))
    queue.put(job)
    work(home())
    assert queue.load_state(job)
    queue.sweep(time.time() + 91 * 86_400)
    assert queue.load_state(job) == {}


@pytest.mark.requirement("B6")
@pytest.mark.slow
def test_many_calls_leave_no_process_and_one_worker_does_it_all(
    project: Path, tmp_path: Path, torture: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REVERIE_WORKER")
    say_before(project)
    file = transcript(tmp_path / "t.jsonl", project, TOLD)
    calls = 1_000 if torture else 12
    command = [sys.executable, "-P", "-m", "reverie.cli.start", "hook", "--host", "claude-code"]
    common = {"cwd": str(project), "transcript_path": str(file)}
    for number in range(calls):
        event = ("UserPromptSubmit", "PostToolUse", "Stop")[number % 3]
        body = {**common, "session_id": f"s{number % 5}", "hook_event_name": event, "prompt": TOLD}
        ran = subprocess.run(command, input=json.dumps(body).encode(), capture_output=True, timeout=60)
        assert ran.returncode == 0
        assert isinstance(json.loads(ran.stdout), dict)
    queue, until = Queue(home()), time.monotonic() + 120
    while (queue.has_worker() or queue.waiting_names()) and time.monotonic() < until:
        if queue.waiting_names() and not queue.has_worker():
            work(home())
        time.sleep(0.05)
    assert queue.waiting_names() == []
    while (left := workers_of(home())) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []
    print(f"{calls} calls, {len(Memory.open(project).list())} memories")
    assert len(Memory.open(project).list()) == 1, "five sessions that say the same make one memory"


def workers_of(home: Path) -> list[int]:
    """Return the processes that work for this home."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"reverie.hosts.worker" in words and str(home).encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.requirement("L5.7")
@pytest.mark.slow
def test_a_named_model_is_asked_until_the_days_budget_is_spent_and_then_nobody_pays(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.testing.messages_server import MessagesServer

    said = {"type": "project", "text": "Releases are cut on Tuesdays.", "name": "Release day", "why": "staffing"}
    with MessagesServer(lambda request: json.dumps({"memories": [said]})) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("REVERIE_MODEL_ALIASES", "worker=anthropic:claude-sonnet-4-5")
        monkeypatch.setenv("REVERIE_EXTRACT", "daily_tokens=500")
        queue = Queue(home())
        for number in range(4):
            file = transcript(tmp_path / f"t{number}.jsonl", project, TOLD, session=f"s{number}")
            queue.put(Job("claude-code", f"s{number}", str(project), str(file)))
        done = work(home())
        calls = len(server.requests)
    assert [one.problem for one in done] == ["", "", "", ""]
    assert [one.by for one in done] == ["model", "local", "local", "local"]
    assert calls == 1, "the first call used up the day"
    assert any("Tuesdays" in Memory.open(project).get(one.file).body for one in Memory.open(project).list())
