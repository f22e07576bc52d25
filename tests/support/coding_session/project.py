"""An invented repository: a freight service in Python, its gateway in Go, its pages in TypeScript."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from . import pieces

ROOT: Final = "/home/noor/harbour"

# The things that the service handles, each with its two amounts.
_THINGS: Final = {
    "Shipment": ("weight_kg", "declared_value"),
    "Pallet": ("height_cm", "stack_limit"),
    "Manifest": ("line_count", "tare_kg"),
    "Depot": ("free_slots", "night_rate"),
    "Tariff": ("base_rate", "zone_factor"),
    "Courier": ("shift_hours", "daily_stops"),
    "Container": ("volume_m3", "reefer_power"),
    "Booking": ("deposit", "cancel_fee"),
    "Invoice": ("net_amount", "reminder_level"),
    "Vessel": ("draught_dm", "berth_hours"),
}
_VERBS: Final = (
    "adjust", "settle", "hold", "raise", "split", "merge", "audit", "expire", "reserve", "refund", "weigh", "sort",
    "replan", "confirm", "rebook", "grade", "collect", "forward", "restore", "balance",
)  # fmt: skip
_NUMBER: Final = re.compile(r"\b([1-9]\d+)\b")
_RETURN: Final = re.compile(r"^\s+return\b")
_PLACES: Final = {"py": "harbour/{}.py", "go": "gateway/{}/handler.go", "tsx": "web/src/{}/{}List.tsx"}
_EXTRA: Final = {
    "py": 'log.info("{0} settled, round %s", {1})',
    "go": 'h.log.Info("{0} settled", "round", {1})',
    "tsx": 'performance.mark("{0}-{1}");',
}


class SourceFile:
    """One file of the invented repository, about one thing, as lines that ``change`` edits."""

    def __init__(self, path: str, thing: str, text: str) -> None:
        self.path = f"{ROOT}/{path}"
        self.short = path
        self.thing = thing
        self.lines = text.rstrip("\n").split("\n")

    @property
    def language(self) -> str:
        """The ending of the file's name without a dot, such as ``py``."""
        return self.path.rsplit(".", 1)[-1]

    def numbered(self, start: int = 0, count: int | None = None) -> str:
        """Return ``count`` lines from ``start`` on, or all, with their numbers, as a reading tool shows them."""
        end = len(self.lines) if count is None else min(len(self.lines), start + count)
        return "\n".join(f"{at + 1:>6}→{self.lines[at]}" for at in range(start, end))

    def change(self, rng: Random, shown: Sequence[str]) -> tuple[str, str] | None:
        """Change a shown line; return the old text, which occurs once, and the new, or None if no line fits."""
        places = [at for at, line in enumerate(shown) if _NUMBER.search(line) or _RETURN.match(line)]
        rng.shuffle(places)
        whole = "\n".join(self.lines)
        for at in places:
            for width in (1, 2, 4):
                window = list(shown[max(0, at - width) : at + width + 1])
                old = "\n".join(window)
                if whole.count(old) == 1:
                    changed = self._changed(rng, shown[at])
                    window[min(at, width) : min(at, width) + 1] = changed
                    new = "\n".join(window)
                    self.lines = whole.replace(old, new).split("\n")
                    return old, new
        return None

    def _changed(self, rng: Random, line: str) -> list[str]:
        number = _NUMBER.search(line)
        if number and not _RETURN.match(line):
            raised = str(int(number.group(1)) + rng.randrange(1, 60))
            return [line[: number.start(1)] + raised + line[number.end(1) :]]
        indent = line[: len(line) - len(line.lstrip())]
        extra = _EXTRA[self.language].format(self.thing.lower(), rng.randrange(10, 900))
        return [indent + extra, line]


class InventedProject:
    """The files of the invented repository, which the random generator determines."""

    def __init__(self, rng: Random) -> None:
        self.files: list[SourceFile] = []
        for thing in _THINGS:
            low = thing.lower()
            python = _written(rng, thing, pieces.PYTHON_HEAD, pieces.PYTHON, rng.randrange(12, 24))
            tests = _written(rng, thing, pieces.TESTS_HEAD, pieces.TESTS, rng.randrange(14, 28))
            self.files.append(SourceFile(_PLACES["py"].format(low), thing, python))
            self.files.append(SourceFile(f"tests/test_{low}.py", thing, tests))
            if rng.random() < 0.6:
                go = _written(rng, thing, pieces.GO_HEAD, pieces.GO, rng.randrange(6, 14), camel=True)
                self.files.append(SourceFile(_PLACES["go"].format(low), thing, go))
            if rng.random() < 0.6:
                page = _written(rng, thing, pieces.TYPESCRIPT_HEAD, pieces.TYPESCRIPT, rng.randrange(5, 12), camel=True)
                self.files.append(SourceFile(_PLACES["tsx"].format(low, thing), thing, page))

    def of(self, thing: str) -> list[SourceFile]:
        """Return the files about a thing, the service first and its tests second."""
        return [source for source in self.files if source.thing == thing]

    def things(self) -> list[str]:
        """Return the names of the things that the service handles."""
        return list(_THINGS)

    def matching(self, word: str, limit: int) -> list[str]:
        """Return at most ``limit`` lines that contain a word, as a search tool shows them."""
        found: list[str] = []
        for source in self.files:
            for at, line in enumerate(source.lines):
                if word in line:
                    found.append(f"{source.short}:{at + 1}:{line.strip()}")
        return found[:limit]


def _written(rng: Random, thing: str, head: str, parts: Sequence[str], count: int, *, camel: bool = False) -> str:
    """Return a file's text: the head and ``count`` random pairs of a template and a verb, filled for a thing."""
    pairs = [(piece, verb) for piece in parts for verb in _VERBS]
    chosen = rng.sample(pairs, min(count, len(pairs)))
    return _filled(rng, head, thing, "", camel) + "".join(
        _filled(rng, piece, thing, verb, camel) for piece, verb in chosen
    )


def _filled(rng: Random, piece: str, thing: str, verb: str, camel: bool) -> str:
    first, second = _THINGS[thing]
    if rng.random() < 0.3 and verb:
        first, second = second, first
    holes = {
        "VERB": verb.capitalize() if camel and "func (h *Handler) serve" in piece else verb,
        "Thing": thing,
        "thing": thing.lower(),
        "FIELD_A": first.upper(),
        "FieldA": _camel(first, upper=True),
        "FieldB": _camel(second, upper=True),
        "fieldA": _camel(first),
        "fieldB": _camel(second),
        "field_a": first,
        "field_b": second,
        "N1": str(rng.randrange(12, 97)),
        "N2": str(rng.randrange(12, 97)),
    }
    return re.sub("|".join(holes), lambda found: holes[found.group()], piece)


def _camel(name: str, *, upper: bool = False) -> str:
    words = name.split("_")
    return "".join(word.capitalize() if at or upper else word for at, word in enumerate(words))
