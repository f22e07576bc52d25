"""Loops whose model gives commands as text: layers 1 and 2 treat the output as a result, requests show it as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Session
from reverie.conversation.wire.validate import problems
from reverie.errors import InputError
from reverie.settings import Settings
from reverie.storage.in_memory import InMemoryStorage

MODEL = "claude-sonnet-4-5"


class Loop:
    """A loop that runs the command in the fence of each reply and sends its output as a message of the user."""

    def __init__(self, tmp_path: Path, *, tells: bool = True) -> None:
        self.storage, self.tells = InMemoryStorage(), tells
        self.settings = Settings(tmp_path / "home")
        self.now, self.turns = 1_800_000_000.0, 0
        self.sent: list[dict[str, Any]] = []

    def open(self) -> Session:
        return Session.open("S", storage=self.storage, settings=self.settings, clock=lambda: self.now)

    async def turn(self, session: Session, output: str) -> dict[str, Any]:
        self.turns += 1
        self.now += 9.0
        command = f"cat file-{self.turns}"
        reply = {"id": f"m{self.turns}", "role": "assistant", "model": MODEL}
        usage = {"input_tokens": 10, "output_tokens": 5}
        await session.observe({**reply, "content": f"Next:\n```bash\n{command}\n```", "usage": usage})
        shown = f"<output>\n{output}\n</output>"
        await (session.say(shown, output_of=command) if self.tells else session.say(shown))
        return await self.prepare(session)

    async def prepare(self, session: Session) -> dict[str, Any]:
        self.sent.append(await session.prepare(model=MODEL, max_tokens=1_000, system="s"))
        return self.sent[-1]


def plain(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the roles and texts of a request's messages, which must have no other blocks and no breakpoints."""
    found: list[tuple[str, str]] = []
    for message in request["messages"]:
        content: Any = message["content"]
        blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert {block["type"] for block in blocks} == {"text"}
        found.append((message["role"], "\n".join(block["text"] for block in blocks)))
    return found


@pytest.mark.requirement("L1.1", "K11")
@pytest.mark.parametrize("tells", [True, False])
def test_a_large_output_given_as_text_goes_to_a_file_and_requests_show_only_text(tmp_path: Path, tells: bool) -> None:
    """The known-bad twin does not tell that the message is output, so all of it stays in the window."""
    loop, big = Loop(tmp_path, tells=tells), "\n".join(f"line {number}" for number in range(20_000))

    async def steps() -> None:
        async with loop.open() as session:
            await session.say("Look at the files.")
            await loop.prepare(session)
            for number in range(6):
                request = await loop.turn(session, big if number == 1 else f"short {number}")
                assert not problems(request)
                assert "tools" not in request
        async with loop.open() as session:  # a resumed session shows the same
            assert plain(await loop.prepare(session)) == plain(loop.sent[-2])

    anyio.run(steps)
    shown = plain(loop.sent[-1])
    assert (max(len(text) for _, text in shown) < 10_000) == tells
    assert ("Next:\n```bash\ncat file-6\n```" in shown[-2][1], "short 5" in shown[-1][1]) == (True, True)
    for before, after in zip(loop.sent, loop.sent[1:], strict=False):
        assert plain(after)[: len(plain(before))] == plain(before)  # each request extends the last


@pytest.mark.requirement("L2.1")
@pytest.mark.parametrize("tells", [True, False])
def test_old_outputs_given_as_text_are_cleared_with_a_cold_cache_and_can_be_read_back(
    tmp_path: Path, tells: bool
) -> None:
    loop = Loop(tmp_path, tells=tells)

    async def steps() -> tuple[int, bytes]:
        async with loop.open() as session:
            await session.say("Look at the files.")
            await loop.prepare(session)
            for number in range(14):
                await loop.turn(session, f"output {number} " + "word " * 3_000)
            loop.now += 7_200.0
            request = await loop.prepare(session)
            assert not problems(request)
            handles = [text.rpartition("handle: ")[2].rstrip("]") for _, text in plain(request) if "handle: " in text]
            first = await session.read_back(handles[0]) if handles else b""
            return len(handles), first

    cleared, first = anyio.run(steps)
    assert (cleared > 0) == tells
    assert (b"output 0 word" in first) == tells


def test_output_of_a_command_needs_a_reply_that_gave_it(tmp_path: Path) -> None:
    async def steps() -> None:
        async with Loop(tmp_path).open() as session:
            with pytest.raises(InputError, match="observe"):
                await session.say("out", output_of="ls")

    anyio.run(steps)
