"""Save extracted memories through ``Memory``, each with its source and with a trust that the program computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....conversation.entries import Entry
from ....errors import InputError, StorageConflict
from ....layers.l5_extract import ExistingMemories, MemoryCandidate, MemoryProposal, PastSayings, Witnesses, extract
from ....memories.rules.taxonomy import log_text
from ....memories.store.records import MemoryRecord, Scope, front_matter
from ....memories.store.trust import Trust
from ....values import field, record
from ..results import SavedMemory
from .tools import AUTHOR, FOR_USER

if TYPE_CHECKING:
    from ..memory import Memory


@record
class ExtractionRun:
    """The memories one run saved and refused, its method (``local`` or ``model``), and its usage."""

    by: str
    saved: list[SavedMemory] = field(default_factory=lambda: [])
    refused: list[str] = field(default_factory=lambda: [])
    usage: dict[str, Any] = field(default_factory=lambda: {})


def known_memories(memory: Memory) -> Iterator[MemoryRecord]:
    """Yield the memories that exist, then the removed ones, since a deleted memory must not return."""
    for head in (one for one in memory.list() if one.is_in_use):
        if not head.problem:
            yield memory.get(head.file)
    changes = [change for entry in memory.log() for change in entry.changes]
    texts = {change.after: change.text for change in changes if change.after and change.text}
    for change in changes:
        text = texts.get(change.before or "") if change.after is None else None
        if text:
            with suppress(InputError):
                yield MemoryRecord(change.file, change.file, body=front_matter(text).body)


def save_candidate(memory: Memory, one: MemoryCandidate, *, dry_run: bool = False) -> SavedMemory:
    """Save a candidate of the local extractor, as the user's own if the user vouches for it."""
    author = FOR_USER if one.trust == "user" else AUTHOR
    fields: dict[str, Any] = {"why": one.why, "how": one.how, "source": one.sources, "author": author}
    return memory.save(one.text, type=one.type, trust=one.trust, dry_run=dry_run, **fields)


class CandidateWriter:
    """Saves the extracted memories of one session; every method may block."""

    def __init__(self, memory: Memory, session: str, *, daily_logs: bool = False) -> None:
        """Save memories, or append them to the daily log with ``daily_logs``."""
        self._memory = memory
        self._session = session
        self._daily_logs = daily_logs

    def save_found(
        self, entries: Sequence[Entry], past: PastSayings, instructions: Sequence[str], most: int
    ) -> ExtractionRun:
        """Save the wishes in these entries that earlier sessions have too, at most ``most``, and return the run."""
        existing = known_memories(self._memory)
        made = extract(self._session, entries, past, existing, instructions=instructions, most=most)
        ran = ExtractionRun("local", refused=[why for _, why in made.refused])
        for one in made.candidates:
            try:
                saved = self._logged(one, one.trust) if self._daily_logs else save_candidate(self._memory, one)
            except (InputError, StorageConflict) as error:
                ran.refused.append(str(error))
                continue
            if saved.changed or self._daily_logs:
                ran.saved.append(saved)
        return ran

    def _logged(self, one: MemoryCandidate | MemoryProposal, trust: Trust) -> SavedMemory:
        """Append a memory to the daily log, from which a dream makes memories."""
        text = log_text(one.text, one.type, one.why)
        path = self._memory.append_daily(text, source=self._session, trust=trust)
        return SavedMemory(path.relative_to(self._memory.path).as_posix(), path.stem, path, trust=trust)

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
            if made is not None and (made.changed or self._daily_logs):
                saved.append(made)
                files.add(made.file)
        return ran

    def _save_answer(
        self, one: MemoryProposal, witnesses: Witnesses, known: ExistingMemories, files: set[str]
    ) -> SavedMemory | None:
        """Save one memory of an answer with at most an agent's trust; return None if an equal memory exists."""
        whole = " ".join((one.name, one.description, one.text, one.why, one.how))
        trust = witnesses.trust(whole)
        if self._daily_logs:
            return self._logged(one, trust) if known.place(one.type, one.text, trust) is not None else None
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
    """Return the scope that a model asked for; a memory about the user is always private."""
    if one.type == "user" or one.scope not in ("private", "team"):
        return None
    return one.scope
