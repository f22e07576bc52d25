"""The local note-taker: exact, deterministic, bounded, and as good step by step as all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.entries import Entry
from reverie.conversation.tokens.estimate import estimate_text
from reverie.conversation.view import View
from reverie.importers import read_sessions
from reverie.layers.l3_notes.activity import Activity
from reverie.layers.l3_notes.local import NotesBudget, session_title, take_notes
from reverie.layers.l3_notes.sections import (
    CURRENT,
    ERRORS,
    FILES,
    HEADINGS,
    LEARNINGS,
    RESULTS,
    TASK,
    TITLE,
    WORKFLOW,
    WORKLOG,
    Notes,
    Template,
    budget_excesses,
    parse_notes,
    render_notes,
)


@pytest.mark.requirement("B5", "L3.4")
def test_every_section_is_written_from_what_the_session_did(worked: Script) -> None:
    notes = take_notes(worked.entries)
    assert notes[TITLE] == "Please make the parser in /repo/src/parse.py accept empty input"
    assert "Asked last: No, return None for empty input, and commit it." in notes[CURRENT]
    assert "Committed as 4f5e6d7." in notes[CURRENT]
    assert notes[TASK].startswith("Please make the parser in /repo/src/parse.py accept empty input, limit 4,096 bytes.")
    assert "- `/repo/src/parse.py`: changed 1x, read 1x; parse_empty" in notes[FILES]
    assert "- `pytest tests/test_parse.py` (2x, failed 1x): 4 passed in 0.10s" in notes[WORKFLOW]
    assert (
        "- ran `pytest tests/test_parse.py 2>&1 | tail -5`: failed: IndexError: string index out of range -> fixed: "
        "edited parse.py (parse_empty), then it succeeded"
    ) in notes[ERRORS]
    assert "[main 4f5e6d7] Accept empty input" in notes[RESULTS]
    assert "Empty input is accepted now; 4 tests pass." in notes[RESULTS]
    assert "an empty text has no first letter" in notes[LEARNINGS]
    assert len(notes[WORKLOG].split("\n")) == 2


@pytest.mark.requirement("L3.2")
@pytest.mark.parametrize(
    ("request_text", "title"),
    [
        (
            "alright, read @src/main.ts and @src/tui.ts in full. i feel like this is one big mess and could be nicer",
            "Alright, read @src/main.ts and @src/tui.ts in full",
        ),
        (
            "<pr_description>\nConsider the following PR description:\nStrip unused annotations from count queries\n",
            "Strip unused annotations from count queries",
        ),
        (
            "We're currently solving the following issue within our repository. Here's the issue text:\nISSUE:\n"
            "Pixel Representation attribute should be optional for pixel data handler",
            "Pixel Representation attribute should be optional for pixel data handler",
        ),
        ("hi\n\nplease make the tests of the store pass", "Please make the tests of the store pass"),
        ("fix tests", "Fix tests"),
        ("修复登录页面的显示错误。然后运行所有的测试，并告诉我结果", "修复登录页面的显示错误"),
        ("ログインを直してください\nsee the file a.py", "ログインを直してください"),
    ],
)
def test_a_title_is_the_start_of_the_request_as_a_person_wrote_it(request_text: str, title: str) -> None:
    assert session_title(request_text) == title


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("str_replace_editor", {"command": "view", "path": "/r/a.c"}, "- `/r/a.c`: read 1x"),
        ("str_replace_editor", {"command": "str_replace", "path": "/r/a.c"}, "- `/r/a.c`: changed 1x"),
        ("open", {"path": "/r/a.c", "line_number": 3}, "- `/r/a.c`: read 1x"),
        ("create", {"filename": "/r/a.c"}, "- `/r/a.c`: changed 1x"),
        ("read", {"path": "/r/a.c"}, "- `/r/a.c`: read 1x"),
        ("mcp__fs__write_file", {"path": "/r/a.c", "content": "x"}, "- `/r/a.c`: changed 1x"),
        ("execute_bash", {"command": "sed -i 's/a/b/' /r/a.c"}, "- `/r/a.c`: changed 1x"),
        ("bash", {"command": "cat > /r/a.c <<'EOF'\nint x;\nEOF"}, "- `/r/a.c`: changed 1x"),
    ],
)
def test_tools_of_any_name_are_understood(tool: str, arguments: dict[str, str], line: str) -> None:
    script = Script()
    script.user("Do it")
    script.reply(call("t1", tool, **arguments))
    script.result("t1", "fine")
    assert take_notes(script.entries)[FILES].split("\n")[0] == line


def test_an_agent_without_tool_blocks_is_understood_by_its_fences() -> None:
    script = Script()
    script.user("Make the tests pass")
    script.reply(text("I run them:\n```bash\npytest -q\n```"))
    script.user("<returncode>1</returncode>\n<output>\nE   KeyError: 'x'\n1 failed in 0.1s\n</output>")
    script.reply(text("Again:\n```bash\npytest -q\n```"))
    script.user("<returncode>0</returncode>\n<output>\n2 passed in 0.1s\n</output>")
    notes = take_notes(script.entries)
    assert "- `pytest -q` (2x, failed 1x): 2 passed in 0.1s" in notes[WORKFLOW]
    assert "- ran `pytest -q`: failed: KeyError: 'x' -> later it succeeded" in notes[ERRORS]
    assert "Asked last: Make the tests pass" in notes[CURRENT]


def test_a_call_that_is_still_running_is_in_the_current_state() -> None:
    script = Script()
    script.user("Build it")
    script.reply(call("t1", "Bash", command="make all"))
    assert "- Running: `make all`" in take_notes(script.entries)[CURRENT]


@pytest.mark.requirement("B5")
@given(st.integers(0, 10**6), st.integers(0, 2_000), st.integers(0, 9_000))
def test_any_log_gives_valid_notes_within_their_budget(template: Template, seed: int, section: int, total: int) -> None:
    log = random_log(Random(seed), entries=40, disorder=0.5)
    budget = NotesBudget(section, total)
    notes = take_notes(log, budget=budget)
    assert notes == take_notes(list(log), budget=budget)
    assert set(notes.sections) <= set(HEADINGS)
    assert budget_excesses(notes, section, total) == []
    document = render_notes(notes, template)
    assert parse_notes(document, template).sections.keys() == notes.sections.keys()


@given(st.integers(0, 10**6), st.integers(0, 40))
def test_notes_taken_step_by_step_equal_notes_taken_at_once(seed: int, cut: int) -> None:
    log = random_log(Random(seed), entries=40)
    view, gathered = View(), Activity()
    for number, entry in enumerate(log):
        view = view.fold(entry)
        if number >= cut:
            take_notes(gathered.follow(view))
    whole = take_notes(View().fold_all(log))
    assert take_notes(gathered.follow(view)) == whole


def test_a_note_taker_that_forgets_the_past_is_caught() -> None:
    """The twin of the property above: one that reads only the new part gives other notes."""
    logs = [random_log(Random(seed), entries=60) for seed in range(20)]
    caught = [take_notes(log[len(log) // 2 :]) != take_notes(log) for log in logs]
    assert sum(caught) > len(logs) // 2  # in the others the first half adds no notes


def test_another_view_is_read_from_its_beginning(worked: Script) -> None:
    other = Script()
    other.user("Something else entirely, about the weather in Bergen")
    gathered = Activity().follow(worked.view)
    assert take_notes(gathered.follow(other.view)) == take_notes(other.view)


@pytest.mark.slow
def test_an_update_costs_what_is_new(steps_of: Callable[[Callable[[], object]], int]) -> None:
    script = Script()
    script.user("Read everything")
    view, gathered = View(), Activity()
    for number in range(3_000):
        script.reply(call(f"t{number}", "Read", file_path=f"/repo/src/module_{number % 700}.py"))
        script.result(f"t{number}", f"def function_{number}(): return '/repo/data/file_{number}.json'\n" * 5)
    view = view.fold_all(script.entries)

    def steps(entries: list[Entry]) -> int:
        nonlocal view
        view = view.fold_all(entries)
        return steps_of(lambda: take_notes(gathered.follow(view)))

    whole = steps([])
    more = Script()
    more.entries = list(script.entries)
    later: list[int] = []
    for number in range(20):
        start = len(more.entries)
        more.reply(call(f"n{number}", "Read", file_path="/repo/src/new.py"), id=f"new{number}")
        more.result(f"n{number}", "x = 1\n" * 20)
        later.append(steps(more.entries[start:]))
    assert max(later) < whole / 4, f"{max(later)} steps after {whole}"
    assert len(gathered.names) <= 6_000
    assert len(gathered.files) <= 600


@pytest.mark.requirement("L3.1")
def test_what_a_person_or_a_model_wrote_stays_and_is_brought_up_to_date(worked: Script) -> None:
    previous = Notes(
        {TITLE: "A parser", FILES: "The parser is the heart.\n- `/repo/src/parse.py`: old words", CURRENT: "old"}
    )
    notes = take_notes(worked.entries, previous)
    assert notes[TITLE] == "A parser"
    assert notes[FILES].split("\n")[:2] == [
        "The parser is the heart.",
        "- `/repo/src/parse.py`: changed 1x, read 1x; parse_empty",
    ]
    assert "old" not in notes[CURRENT]
    again = take_notes(worked.entries, notes)
    assert again[FILES] == notes[FILES], "merging twice adds nothing"


@pytest.fixture(scope="module")
def sessions(corpus: Path) -> list[list[Entry]]:
    return [list(found.messages) for found in read_sessions(corpus)]


@pytest.mark.slow
def test_notes_on_recorded_sessions_are_equal_step_by_step_and_at_once(
    sessions: list[list[Entry]], torture: bool
) -> None:
    for entries in sessions if torture else sessions[::8]:
        view, gathered = View(), Activity()
        for start in range(0, len(entries), 40):
            view = view.fold_all(entries[start : start + 40])
            take_notes(gathered.follow(view))
        assert take_notes(gathered.follow(view)) == take_notes(View().fold_all(entries))


@pytest.mark.requirement("B5")
@pytest.mark.slow
def test_notes_on_recorded_sessions_are_valid_and_fit(sessions: list[list[Entry]], template: Template) -> None:
    for entries in sessions:
        notes = take_notes(entries)
        document = render_notes(notes, template)
        assert parse_notes(document, template).sections.keys() == notes.sections.keys()
        assert estimate_text(document) < 12_000
