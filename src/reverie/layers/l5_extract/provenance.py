"""Determine the trust of a text that a model wrote, by where its words occur in the conversation. Pure.

A model reads everything, tool output too, and may repeat instructions in it, in other words or another language. So its
text gets agent trust only if its words come from the user, or from the agent before it had read any untrusted text;
otherwise it waits for the user's confirmation. It never gets user trust.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...conversation.authorship import strings_of, text_of, utterances
from ...conversation.decisions import ContextSaid, MemoriesSurfaced, MessageQueued, decision_of
from ...conversation.entries import ATTACHMENT, DECISION, USER, Entry
from ...conversation.reads import HistoryReader
from ...conversation.view import View
from ...memories.recall.terms import tokens, without_noise
from ...memories.store.trust import Trust

_OWN_SHARE: Final = 0.6
_FOREIGN_SHARE: Final = 0.25
_SPECIFIC: Final = re.compile(
    r"https?://\S+|\b[\w.-]+\.(?:com|org|net|io|dev|sh|ru|cn|xyz|app|co|ai|example|internal)\b\S*"
    r"|[\w.+-]+@[\w-]+\.\w+"
    r"|(?<![\w/])/(?:[\w.-]+/)+[\w.-]+|`[^`\n]{3,}`|\b(?:curl|wget|sudo|rm|chmod|eval|base64|ssh|npx"
    r"|pip install|npm i(?:nstall)?)\b",
    re.IGNORECASE,
)
_OWN_ATTACHMENTS: Final = frozenset({"continue", "interrupted"})
_OUTSIDE_SOURCES: Final = frozenset({"hooks", "mcp"})
_UNCONFIRMED: Final = 'trust="unconfirmed ('
"""The beginning of the label of an unconfirmed memory in its fence."""
_TEXT_CHARS: Final = 200_000
"""The most characters indexed per text; a memory that repeats later words is not trusted."""


class Witnesses:
    """The words of a conversation by source (the user, the agent, untrusted text), to judge a model's text."""

    def __init__(self, entries: Iterable[Entry] = (), *, imported_upto: str = "") -> None:
        """Index these entries; imported ones, and those up to ``imported_upto``, are untrusted."""
        self.user: set[str] = set()
        self.agent: set[str] = set()
        self.foreign: set[str] = set()
        self._user_text: list[str] = []
        self._messages: list[tuple[str, frozenset[str]]] = []
        self._reader = HistoryReader()
        self._imported_upto = imported_upto
        for entry in entries:
            self._hear(entry)

    def follow(self, view: View) -> bool:
        """Index the entries that the view gained and return True; return False if it is another conversation."""
        if not self._reader.continues(view):
            return False
        for item in self._reader.items(view):
            self._hear(item.entry)
        return True

    def _hear(self, entry: Entry) -> None:
        words: set[str] = set()
        for text in _outside_texts(entry):
            words |= self.distrust(text)
        for one in utterances(entry):
            found = set(without_noise(tokens(one.text[:_TEXT_CHARS])))
            if entry.imported or self._imported_upto or one.kind in ("result", "refused"):
                self.foreign |= found
            elif one.kind == "said":
                self.user |= found
                self._user_text.append(one.text.casefold())
            elif one.kind == "told" and not self.foreign:  # later words may translate or encode untrusted text
                self.agent |= found
            if entry.kind == USER:
                words |= found
        if words:
            self._messages.append((entry.uuid, frozenset(words)))
        if entry.uuid == self._imported_upto:
            self._imported_upto = ""

    def trust_text(self, text: str) -> None:
        """Add the words of a text, such as a trusted memory, to the agent's words."""
        self.agent |= set(without_noise(tokens(text)))

    def distrust(self, text: str) -> set[str]:
        """Add the words of a text to the untrusted words, and return them."""
        words = set(without_noise(tokens(text[:_TEXT_CHARS])))
        self.foreign |= words
        return words

    def trust(self, text: str) -> Trust:
        """Return the trust of a model's text, ``agent`` or ``unconfirmed``, by the sources of its words.

        It is unconfirmed if too many words are untrusted, or an address, path or command is not the user's.
        """
        if not self.foreign:
            return "agent"
        words = set(without_noise(tokens(text)))
        if not words:
            return "unconfirmed"
        own = words & self.user
        told = (words & self.agent) - self.foreign - own
        foreign = (words & self.foreign) - own
        if len(foreign) > _FOREIGN_SHARE * len(words) or len(own) + len(told) < _OWN_SHARE * len(words):
            return "unconfirmed"
        return "unconfirmed" if any(self._is_foreign(one) for one in is_specific(text)) else "agent"

    def _is_foreign(self, exact: str) -> bool:
        """Say whether an exact name never occurs in the user's words."""
        return not any(exact in said for said in self._user_text)

    def messages_of(self, text: str, most: int = 3) -> Sequence[str]:
        """Return the uuids of at most ``most`` user messages or attachments that share most words with a text."""
        words = set(without_noise(tokens(text)))
        scored = [(len(words & heard_words), at) for at, (_, heard_words) in enumerate(self._messages)]
        best = sorted((one for one in scored if one[0]), key=lambda one: (-one[0], -one[1]))[:most]
        return [self._messages[at][0] for at in sorted(at for _, at in best)]


def _outside_texts(entry: Entry) -> Iterator[str]:
    """Yield the untrusted texts that an entry of the program itself shows to the model.

    These are attachments, letters, the output of hooks, instructions of MCP servers, and unconfirmed memories.
    """
    if entry.kind == ATTACHMENT and (entry.imported or entry.body.get("type") not in _OWN_ATTACHMENTS):
        yield text_of(entry.message or entry.body)
    if entry.kind != DECISION:
        return
    if entry.imported:  # a recording chooses the sources that its decisions name
        yield from strings_of(entry.body)
        return
    decision = decision_of(entry.body)
    if isinstance(decision, MessageQueued):
        yield decision.text
    elif isinstance(decision, ContextSaid | MemoriesSurfaced):
        shown = [(item.source, item.text) for item in decision.items]
        shown += [("", decision.text)] if isinstance(decision, MemoriesSurfaced) and not shown else []
        yield from (text for source, text in shown if source in _OUTSIDE_SOURCES or _UNCONFIRMED in text)


def is_specific(text: str) -> list[str]:
    """Return a list of the exact names in a text that could do harm: addresses, paths and commands, lower-case."""
    return [found.group().casefold().strip("`.,;:)") for found in _SPECIFIC.finditer(text)]
