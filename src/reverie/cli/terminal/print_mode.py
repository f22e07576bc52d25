"""``reverie chat --print``: answer one prompt as text, as one JSON object, or as a stream of JSON events."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ...cache.usage import Usage, usage_of
from ...errors import InputError, ReverieError
from ...events import (
    EntryAppended,
    Event,
    FellBack,
    LogDamaged,
    ModelChanged,
    ModelRetried,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    TextStreamed,
    ToolStarted,
    UserMessaged,
    event_body,
)
from ...runtime.agent.agent import Agent
from ...runtime.agent.loop import Prompt
from ...runtime.places.projects import log_key, project_slug
from ...settings import Settings
from ...values import object_of, replace, rows_of
from ..output import printable, say, visible, warn
from .background_work import AnsweredPrompt, unfinished_lines
from .calls import call_title
from .options import Options
from .sessions import remove_if_unused
from .transcript import FOR_USERS

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
EXIT_CODES: Final = {"completed": 0, "aborted": 130}
OTHER_END: Final = 1
MESSAGE_FORM: Final = 'write {"type": "user", "message": {"role": "user", "content": "a prompt"}}'


class QueryResult:
    """Collects the answer text, the usage and the end of a query from its events."""

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        """Call ``show`` with each answer as soon as its query has ended."""
        self._show = show
        self.usage = Usage()
        self.ended: QueryEnded | None = None
        self.turns = 0
        self.texts: list[str] = []
        """The answer of each query that has ended; a prompt has several if agents finish after the first answer."""
        self._settled = ""
        self._growing = ""

    @property
    def text(self) -> str:
        """The model's text after the last tool call of each query."""
        return "\n\n".join(self.texts)

    def begin(self) -> None:
        """Forget the answer to the prompt before."""
        self.usage, self.turns, self.texts = Usage(), 0, []

    def is_complete(self) -> bool:
        """Return whether the last query ended as it should."""
        return self.ended is not None and self.ended.end == "completed"

    def on_event(self, event: Event) -> None:
        """Update the result from one event."""
        match event:
            case TextStreamed():
                self._growing += event.text
            case RequestPrepared() | ModelRetried():
                self._growing = ""  # discard the text of an incomplete reply
            case ReplyObserved():
                self._settled, self._growing = self._settled + self._growing, ""
                self.usage = self.usage.plus(usage_of(event.usage))
            case ToolStarted() | PermissionDecided(allowed=False):
                self._settled = ""
            case QueryEnded():
                self.ended = event
                self.turns += event.turns
                text = (self._settled + self._growing).strip("\n")
                self._settled = self._growing = ""
                if text.strip():
                    self.texts.append(text)
                    if self._show is not None:
                        self._show(text)
            case _:
                pass


class Progress:
    """Shows a person at a terminal how the query goes: its text as it arrives, and its tool calls on stderr."""

    def __init__(self, cwd: Path, *, with_text: bool) -> None:
        self._cwd = cwd
        self._with_text = with_text
        self._is_line_open = False

    def on_event(self, event: Event) -> None:
        """Write the text or the call of one event."""
        match event:
            case TextStreamed() if self._with_text and event.text:
                sys.stdout.write(printable(event.text))
                self._is_line_open = not event.text.endswith("\n")
                sys.stdout.flush()
            case ToolStarted():
                self._end_line()
                sys.stderr.write(f"* {call_title(event.name, event.input, self._cwd)}\n")
            case ModelRetried() | ReplyObserved():
                self._end_line()
            case _:
                pass

    def _end_line(self) -> None:
        if self._is_line_open:
            self._is_line_open = False
            put("")


class LineReader:
    """Reads lines from stdin in the event loop, because a reader thread would survive an interrupt."""

    def __init__(self) -> None:
        self._begun = b""

    async def line(self) -> str | None:
        """Return the next line without its newline, or None at the end of input."""
        loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
        while b"\n" not in self._begun:
            arrived = asyncio.Event()
            with suppress(PermissionError):  # a regular file needs no waiting
                loop.add_reader(number, arrived.set)
                try:
                    await arrived.wait()
                finally:
                    loop.remove_reader(number)
            try:
                read = os.read(number, 65_536)
            except OSError:  # the terminal was closed
                read = b""
            if not read:
                rest, self._begun = self._begun, b""
                return rest.decode("utf-8", "replace") or None
            self._begun += read
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode("utf-8", "replace")


