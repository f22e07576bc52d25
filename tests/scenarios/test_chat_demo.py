"""``reverie demo --chat`` as a stranger runs it: the real chat in tmux, with no account and an empty home."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tmux_terminal import COMMAND, KEYS, Terminal

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.timeout(300),
    pytest.mark.slow,
]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def terminal(tmp_path: Path, temporary: Path) -> Iterator[Terminal]:
    kept = {key: value for key, value in os.environ.items() if key not in (*KEYS, "TMUX", "COLUMNS", "LINES")}
    environ = {**kept, "LC_ALL": "C.UTF-8", "TMPDIR": str(temporary), "REVERIE_HOME": str(tmp_path / "home")}
    terminal = Terminal(tmp_path, columns=100, rows=60, environ=environ)
    terminal.start(COMMAND, "demo", "--chat")
    try:
        yield terminal
    finally:
        terminal.close()


def project_of(temporary: Path) -> Path:
    (found,) = temporary.glob("reverie-demo-*/project")
    return found


def below(mark: str, wanted: str) -> Callable[[str], bool]:
    return lambda seen: wanted in seen.rpartition(mark)[2]


@pytest.mark.requirement("U4")
def test_a_stranger_sees_a_task_with_steps_approval_memory_and_undo_without_an_account(
    terminal: Terminal, temporary: Path, tmp_path: Path
):
    terminal.wait("costs nothing")
    terminal.wait("(step 1 of 4)")
    terminal.wait("Allow Bash?")
    terminal.press("y")
    seen = terminal.wait("Allow Edit?")
    assert "+    return sum(values) / len(values) if values else 0" in seen
    assert "ZeroDivisionError" in seen
    terminal.press("y")
    terminal.wait(below("changed: line 2", "Allow Bash?"))
    assert "if values else 0" in (project_of(temporary) / "calc.py").read_text()
    terminal.press("y")
    terminal.wait("✓ Remember how to run them")
    terminal.enter("/memory")
    terminal.wait(below("> /memory", "Run the tests with python3 -m unittest -v"))
    terminal.enter("/undo")
    terminal.wait(below("> /undo", "restored 1 file: calc.py; undid 1 change of memories"))
    assert "if values else 0" not in (project_of(temporary) / "calc.py").read_text()
    terminal.press("C-u")
    terminal.enter("who are you?")
    terminal.wait(below("> who are you?", "I am a script, not a model"))
    terminal.press("C-d")
    terminal.wait("The demo's files are removed.")
    assert "--resume" not in terminal.screen()
    assert not list(temporary.iterdir())
    assert not (tmp_path / "home").exists()


@pytest.mark.requirement("U4")
def test_a_stranger_sees_the_window_fill_and_a_compaction_come_and_go(terminal: Terminal):
    terminal.wait("Allow Bash?")
    terminal.press("Escape")
    terminal.wait("Interrupted.")
    terminal.enter("read the whole log")
    terminal.wait("All 4,200 orders were sent.")
    assert "old tool results" in terminal.everything()
    terminal.enter("/context")
    terminal.wait("of 60,000 tokens", where=terminal.everything)
    terminal.enter("/compact")
    terminal.wait(below("> /compact", "⌁ compacted"))
    terminal.enter("/uncompact")
    terminal.wait(below("> /uncompact", "undone: "))


@pytest.mark.requirement("U4")
def test_an_interrupt_is_no_refusal_and_a_task_that_begins_again_knows_what_was_done(terminal: Terminal):
    terminal.wait("Allow Bash?")
    terminal.press("y")
    terminal.wait("Allow Edit?")
    terminal.press("Escape")
    terminal.wait(below("Edit(calc.py) not run", "Interrupted."))
    terminal.enter("/retry")
    terminal.wait(below("> /retry", "Allow Bash?"))
    terminal.press("y")
    terminal.wait(below("> /retry", "Allow Edit?"))
    terminal.press("y")
    terminal.wait(below("changed: line 2", "Allow Bash?"))
    terminal.press("Escape")
    terminal.wait(below("changed: line 2", "Interrupted."))
    terminal.enter("/retry")
    terminal.wait(below("> /retry", "Allow Bash?"))
    terminal.press("y")
    terminal.wait("The test passes: calc.py was repaired before.")
    shown = terminal.everything().lower()
    assert ("denied" in shown, "refused" in shown) == (False, False)


@pytest.mark.requirement("U4")
def test_a_refused_change_ends_the_task_and_a_killed_terminal_leaves_nothing(terminal: Terminal, temporary: Path):
    terminal.wait("Allow Bash?")
    terminal.press("y")
    terminal.wait("Allow Edit?")
    terminal.type("wait, what")
    terminal.wait(lambda seen: "Enter refuses with your words" in seen and "> wait, what" in seen)
    terminal.press("Enter")
    terminal.wait("denied: wait, what")
    terminal.wait("The change was not made")
    terminal.tmux("kill-session")
    terminal.wait(lambda _: not list(temporary.iterdir()), where=lambda: "")
    assert not list(temporary.iterdir())
