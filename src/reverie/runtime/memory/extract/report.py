"""What recorded sessions hold that is worth keeping: found without a model, reported, and saved where that is asked.

Whoever wrote a recording decides what its user says there. So what comes from one waits to be confirmed, unless it is a
session of one's own, or the caller says that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ....conversation.authorship import own_words
from ....conversation.entries import META, USER, Entry
from ....errors import InputError, StorageConflict
from ....layers.l5_extract import MAX_CANDIDATES, MemoryCandidate, extract
from ....memories.store.records import MemoryRecord
from ....memories.store.trust import Trust
from ....values import field, record
from .tools import AUTHOR, FOR_USER

if TYPE_CHECKING:
    from ..memory import Memory

__all__ = ["Extraction", "Outcome", "Proposal", "Refused", "Status", "is_imported"]

Status: TypeAlias = Literal["would save", "would update", "saved", "updated", "there already", "forgotten before"]

_GONE = ("forgotten", "rejected")


@record
class Proposal:
    """A memory that a session holds, and what became of it."""

    status: Status
    file: str
    type: str
    text: str
    why: str
    how: str
    trust: Trust
    by: str
    """What gave it away."""
    source: str
    expires: str = ""
    change: str = ""
    """The change in the journal, which ``undo`` takes."""


@record
class Refused:
    """Something that is not kept, and why; its text is not repeated."""

    source: str
    why: str


@record
class Outcome:
    """What one session gave."""

    session: str
    messages: int
    """How many messages hold a person's words."""
    memories: list[Proposal] = field(default_factory=lambda: [])
    refused: list[Refused] = field(default_factory=lambda: [])


def is_imported(entries: Sequence[Entry]) -> bool:
    """Say whether another program recorded a session."""
    return any(entry.kind == META and entry.body.get("source") for entry in entries)


class Extraction:
    """Goes through sessions one after another; what one gave is known to the next."""

    def __init__(self, memory: Memory, *, instructions: Sequence[str] = (), dry_run: bool = False) -> None:
        self._memory = memory
        self._instructions = instructions
        self._dry_run = dry_run
        self._there: list[MemoryRecord] = [memory.get(head.file) for head in memory.list() if not head.problem]

    def look(
        self, session: str, entries: Sequence[Entry], *, imported: bool = True, most: int = MAX_CANDIDATES
    ) -> Outcome:
        """Find what a session holds, and save it unless this is a dry run; a second time nothing is new."""
        spoken = [entry for entry in entries if entry.kind == USER and own_words(entry)]
        foreign = {entry.uuid for entry in entries} if imported else set[str]()
        made = extract(entries, self._there, instructions=self._instructions, imported=foreign, most=most)
        outcome = Outcome(session, len(spoken))
        outcome.refused.extend(Refused(f"{session} {message}", why) for message, why in made.refused)
        for one in made.candidates:
            try:
                proposal = self._kept(one, f"{session} {one.message}")
            except (InputError, StorageConflict) as error:
                outcome.refused.append(Refused(f"{session} {one.message}", str(error)))
                continue
            outcome.memories.append(proposal)
            self._there.append(
                MemoryRecord(proposal.file, one.text, one.text, one.type, trust=one.trust, body=one.body)
            )
        return outcome

    def _kept(self, one: MemoryCandidate, source: str) -> Proposal:
        fields: dict[str, Any] = {
            "why": one.why,
            "how": one.how,
            "source": source,
            "author": FOR_USER if one.trust == "user" else AUTHOR,
            "trust": one.trust,
            "expires": one.expires or None,
        }
        there = one.updates and any(head.file == one.updates for head in self._memory.list())
        if there:
            saved = self._memory.update(one.updates, one.text, dry_run=self._dry_run, **fields)
        else:
            saved = self._memory.save(one.text, type=one.type, dry_run=True, **fields)
            if self._was_forgotten(saved.file):
                return _proposal("forgotten before", one, source, saved.file)
            if not self._dry_run:
                saved = self._memory.save(one.text, type=one.type, **fields)
        if self._dry_run:
            return _proposal("would update" if there else "would save", one, source, saved.file)
        done: Status = "updated" if there else "saved"
        return _proposal(done if saved.changed else "there already", one, source, saved.file, saved.id)

    def _was_forgotten(self, file: str) -> bool:
        """Say whether the user had this very memory and took it away: it is not brought back behind their back."""
        last = self._memory.log(file)[:1]
        return bool(last) and last[0].act in _GONE


def _proposal(status: Status, one: MemoryCandidate, source: str, file: str, change: str = "") -> Proposal:
    return Proposal(status, file, one.type, one.text, one.why, one.how, one.trust, one.by, source, one.expires, change)