STDIN_LINES = LineReader()


async def print_answer(options: Options, settings: Settings, output: OutputFormat) -> int:
    """Run the prompt, or each of several, print the answers, and return the last exit code: 0, 130 interrupted, or 1.

    The worker extracts memories later, so that the command ends with the answer.
    """
    quick = replace(settings, switches=replace(settings.switches, extraction=False))
    agent = options.agent(quick, session=options.session, approve=None)
    streams = output == "text" and sys.stdout.isatty()
    answer = QueryResult(put if output == "text" and not streams else None)
    if output == "stream-json":
        agent.listen(lambda event: write_line({**event_body(event), **_whole_message(agent, event)}))
    else:
        if streams or sys.stderr.isatty():
            agent.listen(Progress(options.cwd, with_text=streams).on_event)
        agent.listen(lambda event: print_warning(event, verbose=options.verbose))
    agent.listen(answer.on_event)
    code, is_new = 0, False
    try:
        async with agent:
            is_new = options.session is None
            code = await _answer_all(agent, options, answer, output)
    except InputError:
        if is_new:
            remove_if_unused(agent)
        raise
    if answer.is_complete() and settings.switches.memory and settings.switches.extraction:
        leave_extraction(settings, agent)
    return code


async def _answer_all(agent: Agent, options: Options, answer: QueryResult, output: OutputFormat) -> int:
    """Answer each prompt until one is interrupted, and return the last exit code."""
    if options.approve_plan is not None:
        await agent.approve_plan(options.approve_plan)
    code = None
    async with aclosing(prompts_of(options)) as prompts:
        async for prompt in prompts:
            code = await _answer(agent, prompt, options, answer, output)
            if code == EXIT_CODES["aborted"]:
                break
    if code is None:
        raise InputError("there is no prompt: pass one as an argument or as a message on stdin")
    for line in unfinished_lines(agent):
        warn(line)
    return code


async def _answer(agent: Agent, prompt: Prompt, options: Options, answer: QueryResult, output: OutputFormat) -> int:
    """Answer one prompt, print the end that the format needs, and return the exit code."""
    plans = agent.plan.changes if agent.plan is not None else 0
    answer.begin()
    answered = AnsweredPrompt(agent, options.wait_seconds)
    with on_signal(answered.interrupt):
        await answered.run(prompt, answer.is_complete)
    assert answer.ended is not None
    if output == "text":
        print_plan(agent, plans)
    elif output == "json":
        write_line(as_object(agent, answer, answer.ended))
    if answer.ended.end != "completed" and output != "stream-json":
        detail = f": {answer.ended.detail}" if answer.ended.detail else ""
        warn(f"the query ended with {answer.ended.end}{detail}")
    return EXIT_CODES["aborted"] if answered.is_interrupted else EXIT_CODES.get(answer.ended.end, OTHER_END)


async def prompts_of(options: Options) -> AsyncGenerator[Prompt]:
    """Yield the prompt of the options and, if they say so, the content of each user message on stdin."""
    if options.prompt.strip():
        yield options.prompt
    number = 0
    while options.reads_messages and (line := await STDIN_LINES.line()) is not None:
        number += 1
        if line.strip():
            yield user_content(line, number)


def user_content(line: str, number: int) -> Prompt:
    """Return the content of a user message in a line of JSON; raise InputError for any other line."""
    try:
        body: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {number} of stdin is no JSON: {error}; {MESSAGE_FORM}") from None
    fields = object_of(body)
    message = object_of(fields.get("message")) or fields
    content, blocks = message.get("content"), rows_of(message.get("content"))
    if fields.get("type", "user") != "user" or message.get("role", "user") != "user":
        raise InputError(f"line {number} of stdin is no message of the user; {MESSAGE_FORM}")
    if isinstance(content, str) and content.strip():
        return content
    if blocks and all(one.get("type") in ("text", "image", "document") for one in blocks):
        return blocks
    raise InputError(f"line {number} of stdin has no text, image or document; {MESSAGE_FORM}")


