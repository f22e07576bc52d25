"""Ask the user on the screen about a tool call or a plan, which is shown whole, byte for byte and page by page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from anyio import to_thread
from prompt_toolkit.utils import get_cwidth

from ...errors import InputError
from ..output import counted, one_word, visible
from .calls import call_title
from .colours import Paint
from .questions import Option

if TYPE_CHECKING:
    from ...runtime.guard.permissions import Approval, ApprovalAnswer
    from .screen import Screen
    from .transcript import Transcript

NO_REASON: Final = "refused by the user"
OTHER_ROWS: Final = 11
"""Rows of the screen that the head of a question, the current step, the title and the footer take."""
MIN_PAGE_ROWS: Final = 6
LOW_ROWS: Final = 7
"""Rows of a low screen that are not a page: one of the head, one that counts the rest, three to answer, the footer."""
DIFF_STYLES: Final = {"+": "added", "-": "removed", "@": "hunk"}
EDITED: Final = "yes, always: a rule that you edit"
EDITS: Final = "Enter opens the rule, and you edit it"
SIGN: Final = re.compile(r"(<U\+[0-9A-F]{4,6}>)")


class Preview:
    """The lines of a text that a person decides on, as rows of a screen: none is left out, and the rest is counted."""

    def __init__(self, text: str, paint: Paint, *, is_diff: bool = False, columns: int | None = None) -> None:
        """Wrap lines that are wider than ``columns``; None means that the reader wraps them."""
        self._lines = visible(text).expandtabs(4).split("\n")
        if self._lines[-1] == "":
            self._lines.pop()
        self._paint = paint
        self._is_diff = is_diff
        self._columns = columns
        self._line: int = 0
        self._offset: int = 0

    @classmethod
    def of(cls, approval: Approval, paint: Paint, *, columns: int | None = None) -> Preview:
        """Return the preview of a call: its diff, its command, URL or path with other inputs, or its input as JSON."""
        from ...runtime.guard.approval_text import call_text, other_inputs

        if approval.access.kind == "read":  # the head of the question has the path
            text = "\n".join(other_inputs(approval, approval.access.target, given_path(approval)))
        else:
            text = call_text(approval)
        lines = text.split("\n") if approval.preview else []
        is_diff = len(lines) > 1 and lines[0].startswith("--- ") and lines[1].startswith("+++ ")
        return cls("\n".join(lines[2:]) if is_diff else text, paint, is_diff=is_diff, columns=columns)

    def page(self, rows: int | None = None) -> list[str]:
        """Return the next rows, painted, at most as many as asked for; all that are left for None."""
        shown: list[str] = []
        while self._line < len(self._lines) and (rows is None or len(shown) < rows):
            line, start = self._lines[self._line], self._offset
            end = self._end_of_row(line, start)
            style = DIFF_STYLES.get(line[:1], "dim") if self._is_diff else ""
            mark = self._paint("↪ " if start else "│ ", "dim")
            shown.append(mark + "".join(self._painted(part, style) for part in SIGN.split(line[start:end])))
            is_last = end >= len(line)
            self._line, self._offset = (self._line + 1, 0) if is_last else (self._line, end)
        return shown

    def _painted(self, part: str, style: str) -> str:
        if SIGN.match(part):
            return self._paint(part, "danger")
        return self._paint(part, style) if style else part

    def _end_of_row(self, line: str, start: int) -> int:
        room = None if self._columns is None else max(8, self._columns - 3)
        if room is None or (len(line) - start <= room and get_cwidth(line[start:]) <= room):
            return len(line)
        width, end = 0, start
        while end < len(line) and (end == start or width + get_cwidth(line[end]) <= room):
            width += get_cwidth(line[end])
            end += 1
        return end

    @property
    def rest(self) -> str:
        """The lines that no page has shown to their end, counted, or an empty text."""
        left = self._lines[self._line :]
        if not left:
            return ""
        chars = sum(map(len, left)) - self._offset
        return f"{counted(len(left), 'more line')} ({chars:,} characters)"


def given_path(approval: Approval) -> str:
    """Return the path in the input of a call as it was given, or an empty text."""
    return next((str(approval.input[key]) for key in ("file_path", "path") if key in approval.input), "")


def approval_head(approval: Approval, cwd: Path, paint: Paint, columns: int = 120) -> list[str]:
    """Return the first lines of a question: the tool, the whole path that it writes or reads, and the reason to ask."""
    name = one_word(approval.tool)
    if approval.access.kind in ("read", "write"):
        given = given_path(approval)
        target = approval.access.target
        shown = os.path.relpath(target, cwd) if target.startswith(f"{cwd}/") else target
        is_link = bool(given) and os.path.normpath(os.path.join(cwd, os.path.expanduser(given))) != target
        name += f" {one_word(given)} → {one_word(target)}" if is_link else f" {one_word(shown)}"
    if get_cwidth(f"? {name} · {one_word(approval.reason)}") < columns:
        return [f"{paint('?', 'busy')} {paint(name, 'title')} {paint('· ' + one_word(approval.reason), 'dim')}"]
    folded = wrap(one_word(approval.reason), max(20, columns - 3), break_on_hyphens=False)
    return [f"{paint('?', 'busy')} {paint(name, 'title')}", *(paint(f"  {line}", "dim") for line in folded)]


def kept_rules(approval: Approval) -> list[tuple[str, str, str]]:
    """Return the rules that 'always' can keep, as (rule, place, words): each for this session and for this project."""
    found: list[tuple[str, str, str]] = []
    for rule in approval.suggestions:
        for place in ("session", "project"):
            exact = approval.access.kind == "run" and rule == f"{approval.tool}({approval.access.target.strip()})"
            note = ", commands that begin so and add no options" if rule.endswith(":words)") else ""
            found.append((rule, place, "this exact command" if exact else one_word(rule) + note))
    return found


def own_rule(text: str) -> str:
    """Return a rule that the user typed; raise InputError with examples if it is none."""
    from ...errors import SettingsError
    from ...runtime.guard.rules import parse_permission_rule

    try:
        return parse_permission_rule(text).text
    except SettingsError as error:
        raise InputError(str(error)) from None


class Pages:
    """A preview below its head, which are written into the conversation: the head at once, and page by page."""

    def __init__(
        self, preview: Preview, put: Callable[[str, Sequence[str]], None], rows: Callable[[], int], head: Sequence[str]
    ) -> None:
        """Write the head; ``rows`` returns the rows of the screen that are left beside the answers."""
        self._preview = preview
        self._put = put
        self._rows = rows
        self._head = head
        self._page: Sequence[str] = ()
        put("approval", head)

    def turn(self, to_end: bool) -> str:
        """Write the next page, or with ``to_end`` all that is left; return a line that counts the rest."""
        rows = self._rows()
        page = self._preview.page(None if to_end else rows)
        self._put("approval", page)
        self._page = page[-rows:]
        return f"… {self._preview.rest} · Space: next page · v: all" if self._preview.rest else ""

    def shown_last(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the head, and the end of the page that was written last."""
        return self._head, self._page


