"""The terminal as a user sees it: the real program in tmux, against a real Messages API server."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reverie.testing.messages_server import MessagesServer
from tmux_terminal import COMMAND, FOOTER, WAIT_SECONDS, Terminal, chat, chat_environment

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.timeout(300),
]

PARAGRAPHS = [f"Paragraph number {number} says something of its own." for number in range(12)]
STORY = "\n\n".join(PARAGRAPHS)


def after(mark: str, wanted: str) -> Callable[[str], bool]:
    """Say whether something stands below what was typed."""
    return lambda seen: wanted in seen.partition(mark)[2]


def said_last(request: dict[str, Any]) -> str:
    """Return the last block of the last message: the prompt, below what is attached to it."""
    content = request["messages"][-1]["content"]
    block = {"text": content} if isinstance(content, str) else content[-1]
    return str(block.get("text") or block.get("content") or "")


def call(name: str, **given: object) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "name": name, "input": given}]


class Model:
    """What the scripted model says to what it hears."""

    def __init__(self, project: Path) -> None:
        self.notes = str(project / "notes.txt")

    def __call__(self, request: dict[str, Any]) -> Any:
        content = request["messages"][-1]["content"]
        results = [] if isinstance(content, str) else [one for one in content if one["type"] == "tool_result"]
        if results:
            return f"Seen. {'It was refused.' if results[0].get('is_error') else 'It worked.'}"
        said = said_last(request)
        for words, reply in (
            ("the answer", "It is **forty-two**.\n\n- six times\n- seven"),
            ("read my notes", call("Read", file_path=self.notes)),
            ("say it in German", call("Edit", file_path=self.notes, old_string="two", new_string="zwei")),
            ("spoil it", call("Edit", file_path=self.notes, old_string="one", new_string="nothing")),
            ("tell a story", STORY),
            ("work slowly", call("Bash", command="sleep 3")),
            ("touch it", call("Bash", command="touch made")),
            ("work for hours", call("Bash", command="echo begun; sleep 6000")),
        ):
            if words in said:
                return reply
        return f"Heard {len(said.splitlines())} lines."


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def server(project: Path) -> Iterator[MessagesServer]:
    with MessagesServer(Model(project)) as running:
        yield running
        assert running.errors == []


@pytest.fixture
def make_terminal(server: MessagesServer, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []
    environ = chat_environment(server.base_url)

    def make(columns: int = 80, rows: int = 24, **more: str) -> Terminal:
        made.append(Terminal(tmp_path, columns=columns, rows=rows, environ={**environ, **more}))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
def test_ten_interactions(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path, columns: int, rows: int
) -> None:
    terminal = make_terminal(columns, rows)
    screens: list[str] = []

    def rested() -> str:
        screens.append(terminal.ready())
        return screens[-1]

    terminal.start("sh", "-c", f"{shlex.join(chat(project))}; echo code $?; exec cat")
    rested()
    # 1 a question
    terminal.enter("What is the answer?")
    terminal.wait("forty-two")
    assert " • seven" in rested()
    # 2 a tool that reads
    terminal.enter("Please read my notes")
    terminal.wait("Seen. It worked.")
    assert "● Read(notes.txt) 3 lines" in rested()
    # 3 an edit, allowed
    terminal.enter("Now say it in German")
    seen = terminal.wait("tell the model why")
    assert "-two" in seen
    assert "+zwei" in seen
    assert "yes, always in this session: Edit(./notes.txt)" in seen
    assert all(part in seen for part in FOOTER)
    terminal.press("y")
    terminal.wait(lambda seen: seen.count("It worked.") >= 1 and "● Edit(notes.txt)" in seen)
    rested()
    assert (project / "notes.txt").read_text() == "one\nzwei\nthree\n"
    # 4 an edit, denied with a reason
    terminal.enter("Now spoil it")
    terminal.wait("tell the model why")
    terminal.press("t")
    terminal.wait("why?")
    terminal.enter("the first line is holy")
    terminal.wait("It was refused.")
    assert "denied: the first line is holy" in rested()
    assert "the first line is holy" in json.dumps(server.requests[-1]["messages"][-1])
    assert (project / "notes.txt").read_text() == "one\nzwei\nthree\n"
    # 5 context usage
    terminal.enter("/context")
    terminal.wait("tool results", where=terminal.everything)
    rested()
    # 6 what it cost
    terminal.enter("/cost")
    terminal.wait("output tokens")
    assert re.search(r"\$0\.\d{4} in this session", rested())
    # 7 a file, completed
    terminal.type("Look at @no")
    terminal.wait("notes.txt")
    terminal.press("Tab")
    terminal.wait("Look at @notes.txt")
    terminal.press("Enter", "Enter")
    terminal.wait("Heard 1 lines.")
    rested()
    assert said_last(server.requests[-1]).endswith("Look at @notes.txt")
    # 8 a command of one's own
    terminal.enter("!echo shell-$((40 + 2)); exit 3")
    terminal.wait("exit code 3")
    assert "shell-42" in rested()
    # 9 several lines
    terminal.enter("first\\")
    terminal.type("second")
    terminal.press("M-Enter")
    terminal.enter("third")
    terminal.wait(after("third", "Heard"))
    rested()
    assert said_last(server.requests[-1]).endswith("first\nsecond\nthird")
    assert "<local-command-stdout>\nshell-42\n" in json.dumps(server.requests[-1]["messages"]).replace("\\n", "\n")
    # 10 interrupted
    gate = server.hold_stream(after_events=8)
    terminal.enter("Please tell a story")
    assert gate.reached.wait(WAIT_SECONDS)
    terminal.wait("Esc interrupts")
    terminal.press("Escape")
    terminal.wait("Interrupted.")
    gate.open()
    rested()
    terminal.enter("What is the answer, again?")
    terminal.wait(after("again?", "forty-two"))
    rested()

    assert server.refusals == []
    for seen in [*screens, terminal.everything()]:
        assert "Traceback" not in seen
    for seen in screens:
        assert len(seen.splitlines()) <= rows
        assert all(len(line) <= columns for line in seen.splitlines())
        assert all(part in seen for part in FOOTER), seen
    terminal.enter("/quit")
    terminal.wait("code 0")
    assert "To continue this conversation" in terminal.everything()


def test_a_stream_grows_without_flicker_and_a_resize_leaves_nothing_twice(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path, tmp_path: Path
) -> None:
    terminal = make_terminal(100, 30)
    terminal.start(*chat(project))
    terminal.ready()
    recorded = tmp_path / "bytes"
    terminal.tmux("pipe-pane", f"cat > {shlex.quote(str(recorded))}")
    gate = server.hold_stream(after_events=20)
    terminal.enter("Please tell a story")
    assert gate.reached.wait(WAIT_SECONDS)
    terminal.wait(PARAGRAPHS[0])
    for columns, rows in ((60, 20), (120, 40), (45, 15), (80, 24)):
        terminal.resize(columns, rows)
        seen = terminal.wait(lambda seen: "Esc interrupts" in seen and all(part in seen for part in FOOTER))
        assert PARAGRAPHS[0][:20] in terminal.everything(), seen
    gate.open()
    terminal.wait(lambda seen: PARAGRAPHS[-1] in " ".join(seen.split()))  # folded as wide as it was when it went up
    terminal.ready()
    everything = " ".join(terminal.everything().split())
    assert "Traceback" not in everything
    for paragraph in PARAGRAPHS:
        assert everything.count(paragraph) == 1, f"{paragraph}\n{terminal.everything()}"
    # Everything that was drawn, was drawn in whole frames, and the screen as a whole was never erased.
    written = recorded.read_text(errors="replace")
    outside = re.sub(r"\x1b\[\?2026h.*?\x1b\[\?2026l", "", written, flags=re.DOTALL)
    assert "Paragraph" in written
    assert "Paragraph" not in outside
    for erasing in ("\x1b[2J", "\x1b[3J", "\x1b[?1049h"):
        assert erasing not in written


def test_kill_9_in_mid_stream_then_continue(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path
) -> None:
    terminal = make_terminal()
    terminal.start(*chat(project))
    terminal.ready()
    terminal.enter("What is the answer?")
    terminal.wait("forty-two")
    terminal.ready()
    gate = server.hold_stream(after_events=10)
    terminal.enter("Please tell a story")
    assert gate.reached.wait(WAIT_SECONDS)
    terminal.wait("Paragraph")
    os.kill(int(terminal.value("pane_pid")), 9)
    terminal.wait(lambda _: terminal.value("pane_dead") == "1")
    gate.open()
    before = server.requests[-1]

    terminal.again(*chat(project, "--continue"))
    seen = terminal.ready()
    assert "continuing " in seen
    assert "> Please tell a story" in seen
    terminal.enter("Go on please")
    terminal.wait("Heard")
    terminal.ready()
    after = server.requests[-1]
    kept = len(before["messages"]) - 1
    assert plain(after["messages"][:kept]) == plain(before["messages"][:kept])
    assert after["system"] == before["system"]
    assert after["tools"] == before["tools"]
    told = json.dumps(after["messages"])
    assert "Please tell a story" in told
    assert "Paragraph" not in told, "half a reply stands in the log"
    assert server.refusals == []


def plain(messages: list[dict[str, Any]]) -> Any:
    """Return messages without the marks that move along with the end of the conversation."""
    return json.loads(re.sub(r', "cache_control": \{[^}]*\}', "", json.dumps(messages)))


@pytest.mark.parametrize("way", ["/quit", "Ctrl-C twice", "Ctrl-D", "SIGTERM", "while it streams"])
def test_the_terminal_is_given_back_as_it_was(
    make_terminal: Callable[..., Terminal],
    server: MessagesServer,
    project: Path,
    tmp_path: Path,
    way: str,
    torture: bool,
) -> None:
    if way in ("/quit", "Ctrl-D") and not torture:
        pytest.skip("the long form has it: --torture")
    terminal = make_terminal()
    pid, states = tmp_path / "pid", tmp_path / "states"
    line = shlex.join(chat(project))
    begin = f"stty -a > {states}.before; {line} & echo $! > {pid}"
    end = f"fg >/dev/null; echo code $?; stty -a > {states}.after; exec cat"
    terminal.start("bash", "-mc", f"{begin}; {end}")
    terminal.ready()
    if way == "/quit":
        terminal.enter("/quit")
    elif way == "Ctrl-C twice":
        terminal.press("C-c")
        terminal.wait("Press Ctrl-C again to quit")
        terminal.press("C-c")
    elif way == "Ctrl-D":
        terminal.press("C-d")
    elif way == "SIGTERM":
        os.kill(int(pid.read_text()), 15)
    else:
        gate = server.hold_stream(after_events=10)
        terminal.enter("Please tell a story")
        assert gate.reached.wait(WAIT_SECONDS)
        terminal.wait("Paragraph")
        terminal.press("C-c")
        terminal.press("C-c")
    terminal.wait("code 0")
    terminal.wait(lambda _: terminal.value("pane_current_command") == "cat")
    assert (tmp_path / "states.before").read_text() == (tmp_path / "states.after").read_text()
    assert terminal.value("cursor_flag") == "1"
    assert "Traceback" not in terminal.everything()


def test_without_colours_the_screen_has_none(
    make_terminal: Callable[..., Terminal], project: Path, tmp_path: Path
) -> None:
    terminal = make_terminal(NO_COLOR="1")
    terminal.start(*chat(project))
    recorded = tmp_path / "bytes"
    terminal.tmux("pipe-pane", f"cat > {shlex.quote(str(recorded))}")
    terminal.ready()
    terminal.enter("Please read my notes")
    terminal.wait("It worked.")
    terminal.ready()
    colours = re.findall(r"\x1b\[[0-9;]*m", recorded.read_text(errors="replace"))
    assert [one for one in colours if re.search(r"[;\[](3[0-7]|4[0-7]|9[0-7]|38|48)[;m]", one)] == []


def test_sessions_are_picked_from_a_list_and_modes_and_models_change(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path
) -> None:
    terminal = make_terminal(100, 30)
    terminal.start(*chat(project, "What is the answer?"))
    terminal.wait("forty-two")
    terminal.ready()
    terminal.press("BTab")
    terminal.wait("accept-edits")
    terminal.enter("/mode plan")
    terminal.wait("mode: plan")
    assert "run at once" not in terminal.everything()
    terminal.press("BTab")
    terminal.wait("calls that would be asked about run at once")
    terminal.enter("/mode bypass")
    terminal.wait(after("mode: bypass", "calls that would be asked about run at once"))
    terminal.enter("/mode plan")
    terminal.wait(lambda seen: seen.count("mode: plan") == 2)
    terminal.enter("/model claude-haiku-4-5")
    terminal.wait("model: claude-haiku-4-5 after claude-sonnet-5: its empty cache takes")
    terminal.enter("/model claude-haiko-4-5")
    terminal.wait("anthropic has no model claude-haiko-4-5; did you mean anthropic:claude-haiku-4-5")
    terminal.enter("/model gpt-99")
    terminal.wait(after("> /model gpt-99", "OPENAI_API_KEY"))
    terminal.enter("/model")
    terminal.wait("Which model?")
    terminal.press("Escape")
    terminal.wait(lambda seen: "Which model?" not in seen)
    terminal.enter("/nonsense")
    terminal.wait("there is no /nonsense")
    terminal.enter("/clear")
    terminal.wait("is saved; /resume continues it")
    terminal.wait("claude-haiku-4-5 · plan")  # a new session keeps the model and the mode
    terminal.enter("/model claude-sonnet-5")
    terminal.ready()
    terminal.enter("Something new")
    terminal.wait("Heard 1 lines.")
    terminal.ready()
    assert "the answer" not in json.dumps(server.requests[-1]["messages"])
    terminal.enter("/resume")
    terminal.wait("Continue which session?")
    terminal.press("2")
    terminal.wait("continuing ")
    terminal.ready()
    terminal.enter("Go on")
    terminal.wait(after("> Go on", "Heard"))
    assert "the answer" in json.dumps(server.requests[-1]["messages"])


def test_what_is_typed_while_the_model_works_waits_its_turn(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path
) -> None:
    terminal = make_terminal(100, 40)
    terminal.start(*chat(project))
    terminal.ready()
    gate = server.hold_stream(after_events=10)
    terminal.enter("Please tell a story")
    assert gate.reached.wait(WAIT_SECONDS)
    terminal.enter("And what is the answer?")
    terminal.wait("(waiting)")
    terminal.enter("/cost")
    terminal.wait("output tokens")
    gate.open()
    terminal.wait("forty-two")
    seen = terminal.ready()
    assert seen.index(PARAGRAPHS[-1]) < seen.index("> And what is the answer?") < seen.index("forty-two")


def test_a_message_sent_while_a_tool_runs_reaches_the_model_after_it_and_the_editor_writes_one(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho work slowly > $1\n")
    editor.chmod(0o755)
    terminal = make_terminal(100, 40, EDITOR=str(editor), VISUAL="")
    terminal.start(*chat(project, "--permission-mode", "bypass"))
    terminal.ready()
    terminal.press("C-x", "C-e")
    terminal.wait("> work slowly")
    terminal.press("Enter")
    terminal.wait("Bash(sleep 3)")
    terminal.enter("but tell me why")
    terminal.wait("(waiting)")
    terminal.wait("Seen. It worked.")
    seen = terminal.ready()
    assert seen.index("● Bash(sleep 3)") < seen.index("> but tell me why") < seen.index("Seen. It worked.")
    assert server.requests[-1]["messages"][-1]["content"][0]["type"] == "tool_result"
    assert "but tell me why" in json.dumps(server.requests[-1]["messages"][-1])
    assert len(server.requests) == 2
    # An interrupt also reaches the work while the pager with its output has the terminal.
    terminal.enter("work for hours")
    terminal.wait("│ begun")
    terminal.press("C-o")
    terminal.wait(lambda seen: "begun" in seen and "Esc interrupts" not in seen)
    terminal.press("C-c")
    # A pager that handles a signal may lose the key that comes with it.
    terminal.wait(lambda seen: "Interrupted." in seen or bool(terminal.press("q")))
    terminal.wait(after("> work for hours", "Interrupted."))


def test_a_message_of_another_process_is_shown_at_the_prompt_and_reaches_the_model_with_the_next_one(
    make_terminal: Callable[..., Terminal], project: Path, server: MessagesServer
) -> None:
    terminal = make_terminal()
    terminal.start(*chat(project, "--name", "builder"))
    terminal.ready()
    send = [COMMAND, "send", "builder", "the build\nis \x1b[2Jred"]
    sent = subprocess.run(send, capture_output=True, text=True, timeout=60)
    assert sent.returncode == 0, sent.stderr
    terminal.wait("✉ user, to the agent: the build is red")
    assert server.requests == []
    terminal.enter("say it in Italian")
    terminal.wait("Heard 1 lines.")
    assert "red" in json.dumps(server.requests[-1]["messages"])
    assert terminal.everything().count("✉") == 1


def test_an_own_command_is_a_prompt_even_if_it_looks_like_one_for_the_shell(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path, tmp_path: Path
) -> None:
    commands = tmp_path / "reverie" / "commands"
    commands.mkdir(parents=True)
    (commands / "status.md").write_text("!touch made-by-shell\n")
    terminal = make_terminal(100, 40, REVERIE_HOME=str(tmp_path / "reverie"))
    terminal.start(*chat(project, "/status"))  # it is known before the first line runs
    terminal.wait("Heard 1 lines.")
    terminal.ready()
    terminal.wait(lambda _: (terminal.press("C-u"), terminal.type("/stat"), "/status" in terminal.screen())[-1])
    terminal.press("C-u")
    terminal.enter("/status ")
    terminal.wait(lambda _: len(server.requests) == 2)
    assert "!touch made-by-shell" in json.dumps(server.requests[-1])
    assert not (project / "made-by-shell").exists()


def test_bare_reverie_on_a_terminal_is_a_conversation(make_terminal: Callable[..., Terminal], project: Path) -> None:
    terminal = make_terminal()
    terminal.start("sh", "-c", f"cd {shlex.quote(str(project))} && exec {shlex.quote(COMMAND)}")
    assert "Reverie" in terminal.ready()


def test_a_chat_in_which_nothing_was_said_leaves_no_session(
    make_terminal: Callable[..., Terminal], project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "reverie"
    terminal = make_terminal(REVERIE_HOME=str(home))
    line = f"{shlex.join(chat(project))}; echo code $?"
    terminal.start("sh", "-c", line)
    terminal.ready()
    assert len(list(home.glob("projects/*/*.jsonl"))) == 1
    terminal.enter("/cost")
    terminal.wait("output tokens")
    terminal.press("C-d")
    assert "To continue" not in terminal.wait("code 0")
    assert list(home.glob("projects/*/*.jsonl")) == []
    # One in which the user ran a command stays.
    terminal.wait(lambda _: terminal.value("pane_dead") == "1")
    terminal.again("sh", "-c", line)
    terminal.ready()
    terminal.enter("!echo some$((40 + 2))thing")
    terminal.wait("some42thing")
    terminal.ready()
    terminal.press("C-d")
    terminal.wait("To continue this conversation")
    assert len(list(home.glob("projects/*/*.jsonl"))) == 1


def test_print_shows_the_answer_on_a_terminal_as_it_arrives(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path
) -> None:
    terminal = make_terminal(100, 40)
    gate = server.hold_stream(after_events=10)
    terminal.start("sh", "-c", f"{shlex.join(chat(project, '--print', 'tell a story'))}; echo code $?")
    assert gate.reached.wait(WAIT_SECONDS)
    assert PARAGRAPHS[-1] not in terminal.wait(PARAGRAPHS[0])
    gate.open()
    terminal.wait("code 0")
    assert STORY in terminal.everything()


@pytest.mark.slow
@pytest.mark.requirement("U4")
def test_lines_sent_while_the_program_starts_are_separate_prompts(
    make_terminal: Callable[..., Terminal], server: MessagesServer, project: Path
) -> None:
    terminal = make_terminal()
    started = f"until test -e {shlex.quote(str(project / 'go'))}; do sleep 0.05; done; exec {shlex.join(chat(project))}"
    terminal.start("sh", "-c", started)
    terminal.enter("First line")
    terminal.enter("Tell me the answer")
    terminal.type("and this is not sent yet")
    terminal.wait("and this is not sent yet")
    (project / "go").touch()
    terminal.wait("forty-two")
    terminal.wait(after("forty-two", "> and this is not sent yet"))
    assert [said_last(request) for request in server.requests] == ["First line", "Tell me the answer"]


@pytest.mark.parametrize(("columns", "rows"), [(80, 10), (40, 12), (40, 8)])
def test_a_low_screen_shows_the_call_to_approve_and_the_way_to_refuse_it(
    make_terminal: Callable[..., Terminal], project: Path, columns: int, rows: int
) -> None:
    terminal = make_terminal(columns, rows)
    terminal.start(*chat(project))
    terminal.wait("to compaction")
    terminal.enter("touch it")
    seen = terminal.wait("Allow Bash?")
    assert "│ touch made" in seen
    assert re.search(r"(^|· ) *n +no", seen, re.MULTILINE)
    assert re.search(r"(^|· ) *t +(no, and|why)", seen, re.MULTILINE)
    terminal.press("n")
    terminal.wait("denied", where=terminal.everything)


def test_the_line_of_activity_names_the_command_that_the_user_runs(
    make_terminal: Callable[..., Terminal], project: Path
) -> None:
    terminal = make_terminal()
    terminal.start(*chat(project))
    terminal.ready()
    terminal.enter("!sleep 6000")
    terminal.wait(lambda seen: "running sleep 6000" in seen and "Esc interrupts" in seen)
    terminal.press("Escape")
    terminal.wait("Interrupted.")
    assert "running" not in terminal.ready()
