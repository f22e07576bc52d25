"""Facts, the ways they are worded, and what is done to a wording that does not change what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from random import Random
from typing import Final

from ...values import record

__all__ = ["Fact", "facts", "filled", "reworded", "slots", "slots_of"]

_SLOT: Final = re.compile(r"\{(\w+)\}")


@record
class Fact:
    """One fact with empty slots."""

    number: int
    type: str
    values: tuple[str, ...]
    """Slots of which another filling contradicts; ``not`` where the opposite does."""
    titles: tuple[str, ...]
    wordings: tuple[str, ...]
    details: tuple[str, ...]
    reasons: tuple[str, ...]
    opposites: tuple[str, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """Slots that say what it is about."""
        return tuple(one for one in slots_of(" ".join(self.wordings)) if one not in self.values)


def slots_of(text: str) -> list[str]:
    """Return the slots of a text, each once."""
    return list(dict.fromkeys(name.lower() for name in _SLOT.findall(text)))


@cache
def facts() -> tuple[Fact, ...]:
    """Return all facts."""
    blocks = re.split(r"\n\s*\n", _data("facts.txt"))
    return tuple(_fact(number, block) for number, block in enumerate(block for block in blocks if "|" in block))


def _data(name: str) -> str:
    lines = (files(__name__.rpartition(".")[0]) / name).read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def _fact(number: int, block: str) -> Fact:
    head, *lines = block.strip().splitlines()
    kind, values, titles = (part.strip() for part in head.split("|"))
    said: dict[str, list[str]] = {"+": [], "w": [], "!": [], "": []}
    for line in lines:
        mark, _, rest = line.partition(" ")
        key = mark if mark in said and mark else ""
        said[key].append(rest if key else line)
    return Fact(
        number,
        kind,
        tuple(values.split()),
        tuple(one.strip() for one in titles.split(";")),
        tuple(said[""]),
        tuple(said["+"]),
        tuple(said["w"]),
        tuple(said["!"]),
    )


@cache
def slots() -> Mapping[str, tuple[str, ...]]:
    """Return what each slot may be filled with."""
    pairs = (line.partition(":") for line in _data("slots.txt").splitlines() if ":" in line)
    return {name: tuple(one.replace("-messages", " messages") for one in rest.split()) for name, _, rest in pairs}


def filled(text: str, filling: Mapping[str, str]) -> str:
    """Return a text with its slots filled; a slot with a capital gives the filling one, as does a sentence's start."""

    def value(found: re.Match[str]) -> str:
        said = filling[found[1].lower()]
        return said[0].upper() + said[1:] if found[1][0].isupper() else said

    made = _SLOT.sub(value, text)
    return (
        made[0].upper() + made[1:]
        if made[0].islower() and not made.startswith("http") and "/" not in made.split()[0]
        else made
    )


# -- the same in another dress

_OPENINGS: Final = (
    "Note: ",
    "Remember: ",
    "Please note that ",
    "Keep in mind that ",
    "FYI: ",
    "Important: ",
    "Reminder: ",
)
_AMERICAN: Final = {"favours": "favors", "artefacts": "artifacts", "colours": "colors"}
_DIGITS: Final = {
    "2": "two",
    "3": "three",
    "4": "four",
    "5": "five",
    "6": "six",
    "7": "seven",
    "8": "eight",
    "9": "nine",
}


def reworded(text: str, random: Random) -> str:
    """Return a sentence that says the same with other marks, another opening or another spelling."""
    for way in random.sample((_opened, _closed, _spelt, _counted, _spaced), 2):
        text = way(text, random)
    return text


def _opened(text: str, random: Random) -> str:
    opening = random.choice(_OPENINGS)
    return opening + (text if opening.endswith(": ") else _lowered(text))


def _lowered(text: str) -> str:
    first = text.split()[0]
    known = {
        "The",
        "In",
        "On",
        "At",
        "Every",
        "Use",
        "Do",
        "Never",
        "For",
        "From",
        "Requests",
        "Logs",
        "Failed",
        "We",
        "A",
    }
    return text[0].lower() + text[1:] if first in known else text


def _closed(text: str, random: Random) -> str:
    return text.rstrip(".") + random.choice(("", "!", " .", "."))


def _spelt(text: str, random: Random) -> str:
    for british, american in _AMERICAN.items():
        text = text.replace(british, american)
    return text


def _counted(text: str, random: Random) -> str:
    return re.sub(r"(?<= )([2-9])(?= (?:times|reviewers|tickets|retries)\b)", lambda found: _DIGITS[found[1]], text)


def _spaced(text: str, random: Random) -> str:
    return text.replace(", ", " - ", 1) if random.random() < 0.3 else text.replace(" ", "  ", 1)
