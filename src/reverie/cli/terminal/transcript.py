"""Convert events into lines: finished lines scroll up, unfinished ones stay in the live area below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from ...cache.watch import losses_by_cause
from ...conversation.decisions import MemoriesExtracted, MemoriesSurfaced
from ...events import (
    AgentEnded,
    AgentProgressed,
    AgentStarted,
    CacheBroken,
    CompactionEnded,
    CompactionProgressed,
    DecisionMade,
    DreamChanged,
    Event,
    FellBack,
    HookRan,
    LogDamaged,
    MessageArrived,
    ModelChanged,
    ModelRetried,
    PermissionDecided,
    PromptAdded,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    ResultsTrimmed,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
    UserMessaged,
)
from ..output import CLEARING_REASONS, COMPACTION_METHODS, COMPACTION_REASONS, counted, printable
from .agents import AgentLines
from .calls import COMMANDS, call_title, one_line, outcome, output_lines, step_lines
from .colours import Paint
from .footer import thousands

if TYPE_CHECKING:
    from ...tools.context import Todo

MIN_LIVE_ROWS: Final = 4
MAX_LIVE_ROWS: Final = 12
"""Live lines that do not fit a smaller window go into the terminal's history, so there are few of them."""
OTHER_ROWS: Final = 9
"""Rows of the screen that the input, the line above it and the footer take."""
OUTPUT_ROWS: Final = 3
SHOWN_ELSEWHERE: Final = frozenset({"Agent", "TodoWrite"})
"""Tools whose work has lines of its own: agents, and the list of steps."""
FAILED_ROWS: Final = 6
"""How many of the last lines of a command's output are shown, and of one that failed."""
PROMPT_ROWS: Final = 200
REPEATED_CALLS: Final = 10
"""How many calls of the last query are shown again when a session is continued."""
CLOSE: Final = frozenset({"call", "note", "thought"})
"""Kinds of lines that follow each other without an empty line."""
ENDS: Final = {
    "blocking_limit": "The context window is full: use /compact, or /clear for a new session.",
    "prompt_too_long": "The prompt does not fit the context window: use /compact, or /clear for a new session.",
    "model_error": "The model call failed.",
    "aborted": "Interrupted.",
    "hook_stopped": "A hook stopped the agent.",
    "max_turns": "Reached the maximum number of turns; type 'continue' to go on.",
    "budget": "The budget is spent.",
}


FOR_USERS: Final = frozenset(
    {"agents", "dream", "flags", "images", "instructions", "log", "mcp", "memory", "model", "plan", "prompt"}
)
"""The fallbacks that a user can do something about; the others are diagnostics of Reverie itself."""


@dataclass(slots=True)
class _RunningCall:
    name: str
    title: str
    since: float


