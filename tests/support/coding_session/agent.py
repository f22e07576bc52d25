"""The agent of an invented session: its actions for each kind of task, round by round."""

from __future__ import annotations

from collections.abc import Container, Iterator
from random import Random
from typing import Final

from . import outputs, phrases
from .author import InventedCall, SessionAuthor
from .project import InventedProject, SourceFile

_RANGE: Final = 90
_OPENING_TASKS: Final = ("fix", "logs", "feature", "refactor", "review", "question")
_LATER_TASKS: Final = ("fix", "feature", "refactor", "review", "question", "feature", "fix")
# Seconds between two tasks; the first gaps always include one of minutes and one of hours.
_EARLY_GAPS: Final = ((400.0, 1_500.0), (20.0, 120.0), (7_000.0, 50_000.0))
_LATER_GAPS: Final = ((15.0, 200.0), (15.0, 200.0), (330.0, 2_400.0), (5_000.0, 60_000.0))


class InventedAgent:
    """An invented agent that works on an invented project and writes its replies and calls to ``author``."""

    def __init__(self, rng: Random, author: SessionAuthor, tokens: int) -> None:
        self.rng = rng
        self.author = author
        self.tokens = tokens
        self.project = InventedProject(rng)
        self.seen: dict[str, list[str]] = {}

    def work(self) -> None:
        """Do one task after another, at least one, until the session has the wanted number of tokens."""
        number = 0
        while number == 0 or self.author.total < self.tokens:
            if number:
                gaps = _EARLY_GAPS[number - 1 : number] or _LATER_GAPS
                self.author.wait(self.rng.uniform(*self.rng.choice(gaps)))
            kind = _OPENING_TASKS[number] if number < len(_OPENING_TASKS) else self.rng.choice(_LATER_TASKS)
            self.task(kind)
            number += 1

    def task(self, kind: str) -> None:
        """Do one task from the user's request to the answer; skip rounds once the session is long enough."""
        thing = self.rng.choice(self.project.things())
        sources = self.project.of(thing)
        names = {"thing": thing.lower(), "short": sources[0].short}
        self.author.ask(self.rng.choice(phrases.OPENINGS[kind]).format(**names))
        for _ in getattr(self, f"_{kind}")(thing, sources):
            if self.author.total >= self.tokens:
                break
        self.make_room()
        self.author.reply(phrases.CLOSINGS[kind].format(**names))

    def _fix(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        service, tests = sources[:2]
        yield self.round(self.tests(service, 140))
        yield self.round(self.read(service), self.read(tests), self.grep(f"{thing}Service"))
        yield from self.neighbours(thing, 2)
        yield self.round(self.read(service, part=True))
        yield from self.edits(service, 3)
        yield self.round(self.tests(None, 90))
        yield self.round(self.read(service))

    def _logs(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        chars = self.rng.randrange(outputs.HUGE_CHARS + 8_000, outputs.HUGE_CHARS * 2)
        log = outputs.server_log(self.rng, self.project, chars)
        yield self.round(
            InventedCall("Bash", {"command": "cat var/log/harbour.log", "description": "Show the log"}, log, 1.2)
        )
        hits = "\n".join(line for line in log.split("\n") if f"harbour.{thing.lower()} " in line and "ERROR" in line)
        command = f"grep 'harbour.{thing.lower()} ' var/log/harbour.log | grep ERROR"
        yield self.round(InventedCall("Bash", {"command": command}, hits or "(no output)", 0.3))
        for source in sources:
            yield self.round(self.read(source, part=True), self.read(source, part=True))
        yield from self.neighbours(thing, 2)

    def _feature(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        yield self.round(*(self.read(source) for source in sources))
        yield self.round(self.grep("MAX_"), self.grep("Conflict("))
        yield from self.edits(sources[0], 2)
        if self.rng.random() < 0.5 or len(self.author.asked) <= 4:
            self.stopped(sources[1])
            yield None
        yield from (each for source in sources[1:] for each in self.edits(source, 2))
        text = "\n".join(sources[1].lines[:40])
        path = f"{sources[1].path[:-3]}_limits.py"
        yield self.round(InventedCall("Write", {"file_path": path, "content": text}, f"File written: {path}"))
        yield self.round(self.tests(sources[0], 120), self.check(self.rng.randrange(0, 30)))
        yield from self.edits(sources[0], 1)
        yield self.round(self.tests(None, 120))

    def _refactor(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        yield self.round(self.grep("GRACE"))
        yield self.round(self.read(sources[0]))
        yield from self.neighbours(thing, 4)
        for path in list(self.seen)[-4:]:
            yield from self.edits(next(one for one in self.project.files if one.path == path), 2)
        yield self.round(self.check(self.rng.randrange(5, 60)))
        yield self.round(self.tests(None, 200))

    def _review(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        touched = self.rng.sample(self.project.files, 8)
        text = outputs.diff(self.rng, touched)
        yield self.round(
            InventedCall("Bash", {"command": "git diff main...HEAD", "description": "Show the branch"}, text, 0.6)
        )
        for source in [*touched[:3], *sources[:1]]:
            yield self.round(self.read(source, part=True))
        yield self.round(self.read(touched[0]), self.read(touched[1]))
        yield self.round(self.check(self.rng.randrange(0, 12)))

    def _question(self, thing: str, sources: list[SourceFile]) -> Iterator[None]:
        yield self.round(self.grep(thing))
        for source in sources:
            yield self.round(self.read(source, part=True))
        yield self.round(self.grep(f"{thing}Service"), self.read(sources[0]))

    def round(self, *calls: InventedCall) -> None:
        """Add a reply with these calls and their results, sometimes with a sentence; compact before if full."""
        text = self.rng.choice(phrases.STEPS[calls[0].name]) if self.rng.random() < 0.55 else ""
        fresh = {call.input.get("file_path") for call in calls if call.name == "Read"}
        self.make_room(fresh)
        self.author.reply(text, *calls)

    def make_room(self, fresh: Container[object] = ()) -> None:
        """Compact if the window is full, and forget the files read before, except those being read now."""
        if self.author.compact_if_full():
            self.seen = {path: lines for path, lines in self.seen.items() if path in fresh}

    def read(self, source: SourceFile, *, part: bool = False) -> InventedCall:
        """Return a call that reads a file, or with ``part`` a random range, and remember the lines as seen."""
        start = self.rng.randrange(0, max(1, len(source.lines) - _RANGE)) if part else 0
        count = self.rng.randrange(30, _RANGE) if part else len(source.lines)
        self.seen[source.path] = source.lines[start : start + count]
        where: dict[str, object] = {"file_path": source.path}
        if part:
            where |= {"offset": start + 1, "limit": count}
        return InventedCall("Read", where, source.numbered(start, count), self.rng.uniform(0.05, 0.5))

    def grep(self, word: str) -> InventedCall:
        """Return a call that searches the project for a word, with at most 120 lines found."""
        found = self.project.matching(word, 120)
        return InventedCall(
            "Grep", {"pattern": word, "path": ".", "output_mode": "content"}, "\n".join(found) or "No matches"
        )

    def tests(self, failing: SourceFile | None, cases: int) -> InventedCall:
        """Return a call that runs up to ``cases`` tests; up to 3 tests of the failing file's thing fail."""
        text = outputs.test_run(self.rng, self.project, failing, cases)
        about = {"command": "python -m pytest -v", "description": "Run the tests"}
        return InventedCall(
            "Bash", about, text, self.rng.uniform(4.0, 80.0), failed=" failed" in text.rsplit("\n", 1)[-1]
        )

    def check(self, errors: int) -> InventedCall:
        """Return a call that runs the type checker, which finds so many errors."""
        text = outputs.type_check(self.rng, self.project, errors)
        return InventedCall("Bash", {"command": "pyright"}, text, self.rng.uniform(6.0, 30.0), failed=errors > 0)

    def edits(self, source: SourceFile, count: int) -> Iterator[None]:
        """Yield after each round that edits a file, or reads it if no seen line fits; at most ``count`` edits."""
        for _ in range(count):
            self.make_room()
            if source.path not in self.seen:
                yield self.round(self.read(source))
            made = source.change(self.rng, self.seen.get(source.path, []))
            if made is None:
                yield self.round(self.read(source, part=True))
                continue
            where = {"file_path": source.path, "old_string": made[0], "new_string": made[1]}
            self.author.edited.append(source.short)
            yield self.round(InventedCall("Edit", where, f"The file {source.path} has been updated.", 0.2))

    def neighbours(self, thing: str, count: int) -> Iterator[None]:
        """Yield after each of ``count`` rounds that read two files about other things."""
        others = [one for one in self.project.files if one.thing != thing]
        chosen = self.rng.sample(others, count * 2)
        for one, two in zip(chosen[::2], chosen[1::2], strict=True):
            yield self.round(self.read(one, part=self.rng.random() < 0.5), self.read(two))

    def stopped(self, source: SourceFile) -> None:
        """Add a call that the user interrupts, the interruption, and another instruction of the user."""
        path = f"{source.path[:-3]}_draft.py"
        self.make_room()
        self.author.reply(
            "I'll write the new tests into a file of their own.",
            InventedCall("Write", {"file_path": path, "content": "\n".join(source.lines[:60])}, ""),
            stopped=True,
        )
        self.author.interrupt()
        self.author.wait(self.rng.uniform(20.0, 140.0))
        self.author.ask("no new file please, put the cases next to the ones that are there")
