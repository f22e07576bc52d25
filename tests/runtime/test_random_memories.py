"""Random histories of memories: saved, changed, erased, recalled, cut, resumed; the newest text is in view once."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from memory_home import Home, Talk
from reverie.conversation.decisions import Cause, Snipped
from reverie.errors import CompactionError
from reverie.memories.recall.policy import RecallPolicy
from reverie.runtime.memory.standing_memories import RecalledMemories, recalled_rows

ACTS = ("save", "save", "update", "forget", "ask", "ask", "ask", "compact", "snip")


class Story:
    """One random history; every memory begins with a version that is never used again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        recall = RecallPolicy(most=2, session_bytes=self.chance.choice([4_000, 61_440]))
        self.home = Home(folder, window=self.chance.choice([60_000, 200_000]), recall=recall)
        self.files: dict[int, str] = {}
        self.versions: dict[str, int] = {}
        self._version = 0

    async def tell(self, acts: int) -> list[str]:
        """Act and ask in turns, closing the session now and then; return the violations."""
        found: list[str] = []
        while acts > 0:
            async with self.home.opened() as talk:
                for _ in range(self.chance.randint(2, 6)):
                    acts -= 1
                    topic = self.chance.randint(0, 5)
                    await self._act(talk, self.chance.choice(ACTS), topic)
                    about = f"what does the harbour pipeline of service number {topic} deploy?"
                    text = await talk.ask(about if self.chance.random() < 0.6 else "go on please")
                    found += self.violations(talk, text)
        return found

    async def _act(self, talk: Talk, act: str, topic: int) -> None:
        memory, file = self.home.memory, self.files.get(topic)
        match act:
            case "save" if file is None:
                about = f"The harbour pipeline of service number {topic}"
                saved = memory.save(self._text(), type="reference", name=f"pipeline {topic}", description=about)
                self.files[topic] = saved.file
                self.versions[saved.file] = self._version
            case "update" if file is not None:
                memory.update(file, self._text())
                self.versions[file] = self._version
            case "forget" if file is not None:
                memory.forget(file, erase=self.chance.random() < 0.5)
                del self.versions[self.files.pop(topic)]
            case "compact":
                with suppress(CompactionError):  # it may free too little
                    await talk.cut()
            case "snip":
                every = [piece.uuid for group in talk.session.view.groups for piece in group.pieces]
                some = every[: self.chance.randint(0, len(every))]
                if some:
                    await talk.session.log.decide(Snipped(Cause("test", "they leave", moves_prefix=True), some))
            case _:
                pass

    def _text(self) -> str:
        self._version += 1
        return f"v{self._version}-end " + "The harbour pipeline deploys it. " * self.chance.choice([1, 30, 100])

    def violations(self, talk: Talk, text: str) -> list[str]:
        """Return the memories that a request does not show as they are, or shows twice."""
        found: list[str] = []
        for file, row in recalled_rows(talk.session.view).items():
            shown = re.findall(rf'<memory-[0-9a-f]+ file="{re.escape(file)}".*?\bv(\d+)-end', text, re.DOTALL)
            now = str(self.versions.get(file))
            if row.item.state == "said" and (shown[-1:] != [now] or shown.count(now) != 1):
                found.append(f"{file} is at {now}, and the request shows {shown}")
        return found


def tell(folder: Path, seed: int, count: int) -> Iterator[str]:
    """Tell random histories and yield their violations."""
    for number in range(count):
        place = folder / str(number)
        place.mkdir()
        yield from (f"seed {seed + number}: {one}" for one in anyio.run(Story(place, seed + number).tell, 14))


@pytest.mark.slow
@pytest.mark.requirement("W6", "W8")
def test_the_newest_text_of_every_recalled_memory_is_in_each_request_once(
    tmp_path: Path, torture: bool, seed: int
) -> None:
    assert list(tell(tmp_path, seed, 300 if torture else 8)) == []


@pytest.mark.slow
@pytest.mark.requirement("W6", "W8")
def test_twin_a_source_that_never_reads_again_is_caught(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_logged(_: RecalledMemories, __: object) -> list[object]:
        return []

    monkeypatch.setattr(RecalledMemories, "name", "nothing")
    monkeypatch.setattr(RecalledMemories, "items", as_logged)
    assert next(tell(tmp_path, seed, 12), "")