def page_rows(screen: Screen, options: Sequence[Option]) -> int:
    """Return the rows of a page; on a low screen the answers are one row, with a row for the marked one."""
    rows = screen.size()[1]
    return max(1, min(MIN_PAGE_ROWS, rows - LOW_ROWS), rows - OTHER_ROWS - len(options))


async def ask_about_plan(screen: Screen, transcript: Transcript, approval: Approval, paint: Paint) -> ApprovalAnswer:
    """Show a plan as it is written, ask the user to approve, edit or reject it, and return the answer."""
    from ...runtime.guard.permissions import ApprovalAnswer

    path = Path(approval.access.target)
    options = [
        Option("y", "yes, and ask me before each edit", "once", short="yes"),
        Option("a", "yes, and accept edits", "always", lasts=True),
        *([Option("e", "edit the plan first", "edit", short="edit")] if path.is_file() else []),
        Option("t", "no, and ask the model for changes", "why", takes_words=True, short="changes"),
        Option("n", "no", "no"),
    ]
    text = approval.preview
    while True:
        preview = Preview(text, paint, columns=screen.size()[0])
        head = approval_head(approval, Path(), paint, screen.size()[0])
        pages = Pages(preview, transcript.put, lambda: page_rows(screen, options), head)
        match await screen.choose("Approve the plan?", options, pages.turn, pages.shown_last):
            case "once":
                return ApprovalAnswer("once")
            case "always":
                return ApprovalAnswer("always")
            case "edit":
                try:
                    await screen.edit_file(path)
                    text = await to_thread.run_sync(lambda: path.read_text(encoding="utf-8", errors="replace"))
                except (InputError, OSError) as error:
                    transcript.note(f"! {error}", "warning")
            case "why":
                return ApprovalAnswer("deny", (await screen.ask_words("which changes? ")).strip())
            case _:
                return ApprovalAnswer("deny")


