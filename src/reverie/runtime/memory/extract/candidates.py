"""What becomes of what was found: saved through the store, each with its source and a trust the program decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....conversation.entries import Entry
from ....errors import InputError, StorageConflict
from ....layers.l5_extract import ExistingMemories, MemoryCandidate, MemoryProposal, Witnesses, extract
from ....memories.store.records import MemoryRecord
from ....values import field, record
from ..results import Saved
from .tools import AUTHOR, FOR_USER

if TYPE_CHECKING:
    from ..memory import Memory

__all__ = ["Keeper", "Ran"]


@record
class Ran:
    """What one run wrote and what it refused, by whom (``local`` or ``model``), and what it used."""

    by: str
    saved: list[Saved] = field(default_factory=lambda: [])
    refused: list[str] = field(default_factory=lambda: [])
    usage: dict[str, Any] = field(default_factory=lambda: {})


class Keeper:
    """Saves for one session; every method may block."""

    def __init__(self, memory: Memory, session: str) -> None:
        self._memory = memory
        self._session = session

    def found(
        self,
        entries: Sequence[Entry],
        before: Sequence[Entry],
        instructions: Sequence[str],
        most: int,
        imported: Collection[str] = (),
    ) -> Ran:
        """Save what the local extractor finds in these entries; ``before`` are those that came earlier."""
        made = extract(
            entries, self._heads(), instructions=instructions, heard_before=before, imported=imported, most=most
        )
        ran = Ran("local", refused=[why for _, why in made.refused])
        for one in made.candidates:
            try:
                saved = self._kept(one)
            except (InputError, StorageConflict) as error:
                ran.refused.append(str(error))
                continue
            if saved.changed:
                ran.saved.append(saved)
        return ran

    def _heads(self) -> Iterator[MemoryRecord]:
        """Yield what is there; the directory is read when the first is wanted."""
        yield from self._memory.list()

    def _kept(self, one: MemoryCandidate) -> Saved:
        """Save what a person said, as theirs, or bring up to date what they said before."""
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

    def answered(
        self,
        asked: Sequence[MemoryProposal],
        refused: Sequence[str],
        witnesses: Witnesses,
        heads: Sequence[MemoryRecord],
        saved: list[Saved],
    ) -> Ran:
        """Save the memories of a model's answer; each is added to ``saved``, whatever becomes of the next."""
        ran = Ran("model", saved, list(refused))
        known = ExistingMemories(heads)
        files = {head.file for head in heads}
        for one in asked:
            try:
                made = self._written(one, witnesses, known, files)
            except (InputError, StorageConflict) as error:
                ran.refused.append(str(error))
                continue
            if made is not None and made.changed:
                saved.append(made)
                files.add(made.file)
        return ran

    def _written(
        self, one: MemoryProposal, witnesses: Witnesses, known: ExistingMemories, files: set[str]
    ) -> Saved | None:
        """Save one memory of an answer, as an agent's word at best; what is there already is not saved again."""
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
                raise InputError("an answer may change only memories that are there")
            return self._memory.update(one.updates, one.text, type=one.type, **fields)
        near = known.place(one.type, one.text, trust)
        if near is None:
            return None
        known.add(one.type, one.text, file=near)
        return self._memory.save(one.text, type=one.type, **fields)