def _whole_message(agent: Agent, event: Event) -> dict[str, Any]:
    """Return the message that an event says was stored, as it is in the log; empty for other events."""
    if not isinstance(event, EntryAppended) or event.session != agent.name:
        return {}
    found = next((one for one in islice(agent.session.view.latest(), 8) if one.uuid == event.uuid), None)
    return {} if found is None or found.message is None else {"message": found.message}


def leave_extraction(settings: Settings, agent: Agent) -> None:
    """Queue the session for the worker, and start one; in a database, workers of other machines run it."""
    if settings.database is not None:
        from ...runtime.jobs.queue import JobQueue

        try:
            with closing(JobQueue(settings.database, settings.tenant or "")) as jobs:
                jobs.put("extract", project=project_slug(agent.cwd), session=agent.name)
        except ReverieError as error:
            warn(f"no memories are extracted: {error}")
        return
    from ...hosts.queue import OWN, Job, Queue
    from ...hosts.worker_process import start_worker

    log = settings.home / log_key(project_slug(agent.cwd), agent.name)
    queue = Queue(settings.home)
    try:
        queue.put(Job(OWN, agent.name, str(agent.cwd), str(log), model=agent.model.name))
        start_worker(queue)
    except (ReverieError, OSError) as error:
        warn(f"no memories are extracted: {error}")


def print_plan(agent: Agent, changes: int) -> None:
    """Print the plan if it waits for approval and changed since it had so many changes, and how to approve it."""
    plan = agent.plan
    if plan is None or plan.state != "proposed" or plan.changes == changes:
        return
    say(f"\n{visible(plan.text)}")
    warn(
        f"the plan waits for your approval in {agent.plan_path}; approve it with 'reverie chat --print --resume "
        f"{agent.name} --approve-plan accept-edits', or answer it in 'reverie chat --resume {agent.name}' with /plan"
    )


def as_object(agent: Agent, answer: QueryResult, ended: QueryEnded) -> dict[str, Any]:
    """Return the answer, the query's end, usage and cost, session, model and plan as a dict for JSON."""
    plan = agent.plan
    known = {"state": plan.state, "text": plan.text, "path": agent.plan_path} if plan is not None else None
    return {
        "result": answer.text,
        "end": ended.end,
        "detail": ended.detail,
        "session": agent.name,
        "model": agent.model.name,
        "turns": answer.turns,
        "usage": answer.usage.body(),
        "cost_usd": ended.cost_usd,
        **({"plan": known} if known is not None else {}),
    }


def put(text: str) -> None:
    """Print text on stdout and flush."""
    say(text.rstrip())
    sys.stdout.flush()


def write_line(value: dict[str, Any]) -> None:
    """Print a value as one line of ASCII JSON and flush."""
    sys.stdout.write(json.dumps(value, default=str).replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def print_warning(event: Event, *, verbose: bool = False) -> None:
    """Print a fallback, log damage, a denied tool, a retry or an agent's message on stderr; ignore other events.

    Fallbacks of Reverie itself, and denials of its background work, are printed only if ``verbose``.
    """
    match event:
        case ModelChanged():
            warn(f"model: {event.line}")
        case FellBack() if verbose or event.what in FOR_USERS:
            warn(f"{event.what}: {event.why}")
        case LogDamaged():
            warn(f"cannot read line {event.line} of the log: {event.reason}")
        case PermissionDecided(allowed=False) if verbose or event.id:
            warn(f"{event.tool} was denied: {event.reason}")
        case ModelRetried():
            warn(f"{event.why}; retrying (attempt {event.attempt})")
        case UserMessaged():
            warn(f"message from {event.sender}: {event.text}")
        case _:
            pass


@contextmanager
def on_signal(interrupt: Callable[[], None]) -> Generator[None]:
    """Call ``interrupt`` on SIGINT and SIGTERM inside this block, so that an agent can complete its log."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
