"""``reverie chat`` without a screen: one answer in every format, pipes, plain lines, and exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marks import without_marks
from reverie.cli.main import run
from reverie.events import EVENTS
from reverie.hosts.worker import work
from reverie.runtime.memory.memory import Memory
from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer

COMMAND = str(Path(sys.executable).with_name("reverie"))
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
MODEL = "anthropic:claude-sonnet-5"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "base64", "media_type": "image/png", "data": PIXEL}

Chat = Callable[..., tuple[int, str, str]]


def said_last(request: dict[str, Any]) -> str:
    """Return the last block of the last message: the prompt, below what is attached to it, or a tool's result."""
    content = request["messages"][-1]["content"]
    block = {"text": content} if isinstance(content, str) else content[-1]
    return str(block.get("text") or block.get("content") or "")


def answering(request: dict[str, Any]) -> Any:
    """Answer like a model that has one trick for each test."""
    said = said_last(request)
    results = any(block.get("type") == "tool_result" for block in blocks_of(request["messages"][-1]))
    if results:
        return f"The tool said: {said[:60]}"
    if "read the file" in said:
        path = said.split("read the file ", 1)[1].split()[0]
        calls = [{"type": "tool_use", "name": "Read", "input": {"file_path": path}}]
        return [{"type": "text", "text": "Let me look."}, *calls]
    if "write the file" in said:
        path = said.split("write the file ", 1)[1].split()[0]
        return [{"type": "tool_use", "name": "Write", "input": {"file_path": path, "content": "new\n"}}]
    if "the program that keeps memories" in said:
        saved = {"type": "feedback", "text": "Indent with tabs.", "name": "Tabs", "why": "asked"}
        return json.dumps({"memories": [saved]})
    if "be rude" in said:
        return "Clear \x1b[2Jthe\x07 screen\u202e."
    return f"You said {len(said.split())} words."


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [] if isinstance(content, str) else content


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    """Run a provider and point the environment at it."""
    with MessagesServer(answering) as running:
        for key in KEYS:
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of the tests")
        monkeypatch.setenv("REVERIE_SWITCH_EXTRACTION", "off")  # the script answers the conversation only
        yield running
        assert running.errors == []


