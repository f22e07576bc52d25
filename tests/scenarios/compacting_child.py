"""A process that runs one session in a small window with notes and compaction, and reports acknowledged entries.

Run as ``python -E compacting_child.py live NUMBER`` to work until it is killed, or ``... obey NUMBER`` to run
commands, one word per line. ``REVERIE_HOME`` names the store. Every output line is JSON; a uuid is printed once its
entry is on disk.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from random import Random
from typing import Any

import anyio
from anyio import to_thread

from reverie import Session, load_settings
from reverie.errors import CompactionError, ReverieError, SessionError, WindowFull
from reverie.events import CompactionProgressed, DecisionMade, EntryAppended, Event, FellBack
from reverie.models.scripted_model import ScriptedModel
from reverie.ports import Capabilities
from reverie.settings import Switches
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
WINDOW_TOKENS = 16_000
PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "
NOTED = '<section name="Current State">\nAll ships up to {} are written down.\n</section>'
ANY_TRACER = 0x59616D61


def say(**said: object) -> None:
    """Speak by a call that the store does not make, so that none meant for the store fails here."""
    os.writev(1, [json.dumps(said).encode() + b"\n"])


def hear(event: Event) -> None:
    """Say what is safe now, and where a compaction stands."""
    match event:
        case EntryAppended():
            say(safe=event.uuid, what=event.kind)
        case DecisionMade():
            say(safe=event.uuid, what=type(event.decision).__name__)
        case CompactionProgressed():
            say(phase=event.phase)
        case FellBack():
            say(fell_back=event.what, why=event.why)
        case _:
            pass


def scripted() -> ScriptedModel:
    """Return a model that writes notes and summaries."""
    asked = 0

    def answer(request: dict[str, Any]) -> str:
        nonlocal asked
        asked += 1
        wants_notes = "<section" in str(request["messages"][-1])
        return NOTED.format(asked) if wants_notes else f"<summary>Ships up to {asked} are written down.</summary>"

    return ScriptedModel(answer, name=f"test:{MODEL}", capabilities=Capabilities(caching=True, window=WINDOW_TOKENS))


def opened(model: ScriptedModel | None = None) -> Session:
    """Open the session as a real caller would: in the home, as the only writer."""
    switches = Switches(priced_trim=False, idle_trim=False)
    settings = replace(load_settings(), window_tokens=WINDOW_TOKENS, switches=switches)
    session = Session.open("s", cwd=os.environ["REVERIE_HOME"], settings=settings, model=model)
    session.listen(hear)
    return session


async def turn(session: Session, name: str, words: int) -> None:
    """Ask, answer and give a result; where nothing fits any more, make room."""
    try:
        await session.prepare(model=MODEL, max_tokens=100)
    except WindowFull:
        await session.compact()
        return
    use = {"type": "tool_use", "id": f"t{name}", "name": "Read", "input": {"file_path": f"piers/{name}.txt"}}
    usage = {"input_tokens": session.view.tokens + 100, "output_tokens": 20}
    await session.observe({"id": f"m{name}", "role": "assistant", "model": MODEL, "content": [use], "usage": usage})
    await session.result(f"t{name}", f"tests/test_pier_{name}.py failed\n" + PROSE * words)


async def live(number: int) -> None:
    """Work on until the end comes from outside."""
    draw = Random(number)
    async with opened(scripted() if number % 2 else None) as session:
        say(ready=True)
        at = 0
        while True:
            at += 1
            if draw.random() < 0.3:
                await session.say(f"And ship {number}-{at}?")
            try:
                await turn(session, f"{number}x{at}", draw.choice((5, 40, 90)))
                match draw.randrange(12):
                    case 0 | 1:
                        await session.compact()
                    case 2:
                        await session.undo()
                    case 3 | 4:
                        await session.parts.notes.update(manual=True)
                    case _:
                        pass
            except (CompactionError, SessionError) as error:
                say(refused=str(error))


async def obey(number: int) -> None:
    """Do one thing at a time, as told, and say how it went."""
    ctypes.CDLL(None).prctl(ANY_TRACER, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
    async with opened() as session:
        at = 0
        while line := await to_thread.run_sync(sys.stdin.buffer.readline):
            at += 1
            try:
                match line.decode().strip():
                    case "turn":
                        if at == 1:
                            await session.say("Write them all down.")
                        await turn(session, f"{number}o{at}", 12)
                    case "notes":
                        await session.parts.notes.update(manual=True)
                    case "compact":
                        await session.compact()
                    case other:
                        raise AssertionError(other)
                say(ok=True)
            except ReverieError as error:
                say(error=type(error).__name__, message=str(error), errno=getattr(error, "errno", None))
            except BaseException as error:
                say(error=type(error).__name__, message=str(error), untyped=True)


if __name__ == "__main__":
    anyio.run({"live": live, "obey": obey}[sys.argv[1]], int(sys.argv[2]))
