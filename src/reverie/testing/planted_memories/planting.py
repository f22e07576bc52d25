"""Planting: so many memories, among them duplicates, near-misses, contradictions, relative dates and dead links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Final

from ...values import field, record
from .events import EVENTS, LOOKALIKES, PAST, Relative, phrase_for
from .wordings import Fact, facts, filled, reworded, slots, slots_of

__all__ = ["Planted", "planted_memories"]

_NOW: Final = datetime(2026, 11, 20, 6, 30, tzinfo=UTC)


@record
class Planted:
    """A memory directory, and the truth about it."""

    files: Mapping[str, bytes]
    now: datetime
    duplicates: tuple[frozenset[str], ...] = ()
    """Groups of files that say the same; files of different groups must never be merged."""
    apart: tuple[tuple[str, str], ...] = ()
    """Pairs that differ in one fact."""
    contradictions: tuple[frozenset[str], ...] = ()
    dates: tuple[Relative, ...] = ()
    lookalikes: tuple[tuple[str, str], ...] = ()
    """Files and words in them that are no dates and must stay."""
    dead_links: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """Files, and the target that is not there."""
    expired: tuple[str, ...] = ()


def planted_memories(count: int = 300, seed: int = 0, *, now: datetime = _NOW) -> Planted:
    """Return so many memories with planted faults; another seed gives others."""
    return _Garden(count, seed, now).planted()


class _Garden:
    def __init__(self, count: int, seed: int, now: datetime) -> None:
        self._random = Random(f"planted {seed}")
        self._count = count
        self._now = now
        self._files: dict[str, bytes] = {}
        self._used: set[tuple[object, ...]] = set()
        self._duplicates: list[frozenset[str]] = []
        self._apart: list[tuple[str, str]] = []
        self._contradictions: list[frozenset[str]] = []
        self._dates: list[Relative] = []
        self._lookalikes: list[tuple[str, str]] = []
        self._dead: dict[str, str] = {}
        self._expired: list[str] = []

    def planted(self) -> Planted:
        for way, share in (
            (self._duplicate, 0.12),
            (self._near_miss, 0.10),
            (self._contradiction, 0.08),
            (self._dated, 0.12),
            (self._lookalike, 0.03),
            (self._dated_twin, 0.01),
            (self._dead_link, 0.05),
        ):
            for _ in range(max(1, round(share * self._count))):
                way()
        for _ in range(min(3, self._count // 100)):
            self._expires()
        while len(self._files) < self._count:
            self._plain()
        order = sorted(self._files)
        self._random.shuffle(order)
        return Planted(
            {file: self._files[file] for file in order},
            self._now,
            tuple(self._duplicates),
            tuple(self._apart),
            tuple(self._contradictions),
            tuple(self._dates),
            tuple(self._lookalikes),
            self._dead,
            tuple(self._expired),
        )

    # -- what is planted

    def _plain(self) -> str:
        fact, filling = self._fresh()
        return self._write(fact, filling, self._random.randrange(len(fact.wordings)))

    def _duplicate(self) -> None:
        fact, filling = self._fresh()
        ways = self._random.sample(
            range(len(fact.wordings)), min(len(fact.wordings), self._random.choice((2, 2, 2, 3)))
        )
        richer = self._random.randrange(len(ways))
        made = [
            self._write(fact, filling, way, dress=self._random.random() < 0.7, detail=number == richer)
            for number, way in enumerate(ways)
        ]
        self._duplicates.append(frozenset(made))

    def _near_miss(self) -> None:
        """Plant a memory and one that says the same of something else."""
        fact, filling = self._fresh(lambda one: bool(one.subjects))
        other = dict(filling)
        slot = self._random.choice(fact.subjects)
        for choice in self._random.sample(slots()[slot], len(slots()[slot])):
            other[slot] = choice
            if choice != filling[slot] and self._claim(fact, other):
                break
        else:
            return
        way = self._random.randrange(len(fact.wordings))
        again = way if self._random.random() < 0.6 else self._random.randrange(len(fact.wordings))
        self._apart.append((self._write(fact, filling, way), self._write(fact, other, again)))

    def _contradiction(self) -> None:
        fact, filling = self._fresh(lambda one: bool(one.opposites) or one.values[0] != "not")
        one = self._write(fact, filling, self._random.randrange(len(fact.wordings)))
        if fact.opposites:
            said = filled(self._random.choice(fact.opposites), filling)
            other = self._write(fact, filling, 0, said=said)
        else:
            slot = fact.values[0]
            taken = set(filling.values())
            changed = {**filling, slot: self._random.choice([value for value in slots()[slot] if value not in taken])}
            other = self._write(fact, changed, self._random.randrange(len(fact.wordings)))
        self._contradictions.append(frozenset((one, other)))
        self._apart.append((one, other))

    def _dated(self) -> None:
        day = self._day()
        phrase, accepted, past = phrase_for(self._random, day)
        text, title, filling = self._event(PAST if past else EVENTS)
        said = _said(text, filling, phrase)
        file = self._save("project", filled(title, filling), said, day=day, why="It was said in the weekly meeting.")
        self._dates.append(Relative(file, phrase, accepted))

    def _dated_twin(self) -> None:
        """Plant one event twice: once by its distance, once by its date."""
        day = self._day()
        text, title, filling = self._event(EVENTS)
        later = self._random.randint(1, 4)
        there = day + timedelta(days=later)
        phrase = "tomorrow" if later == 1 else f"in {later} days"
        one = self._save("project", filled(title, filling), _said(text, filling, phrase), day=day, why="It was agreed.")
        other = self._save(
            "project",
            filled(title, filling),
            _said(text, filling, f"on {there.isoformat()}"),
            day=day + timedelta(days=self._random.randint(0, 9)),
            why="It was agreed.",
        )
        self._dates.append(Relative(one, phrase, (there.isoformat(),)))
        self._duplicates.append(frozenset((one, other)))

    def _lookalike(self) -> None:
        text, kept = self._random.choice(LOOKALIKES)
        filling = self._filling(["svc"])
        if ("look", text, filling["svc"]) in self._used:
            return
        self._used.add(("look", text, filling["svc"]))
        said = filled(text, filling)
        file = self._save("project", f"About {filling['svc']}", said, why="It confused a newcomer.")
        self._lookalikes.append((file, kept))

    def _dead_link(self) -> None:
        fact, filling = self._fresh()
        target = f"{self._random.choice(('notes', 'old', 'project'))}_{self._random.randrange(10_000)}.md"
        said = filled(fact.wordings[0], filling) + f" See [the background]({target})."
        file = self._write(fact, filling, 0, said=said)
        self._dead[file] = target

    def _expires(self) -> None:
        fact, filling = self._fresh(lambda one: one.type == "project")
        gone = (self._now - timedelta(days=self._random.randint(1, 90))).date().isoformat()
        self._expired.append(self._write(fact, filling, 0, expires=gone))

    # -- how it is written

    def _event(self, events: tuple[tuple[str, str], ...]) -> tuple[str, str, dict[str, str]]:
        while True:
            text, title = self._random.choice(events)
            filling = self._filling(["svc", "person"])
            if ("event", text, filling["svc"]) not in self._used:
                self._used.add(("event", text, filling["svc"]))
                return text, title, filling

    def _fresh(self, wanted: Callable[[Fact], bool] = lambda _: True) -> tuple[Fact, dict[str, str]]:
        """Return a fact about something nothing else is about."""
        while True:
            fact = self._random.choice(facts())
            if not wanted(fact):
                continue
            filling = self._filling(slots_of(" ".join((*fact.wordings, *fact.titles, *fact.details, *fact.reasons))))
            if len(set(filling.values())) == len(filling) and self._claim(fact, filling):
                return fact, filling

    def _claim(self, fact: Fact, filling: Mapping[str, str]) -> bool:
        key = (fact.number, *(filling[slot] for slot in fact.subjects))
        if key in self._used:
            return False
        self._used.add(key)
        return True

    def _filling(self, names: list[str]) -> dict[str, str]:
        return {name: self._random.choice(slots()[name]) for name in names}

    def _day(self) -> date:
        return (self._now - timedelta(days=self._random.randint(2, 150))).date()

    def _write(
        self,
        fact: Fact,
        filling: Mapping[str, str],
        way: int,
        *,
        dress: bool = False,
        detail: bool | None = None,
        said: str = "",
        expires: str = "",
    ) -> str:
        text = said or filled(fact.wordings[way], filling)
        if dress:
            text = reworded(text, self._random)
        if fact.details and (self._random.random() < 0.3 if detail is None else detail):
            text = text.rstrip() + ("" if text.rstrip()[-1] in ".!?" else ".") + " " + filled(fact.details[0], filling)
        why = fact.reasons[0] if fact.reasons and self._random.random() < 0.8 else "Nobody gave a reason."
        # One in eight has no name but a number, as where a program saved it.
        numbered = self._random.random() < 0.12
        title = f"Memory {len(self._files)}" if numbered else filled(self._random.choice(fact.titles), filling)
        return self._save(
            fact.type, title, text, why=why if fact.type in ("feedback", "project") else "", expires=expires
        )

    def _save(
        self, kind: str, title: str, text: str, *, day: date | None = None, why: str = "", expires: str = ""
    ) -> str:
        random = self._random
        made = day or self._day()
        stem = "".join(letter if letter.isalnum() else "_" for letter in title.lower())
        file = f"{kind}_{stem}_{len(self._files):03}.md"
        first = text.split(". ")[0].rstrip(".!")
        described = first if random.random() < 0.6 or day is not None else f"{title}, as it was told"
        quoted = described.replace("\\", "\\\\").replace('"', '\\"')
        head = [
            f"name: {title}" if title.replace(" ", "").isalnum() else f'name: "{title}"',
            f'description: "{quoted}"',
        ]
        head += [f"type: {kind}", f"source: session-{random.randrange(60)} message-{random.randrange(900)}"]
        head += [f"trust: {random.choice(('user', 'agent', 'agent', 'unconfirmed'))}"]
        head += [f"expires: {expires}"] if expires else []
        head += ["# kept by hand"] if random.random() < 0.05 else []
        head += [f"tags: [{kind}, planted]"] if random.random() < 0.1 else []
        head += [f'created: "{made.isoformat()}T09:00:00Z"'] if random.random() < 0.9 else []
        head += [f'modified: "{made.isoformat()}T09:00:00Z"']
        body = text + ("\n" if not why else f"\n\n**Why:** {why}\n")
        if kind == "feedback" and random.random() < 0.5:
            body += "\n**How to apply:** In all work on it.\n"
        self._files[file] = ("---\n" + "\n".join(head) + "\n---\n" + body).encode()
        return file


def _said(text: str, filling: Mapping[str, str], phrase: str) -> str:
    made = text.replace("{when}", phrase).replace("{When}", phrase[0].upper() + phrase[1:])
    return filled(made, filling)
