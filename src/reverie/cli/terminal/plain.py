"""``reverie chat`` without escape sequences, for simple terminals and pipes."""

from __future__ import annotations

import sys
from pathlib import Path

from ...errors import InputError, ReverieError
from ...events import (
    CompactionEnded,
    Event,
    ModelRetried,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from ...runtime.guard.always import prefix_to_edit
from ...runtime.guard.permissions import Approval, ApprovalAnswer
from ...settings import Settings
from ..output import COMPACTION_REASONS, one_word, warn
from .approval import Preview, approval_head, kept_rules, own_rule
from .background_work import AnsweredPrompt, unfinished_lines
from .calls import COMMANDS, call_title, one_line, outcome
from .colours import Paint
from .footer import footer_parts
from .options import Options
from .print_mode import EXIT_CODES, OTHER_END, STDIN_LINES, QueryResult, on_signal, print_warning, put
from .sessions import remove_if_unused
from .transcript import ENDS

NO_COLOUR = Paint(colour=False)
PAGE_ROWS = 200
PLAIN_ROWS = 6
"""How many of the last lines of a command's output are printed."""


class PlainLines(QueryResult):
    """Prints the events of a query as lines; prints a reply only when complete, since a line cannot be erased."""

    def __init__(self, cwd: Path, *, verbose: bool = False) -> None:
        super().__init__()
        self._cwd = cwd
        self._verbose = verbose
        self._text = ""
        self._titles: dict[str, str] = {}

    def on_event(self, event: Event) -> None:
        """Print one event; keep streamed text until its reply is complete."""
        super().on_event(event)
        match event:
            case TextStreamed():
                self._text += event.text
            case RequestPrepared() | ModelRetried():
                self._text = ""  # discard the text of an incomplete reply
                print_warning(event)
            case ReplyObserved():
                self._flush()
            case ToolStarted():
                self._titles[event.id] = call_title(event.name, event.input, self._cwd)
            case ToolFinished():
                self._put_call(event)
            case CompactionEnded():
                reason = COMPACTION_REASONS.get(event.trigger, event.trigger)
                put(f"* compacted {reason}: {event.tokens_before:,} to {event.tokens_after:,} tokens")
            case PermissionDecided(allowed=False) if event.id or self._verbose:
                put(f"* {event.tool} denied: {one_line(event.reason, 200)}")
            case QueryEnded():
                self._flush()
                if event.end != "completed":
                    put(f"! {ENDS.get(event.end, event.end)} {event.detail}")
            case _:
                print_warning(event, verbose=self._verbose)

    def _put_call(self, event: ToolFinished) -> None:
        title = self._titles.pop(event.id, event.name)
        lines = event.lines or len(event.text.splitlines())
        put(f"* {title} {outcome(event.name, event.text, lines=lines, is_error=event.is_error, end=event.end)}")
        if event.name in COMMANDS and (lines > 1 or event.is_error):
            put("\n".join(f"  | {line}" for line in (event.end or event.text).splitlines()[-PLAIN_ROWS:]))

    def _flush(self) -> None:
        text, self._text = self._text.strip("\n"), ""
        if text.strip():
            put(text)


async def talk_plainly(options: Options, settings: Settings) -> int:
    """Answer the prompt and, on a terminal, further prompts until the user leaves; return the exit code."""
    person = sys.stdin.isatty()
    agent = options.agent(settings, session=options.session, approve=LineApprover(options.cwd) if person else None)
    lines = PlainLines(options.cwd, verbose=options.verbose)
    agent.listen(lines.on_event)
    prompt: str | None = options.prompt
    async with agent:
        while prompt is not None:
            if prompt.strip():
                try:
                    answered = AnsweredPrompt(agent, None if person else options.wait_seconds)
                    with on_signal(answered.interrupt):
                        await answered.run(prompt, lines.is_complete)
                except ReverieError as error:
                    put(f"! {error}")
            if person:
                put(f"[{' · '.join(text for _, text in footer_parts(agent.status()))}]")
            prompt = await ask_for_line("> ") if person else None
            if prompt is not None and prompt.strip() in ("/quit", "/exit"):
                prompt = None
        for line in unfinished_lines(agent):
            warn(line)
    if options.session is None:
        remove_if_unused(agent)
    if person or lines.ended is None:
        return 0
    return EXIT_CODES.get(lines.ended.end, OTHER_END)


async def ask_for_line(mark: str) -> str | None:
    """Print ``mark`` on stderr, because stdout is for answers; return the next line, None at the end of input."""
    sys.stderr.write(mark)
    sys.stderr.flush()
    return await STDIN_LINES.line()


class LineApprover:
    """Asks the user in plain lines whether a tool may run."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd

    async def __call__(self, approval: Approval) -> ApprovalAnswer:
        """Print the call whole, page by page, and return the user's answer."""
        rules = dict(zip("ap1234", kept_rules(approval), strict=False))
        if approval.is_plan:
            preview = Preview(approval.preview, NO_COLOUR)
            question = "Approve? y: yes, a: yes and accept edits, n: no, or type the changes you want: "
        else:
            preview = Preview.of(approval, NO_COLOUR)
            edited = "e: always, by a rule that you type, " if approval.access.kind == "run" else ""
            always = edited + "".join(
                f"{key}: always in this {place} ({words}), " for key, (_, place, words) in rules.items()
            )
            question = f"Allow? y: once, {always}n: no, or type a reason to refuse: "
        put("\n".join(approval_head(approval, self._cwd, NO_COLOUR)))
        while True:
            put("\n".join(preview.page(PAGE_ROWS)))
            more = f"… {preview.rest}, m: next page\n" if preview.rest else ""
            typed = (await ask_for_line(more + question) or "n").strip()
            if not (more and typed == "m"):
                break
        if typed == "e" and approval.access.kind == "run":
            begun = prefix_to_edit(approval.tool, approval.access.target)
            try:
                rule = own_rule((await ask_for_line(f"rule, such as {one_word(begun)}: ") or "").strip())
            except InputError as error:
                put(f"! {error}")
                return await self(approval)
            return ApprovalAnswer("always", rule=rule)
        if typed in rules:
            rule, place, _ = rules[typed]
            return ApprovalAnswer("always", rule=rule, keep="project" if place == "project" else "session")
        if typed in ("y", "yes"):
            return ApprovalAnswer("once")
        if approval.is_plan and typed == "a":
            return ApprovalAnswer("always")
        return ApprovalAnswer("deny", "" if typed in ("", "n", "no") else typed)
