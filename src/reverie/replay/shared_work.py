"""Work on the messages of a recording that is the same under every policy, and so is done once."""

from __future__ import annotations

from collections import Counter
from typing import cast

from ..cache.simulator import SimBlock
from ..conversation.authorship import Utterance
from ..conversation.entries import DECISION, Entry, Message
from ..conversation.identifiers import Identifier
from ..conversation.view import View
from ..layers.l3_notes import mined_utterances
from ..layers.l4_compact import CompactionText, SummaryBudget


class SharedWork:
    """Views that policies have in common; messages by identity, with blocks and checks; names in entries; summaries."""

    def __init__(self) -> None:
        self._known: dict[int, Message] = {}
        self._first: dict[tuple[int | str, ...], Message] = {}
        self._alive: list[Message] = []
        self.start = View()
        """The view before the first entry."""
        self._common = {id(self.start): self.start}
        self._folded: dict[tuple[int, str, int | str], View] = {}
        self._names: dict[str, list[tuple[Utterance, Counter[Identifier]]]] = {}
        self.summaries: dict[tuple[str, SummaryBudget, tuple[str, ...]], CompactionText] = {}
        """Summaries by the last message, their budget, and the messages that stay in view."""
        self.blocks: dict[int, tuple[Message, list[SimBlock]]] = {}
        """The blocks of each message, by the identity of the message, which is kept alive."""
        self.accepted: set[tuple[int, int]] = set()
        """The pairs of messages, by identity, that a request may have one after the other."""

    def __reduce__(self) -> tuple[type[SharedWork], tuple[()]]:
        """Leave all of it out of a copy in another process, where the messages are other objects."""
        return SharedWork, ()

    def fold(self, view: View, entry: Entry, about: int | str) -> View:
        """Return a view after an entry; policies that decided the same so far get the same object.

        ``about`` tells entries of one uuid apart: the billed tokens, which is all that a view takes from the simulated
        usage of a reply, or the text of a decision.
        """
        if id(view) not in self._common:
            return view.fold(entry)
        key = (id(view), entry.uuid, about)
        if key not in self._folded:
            after = self._folded[key] = view.fold(entry)
            self._common[id(after)] = after
        return self._folded[key]

    def messages(self, messages: list[Message]) -> list[Message]:
        """Return these messages; one with the same blocks as an earlier one is that earlier object."""
        known = self._known
        for message in messages:
            if id(message) not in known:
                self._alive.append(message)
                content = message["content"]
                blocks = cast("list[object]", content) if isinstance(content, list) else [message]
                key = (message["role"], *map(id, blocks))
                known[id(message)] = self._first.setdefault(key, message)
        return [known[id(message)] for message in messages]

    def utterances(self, entry: Entry) -> list[tuple[Utterance, Counter[Identifier]]]:
        """Return the utterances of an entry with the names in each."""
        if entry.kind == DECISION:  # each policy has its own
            return mined_utterances(entry)
        if entry.uuid not in self._names:
            self._names[entry.uuid] = mined_utterances(entry)
        return self._names[entry.uuid]
