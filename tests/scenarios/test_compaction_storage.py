"""Compaction with a store that fails at any step, and in a session of thousands of turns."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, load_settings
from reverie.conversation.entries import encode_entry
from reverie.conversation.log import parse_log
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.validate import problems
from reverie.errors import StorageError
from reverie.events import CompactionEnded, DecisionMade, Event
from reverie.runtime.places.projects import log_key, project_slug
from reverie.settings import Switches
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "


class Failing(InMemoryStorage):
    """A store whose Nth write or append fails: before anything is kept, or with half a line left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.torn = False

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        if self._fails():
            if self.torn:
                super().append(key, line[: len(line) // 2], expect=expect)
            raise StorageError("no space left on device", path=key)
        super().append(key, line, expect=expect)

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        if self._fails():
            raise StorageError("no space left on device", path=key)
        return super().write(key, data, expect=expect, create=create)

    def _fails(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0


async def turn(session: Session, n: int, words: int = 30, **options: Any) -> None:
    await session.prepare(model=MODEL, max_tokens=100, **options)
    blocks = [{"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"piers/pier_{n % 40}.txt"}}]
    await session.observe({"id": f"m{n}", "role": "assistant", "model": MODEL, "content": blocks})
    await session.result(f"t{n}", f"tests/test_pier_{n}.py failed\n" + PROSE * words)


@pytest.mark.requirement("L4.10", "L4.14", "K3")
@pytest.mark.parametrize("torn", [False, True])
def test_a_store_that_fails_at_any_step_leaves_a_log_that_goes_on(torn: bool):
    settings = replace(load_settings(), window_tokens=40_000, switches=Switches(priced_trim=False, idle_trim=False))
    key = log_key(project_slug(Path(".")), "s")

    async def once(step: int) -> bool:
        storage = Failing()
        async with Session.open("s", storage=storage, settings=settings) as session:
            await session.say("Write them all down.")
            for n in range(14):
                await turn(session, n)
            before = canonical(build_request(session.view))
            storage.left, storage.torn = step, torn
            failed = False
            try:
                await session.compact()
            except StorageError:
                failed = True
            storage.left = None
        view = View().fold_all(parse_log(storage.load(key) or b"").entries)
        if not view.facts.compactions:
            assert canonical(build_request(view)) == before
        async with Session.open("s", storage=storage, settings=settings) as session:
            request = await session.prepare(model=MODEL, max_tokens=100)
            assert problems(request) == []
            if not session.view.facts.compactions:
                await session.compact()
            await session.undo()
        return failed

    async def steps() -> int:
        step = 0
        while await once(step):
            step += 1
            assert step < 30
        return step

    assert anyio.run(steps) >= 2  # the boundary, and the metadata after it


class Work:
    """Counts the calls that a turn makes, by the interpreter's own account: the same on every machine."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Work:
        self._before = sys.getprofile()
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _seen(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event == "call"


@pytest.mark.requirement("L4.14", "K5")
def test_in_a_long_session_compactions_are_a_small_part_of_the_log_and_a_turns_work_does_not_grow(torture: bool):
    turns = 5_000 if torture else 1_000
    early, late = range(300, 500), range(turns - 200, turns)
    shown: list[int] = []
    work: dict[int, int] = {}
    made: list[Event] = []
    storage = InMemoryStorage()
    settings = replace(load_settings(), switches=Switches(priced_trim=False, idle_trim=False, offload=False))

    async def steps() -> None:
        async with Session.open("s", storage=storage, settings=settings, clock=lambda: 1.79e9) as session:
            session.listen(made.append)
            await session.say("Write down every ship, pier by pier.")
            for n in range(turns):
                if n % 50 == 7:
                    await session.say(f"And what of pier {n}?")
                if n in early or n in late:
                    with Work() as counted:
                        await turn(session, n, 50)
                    work[n] = counted.calls
                else:
                    await turn(session, n, 50)
                shown.append(session.view.length)

    anyio.run(steps)
    ended = [event for event in made if isinstance(event, CompactionEnded)]
    entries = parse_log(storage.load(log_key(project_slug(Path(".")), "s")) or b"").entries
    sizes = Counter({"all": 0})
    for entry in entries:
        size = len(encode_entry(entry))
        sizes.update({"all": size, str(entry.body.get("decision", "")): size})
    shares = {name: sizes[name] / sizes["all"] for name in ("compacted", "notes_updated")}
    # A turn that compacts or takes notes does more; the others do the same however much was said before.
    usual = [sorted(work[n] for n in part)[len(part) // 2] for part in (early, late)]
    print(f"{turns} turns, {len(ended)} compactions; of the log {shares}; calls a turn early and late: {usual}")
    assert len(ended) >= turns // 400
    assert shares["compacted"] < 0.05
    assert shares["notes_updated"] < 0.05
    assert usual[1] <= 1.1 * usual[0]
    # All turns together, those that compact included: what grows there is a walk over what was ever said, and small.
    assert sum(work[n] for n in late) <= (4 if torture else 2) * sum(work[n] for n in early)
    # The view, which is what a turn works on, is as long at the end as it was in the beginning.
    assert max(shown[-turns // 3 :]) <= 1.1 * max(shown[: turns // 3])
    after = [event.tokens_after for event in ended]
    assert max(after[-3:]) <= 1.3 * max(after[:3])
    assert not [
        event for event in made if isinstance(event, DecisionMade) and "Failed" in type(event.decision).__name__
    ]


def test_a_turn_whose_work_grows_with_the_session_would_be_caught():
    """The known-bad twin of the measure above."""
    counts: list[int] = []
    for said in (100, 1_000):
        with Work() as counted:
            sum(len(str(one)) for one in (n for n in range(said)))
        counts.append(counted.calls)
    assert counts[1] > 1.1 * counts[0]
