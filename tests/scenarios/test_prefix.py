"""No sent byte changes unless a logged decision says so, and every break of a live cache was announced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, Session, load_settings
from reverie.cache.usage import Usage
from reverie.conversation.wire.canonical import canonical
from reverie.events import CacheBroken, Event
from reverie.importers import find_sessions, read_session
from reverie.replay.play import PlayedClock, play_session

MakeDrive = Callable[..., Any]
MakeWitness = Callable[..., Any]
QUICK, TORTURE = 160, 2_000
PARTS = 2
MODEL = "claude-sonnet-4-5"


@pytest.mark.requirement("C1", "C3", "C5", "C7")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_conversations_extend_their_prefix_and_announce_their_breaks(
    make_drive: MakeDrive, part: int, seed: int, torture: bool
):
    acted: dict[str, int] = {}

    async def play() -> None:
        for number in range(part, TORTURE if torture else QUICK, PARTS):
            drive = make_drive(Random(f"{seed}-{number}"))
            await drive.play(30 if torture else 6)
            assert drive.witness.findings == [], f"conversation {number}"
            for trigger, times in drive.witness.trims.items():
                acted[trigger] = acted.get(trigger, 0) + times

    anyio.run(play)
    assert {"idle", "window", "budget"} <= set(acted)  # the layers did act


@pytest.mark.requirement("C1", "C7")
def test_long_conversations_do_so_too(make_drive: MakeDrive, seed: int, torture: bool):
    acted: set[str] = set()

    async def play() -> None:
        for number in range(12 if torture else 4):
            drive = make_drive(Random(f"{seed}-long-{number}"))
            await drive.play(60)
            assert drive.witness.findings == [], f"conversation {number}"
            acted.update(drive.witness.trims)

    anyio.run(play)
    assert {"idle", "window"} <= acted


@pytest.mark.requirement("C2")
def test_tools_and_system_prompt_are_rendered_once_and_what_is_volatile_comes_after(make_drive: MakeDrive, seed: int):
    async def play() -> None:
        for number in range(40):
            drive = make_drive(Random(f"{seed}-{number}"), cuts=False)
            bill, openings = drive.witness.bill, list[list[bytes]]()

            def note(request: dict[str, Any], now: float, bill: Any = bill, openings: Any = openings) -> Any:
                openings.append(canonical({"tools": request["tools"], "system": request["system"]}))
                return bill(request, now)

            drive.witness.bill = note
            meddle = drive.meddle

            async def without_prompts(session: Session, drive: Any = drive, meddle: Any = meddle) -> None:
                await meddle(session)
                drive.system = "".join(["You are careful. "] * 400)  # equal, and another object

            drive.meddle = without_prompts
            await drive.play(10)
            assert drive.witness.rendered == 1
            assert all(one == openings[0] for one in openings)
            assert b"The date is" not in b"".join(openings[0])

    anyio.run(play)


def played_back(path: Path, make_witness: MakeWitness) -> list[Any]:
    """Say a recorded session again through a live one, at the recorded times, before a witness."""
    witnesses: list[Any] = []

    async def play() -> None:
        for imported in read_session(path):
            witness, clock = make_witness(), PlayedClock()
            provider = Provider(witness)
            opened = Session.open("s", storage=InMemoryStorage(), settings=load_settings(), clock=clock)
            opened.listen(witness.hear)
            async with opened as session:
                tools = imported.tools or [{"name": "Bash", "input_schema": {"type": "object"}}]
                system = imported.system or "You are careful. " * 400
                turns: Any = play_session(
                    imported.entries, session, clock, model=MODEL, system=system, tools=tools, provider=provider
                )
                async for _ in turns:
                    pass
            witnesses.append(witness)

    anyio.run(play)
    return witnesses


class Provider:
    """A witness as the provider of a played session."""

    def __init__(self, witness: Any) -> None:
        self.witness = witness
        self.last = Usage()

    def bill(self, request: dict[str, Any], now: float, *, output: int = 0) -> dict[str, Any]:
        return {**self.witness.bill(request, now), "output_tokens": output}


@pytest.mark.requirement("C1", "C2", "C5")
@pytest.mark.parametrize("folder", ["claude-code", "mini-swe-agent", "pi", "swe-agent", "openhands"])
def test_every_recorded_session_extends_its_prefix_and_announces_its_breaks(
    corpus: Path, make_witness: MakeWitness, folder: str, torture: bool
):
    """In the quick form every second session is played."""
    files = sorted(find_sessions(corpus / folder))[:: 1 if torture else 2]
    assert files
    for path in files:
        for witness in played_back(path, make_witness):
            assert witness.findings == [], path.name
            assert witness.rendered <= 1


# -- what must be caught


class Silent(Session):
    """Clears an old result on the way out and tells nobody."""

    async def prepare(self, **options: Any) -> dict[str, Any]:
        request = await super().prepare(**options)
        if len(request["messages"]) > 5 and isinstance(request["messages"][2]["content"], list):
            request["messages"][2] = {"role": "user", "content": [{"type": "text", "text": "[tidied up]"}]}
        return request


class Stale(Session):
    """Marks nothing but the end, so that what is there is not found."""

    async def prepare(self, **options: Any) -> dict[str, Any]:
        request = await super().prepare(**options)
        for message in request["messages"][:-1]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                block.pop("cache_control", None)
        return request


@pytest.mark.parametrize(("kind", "said"), [(Silent, "changed and no decision"), (Stale, "live tokens")])
def test_a_session_that_changes_or_misses_what_was_sent_is_caught(make_drive: MakeDrive, kind: Any, said: str):
    found: list[str] = []

    async def play() -> None:
        for number in range(10):
            drive = make_drive(Random(number), kind=kind)
            await drive.play(8)
            found.extend(one.what for one in drive.witness.findings)

    anyio.run(play)
    assert any(said in one for one in found)


@pytest.mark.requirement("C2")
def test_a_system_prompt_with_the_time_in_it_is_caught_and_named(make_drive: MakeDrive):
    heard: list[Event] = []

    async def play() -> None:
        drive = make_drive(Random(3), cuts=False)
        drive.now += 7
        async with drive.open() as session:
            session.listen(heard.append)
            await drive.say(session)
            for _ in range(4):
                drive.system = f"{'You are careful. ' * 1_500} It is {drive.now}."
                await drive.ask(session)
                drive.now += 20
        assert drive.witness.rendered == 4

    anyio.run(play)
    breaks = [event for event in heard if isinstance(event, CacheBroken)]
    assert breaks
    assert all(event.reason.startswith("system") for event in breaks)


def test_a_byte_changed_in_the_middle_is_seen_by_the_comparison():
    one = canonical({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    two = canonical({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]})
    assert not extends(one, two)
    assert extends(one[:1], two)
