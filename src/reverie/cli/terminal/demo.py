"""``reverie demo --chat``: the real chat in a temporary project, with a script in place of a model."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio

from ...errors import InputError, ModelRefused
from ...models import ScriptedModel
from ...ports import Capabilities, Reply, ReplyDelta
from ...settings import Switches, load_settings
from ...values import replace
from ..chat import on_a_terminal
from ..output import folded, say
from .conversation import Conversation
from .options import Options

WINDOW: Final = 60_000
"""Tokens of the script's window: small, so that one task fills it."""
PIECE_SECONDS: Final = 0.015
CALC: Final = "def average(values):\n    return sum(values) / len(values)\n"
TEST: Final = """import unittest

from calc import average


class AverageTest(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual(average([1, 2, 3]), 2)

    def test_an_empty_list(self):
        self.assertEqual(average([]), 0)
"""
RUN_TESTS: Final = "python3 -m unittest -v"
STEPS: Final = ("Run the tests", "Repair average()", "Run the tests again", "Remember how to run them")
LOG_LINES: Final = 4_200
PARTS: Final = 14
MEMORY: Final = {"text": f"Run the tests with {RUN_TESTS}", "type": "project", "why": "there is no other test runner"}
FIRST: Final = "fix the failing test"
SECOND: Final = "read the whole log"
INTRODUCTION: Final = (
    "A demo: the real chat, with a script in place of a model. It needs no account and no network and costs nothing. "
    "Its files are in a temporary directory, which is removed when you leave with Ctrl-D."
)
TRY: Final = f"""Try next:

- `/context` shows what fills the window, `/memory` what is remembered
- `/undo` takes the last prompt back, with its files and memories
- `{SECOND}` is a second task: it fills the window until old results are cleared
- `/compact` replaces old messages with a summary, `/uncompact` takes that back
- `/help` lists all commands and keys"""
HONEST: Final = f"""I am a script, not a model, and know only two prompts: `{FIRST}` and `{SECOND}`.
But all commands and keys, `@file` and `!command` work as they do with a model.

{TRY}"""
Blocks: TypeAlias = list[dict[str, Any]]
Task: TypeAlias = Generator[str | Blocks, bool, None]
"""A task: yields replies, and is sent whether a call of the last one failed or was refused."""


def run_demo() -> None:
    """Run the chat with the script in a temporary home and project, and remove both at the end."""
    if not on_a_terminal():
        raise InputError("demo --chat needs a terminal; 'reverie demo' runs without one")
    say(folded(INTRODUCTION))
    with tempfile.TemporaryDirectory(prefix="reverie-demo-") as place:
        home, project = Path(place, "home"), Path(place, "project")
        project.mkdir()
        (project / "calc.py").write_text(CALC)
        (project / "test_calc.py").write_text(TEST)
        lines = (f"the order of customer {at} was packed and sent from the depot" for at in range(LOG_LINES))
        (project / "service.log").write_text("\n".join(lines) + "\n")
        settings = load_settings(home=home, environ={})
        settings = replace(settings, switches=Switches(extraction=False))
        options = Options(cwd=project, prompt=FIRST, script=ChatScript(), is_kept=False)
        asyncio.run(Conversation(options, settings, colour=not os.environ.get("NO_COLOR")).run())
    say("The demo's files are removed. For real work, 'reverie' says how to get a model.")


class ChatScript(ScriptedModel):
    """A model that plays one of two tasks for a prompt that names it, and says for any other that it is a script."""

    def __init__(self) -> None:
        can = Capabilities(caching=True, window=WINDOW, max_output=8_000)
        super().__init__(self._next_reply, name="scripted:demo", capabilities=can, piece_chars=6)
        self._task: Task | None = None

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        """Yield the pieces of the reply at a speed at which a person can follow."""
        async for piece in super().stream(request):
            yield piece
            await anyio.sleep(PIECE_SECONDS)

    def _next_reply(self, request: dict[str, Any]) -> str | Blocks:
        content = request["messages"][-1]["content"]
        blocks = [_text(content)] if isinstance(content, str) else content
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        if any(text.startswith("<reverie-fork ") for text in texts):
            raise ModelRefused("the demo has no model for work in the background")
        results = [block for block in blocks if block["type"] == "tool_result"]
        prompt = " ".join(text for text in texts if not text.startswith("<"))
        if self._task is None or prompt or not results:
            self._task = _repair() if FIRST in prompt else _read_log() if SECOND in prompt else _say(HONEST)
            return next(self._task)
        return self._task.send(any(block.get("is_error") for block in results))


def _repair() -> Task:
    yield [_text("First I run the tests."), _steps(0), _use("Read", file_path="calc.py")]
    if not (yield [_use("Bash", command=RUN_TESTS)]):
        yield f"The test passes: `calc.py` was repaired before. `/undo` takes a prompt back with its files.\n\n{TRY}"
    change = {"old_string": "len(values)\n", "new_string": "len(values) if values else 0\n"}
    why = "`average([])` divides by zero. Before I change a file, I ask you:"
    if (yield [_text(why), _steps(1), _use("Edit", file_path="calc.py", **change)]):
        yield f"The change was not made, so the test still fails. `/retry` starts again.\n\n{TRY}"
    yield [_steps(2), _use("Bash", command=RUN_TESTS)]
    yield [_steps(3), _use("Memory", action="save", **MEMORY)]
    yield [_steps(4)]
    yield f"The test passes: `average()` returns 0 for an empty list.\n\n{TRY}"


def _read_log() -> Task:
    lines = LOG_LINES // PARTS
    for part in range(PARTS):
        yield [_use("Read", file_path="service.log", offset=part * lines + 1, limit=lines)]
    yield f"All {LOG_LINES:,} orders were sent.\n\n{TRY}"


def _say(text: str) -> Task:
    yield text


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def _steps(done: int) -> dict[str, Any]:
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
    steps = zip(STEPS, states, strict=False)
    return _use("TodoWrite", todos=[{"content": step, "status": state} for step, state in steps])
