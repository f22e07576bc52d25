"""Save extracted memories through ``Memory``, each with its source and with a trust that the program computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....conversation.entries import Entry
from ....errors import InputError, StorageConflict
from ....layers.l5_extract import ExistingMemories, MemoryCandidate, MemoryProposal, Witnesses, extract
from ....memories.store.records import MemoryRecord, Scope
from ....values import field, record
from ..results import SavedMemory
from .tools import AUTHOR, FOR_USER

if TYPE_CHECKING:
    from ..memory import Memory

__all__ = ["CandidateWriter", "ExtractionRun"]


@record
class ExtractionRun:
    """The memories one run saved and refused, its method (``local`` or ``model``), and its usage."""

    by: str
    saved: list[SavedMemory] = field(default_factory=lambda: [])
    refused: list[str] = field(default_factory=lambda: [])
    usage: dict[str, Any] = field(default_factory=lambda: {})


class CandidateWriter:
    """Saves the extracted memories of one session; every method may block."""

    def __init__(self, memory: Memory, session: str) -> None:
        self._memory = memory
        self._session = session

    def save_found(
        self,
        entries: Sequence[Entry],
        before: Iterable[Entry],
        instructions: Sequence[str],
        most: int,
        imported: Collection[str] = (),
    ) -> ExtractionRun:
        """Run the local extractor over entries, save its candidates, and return the run.

        ``before`` are the earlier entries, newest first; ``most`` is the largest number of candidates; ``imported``
        are the uuids of entries that another program recorded.
        """
        made = extract(
            entries, self._heads(), instructions=instructions, heard_before=before, imported=imported, most=most
        )
        ran = ExtractionRun("local", refused=[why for _, why in made.refused])
        for one in made.candidates:
            try:
                saved = self._save(one)
            except (InputError, StorageConflict) as error:
                ran.refused.append(str(error))
                continue
            if saved.changed:
                ran.saved.append(saved)
        return ran

    def _heads(self) -> Iterator[MemoryRecord]:
        """Yield the existing memories; the directory is read only when the first one is requested."""
        yield from (head for head in self._memory.list() if head.is_in_use)

    def _save(self, one: MemoryCandidate) -> SavedMemory:
        """Save a candidate, as the user's own if a person said it, or update the memory it names."""
        fields: dict[str, Any] = {
            "why": one.why,
            "how": one.how,
            "source": f"{self._session} {one.message}",
            "author": FOR_USER if one.trust == "user" else AUTHOR,
            "trust": one.trust,
            "expires": one.expires or None,
        }
        if one.updates:
            return self._memory.update(one.updates, one.text, **fields)
        return self._memory.save(one.text, type=one.type, **fields)

    def save_answers(
        self,
        asked: Sequence[MemoryProposal],
        refused: Sequence[str],
        witnesses: Witnesses,
        heads: Sequence[MemoryRecord],
        saved: list[SavedMemory],
    ) -> ExtractionRun:
        """Save the memories of a model's answer and return the run.

        Each memory is added to ``saved`` at once, so a later failure keeps it.
        """
        ran = ExtractionRun("model", saved, list(refused))
        known = ExistingMemories(heads)
        files = {head.file for head in heads}
        for one in asked:
            try:
                made = self._save_answer(one, witnesses, known, files)
            except (InputError, StorageConflict) as error:
                ran.refused.append(str(error))
                continue
            if made is not None and made.changed:
                saved.append(made)
                files.add(made.file)
        return ran

    def _save_answer(
        self, one: MemoryProposal, witnesses: Witnesses, known: ExistingMemories, files: set[str]
    ) -> SavedMemory | None:
        """Save one memory of an answer with at most an agent's trust; return None if an equal memory exists."""
        whole = " ".join((one.name, one.description, one.text, one.why, one.how))
        trust = witnesses.trust(whole)
        messages = witnesses.messages_of(whole)
        fields: dict[str, Any] = {
            "why": one.why,
            "how": one.how,
            "source": [f"{self._session} {message}" for message in messages] or self._session,
            "author": AUTHOR,
            "trust": trust,
            "name": one.name or None,
            "description": one.description or None,
        }
        if one.updates:
            if one.updates not in files:
                raise InputError("an answer may only update a memory that exists")
            return self._memory.update(one.updates, one.text, type=one.type, **fields)
        near = known.place(one.type, one.text, trust)
        if near is None:
            return None
        known.add(one.type, one.text, file=near)
        return self._memory.save(one.text, type=one.type, scope=_scope(one), **fields)


def _scope(one: MemoryProposal) -> Scope | None:
    return "team" if one.scope == "team" else "private" if one.scope == "private" else None
