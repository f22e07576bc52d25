"""Removed content can be read back whole, by a handle in the view or in the log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from reverie import Session
from reverie.conversation.decisions import Collapsed, Compacted, Snipped, decision_of
from reverie.conversation.entries import DECISION, Entry
from reverie.conversation.log import parse_log
from reverie.conversation.wire.request import build_request
from reverie.errors import ReverieError
from reverie.layers.l1_offload import result_forms
from reverie.runtime.places.projects import log_key, project_slug
from reverie.values import replace

MakeDrive = Callable[..., Any]
SIZES = (10, 10, 80, 300, 700, 4_000, 6_000, 40_000, 300_000)
HAY = ("word ", "é", "漢字", "\n", "\r\n", "\x1b[31m", '"', "\\", "𝄞", "\u2028")
HANDLE = re.compile(r"handle: ([A-Za-z0-9_-]+)")


class Garden:
    """A drive whose results and words hold needles, and what was planted where."""

    def __init__(self, drive: Any) -> None:
        self.drive = drive
        self.rng: Random = drive.rng
        self.serial = 0
        self.made: list[Any] = []
        drive.output = self.output

    def needle(self) -> str:
        self.serial += 1
        return f"needle-{self.serial}-{self.rng.randrange(10**9)}"

    def output(self) -> Any:
        """Return a result of any kind and size with a needle anywhere in it, or one that was there before."""
        rng = self.rng
        if self.made and rng.random() < 0.2:
            return rng.choice(self.made)
        size = rng.choice(SIZES if rng.random() < 0.3 else SIZES[:6])
        unit = "".join(rng.choice(HAY) for _ in range(40))
        hay = (unit * (size // 40 + 1))[:size]
        at = rng.randrange(len(hay) + 1)
        text = f"{hay[:at]}{self.needle()}{hay[at:]}"
        match rng.randrange(6):
            case 0:
                made: Any = text.encode() + rng.choice((b"", b"\xff\xfe\0"))
            case 1:
                made = [{"type": "text", "text": text}, {"type": "text", "text": "end"}]
            case 2 if rng.random() < 0.3:
                made = rng.choice(("", " \n", b""))
            case _:
                made = text
        self.made.append(made)
        return made

    async def lost(self, session: Session) -> list[str]:
        """Return what is neither in view nor one read away, or comes back with other bytes."""
        shown = str(build_request(session.view)["messages"])
        standing = {called for message in session.view.messages() for called in _ids(message)}
        gone: list[str] = []
        for handle, output in self.drive.given.items():
            expected = result_forms(output).data
            named = handle in standing or handle in self.log()
            if not named or not await self.same(session, handle, expected):
                gone.append(handle)
        for uuid, words in self.drive.said.items():
            if words not in shown and not await self.same(session, uuid, words.encode()):
                gone.append(uuid)
        return [*gone, *await self.unresolved(session, shown)]

    async def same(self, session: Session, handle: str, expected: bytes) -> bool:
        try:
            found = await session.read_back(handle)
        except ReverieError:
            return False
        return hashlib.sha256(found).digest() == hashlib.sha256(expected).digest()

    async def unresolved(self, session: Session, shown: str) -> list[str]:
        """Return handles the model is shown that lead nowhere, and cuts that cannot be opened."""
        handles = set(HANDLE.findall(shown))
        handles |= {entry.uuid for entry in self.cuts()}
        missing: list[str] = []
        for handle in handles:
            try:
                await session.read_back(handle)
            except ReverieError:
                missing.append(handle)
        return missing

    def log(self) -> str:
        return (self.drive.storage.load(log_key(project_slug(Path()), "s")) or b"").decode()

    def cuts(self) -> list[Entry]:
        entries = parse_log(self.log().encode()).entries
        made = [entry for entry in entries if entry.kind == DECISION]
        return [entry for entry in made if isinstance(decision_of(entry.body), Compacted | Collapsed | Snipped)]


def _ids(message: dict[str, Any]) -> list[str]:
    content = message["content"]
    return [block["tool_use_id"] for block in content if "tool_use_id" in block] if isinstance(content, list) else []


async def planted(make_drive: MakeDrive, rng: Random, turns: int) -> tuple[Garden, list[str]]:
    garden = Garden(make_drive(rng))
    lost: list[str] = []

    async def check(session: Session) -> None:
        if rng.random() < 0.25:
            await garden.drive.meddle(session)
            lost.extend(await garden.lost(session))

    await garden.drive.play(turns, check=check)
    async with garden.drive.open() as session:
        lost.extend(await garden.lost(session))
    return garden, lost


@pytest.mark.requirement("B2", "L2.6", "L1.4")
def test_every_needle_is_in_view_or_one_read_away(make_drive: MakeDrive, seed: int, torture: bool):
    found = 0

    async def play() -> None:
        nonlocal found
        for number in range(1_500 if torture else 40):
            garden, lost = await planted(make_drive, Random(f"{seed}-{number}"), 7)
            assert lost == [], f"game {number}"
            assert [one.what for one in garden.drive.witness.findings] == [], f"game {number}"
            found += len(garden.drive.given)

    anyio.run(play)
    assert found > 150


@pytest.mark.requirement("B2")
def test_what_was_cleared_comes_back_into_view_byte_for_byte(make_drive: MakeDrive):
    async def play() -> None:
        drive = make_drive(Random(5), cuts=False)
        drive.settings = replace(drive.settings, switches=replace(drive.settings.switches, compact=False))
        garden = Garden(drive)
        async with drive.open() as session:
            await drive.say(session)
            for _ in range(8):
                await drive.ask(session)
            await session.trim(0)
            gone = [
                one.tool_use_id for one in session.view.results if one.tool_use_id in session.view.overrides.results
            ]
            cleared = [one for one in gone if session.view.offloaded(one) is None]
            assert cleared
            await session.restore(cleared)
            blocks = [
                one
                for message in session.view.messages()
                if isinstance(message["content"], list)
                for one in message["content"]
            ]
            shown = {one["tool_use_id"]: one["content"] for one in blocks if one["type"] == "tool_result"}
            for called in cleared:
                assert result_forms(shown[called]).data == result_forms(drive.given[called]).data
        async with drive.open() as session:
            drive.now += 90_000
            await drive.ask(session)  # the cache is cold, and what was brought back stays
            assert not [one for one in cleared if one in session.view.overrides.results]
            assert await garden.lost(session) == []

    anyio.run(play)


def test_a_needle_that_is_lost_or_altered_is_caught(make_drive: MakeDrive):
    async def play() -> None:
        garden, lost = await planted(make_drive, Random(11), 6)
        assert lost == []
        async with garden.drive.open() as session:
            stored = [one for one in garden.drive.given if session.view.offloaded(one) is not None]
            assert stored
            decision = session.view.offloaded(stored[0])
            assert decision is not None
            garden.drive.storage.write(decision.path, b"other bytes")
            assert stored[0] in await garden.lost(session)
            garden.drive.storage.delete(decision.path)
            assert stored[0] in await garden.lost(session)

    anyio.run(play)