class Transcript:
    """Converts events into lines and passes finished ones to ``write``."""

    def __init__(
        self,
        write: Callable[[Sequence[str]], None],
        *,
        paint: Paint,
        cwd: Path,
        size: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
        verbose: bool = False,
    ) -> None:
        """Show diagnostics of Reverie itself only if ``verbose``."""
        self.running_output: Callable[[], tuple[str, int]] = lambda: ("", 0)
        """Returns the end of the output of the command that runs now, and its number of lines."""
        self.steps: Callable[[], Sequence[Todo]] = lambda: ()
        """Returns the agent's list of steps."""
        self.last_call = ("", "")
        """The id and the title of the call that finished last."""
        self._verbose = verbose
        self._steps_changed = False
        self._is_asking = False
        """Whether the conversation's request was sent and its reply is not complete."""
        self._retry: ModelRetried | None = None
        self._retry_at = 0.0
        self._write = write
        self._paint = paint
        self._cwd = cwd
        self._size = size
        self._clock = clock
        self._last = ""
        self._text = ""
        self._shown = 0
        """Number of characters of this reply that are already written."""
        self._thinking = ""
        self._thinking_since = 0.0
        self._running: dict[str, _RunningCall] = {}
        self._compacting = ""
        self._provider_clears = False
        """Whether this query has a line about clearing by the provider; each request of it may clear more."""
        self._recalled: set[str] = set()
        self._dream: DreamChanged | None = None
        self._agents = AgentLines(paint, clock, lambda: self._size()[0])

    # -- direct output

    def put(self, kind: str, lines: Sequence[str]) -> None:
        """Write finished lines, with an empty line before them unless their kind continues the lines above."""
        if lines:
            self._write([*self._gap(kind), *lines])
            self._last = kind

    def prompt(self, text: str) -> None:
        """Show the user's prompt, or the beginning of a very long one."""
        columns, _ = self._size()
        width = max(20, columns - 3)
        lines = printable(text[: PROMPT_ROWS * width]).expandtabs(4).splitlines() or [""]
        shown = [row for line in lines[:PROMPT_ROWS] for row in _rows(line, width)]
        if len(lines) > PROMPT_ROWS or len(text) > PROMPT_ROWS * width:
            shown.append(f"… ({len(text):,} characters in all)")
        marks = ["> ", *["  "] * (len(shown) - 1)]
        self.put("prompt", [self._paint(mark + line, "prompt") for mark, line in zip(marks, shown, strict=True)])

    def note(self, text: str, style: str = "dim") -> None:
        """Show a message of the program itself."""
        columns, _ = self._size()
        for line in printable(text).expandtabs(4).splitlines():
            folded = wrap(line, max(20, columns - 1), break_long_words=False, break_on_hyphens=False)
            self.put("note", [self._paint(one, style) for one in folded])

    def block(self, lines: Sequence[str], style: str = "") -> None:
        """Show indented lines together; a long one breaks between words."""
        columns, _ = self._size()
        width = max(20, columns - 1)
        folded = (
            wrap(f"  {printable(line)}", width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for line in lines
        )
        rows = [row for one in folded for row in one]
        self.put("block", [self._paint(row, style) if style else row for row in rows])

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Show names with their meanings, which are folded beside them."""
        columns, _ = self._size()
        width = max(len(name) for name, _ in rows)
        lines: list[str] = []
        for name, meaning in rows:
            folded = wrap(printable(meaning), max(20, columns - width - 4)) or [""]
            lines.append(f"  {self._paint(name.ljust(width), 'chosen')} {folded[0]}".rstrip())
            lines += [" " * (width + 3) + line for line in folded[1:]]
        self.put("block", lines)

    def denied(self, title: str, why: str | None) -> None:
        """Show a tool call that was denied, or without a reason one whose question was interrupted."""
        self._put_call(title, "not run" if why is None else f"denied: {one_line(why)}", is_error=True)

    def _put_call(self, title: str, said: str, *, is_error: bool = False, style: str = "dim") -> None:
        columns, _ = self._size()
        said = one_line(said, max(24, columns - 4 - min(len(title), columns // 2)))
        shown = one_line(title, max(24, columns - len(said) - 4))
        self.put("call", [f"{self._paint('●', 'failed' if is_error else 'done')} {shown} {self._paint(said, style)}"])

    def output(self, text: str, style: str = "") -> None:
        """Show the output of a shell command."""
        for line in printable(text).expandtabs(8).splitlines() or [""]:
            self.put("output", [f"  {self._paint(line, style) if style else line}"])

    def prose(self, text: str) -> None:
        """Show finished Markdown."""
        from .markdown import blocks_of, markdown_lines

        columns, _ = self._size()
        for block in blocks_of(text):
            self.put("prose", markdown_lines(block, columns=columns - 1, colour=self._paint.colour))

    # -- events

    def repeat(self, events: Sequence[Event]) -> None:
        """Show the texts and the newest calls of an earlier query."""
        calls = [event.id for event in events if isinstance(event, ToolStarted)]
        left_out = set(calls[:-REPEATED_CALLS])
        if left_out:
            self.note(f"… {counted(len(left_out), 'earlier call')}", "dim")
        for event in events:
            if isinstance(event, TextStreamed):
                self.prose(event.text)
            elif isinstance(event, ToolStarted | ToolFinished) and event.id not in left_out:
                self.show(event)
        self._stop_calls()

    def _stop_calls(self) -> None:
        for running in self._running.values():
            self._put_call(running.title, "stopped", is_error=True)
        self._running.clear()

    def show(self, event: Event) -> None:
        """Write the finished lines that an event brings; its unfinished ones appear in ``live``."""
        match event:
            case TextStreamed() | ThinkingStreamed() | RequestPrepared() | ModelRetried() | ReplyObserved():
                self._show_reply(event)
            case ToolStarted(id="attached") | ToolFinished(id="attached"):
                pass  # a file of the prompt, which has a line of its own
            case ToolStarted():
                title = call_title(event.name, event.input, self._cwd)
                self._running[event.id] = _RunningCall(event.name, title, self._clock())
            case ToolFinished():
                self._finish_call(event)
            case QueryEnded():
                self._end(event)
            case AgentStarted() | AgentProgressed() | AgentEnded():
                self.put("call", self._agents.on_event(event))
            case _:
                self._show_warning(event)
                self._show_layer_action(event)

    def _show_warning(self, event: Event) -> None:
        match event:
            case PermissionDecided(allowed=False, by=by) if by != "user" and (event.id or self._verbose):
                self.denied(call_title(event.tool, event.input, self._cwd), event.reason)
            case ModelChanged():
                self.note(f"model: {one_line(event.line, 240)}")
            case FellBack() if self._verbose or event.what in FOR_USERS:
                self.note(f"! {one_line(event.what)}: {one_line(event.why, 200)}", "warning")
            case LogDamaged():
                self.note(f"! cannot read line {event.line} of the log: {one_line(event.reason)}", "warning")
            case HookRan() if event.problem:
                self.note(f"! hook {one_line(event.hook)}: {one_line(event.problem)}", "warning")
            case HookRan() if event.message:
                self.note(event.message)
            case PromptAdded():
                self.prompt(event.text)
            case MessageArrived():
                self.note(f"✉ {one_line(event.sender)}, to the agent: {one_line(event.summary, 200)}", "title")
            case UserMessaged():
                self.note(f"✉ {one_line(event.sender)}: {event.text}", "title")
            case _:
                pass

    def _show_layer_action(self, event: Event) -> None:
        match event:
            case ResultsTrimmed(trigger="provider"):
                self._show_provider_clearing(event)
            case ResultsTrimmed():
                freed = thousands(max(0, event.tokens_before - event.tokens_after))
                results = counted(len(event.handles), "old tool result") if event.handles else "old tool results"
                reason = CLEARING_REASONS.get(event.trigger, event.trigger)
                self.note(f"⌁ cleared {results}: {freed} tokens freed ({reason})")
            case CacheBroken():
                cost = f", ${event.lost_usd:.4f}" if event.lost_usd else ""
                [(cause, _)] = losses_by_cause([(event.reason, 1.0)])
                self.note(f"⌁ cache break: {one_line(cause.title)} ({thousands(event.tokens)} tokens{cost})")
            case CompactionProgressed():
                length = f" {event.characters:,} characters" if event.characters else ""
                self._compacting = "" if event.phase == "done" else f"{event.phase}{length}"
            case CompactionEnded():
                self._compacting = ""
                before, after = thousands(event.tokens_before), thousands(event.tokens_after)
                reason = COMPACTION_REASONS.get(event.trigger, event.trigger)
                method = COMPACTION_METHODS.get(event.method, event.method)
                self.note(f"⌁ compacted {reason} {method}: {before} → {after} tokens · /uncompact")
            case DecisionMade(decision=MemoriesSurfaced(names=names)) if not self._recalled.issuperset(names):
                self.note(f"⌁ recalled {_memories([name for name in names if name not in self._recalled])}")
                self._recalled.update(names)
            case DreamChanged():
                self._show_dream(event)
            case DecisionMade(decision=MemoriesExtracted(names=names)) if names:
                self.note(f"⌁ saved {_memories(names)} · /memory undo undoes this")
            case _:
                pass

    def _show_dream(self, event: DreamChanged) -> None:
        """Write the start of a dream, the files it touches, the model's text, and its end with the way back."""
        before, text = self._dream, one_line(event.text, 200)
        if event.state in ("starting", "updating"):
            if before is None:
                self.note("☾ consolidating memories · /dream stop ends it")
            fresh = [path for path in event.paths if before is None or path not in before.paths]
            if fresh:
                self.note(f"☾ changes {', '.join(one_line(path) for path in fresh)}")
            if text and (before is None or text != one_line(before.text, 200)):
                self.note(f"☾ {text}")
            self._dream = event
            return
        self._dream = None
        undo = " · /dream undo takes it back" if event.state == "completed" and event.paths else ""
        self.note(f"☾ dream {event.state}{f': {text}' if text else ''}{undo}")

    def _show_provider_clearing(self, event: ResultsTrimmed) -> None:
        """Write one line a query: the footer counts the tokens of all that the provider has cleared."""
        if not self._provider_clears:
            self._provider_clears = True
            away = thousands(max(0, event.tokens_before - event.tokens_after))
            self.note(f"⌁ the provider clears old tool results: {away} tokens so far · /context lists them")

    def _finish_call(self, event: ToolFinished) -> None:
        running = self._running.pop(event.id, None)
        title = running.title if running is not None else one_line(event.name)
        lines, failed = event.lines or len(event.text.splitlines()), event.is_error
        said = outcome(event.name, event.text, lines=lines, is_error=failed, seconds=event.seconds, end=event.end)
        self._steps_changed |= event.name == "TodoWrite"
        if event.name in SHOWN_ELSEWHERE and not failed:
            return
        self.last_call = (event.id, title)
        self._put_call(title, said, is_error=failed, style="failed" if failed else "dim")
        if event.name in COMMANDS and lines > 1:  # one line is in the title
            columns, _ = self._size()
            rows = FAILED_ROWS if failed else OUTPUT_ROWS
            end = output_lines(event.end or event.text, rows=rows, columns=columns, total=lines, is_error=failed)
            self.put("call", [f"  │ {line}" if failed else self._paint(f"  │ {line}", "dim") for line in end])

    def _end(self, event: QueryEnded) -> None:
        self._end_thinking()
        self._finish_text()
        self._stop_calls()
        if self._steps_changed:
            self.put("steps", self.step_lines())
        self._steps_changed, self._is_asking, self._retry = False, False, None
        self._compacting = ""
        self._provider_clears = False
        if event.end != "completed":
            detail = "" if event.end == "aborted" else f" {event.detail}"
            self.note(f"{ENDS.get(event.end, event.end)}{detail}", "dim" if event.end == "aborted" else "warning")

    # -- streamed text

    def _show_reply(
        self, event: TextStreamed | ThinkingStreamed | RequestPrepared | ModelRetried | ReplyObserved
    ) -> None:
        self._retry = None
        match event:
            case TextStreamed():
                self._end_thinking()
                self._text += event.text
                self._write_finished_blocks()
            case ThinkingStreamed():
                self._thinking_since = self._thinking_since or self._clock()
                self._thinking += event.text
            case RequestPrepared():
                self._discard_reply()
                self._is_asking = True
            case ModelRetried():
                self._discard_reply()
                if self._is_asking:  # background work asks too, and reports its end elsewhere
                    self._retry, self._retry_at = event, self._clock()
            case ReplyObserved():
                self._is_asking = False
                self._end_thinking()
                self._finish_text()

    def _discard_reply(self) -> None:
        """Discard an incomplete reply; show a warning if a part was already written."""
        written, self._text, self._shown = self._shown, "", 0
        self._thinking, self._thinking_since = "", 0.0
        if written:
            self.note("↑ ignore the incomplete reply above; it starts again", "warning")

    def _end_thinking(self) -> None:
        if self._thinking:
            seconds = self._clock() - self._thinking_since
            self._thinking, self._thinking_since = "", 0.0
            self.put("thought", [self._paint(f"✻ thought for {seconds:.0f} s", "thought")])

    def _write_finished_blocks(self) -> None:
        """Write the finished blocks of the reply once they no longer fit the live area."""
        from .markdown import blocks_of

        whole = self._text.rfind("\n") + 1
        if self._text.count("\n", self._shown, whole) < self._live_rows():
            return
        blocks = blocks_of(self._text[self._shown : whole])
        for block in blocks[:-1]:
            self._shown += len(block)
            self.prose(block)

    def _finish_text(self) -> None:
        rest, self._text, self._shown = self._text[self._shown :], "", 0
        self.prose(rest)

    def _live_rows(self) -> int:
        _, rows = self._size()
        return max(MIN_LIVE_ROWS, min(MAX_LIVE_ROWS, rows // 2))

    def live(self, *, below: int = 0) -> list[str]:
        """Return the lines that may still change: the reply's last lines, running calls, agents and compaction.

        ``below`` is the number of lines that the caller adds, so that all of them fit the screen.
        """
        columns, rows = self._size()
        lines: list[str] = []
        rest = self._text[self._shown :]
        others = [*self._live_calls(), *self._agents.live(), *self._live_work()]
        if rest.strip():
            from .markdown import markdown_lines  # rich loads slowly

            drawn = markdown_lines(rest, columns=columns - 1, colour=self._paint.colour)
            room = min(self._live_rows(), rows - OTHER_ROWS - below - len(others))
            lines += [*self._gap("prose"), *drawn[-max(MIN_LIVE_ROWS, room) :]]
        elif self._thinking:
            tail = one_line(self._thinking[-400:], 10_000)
            lines += [*self._gap("thought"), self._paint(f"✻ thinking … {tail[-(columns - 16) :]}", "thought")]
        return [*lines, *([] if lines or not others else self._gap("call")), *others]

    def _live_calls(self) -> list[str]:
        columns, rows = self._size()
        lines: list[str] = []
        for running in [one for one in self._running.values() if one.name not in SHOWN_ELSEWHERE]:
            seconds = self._clock() - running.since
            took = f" {seconds:.0f} s" if seconds >= 1 else ""
            lines.append(f"{self._paint('○', 'busy')} {one_line(running.title, columns - 8)}{took}")
            if running.name == "Bash":
                text, total = self.running_output()
                tail = output_lines(text, rows=FAILED_ROWS if rows >= 30 else OUTPUT_ROWS, columns=columns, total=total)
                lines += [self._paint(f"  │ {line}", "dim") for line in tail]
        return lines

    def _live_work(self) -> list[str]:
        """Return a line about the next try of a request, and one about a running compaction."""
        lines: list[str] = []
        if (retry := self._retry) is not None:
            left = max(0.0, self._retry_at + retry.wait_seconds - self._clock())
            columns, _ = self._size()
            when = f"try {retry.attempt + 1} of {retry.attempts} in {left:.0f} s" if retry.attempts else "trying again"
            why = one_line(retry.why, max(20, columns - len(when) - 6))
            lines.append(self._paint(f"↻ {when}: {why}", "warning"))
        if self._compacting:
            lines.append(self._paint(f"⌁ {self._compacting}", "dim"))
        return lines

    def step_lines(self) -> list[str]:
        """Return the agent's steps as lines, as many as the screen has room for."""
        columns, rows = self._size()
        return step_lines(self.steps(), self._paint, columns=columns, rows=max(3, min(10, rows // 4)))

    def current_step(self) -> list[str]:
        """Return the step that the agent is at as one line, for a screen without room for all."""
        steps, (columns, _) = self.steps(), self._size()
        at = next((at for at, one in enumerate(steps) if one.status == "in_progress"), None)
        if at is None:
            at = next((at for at, one in enumerate(steps) if one.status != "completed"), None)
        if at is None:
            return []
        count = f" (step {at + 1} of {len(steps)})"
        shown = one_line(steps[at].content, max(20, columns - 5 - len(count)))
        return [f"  {self._paint('▸', 'busy')} {shown}{self._paint(count, 'dim')}"]

    @property
    def doing(self) -> str:
        """One word for the current activity: compacting, working, thinking or writing."""
        if self._compacting:
            return "compacting"
        if self._running:
            return "working"
        return "thinking" if self._thinking or not self._text else "writing"

    def _gap(self, kind: str) -> list[str]:
        together = kind == self._last and kind != "prose" and kind != "prompt"
        return [] if not self._last or together or {kind, self._last} <= CLOSE else [""]


def _rows(line: str, width: int) -> list[str]:
    """Return a line as rows of at most so many columns, broken between words, with its spaces at the start."""
    found = wrap(line, width, drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False)
    return [found[0].rstrip(), *(row.strip() for row in found[1:])] if len(found) > 1 else [line]


def _memories(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'memory')}: {one_line(', '.join(names), 160)}"