@pytest.fixture
def chat(
    server: MessagesServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Chat:
    """Return a function that runs ``reverie chat`` in an empty project and gives exit code, stdout and stderr."""
    project = tmp_path / "project"
    project.mkdir()

    def call_it(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run(["chat", "--model", MODEL, "--cwd", str(project), *arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call_it


@pytest.mark.requirement("X5")
def test_a_chat_about_a_person_is_found_by_their_id(chat: Chat, capfd: pytest.CaptureFixture[str]) -> None:
    def about(subject: str) -> list[str]:
        assert run(["delete", "--subject", subject, "--dry-run", "--json"]) in (0, 1)
        return [one["session"] for one in json.loads(capfd.readouterr().out)["sessions"]]

    answered = chat("--print", "--subject", "person-7", "Hello you", "--output-format", "json")
    session = json.loads(answered[1])["session"]
    assert chat("--print", "Hello other")[0] == 0
    assert about("person-7") == [session]
    assert chat("--print", "--resume", session, "Hello again")[0] == 0
    assert about("person-7") == [session]
    assert chat("--print", "--resume", session, "--subject", "person-8", "And me")[0] == 0
    assert (about("person-7"), about("person-8"), about("person")) == ([session], [session], [])


def test_an_empty_id_of_a_person_is_refused(chat: Chat, home: Path) -> None:
    code, _, err = chat("--print", "--subject", "", "Hello you")
    assert (code, "--subject is empty" in err, list(home.rglob("*.jsonl"))) == (2, True, [])


@pytest.mark.slow
@pytest.mark.requirement("U5")
@pytest.mark.parametrize("whose", ["", "project_"])
@pytest.mark.parametrize("period", ["day", "month"])
def test_a_spent_budget_stops_every_later_session(
    chat: Chat, home: Path, capfd: pytest.CaptureFixture[str], whose: str, period: str
) -> None:
    (home / "config.toml").write_text(f"[agent]\nbudget_{whose}{period}_usd = 0.00001\n")
    assert chat("--print", "Hello you there")[0] == 0
    code, out, err = chat("--print", "Hello again")
    assert (code, out) == (1, "")
    assert f"a {period} for {'this project' if whose else 'all sessions'} is spent" in err
    assert f"agent.budget_{whose}{period}_usd" in err
    if not whose:
        assert run(["stats"]) == 0
        assert "all sessions, t" in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.requirement("U6")
def test_telemetry_without_a_collector_changes_no_answer(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    code, out, err = chat("--print", "Hello you there")
    assert (code, out) == (0, "You said 3 words.\n")
    assert "telemetry was not sent" in err


@pytest.mark.slow
def test_print_answers_once(chat: Chat) -> None:
    assert chat("--print", "Hello you there") == (0, "You said 3 words.\n", "")


@pytest.mark.requirement("L5.0")
def test_print_leaves_extraction_to_the_worker(
    chat: Chat, server: MessagesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.delenv("REVERIE_SWITCH_EXTRACTION")
    assert chat("--print", "Please indent every file with tabs.")[0] == 0
    assert len(server.requests) == 1, "nobody waits for extraction"
    [done] = work(home)
    assert (done.problem, done.by, done.saved) == ("", "model", ("feedback_tabs.md",))
    assert len(server.requests) == 2
    assert work(home) == []
    assert [head.file for head in Memory.open(tmp_path / "project").list()] == ["feedback_tabs.md"]


def test_what_is_piped_in_is_joined_to_the_prompt(chat: Chat, server: MessagesServer) -> None:
    code, out, _ = chat("-p", "Review this", stdin="diff --git a b\n+line\n")
    assert (code, out) == (0, "You said 7 words.\n")
    assert said_last(server.requests[-1]) == "Review this\n\ndiff --git a b\n+line"


def test_what_is_piped_in_can_be_the_whole_prompt(chat: Chat) -> None:
    assert chat("--print", stdin="Just this")[:2] == (0, "You said 2 words.\n")


def test_nothing_to_ask_is_bad_input(chat: Chat) -> None:
    code, out, err = chat("--print")
    assert (code, out) == (2, "")
    assert "there is no prompt" in err


def test_json_is_one_object_with_all_there_is_to_say(chat: Chat) -> None:
    code, out, err = chat("--print", "Hello", "--output-format", "json")
    found = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert (found["result"], found["end"], found["turns"]) == ("You said 1 words.", "completed", 1)
    assert found["usage"]["output_tokens"] > 0
    assert found["cost_usd"] > 0
    assert found["session"]
    assert found["model"] == MODEL


def test_stream_json_is_every_event_on_a_line(chat: Chat) -> None:
    code, out, err = chat("--print", "Hello", "--output-format", "stream-json")
    events = [json.loads(line) for line in out.splitlines()]
    names = [event["event"] for event in events]
    assert (code, err) == (0, "")
    assert set(names) <= set(EVENTS.values())
    for name in ("session_opened", "request_prepared", "text_streamed", "reply_observed", "query_ended"):
        assert name in names
    assert "".join(event["text"] for event in events if event["event"] == "text_streamed") == "You said 1 words."
    assert next(event for event in events if event["event"] == "query_ended")["end"] == "completed"
    whole = [event["message"] for event in events if event["event"] == "entry_appended" and "message" in event]
    assert [one["role"] for one in whole][-1] == "assistant"
    assert {"role": "user", "content": "Hello"} in [{key: one[key] for key in ("role", "content")} for one in whole]
    assert "You said 1 words." in str(whole[-1]["content"])


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Yield a function that puts lines on stdin as a real pipe, which can be waited for."""
    opened: list[Any] = []

    def put(*lines: object) -> None:
        reading, writing = os.pipe()
        with os.fdopen(writing, "w") as end:
            end.writelines((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines)
        opened.append(os.fdopen(reading))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield put
    for one in opened:
        one.close()


@pytest.fixture
def stream(
    server: MessagesServer, piped: Callable[..., None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Chat:
    """Return a function that runs ``reverie -p --input-format stream-json`` with these lines on stdin."""

    def call_it(*lines: object, output: str = "json") -> tuple[int, str, str]:
        piped(*lines)
        formats = ["--input-format", "stream-json", "--output-format", output]
        code = run(["-p", "--model", MODEL, "--cwd", str(tmp_path), *formats])
        out, err = capfd.readouterr()
        return code, out, err

    return call_it


@pytest.mark.requirement("U4")
def test_each_message_on_stdin_is_a_prompt_of_one_session(stream: Chat, server: MessagesServer) -> None:
    blocks = [{"type": "text", "text": "and four more words"}, {"type": "image", "source": IMAGE}]
    second = {"type": "user", "message": {"role": "user", "content": blocks}}
    code, out, err = stream({"type": "user", "message": {"role": "user", "content": "two words"}}, "", second)
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert [one["end"] for one in answers] == ["completed", "completed"]
    assert answers[0]["session"] == answers[1]["session"]
    assert [one["turns"] for one in answers] == [1, 1]
    sent = server.requests[-1]["messages"]
    assert len(sent) == 3
    assert {"image", "text"} <= {block["type"] for block in sent[-1]["content"]}


@pytest.mark.requirement("U4")
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "line 1 of stdin is no JSON"),
        ({"type": "assistant", "message": {"role": "assistant", "content": "x"}}, "is no message of the user"),
        ({"type": "user", "message": {"role": "user", "content": []}}, "has no text, image or document"),
        (["x"], "has no text, image or document"),
        ("", "there is no prompt"),
    ],
)
def test_a_line_on_stdin_that_is_no_message_says_how_to_write_one_and_leaves_no_session(
    stream: Chat, line: object, complaint: str, home: Path
) -> None:
    code, out, err = stream(line)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.startswith("reverie: ")
    assert err.count("\n") == 1
    assert not list(home.glob("projects/*/*"))


def test_a_program_that_waits_for_the_session_before_it_writes_a_prompt_gets_it(home: Path, tmp_path: Path) -> None:
    formats = ["--input-format", "stream-json", "--output-format", "stream-json"]
    command = [sys.executable, "-m", "reverie", "-p", "--model", MODEL, "--cwd", str(tmp_path), *formats]
    pipe, keyed = subprocess.PIPE, {**os.environ, "ANTHROPIC_API_KEY": "any"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=keyed) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        first = json.loads(program.stdout.readline())
        program.stdin.close()
        program.stdout.read()
    assert first["event"] == "session_opened"
    assert not list(home.glob("projects/*/*"))


def test_the_answer_is_what_was_said_after_the_last_tool(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "project" / "notes.txt").write_text("remember the milk\n")
    code, out, _ = chat("--print", f"read the file {tmp_path / 'project' / 'notes.txt'}")
    assert code == 0
    assert out.startswith("The tool said:")
    assert "remember the milk" in out
    assert "Let me look" not in out


def test_without_anybody_to_ask_a_tool_that_needs_permission_is_denied_and_that_is_said(
    chat: Chat, tmp_path: Path
) -> None:
    path = tmp_path / "project" / "made.txt"
    code, out, err = chat("--print", f"write the file {path}")
    assert code == 0
    assert not path.exists()
    assert out.startswith("The tool said:")  # not what the model said before the call
    assert "denied" in out
    assert "Write was denied" in err


@pytest.mark.parametrize("leave", [["--permission-mode", "accept-edits"], ["--allow", "Write"]])
def test_permission_can_be_given_beforehand(chat: Chat, tmp_path: Path, leave: list[str]) -> None:
    path = tmp_path / "project" / "made.txt"
    assert chat("--print", f"write the file {path}", *leave)[0] == 0
    assert path.read_text() == "new\n"


def test_a_denial_given_beforehand_stands_above_the_mode(chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "project" / "made.txt"
    chat("--print", f"write the file {path}", "--permission-mode", "bypass", "--deny", "Write")
    assert not path.exists()


@pytest.mark.requirement("Q6")
def test_an_end_that_is_not_the_good_one_is_said_and_exit_code_1(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "project" / "a.txt").write_text("a\n")
    asking = f"read the file {tmp_path / 'project' / 'a.txt'}"
    code, _, err = chat("--print", asking, "--max-turns", "1")
    assert code == 1
    assert "max_turns" in err
    code, out, _ = chat("--print", asking, "--max-turns", "1", "--output-format", "json")
    assert (code, json.loads(out)["end"]) == (1, "max_turns")
    code, _, err = chat("--print", "Hello", "--budget", "0")
    assert code == 1
    assert "budget" in err


def test_a_provider_that_refuses_is_one_line_and_exit_code_1(chat: Chat, server: MessagesServer) -> None:
    server.fail(401, message="who are you?")
    code, out, err = chat("--print", "Hello")
    assert (code, out) == (1, "")
    assert "model_error" in err
    assert "Traceback" not in err


@pytest.mark.requirement("U4")
@pytest.mark.parametrize(("model", "variable"), [(MODEL, "ANTHROPIC_API_KEY"), ("openai:gpt-5", "OPENAI_API_KEY")])
def test_without_a_key_one_line_says_which_and_no_session_is_left(
    chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch, model: str, variable: str
) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    code, out, err = chat("--print", "Hello", "--model", model)
    assert (code, out, err) == (2, "", f"reverie: {model} needs a key: set {variable}\n")
    assert not list(home.rglob("*.jsonl"))


def test_a_reply_that_broke_off_is_not_in_the_answer(chat: Chat, server: MessagesServer) -> None:
    server.cut_stream(700)
    code, out, _ = chat("--print", "Hello you there")
    assert (code, out) == (0, "You said 3 words.\n")


def test_continue_goes_on_with_the_newest_session(chat: Chat, server: MessagesServer) -> None:
    chat("--print", "The word is swordfish")
    code, _, _ = chat("--print", "--continue", "What is the word?")
    first, second = server.requests[-2:]
    assert code == 0
    assert second["messages"][: len(first["messages"]) - 1] == first["messages"][:-1]
    assert "swordfish" in json.dumps(second["messages"])
    assert without_marks(second["system"]) == without_marks(first["system"])


@pytest.mark.requirement("A3")
def test_continue_never_goes_on_with_an_imported_session(chat: Chat, server: MessagesServer, tmp_path: Path) -> None:
    """A log in Reverie's own format too, though it was written last."""
    chat("--print", "The word is swordfish")
    said = {"message": {"role": "user", "content": "The word is herring"}}
    row = {"uuid": "u", "parent": None, "time": "2999-01-01T00:00:00Z", "session": "evil", "kind": "user", "body": said}
    (tmp_path / "evil.jsonl").write_text(json.dumps(row) + "\n")
    assert run(["import", str(tmp_path / "evil.jsonl"), "--project", str(tmp_path / "project")]) == 0
    assert chat("--print", "--continue", "What is the word?")[0] == 0
    shown = json.dumps(server.requests[-1]["messages"])
    assert ("swordfish" in shown, "herring" in shown) == (True, False)


def test_resume_goes_on_with_a_session_by_the_beginning_of_its_name(chat: Chat, server: MessagesServer) -> None:
    session = json.loads(chat("--print", "The word is swordfish", "--output-format", "json")[1])["session"]
    other = json.loads(chat("--print", "Another conversation", "--output-format", "json")[1])["session"]
    alone = next(end for end in range(1, len(session)) if not other.startswith(session[:end]))
    code, out, _ = chat("--print", "--resume", session[:alone], "And?", "--output-format", "json")
    assert (code, json.loads(out)["session"]) == (0, session)
    assert "swordfish" in json.dumps(server.requests[-1]["messages"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--output-format", "json", "Hello"], "--output-format needs --print"),
        (["-p", "Hello", "--continue"], "there is no session in"),
        (["-p", "Hello", "--resume", "nobody"], "matches no session of this project"),
        (["-p", "Hello", "-c", "-r", "x"], "exclude each other"),
        (["-p", "Hello", "--max-turns", "0"], "0 is less than 1"),
        (["-p", "Hello", "--permission-mode", "yolo"], "yolo"),
        (["-p", "Hello", "--cwd", "/no/such/place"], "/no/such/place"),
        (["Hello", "--resume"], "choosing a session needs a terminal"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(chat: Chat, arguments: list[str], complaint: str) -> None:
    code, out, err = chat(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


@pytest.mark.requirement("S7")
def test_what_a_model_says_is_printed_harmlessly(chat: Chat) -> None:
    assert chat("--print", "be rude")[1] == "Clear the screen<U+202E>.\n"
    assert CONTROL.search(chat("--print", "be rude", "--output-format", "json")[1].rstrip("\n")) is None
    streamed = chat("--print", "be rude", "--output-format", "stream-json")[1]
    assert all(CONTROL.search(line) is None for line in streamed.splitlines())
    assert CONTROL.search(chat("be rude")[1]) is None


def test_a_pipe_without_print_gets_plain_lines_with_the_tools_in_them(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "project" / "notes.txt").write_text("one\ntwo\n")
    code, out, err = chat(stdin=f"read the file {tmp_path / 'project' / 'notes.txt'}")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Let me look."
    assert out.splitlines()[1].startswith("* Read(notes.txt) ")
    assert "The tool said:" in out
    assert "\x1b" not in out


def test_without_any_model_the_three_ways_to_one_are_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    for arguments in (["chat"], ["chat", "-p", "Hello"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Hello")))
        assert run([*arguments, "--cwd", str(tmp_path)]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("No model is set up yet.")
        at = [err.index(way) for way in ("export ANTHROPIC_API_KEY", "--model openai:MODEL", "--model local:")]
        assert at == sorted(at)


def environment(server: MessagesServer, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in KEYS}
    return {**kept, "ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "x", **more}


@pytest.mark.slow
def test_an_interrupt_leaves_a_log_that_goes_on_and_exit_code_130(server: MessagesServer, tmp_path: Path) -> None:
    gate = server.hold_stream(after_events=3)
    command = [COMMAND, "chat", "-p", "Hello", "--model", MODEL, "--cwd", str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(server),
    ) as process:
        assert gate.reached.wait(60)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    gate.open()
    done = subprocess.run(
        [*command, "--continue"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(server),
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_dumb_terminal_holds_a_whole_conversation_in_plain_lines(server: MessagesServer, tmp_path: Path) -> None:
    parent, child = pty.openpty()
    command = [COMMAND, "chat", "--model", MODEL, "--cwd", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment(server, TERM="dumb")
    ) as process:
        os.close(child)
        path = tmp_path / "made.txt"
        os.write(parent, f"one two\nwrite the file {path}\nnot now\n/quit\n".encode())
        shown = bytearray()
        try:
            while piece := os.read(parent, 65_536):
                shown += piece
        except OSError:
            pass
        assert process.wait(60) == 0
    os.close(parent)
    text = shown.decode()
    assert "You said 2 words." in text
    assert "? Write made.txt · it writes a file" in text
    assert "Write denied: not now" in text
    assert "window" in text
    assert "\x1b" not in text
    assert not path.exists()


def test_bare_reverie_in_a_pipe_is_a_question_for_help() -> None:
    done = subprocess.run([COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Usage: reverie" in done.stdout


@pytest.mark.slow
@pytest.mark.requirement("V14")
@pytest.mark.parametrize("name", ["openai:gpt-5.6-sol", "openai-responses:gpt-5.6-sol", "openai:gpt-4.1", "openai"])
def test_both_apis_of_openai_answer_with_tools_and_over_a_restart(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("buy bread\n")

    def reading(request: dict[str, Any]) -> Any:
        items = request.get("input") or request["messages"]
        thought = {"type": "thinking", "thinking": "The file first."}
        if items[-1].get("role") == "tool" or items[-1].get("type") == "function_call_output":
            return [thought, {"type": "text", "text": "It says: buy bread."}]
        read = {"type": "tool_use", "id": f"call_{len(items)}", "name": "Read", "input": {"file_path": str(notes)}}
        return [thought, read]

    with ChatServer(reading) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("REVERIE_SWITCH_EXTRACTION", "off")
        for more in ([], ["--continue"]):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
            code = run(["chat", "--model", name, "--cwd", str(tmp_path), "--print", "What is in the notes?", *more])
            assert (code, *capfd.readouterr()) == (0, "It says: buy bread.\n", "")
        assert running.refusals == []
        api = "/v1/responses" if "responses" in name else "/v1/chat/completions"
        assert set(running.paths) == {api}
        items = running.requests[-1].get("input") or running.requests[-1]["messages"]
        thoughts = [item for item in items if item.get("type") == "reasoning" or "reasoning_content" in item]
        assert len(thoughts) >= 2


@pytest.mark.parametrize("option", ["--allow", "--deny"])
def test_a_rule_that_cannot_be_read_is_an_error_before_any_request(
    chat: Chat, server: MessagesServer, option: str
) -> None:
    code, out, err = chat("-p", "Hello there", option, "Bash(")
    assert (code, out) == (2, "")
    assert "'Bash(' is not a rule; write a tool's name, or Tool(pattern)" in err
    assert server.requests == []


def test_a_budget_that_is_no_number_is_refused(chat: Chat, server: MessagesServer) -> None:
    code, out, err = chat("-p", "Hello there", "--budget", "nan")
    assert (code, out) == (2, "")
    assert "budget_usd is nan: pass a number that is at least 0" in err
    assert server.requests == []


def test_an_input_larger_than_any_request_is_refused_and_not_read_to_its_end(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.cli.chat.MAX_PIPED_BYTES", 1_000)
    assert chat("-p", "Review", stdin="x" * 1_000)[0] == 0
    code, out, err = chat("-p", "Review", stdin="x" * 1_001)
    assert (code, out) == (2, "")
    assert "write a file and name it in the prompt" in err
