"""Monitor a session: every event as a JSON line, and spans and metrics if OpenTelemetry is installed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from reverie import InMemoryStorage, InputError, Session
from reverie.telemetry import JsonLines, OpenTelemetry


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="reverie-example-"))
    session = Session.open("watched", storage=InMemoryStorage())
    lines = JsonLines(folder / "events.jsonl")
    session.listen(lines)  # before the session is entered, to get its first events too
    try:
        session.listen(OpenTelemetry())  # uses the SDK that this program has set up, if any
    except InputError as error:
        print(error)  # the extra is not installed
    async with session:
        await session.say("Why does test_login fail?")
        await session.prepare(model="claude-sonnet-4-5", max_tokens=1_000)
        reply = {"type": "text", "text": "It logs in before the server is up."}
        usage = {"input_tokens": 21, "output_tokens": 10}
        await session.observe({"role": "assistant", "id": "m1", "content": [reply], "usage": usage})
    lines.close()
    print((folder / "events.jsonl").read_text(), end="")
    print(f"{lines.lost} events lost")


anyio.run(main)
