"""One prompt, one answer, no screen: as text, as one JSON object, or as every event."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from typing import Any, Final, Literal, TypeAlias

from ...cache.usage import Usage, usage_of
from ...events import (
    Event,
    FellBack,
    LogDamaged,
    ModelRetried,
    PermissionDecided,
    QueryEnded,
    ReplyObserved,
    RequestPrepared,
    TextStreamed,
    ToolStarted,
    event_body,
)
from ...runtime.agent.agent import Agent
from ...settings import Settings
from ..output import say, warn
from .options import Options

__all__ = ["EXIT_CODES", "OutputFormat", "ending_line", "print_answer"]

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
EXIT_CODES: Final = {"completed": 0, "aborted": 130}
OTHER_END: Final = 1


class Answer:
    """Gathers what a query comes to from its events."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.ended: QueryEnded | None = None
        self._settled = ""
        self._growing = ""

    @property
    def text(self) -> str:
        """What the model said after its last tool call."""
        return self._settled + self._growing

    def hear(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case TextStreamed():
                self._growing += event.text
            case RequestPrepared() | ModelRetried():
                self._growing = ""  # whatever was not followed by a whole reply counts for nothing
            case ReplyObserved():
                self._settled, self._growing = self._settled + self._growing, ""
                self.usage = self.usage.plus(usage_of(event.usage))
            case ToolStarted():
                self._settled = ""
            case QueryEnded():
                self.ended = event
            case _:
                pass


async def print_answer(options: Options, settings: Settings, output: OutputFormat) -> int:
    """Ask, print the answer, and return the exit code: 0 completed, 130 interrupted, 1 any other end."""
    agent = options.agent(settings, session=options.session, approve=None)
    answer = Answer()
    agent.listen(emit_event if output == "stream-json" else remark)
    agent.listen(answer.hear)
    async with agent:
        with interrupting(agent):
            async with aclosing(agent.ask(options.prompt)) as events:
                async for _ in events:  # they were heard when they happened
                    pass
        assert answer.ended is not None
        if output == "text":
            if answer.text.strip():
                say(answer.text.strip("\n"))
        elif output == "json":
            write_line(as_object(agent, answer, answer.ended))
        if answer.ended.end != "completed" and output != "stream-json":
            warn(ending_line(answer.ended))
    return EXIT_CODES.get(answer.ended.end, OTHER_END)


def ending_line(ended: QueryEnded) -> str:
    """Say how a query ended."""
    return f"the query ended with {ended.end}: {ended.detail}" if ended.detail else f"the query ended with {ended.end}"


def as_object(agent: Agent, answer: Answer, ended: QueryEnded) -> dict[str, Any]:
    """Return everything there is to say about an answer."""
    used = answer.usage
    return {
        "result": answer.text.strip("\n"),
        "end": ended.end,
        "detail": ended.detail,
        "session": agent.name,
        "model": agent.model.name,
        "turns": ended.turns,
        "usage": {
            "input_tokens": used.uncached,
            "cache_read_input_tokens": used.read,
            "cache_creation_input_tokens": used.write,
            "output_tokens": used.output,
        },
        "cost_usd": ended.cost_usd,
    }


def emit_event(event: Event) -> None:
    """Print an event as one line of JSON."""
    write_line(event_body(event))


def write_line(value: dict[str, Any]) -> None:
    """Print a value as one line of JSON in plain ASCII, at once."""
    sys.stdout.write(json.dumps(value, default=str).replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def remark(event: Event) -> None:
    """Say on stderr what a person should know beside the answer."""
    match event:
        case FellBack():
            warn(f"{event.what}: {event.why}")
        case LogDamaged():
            warn(f"line {event.line} of the log cannot be read: {event.reason}")
        case PermissionDecided(allowed=False):
            warn(f"{event.tool} was not allowed: {event.reason}")
        case ModelRetried():
            warn(f"{event.why}; asking again (attempt {event.attempt})")
        case _:
            pass


@contextmanager
def interrupting(agent: Agent) -> Generator[None]:
    """Let Ctrl-C and a request to end interrupt the agent, so that its log is left whole."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, agent.interrupt)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
