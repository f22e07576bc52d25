"""Extract memories from recorded sessions without a model, and report or save them.

The author of a recording controls the user's words in it. So memories from a recording stay unconfirmed, unless the
caller says that the session is the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from ....conversation.entries import Entry
from ....errors import InputError, StorageConflict
from ....layers.l5_extract import Embed, PastSayings, extract, sayings_of
from ....memories.store.records import MemoryRecord
from ....memories.store.trust import Trust
from ....values import field, record
from .candidates import known_memories, save_candidate

if TYPE_CHECKING:
    from ..memory import Memory

ProposalStatus: TypeAlias = Literal["would save", "saved"]


@record
class Proposal:
    """A memory extracted from sessions, and its status."""

    status: ProposalStatus
    file: str
    type: str
    text: str
    why: str
    """The quotes that led to it."""
    how: str
    trust: Trust
    source: tuple[str, ...]
    """The session and message of each quote, oldest first."""
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
    """The number of messages that a person typed."""
    memories: list[Proposal] = field(default_factory=lambda: [])
    refused: list[RefusedCandidate] = field(default_factory=lambda: [])


class Extraction:
    """Extracts memories from several sessions, each compared with those before it."""

    def __init__(
        self,
        memory: Memory,
        *,
        trust: Trust = "unconfirmed",
        embed: Embed | None = None,
        dry_run: bool = False,
    ) -> None:
        """Save memories with this trust unless this is a dry run."""
        self._memory = memory
        self._dry_run = dry_run
        self._trust: Trust = trust
        self._past = PastSayings(embed=embed)
        self._known: list[MemoryRecord] | None = None

    def look(self, session: str, entries: Sequence[Entry]) -> ExtractionOutcome:
        """Extract memories from a session, save them unless this is a dry run, and return the outcome.

        Repeating it changes nothing.
        """
        if self._known is None:
            self._known = list(known_memories(self._memory))
        said = list(sayings_of(session, entries))
        made = extract(session, entries, self._past, self._known, trust=self._trust)
        self._past.add(said)
        outcome = ExtractionOutcome(session, len(said))
        outcome.refused.extend(RefusedCandidate(f"{session} {message}", why) for message, why in made.refused)
        for one in made.candidates:
            try:
                saved = save_candidate(self._memory, one, dry_run=self._dry_run)
            except (InputError, StorageConflict) as error:
                outcome.refused.append(RefusedCandidate(one.sources[-1], str(error)))
                continue
            status: ProposalStatus = "would save" if self._dry_run else "saved"
            parts = (one.type, one.text, one.why, one.how, one.trust, one.sources, saved.id)
            outcome.memories.append(Proposal(status, saved.file, *parts))
            self._known.append(MemoryRecord(saved.file, one.text, one.text, one.type, trust=one.trust, body=one.body))
        return outcome
