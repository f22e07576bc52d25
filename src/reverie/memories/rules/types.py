"""The four types of memory: the purpose of each, when to save one, and its form."""

from __future__ import annotations

from collections.abc import Mapping

from ...values import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Literal, TypeAlias

    MemoryType: TypeAlias = Literal["user", "feedback", "project", "reference"]
else:
    MemoryType = str

__all__ = ["TYPES", "MemoryKind", "MemoryType"]


@record
class MemoryKind:
    """A type of memory: its purpose, when to save one, and its form."""

    name: MemoryType
    scope: str
    """The type's scope in a shared project, in words for prompts."""
    what: str
    when: str
    shape: str
    decays: bool = False


TYPES: Final[Mapping[str, MemoryKind]] = {
    "user": MemoryKind(
        "user",
        "always private",
        "Who the user is: role, goals, responsibilities, knowledge, preferences.",
        "You learn something about the person that should change how you work with them.",
        "Plain sentences about the person, useful to help them, never a judgement of them.",
    ),
    "feedback": MemoryKind(
        "feedback",
        "private, unless it is a rule for everybody in the project",
        "How to work: corrections the user made and approaches the user confirmed.",
        "The user corrects you, or accepts a choice that was not obvious. Save the confirmations too.",
        "The rule first, then a line **Why:** with the reason given, then a line **How to apply:** with when it holds.",
    ),
    "project": MemoryKind(
        "project",
        "team preferred",
        "Ongoing work, goals, deadlines, incidents and decisions that neither the code nor its history shows.",
        "You learn who does what, why, or by when. Write relative dates as absolute ones.",
        "The fact or decision first, then a line **Why:** with the motive, then **How to apply:**.",
        decays=True,
    ),
    "reference": MemoryKind(
        "reference",
        "team",
        "Where things are in other systems: trackers, dashboards, channels, documents.",
        "You learn of a place outside the project where information lives, and what for.",
        "The place, and what it is to be used for.",
    ),
}
