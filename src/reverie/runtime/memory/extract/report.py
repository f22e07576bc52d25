"""Extract memories from recorded sessions without a model, and report or save them.

The author of a recording controls the user's words in it. So memories from a recording stay unconfirmed, unless the
caller says that the session is the user's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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

__all__ = ["Extraction", "ExtractionOutcome", "Proposal", "ProposalStatus", "RefusedCandidate", "imported_entries"]

ProposalStatus: TypeAlias = Literal[
    "would save", "would update", "saved", "updated", "there already", "forgotten before"
]

_GONE = ("forgotten", "rejected")


@record
class Proposal:
    """A memory extracted from a session, and its status."""

    status: ProposalStatus
    file: str
    type: str
    text: str
    why: str
    how: str
    trust: Trust
    by: str
    """The signal that led to the extraction."""
    source: str
    expires: str = ""
    change: str = ""
    """The id of the change in the journal, for ``undo``."""


@record
class RefusedCandidate:
    """A candidate that is not saved, with the reason but without its text."""

    source: str
    why: str


@record
class ExtractionOutcome:
    """The memories extracted from one session, and the refused candidates."""

    session: str
    messages: int
    """The number of messages with a person's own words."""
    memories: list[Proposal] = field(default_factory=lambda: [])
    refused: list[RefusedCandidate] = field(default_factory=lambda: [])


def imported_entries(entries: Sequence[Entry]) -> frozenset[str]:
    """Return the uuids of the entries that were recorded elsewhere: those with the mark of the importing side.

    In a log without marks, these are all entries if its metadata name another program.
    """
    marked = frozenset(entry.uuid for entry in entries if entry.imported)
    if marked or not any(entry.kind == META and entry.body.get("source") for entry in entries):
        return marked
    return frozenset(entry.uuid for entry in entries)


class Extraction:
    """Extracts memories from several sessions; memories of earlier sessions count as existing for later ones."""

    def __init__(self, memory: Memory, *, instructions: Sequence[str] = (), dry_run: bool = False) -> None:
        self._memory = memory
        self._instructions = instructions
        self._dry_run = dry_run
        self._there: list[MemoryRecord] = [memory.get(head.file) for head in memory.list() if not head.problem]

    def look(
        self,
        session: str,
        entries: Sequence[Entry],
        *,
        imported: Collection[str] | None = None,
        most: int = MAX_CANDIDATES,
    ) -> ExtractionOutcome:
        """Extract memories from a session, save them unless this is a dry run, and return the outcome.

        Repeating it changes nothing. ``imported`` are the uuids of entries recorded elsewhere, which lowers the trust;
        None means all.
        """
        spoken = [entry for entry in entries if entry.kind == USER and own_words(entry)]
        foreign = {entry.uuid for entry in entries} if imported is None else imported
        made = extract(entries, self._there, instructions=self._instructions, imported=foreign, most=most)
        outcome = ExtractionOutcome(session, len(spoken))
        outcome.refused.extend(RefusedCandidate(f"{session} {message}", why) for message, why in made.refused)
        for one in made.candidates:
            try:
                proposal = self._save(one, f"{session} {one.message}")
            except (InputError, StorageConflict) as error:
                outcome.refused.append(RefusedCandidate(f"{session} {one.message}", str(error)))
                continue
            outcome.memories.append(proposal)
            self._there.append(
                MemoryRecord(proposal.file, one.text, one.text, one.type, trust=one.trust, body=one.body)
            )
        return outcome

    def _save(self, one: MemoryCandidate, source: str) -> Proposal:
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
        done: ProposalStatus = "updated" if there else "saved"
        return _proposal(done if saved.changed else "there already", one, source, saved.file, saved.id)

    def _was_forgotten(self, file: str) -> bool:
        """Return whether the user deleted or rejected this memory, so that it is not saved again."""
        last = self._memory.log(file)[:1]
        return bool(last) and last[0].act in _GONE


def _proposal(status: ProposalStatus, one: MemoryCandidate, source: str, file: str, change: str = "") -> Proposal:
    return Proposal(status, file, one.type, one.text, one.why, one.how, one.trust, one.by, source, one.expires, change)
