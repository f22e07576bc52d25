"""The scrolled transcript: nothing twice, nothing discarded, no control sequences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call
from log_script import text as text_block
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.markdown import blocks_of, markdown_lines
from reverie.cli.terminal.sessions import last_exchange
from reverie.cli.terminal.transcript import Transcript
from reverie.events import (
    CacheBroken,
    CompactionEnded,
    Event,
    FellBack,
    HookRan,
    ModelChanged,
    ModelRetried,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    ResultsTrimmed,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
)
from reverie.tools.context import Todo

CWD = Path("/repo")
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

LINES = st.sampled_from(
    [
        "# A heading",
        "Plain words that go on for a while, so that a narrow screen has to fold them somewhere.",
        "- an item",
        "  - an item below it",
        "1. first",
        "```python",
        "```",
        "def f(): return 1",
        "| a | b |",
        "|---|---|",
        "> said somebody",
        "---",
        "===",
        "#",
        "    indented",
        "",
        "",
    ]
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


class Watched:
    """A transcript and everything it ever wrote."""

    def __init__(self, *, columns: int = 80, rows: int = 24, colour: bool = False, verbose: bool = False) -> None:
        self.written: list[str] = []
        self.size = (columns, rows)
        self.now = 0.0
        self.transcript = Transcript(
            self._write,
            paint=Paint(colour=colour),
            cwd=CWD,
            size=lambda: self.size,
            clock=lambda: self.now,
            verbose=verbose,
        )

    def _write(self, lines: Sequence[str]) -> None:
        self.written += lines

    def show(self, *events: Event) -> Watched:
        for event in events:
            self.transcript.show(event)
        return self

    @property
    def text(self) -> str:
        return "\n".join(self.written)


def streamed(text: str, cuts: Sequence[int]) -> list[Event]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[first:last] for first, last in pairwise(edges)]
    return [TextStreamed("s", piece) for piece in pieces if piece]


def observed() -> ReplyObserved:
    return ReplyObserved("s", "m", "claude", {})


@given(TEXTS)
def test_blocks_put_together_are_the_text(text: str) -> None:
    assert "".join(blocks_of(text)) == text


def is_stable(text: str, whole_lines: int) -> bool:
    """Say whether the finished blocks of the first lines are the first blocks of all of them."""
    beginning = "".join(text.splitlines(keepends=True)[:whole_lines])
    finished = blocks_of(beginning)[:-1]
    return blocks_of(text)[: len(finished)] == finished


@given(TEXTS, st.integers(0, 40))
def test_a_finished_block_stays_as_it_is_whatever_comes_after(text: str, whole_lines: int) -> None:
    assert is_stable(text, whole_lines)


def test_a_line_that_is_not_whole_may_still_become_something_else() -> None:
    # Why only whole lines are looked at: the twin that looks at half ones would have let the paragraph go up.
    assert blocks_of("words\n#")[:-1] == ["words\n"]
    assert blocks_of("words\n#hashtag") == ["words\n#hashtag"]


@given(TEXTS, st.lists(st.integers(0, 5_000), max_size=60), st.integers(5, 60), st.integers(20, 120))
def test_a_reply_is_written_the_same_however_it_arrives_and_nothing_twice(
    text: str, cuts: list[int], rows: int, columns: int
) -> None:
    at_once = Watched(columns=columns, rows=10_000).show(TextStreamed("s", text), observed())
    in_pieces = Watched(columns=columns, rows=rows)
    for event in streamed(text, cuts):
        in_pieces.show(event)
        assert len(in_pieces.transcript.live()) <= max(4, rows // 2) + 1
    assert in_pieces.show(observed()).written == at_once.written


def test_a_transcript_that_lets_the_last_block_go_up_too_early_is_caught() -> None:
    text = "words\n" * 3 + "more\n===\n"
    early = Watched(rows=4)
    for line in text.splitlines(keepends=True):
        early.transcript.prose(line)  # the twin: every line goes up as it comes
    assert early.written != Watched().show(TextStreamed("s", text), observed()).written


def test_short_replies_stay_live_until_they_are_whole() -> None:
    watched = Watched().show(TextStreamed("s", "One.\n\nTwo.\n\nThree"))
    assert watched.written == []
    assert watched.transcript.live() == ["One.", "", "Two.", "", "Three"]
    watched.show(observed())
    assert watched.written == ["One.", "", "Two.", "", "Three"]
    assert watched.transcript.live() == []


def test_a_long_reply_goes_up_block_by_block() -> None:
    text = "".join(f"Paragraph {number}.\n\n" for number in range(30))
    watched = Watched(rows=20).show(*streamed(text, range(0, 5_000, 7)))
    assert "Paragraph 10." in watched.written
    assert "Paragraph 29." not in watched.written
    assert "Paragraph 29." in watched.transcript.live()


@pytest.mark.parametrize("voiding", [ModelRetried("s", "m", 2, 1.0, "the stream broke"), RequestPrepared("s", 1, 2, 3)])
def test_what_a_broken_reply_said_is_gone(voiding: Event) -> None:
    watched = Watched().show(TextStreamed("s", "Half an ans"), voiding)
    assert watched.transcript.live() == []
    watched.show(TextStreamed("s", "A whole answer."), observed())
    assert "Half" not in watched.text
    assert watched.text.count("A whole answer.") == 1


def test_what_had_gone_up_of_a_broken_reply_is_said_to_be_void() -> None:
    text = "".join(f"Paragraph {number}.\n\n" for number in range(30))
    watched = Watched(rows=20).show(TextStreamed("s", text), ModelRetried("s", "m", 2, 1.0, "the stream broke"))
    assert "ignore the incomplete reply above; it starts again" in watched.text


def test_retries_are_one_live_line_that_counts_down_and_goes_with_the_reply() -> None:
    watched = Watched().show(RequestPrepared("s", 1, 2, 3), ModelRetried("s", "m", 1, 4.0, "nothing listens", 6))
    watched.show(ModelRetried("s", "m", 2, 4.0, "nothing listens there", 6))
    watched.now = 1.0
    assert watched.transcript.live() == ["↻ try 3 of 6 in 3 s: nothing listens there"]
    watched.show(TextStreamed("s", "Hello."), observed(), QueryEnded("s", "completed", "", 1))
    assert watched.written == ["Hello."]
    watched.show(ModelRetried("s", "m", 2, 4.0, "a request of background work", 6))
    assert watched.transcript.live() == []


def test_a_call_is_one_line_live_and_one_line_when_it_is_done() -> None:
    watched = Watched().show(ToolStarted("s", "t1", "Read", {"file_path": "/repo/src/app.py"}))
    assert watched.transcript.live() == ["○ Read(src/app.py)"]
    watched.show(ToolFinished("s", "t1", "Read", False, "1\tx", 0.1, 120))
    assert watched.written == ["● Read(src/app.py) 120 lines"]
    assert watched.transcript.live() == []


def test_calls_that_run_at_the_same_time_each_keep_their_line() -> None:
    first = ToolStarted("s", "t1", "Grep", {"pattern": "def main", "path": "/repo/src"})
    second = ToolStarted("s", "t2", "Bash", {"command": "pytest -q\nsecond line"})
    watched = Watched().show(first, second, ToolFinished("s", "t2", "Bash", True, "[exit code 1]", 3.2, 1))
    assert watched.written == ["● Bash(pytest -q second line) exit code 1 (3 s)"]
    assert watched.transcript.live() == ["○ Grep(def main in src)"]


def test_the_last_lines_of_a_command_are_live_and_stay_below_it() -> None:
    watched = Watched(columns=40).show(ToolStarted("s", "t", "Bash", {"command": "make"}))
    watched.transcript.running_output = lambda: ("one\ntwo\nthree\nfo\x1b[2Jur " + "x" * 60, 9)
    shown = ["  │ two", "  │ three", f"  │ four {'x' * 29}…"]
    assert watched.transcript.live() == ["○ Bash(make)", "  │ … 6 more lines · Ctrl-O shows all", *shown]
    end = "".join(f"line {number}\n" for number in range(90)) + "[exit code 2]"
    watched.show(ToolFinished("s", "t", "Bash", True, "line -1\n", 1.0, 92, end))
    assert watched.written[0] == "● Bash(make) exit code 2"
    assert watched.written[1] == "  │ … 85 more lines · Ctrl-O shows all"
    assert watched.written[2:] == [f"  │ line {number}" for number in range(84, 90)]
    assert watched.transcript.last_call == ("t", "Bash(make)")


def test_a_call_that_could_not_run_and_a_denied_one_are_red_lines_that_fit_the_screen() -> None:
    watched = Watched(columns=60)
    given = {"file_path": "/repo/" + "very/" * 20 + "app.py"}
    watched.show(ToolStarted("s", "t", "Reed", given), ToolFinished("s", "t", "Reed", True, "No tool " * 40, 0.0, 1))
    watched.show(PermissionDecided("s", "Write", False, "rule", "a rule denies it", "t2", given))
    watched.show(PermissionDecided("s", "Write", False, "extraction", "only memories", "", given))
    call, denied = watched.written
    assert call.startswith("● Reed(very/very/")
    assert "No tool No tool" in call
    assert denied.startswith("● Write(very/")
    assert denied.endswith("denied: a rule denies it")
    assert max(map(len, watched.written)) <= 60


def test_steps_are_shown_around_the_one_that_is_next_and_written_when_the_query_ends() -> None:
    watched = Watched(rows=24)
    done = [Todo(f"step {number}", "completed") for number in range(8)]
    steps = [*done, Todo("now", "in_progress"), Todo("later"), Todo("last")]
    watched.transcript.steps = lambda: steps
    assert watched.transcript.step_lines() == [
        *["  ✓ step 5", "  ✓ step 6", "  ✓ step 7", "  ▸ now", "  · later", "  · last"],
        "  … 5 other steps, 8 of 11 done",
    ]
    watched.show(ToolStarted("s", "t", "TodoWrite", {"todos": []}), QueryEnded("s", "completed", "", 1))
    assert "now" not in watched.text, "the list did not change"
    watched.show(ToolFinished("s", "t", "TodoWrite", False, "[x]", 0.0, 1), QueryEnded("s", "completed", "", 1))
    assert watched.text.count("▸ now") == 1


def test_an_interrupted_query_keeps_what_was_on_the_screen_and_says_so() -> None:
    watched = Watched().show(TextStreamed("s", "I was say"), ToolStarted("s", "t", "Bash", {"command": "sleep 9"}))
    watched.show(QueryEnded("s", "aborted", "stopped by the user", 1))
    assert watched.written == ["I was say", "", "● Bash(sleep 9) stopped", "Interrupted."]
    assert watched.transcript.live() == []


@pytest.mark.requirement("Q6")
@pytest.mark.parametrize(
    "end", ["blocking_limit", "prompt_too_long", "model_error", "aborted", "hook_stopped", "max_turns", "budget"]
)
def test_every_end_but_the_good_one_is_said(end: str) -> None:
    assert Watched().show(QueryEnded("s", "completed", "", 1)).written == []
    assert Watched().show(QueryEnded("s", end, "because", 1)).written


def test_thinking_is_one_line_and_then_only_how_long_it_took() -> None:
    watched = Watched().show(ThinkingStreamed("s", "First I look.\nThen I "), ThinkingStreamed("s", "leap."))
    assert watched.transcript.live() == ["✻ thinking … First I look. Then I leap."]
    watched.now = 4.2
    watched.show(TextStreamed("s", "Done."), observed())
    assert watched.written == ["✻ thought for 4 s", "", "Done."]


@pytest.mark.requirement("F5")
def test_no_fallback_is_silent_and_internal_ones_are_for_those_who_ask() -> None:
    quiet = Watched().show(FellBack("s", "offload", "the disk is full"), FellBack("s", "mcp", "no server"))
    assert quiet.written == ["! mcp: no server"]
    watched = Watched(verbose=True).show(
        FellBack("s", "offload", "the disk is full"),
        HookRan("s", "lint", "after_tool", problem="it took too long"),
        PermissionDecided("s", "Bash", False, "rule", "Bash(rm:*) is denied"),
        ResultsTrimmed("s", "idle", ["Read"], [], 9_000, 4_000),
        ResultsTrimmed("s", "provider", ["Read"], [], 9_000, 2_000, ["t1", "t2"]),
        CompactionEnded("s", "auto", "full", 150_000, 20_000, 3, 1),
    )
    assert "the provider clears old tool results: 7k tokens so far" in watched.text
    for said in ("the disk is full", "it took too long", "Bash(rm:*) is denied", "5k tokens freed", "150k → 20k"):
        assert said in watched.text


def test_what_layers_do_is_said_in_plain_words() -> None:
    watched = Watched().show(
        ResultsTrimmed("s", "window", ["Read"], [], 9_000, 4_000, ["t1"]),
        CompactionEnded("s", "manual", "notes", 150_000, 20_000, 3, 0),
        CompactionEnded("s", "auto", "provider", 150_000, 20_000, 3, 1),
    )
    assert watched.written == [
        "⌁ cleared 1 old tool result: 5k tokens freed (the window is nearly full)",
        "⌁ compacted on request from notes: 150k → 20k tokens · /uncompact",
        "⌁ compacted automatically by the provider: 150k → 20k tokens · /uncompact",
    ]


@pytest.mark.requirement("U5")
def test_a_cache_break_has_its_cause_in_plain_words() -> None:
    watched = Watched().show(CacheBroken("s", "server", 17_000, 0.0625), CacheBroken("s", "a new reason", 9_000, None))
    assert watched.written == [
        "⌁ cache break: the provider lost the cache (17k tokens, $0.0625)",
        "⌁ cache break: a new reason (9k tokens)",
    ]


def test_clearing_by_the_provider_is_one_line_a_query() -> None:
    def cleared(handle: str) -> ResultsTrimmed:
        return ResultsTrimmed("s", "provider", ["Read"], [], 9_000, 2_000, [handle])

    watched = Watched().show(cleared("t1"), cleared("t2"))
    assert watched.text.count("the provider clears") == 1
    watched.show(QueryEnded("s", "completed", "", 1), cleared("t3"))
    assert watched.text.count("the provider clears") == 2


@pytest.mark.requirement("V16")
def test_a_change_of_model_is_one_line_with_readable_thinking_and_the_cost_of_a_cold_cache() -> None:
    watched = Watched().show(ModelChanged("s", "one", "other", 12, 9, 84_213, 0.4211))
    assert watched.text.count("model: ") == 1
    for said in ("other after one", "reads the thinking of 9 of 12 replies", "84,213 tokens (about $0.42)"):
        assert said in watched.text.replace("\n", " ")
    silent = Watched().show(ModelChanged("s", "one", "other", 0, 0, 500, None)).text
    assert "thinking" not in silent
    assert "$" not in silent


HOSTILE = st.text(
    st.one_of(st.sampled_from("\x1b\x07\x08\r\x9b\x9d[]0;2Jm\u202e\u200b"), st.characters(exclude_categories=["Cs"])),
    max_size=60,
)


@pytest.mark.requirement("S7")
@given(HOSTILE, HOSTILE, st.booleans())
def test_nothing_a_model_or_a_tool_says_can_drive_the_terminal(text: str, other: str, colour: bool) -> None:
    watched = Watched(colour=colour)
    watched.transcript.prompt(text)
    watched.transcript.note(other)
    watched.transcript.output(text)
    watched.transcript.denied("x", other)
    watched.show(
        ThinkingStreamed("s", text),
        TextStreamed("s", other),
        TextStreamed("s", text),
        ToolStarted("s", "t1", text, {"file_path": other}),
        ToolStarted("s", "t2", "Bash", {text: other}),
    )
    live = watched.transcript.live()
    watched.show(
        observed(),
        ToolFinished("s", "t1", text, False, other, 1.0),
        ToolFinished("s", "t2", "Bash", True, text, 1.0),
        FellBack("s", text, other),
        ModelRetried("s", text, 1, 1.0, other),
        ModelChanged("s", text, other, 2, 1, 9_000, 0.05),
        HookRan("s", text, "stop", message=other),
        PermissionDecided("s", text, False, "rule", other),
        QueryEnded("s", "model_error", text, 1),
    )
    for line in [*live, *watched.written]:
        assert CONTROL.search(OWN_COLOURS.sub("", line)) is None, line
        assert "\n" not in line
        assert colour or "\x1b" not in line


def test_a_terminal_without_colours_gets_no_escape_sequence() -> None:
    assert "\x1b" not in "".join(markdown_lines("**bold** `code`\n\n```py\nx = 1\n```", columns=80, colour=False))
    assert "\x1b[" in "".join(markdown_lines("**bold** `code`", columns=80, colour=True))


def test_memories_that_were_recalled_and_saved_are_said_with_the_way_back() -> None:
    from reverie.conversation.decisions import Cause, MemoriesExtracted, MemoriesSurfaced
    from reverie.events import DecisionMade

    shown = Cause("recall", "looks right")
    page = Watched()
    page.show(DecisionMade("s", "u1", MemoriesSurfaced(shown, ["a.md", "b.md"], "text")))
    page.show(DecisionMade("s", "u1b", MemoriesSurfaced(shown, ["b.md"], "text")))  # it had left the view
    page.show(DecisionMade("s", "u2", MemoriesExtracted(shown, ["c.md"])))
    page.show(DecisionMade("s", "u3", MemoriesExtracted(shown, [])))
    said = page.text
    assert "recalled 2 memories: a.md, b.md" in said
    assert said.count("recalled") == 1
    assert "saved 1 memory: c.md · /memory undo undoes this" in said
    assert said.count("saved") == 1


@pytest.mark.requirement("L6.8", "L6.10")
def test_a_dream_is_shown_with_its_files_its_text_and_the_way_back() -> None:
    from reverie.events import DreamChanged

    page = Watched()
    for state, text, paths in (
        ("starting", "", []),
        ("updating", "", ["a.md"]),
        ("updating", "I read the project.", ["a.md", "b.md"]),
        ("updating", "I read the project.", ["a.md", "b.md"]),
        ("completed", "1 merged, 1 changed", ["a.md", "b.md"]),
        ("starting", "", []),
        ("completed", "nothing to change", []),
    ):
        page.show(DreamChanged("s", "d1", state, text, 2, paths))
    said = [line.strip() for line in page.text.splitlines() if line.strip()]
    assert said == [
        "☾ consolidating memories · /dream stop ends it",
        "☾ changes a.md",
        "☾ changes b.md",
        "☾ I read the project.",
        "☾ dream completed: 1 merged, 1 changed · /dream undo takes it back",
        "☾ consolidating memories · /dream stop ends it",
        "☾ dream completed: nothing to change",
    ]


def test_a_continued_session_shows_its_last_prompt_with_texts_calls_and_results_in_order() -> None:
    script = Script()
    script.user("an earlier prompt")
    script.reply(text_block("An earlier answer."))
    script.user("read all of it")
    script.reply(text_block("I look."), *(call(f"t{at}", file_path=f"f{at}.py") for at in range(14)))
    script.user([{"type": "tool_result", "tool_use_id": f"t{at}", "content": "a\nb\nc"} for at in range(14)])
    script.reply(
        text_block("And now the tests."), call("b", "Bash", command="make"), call("big", "Bash", command="make all")
    )
    script.result("b", "one\ntwo\n[exit code 2]", is_error=True)
    script.result("big", "<persisted-output>\n12 lines of a preview\n</persisted-output>")
    script.reply(text_block("All read."), call("open", "Bash", command="sleep 9"))
    prompt, events = last_exchange(script.view)
    watched = Watched()
    watched.transcript.repeat(events)
    assert prompt == "read all of it"
    assert [line for line in watched.written if line] == [
        "… 7 earlier calls",
        "I look.",
        *(f"● Read(f{at}.py) 3 lines" for at in range(7, 14)),
        "And now the tests.",
        "● Bash(make) exit code 2",
        "  │ one",
        "  │ two",
        "● Bash(make all) done",
        "All read.",
        "● Bash(sleep 9) stopped",
    ]


def test_a_long_line_of_a_block_breaks_between_words_and_stays_indented() -> None:
    watched = Watched(columns=40)
    watched.transcript.block(["82% of the input of this session was read from the cache", "short"])
    assert watched.written == ["  82% of the input of this session was", "  read from the cache", "  short"]


@pytest.mark.parametrize("prompt", ["x" * 3_000_000, "x\n" * 100_000], ids=["one line", "many lines"])
def test_of_a_very_long_prompt_the_beginning_is_shown_with_its_length(prompt: str) -> None:
    watched = Watched()
    watched.transcript.prompt(prompt)
    assert 100 < len(watched.written) <= 203
    assert watched.written[-1].strip() == f"… ({len(prompt):,} characters in all)"
    watched.transcript.prompt("short\n" * 50)
    assert "characters in all" not in watched.written[-1]