class ScreenApprover:
    """Asks the user on the screen whether a tool call may run."""

    def __init__(self, screen: Screen, transcript: Transcript, *, paint: Paint, cwd: Path) -> None:
        self._screen = screen
        self._transcript = transcript
        self._paint = paint
        self._cwd = cwd

    async def __call__(self, approval: Approval) -> ApprovalAnswer:
        """Show the call, ask the user, and return the answer; show a call that does not run."""
        from ...runtime.guard.permissions import ApprovalAnswer

        if approval.is_plan:
            return await ask_about_plan(self._screen, self._transcript, approval, self._paint)
        rules = dict(zip("ap1234", kept_rules(approval), strict=False))
        columns = self._screen.size()[0]
        preview = Preview.of(approval, self._paint, columns=columns)
        options = [
            Option("y", "yes, once", "once", short="yes"),
            *(
                Option(key, f"yes, always in this {place}: {words}", key, lasts=True)
                for key, (_, place, words) in rules.items()
            ),
            *([Option("e", EDITED, "edit", lasts=True, on_enter=EDITS)] if approval.access.kind == "run" else []),
            Option("n", "no", "no"),
            Option("t", "no, and tell the model why", "why", takes_words=True, short="why"),
        ]
        head = approval_head(approval, self._cwd, self._paint, columns)
        pages = Pages(preview, self._transcript.put, lambda: page_rows(self._screen, options), head)
        title = f"Allow {one_word(approval.tool)}?"
        answer = await self._screen.choose(title, options, pages.turn, pages.shown_last)
        if answer == "edit":
            return await self._edited(approval)
        if answer == "once":
            self._record("yes, once")
            return ApprovalAnswer("once")
        if answer in rules:
            rule, place, words = rules[answer]
            self._record(f"yes, always in this {place}: {words} · /permissions lists all")
            return ApprovalAnswer("always", rule=rule, keep="project" if place == "project" else "session")
        why = (await self._screen.ask_words("why? ")).strip() if answer == "why" else ""
        said = None if answer is None else why or NO_REASON
        self._transcript.denied(call_title(approval.tool, approval.input, self._cwd), said)
        return ApprovalAnswer("deny", why)

    def _record(self, answer: str) -> None:
        """Write the answer below the question, so that the conversation shows it."""
        room = max(20, self._screen.size()[0] - 3)
        for at, line in enumerate(wrap(answer, room, break_on_hyphens=False)):
            self._transcript.put("approval", [self._paint(f"{' ' if at else '└'} {line}", "dim")])

    async def _edited(self, approval: Approval) -> ApprovalAnswer:
        """Let the user edit a rule that begins with the call, and choose how long it holds; no rule asks again."""
        from ...runtime.guard.always import prefix_to_edit
        from ...runtime.guard.permissions import ApprovalAnswer

        typed = prefix_to_edit(approval.tool, approval.access.target)
        while typed := (await self._screen.ask_line("rule (:* is anything that follows): ", typed)).strip():
            try:
                rule = own_rule(typed)
            except InputError as error:
                self._transcript.note(f"! {error}", "warning")
                continue
            places = [Option(place[0], f"in this {place}", place, lasts=True) for place in ("session", "project")]
            place = await self._screen.choose(f"Allow {one_word(rule)}", places)
            if place is not None:
                self._record(f"yes, always in this {place}: {one_word(rule)} · /permissions lists all")
                return ApprovalAnswer("always", rule=rule, keep="project" if place == "project" else "session")
        return await self(approval)
