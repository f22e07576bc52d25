"""Choose the sentences of the user that a summary quotes: those that bind, with a later one about the same thing.

Nothing here understands that a sentence takes another one back. So a sentence that a later one touches is never quoted
without it and names it, and short messages that do not only ask are quoted too: one may change any older sentence. All
are in the order of their messages.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from ...conversation.tokens.estimate import estimate_text
from ...text.directives import binding_passages, is_question, typed_sentences
from ...text.later_sentences import LaterSentences, terms_of
from ...values import record

LEAST_SCORE = 1.0
"""A sentence with a lower score is not quoted by itself."""
_LINE_TOKENS: Final = 3  # tokens around a sentence
_LABEL_TOKENS: Final = 12  # tokens of the name of a later one
_REMARK_SHARE: Final = 0.2  # of the room, for short messages that may take an older sentence back
_MOST_LATER: Final = 2
_START_CHARS: Final = 24


@record
class Sentence:
    """A sentence of a message, and how likely it binds later work."""

    score: float
    text: str
    tokens: int
    """The estimated tokens of its line."""
    is_question: bool
    is_remark: bool
    """Whether this is a short message that tells something and does not only ask."""
    terms: tuple[str, ...]
    """The words by which it is compared with later ones."""


def sentences_of(message: str) -> tuple[Sentence, ...]:
    """Return the sentences of a message."""
    passages = binding_passages(message)
    is_all = len(passages) == 1 and passages[0][1] == message.strip()
    return tuple(
        Sentence(
            score,
            text,
            estimate_text(text) + _LINE_TOKENS,
            is_question(text),
            is_all and score > 0 and not all(map(is_question, typed_sentences(text))),
            terms_of(text),
        )
        for score, text in passages
    )


@record
class QuotedSentence:
    """A sentence to quote, and the start of a later one about the same thing, if there is one."""

    text: str
    later: str = ""


class SentenceRanking:
    """All sentences of the user, by how likely they bind later work; of equals the oldest comes first."""

    def __init__(self, messages: Iterable[Iterable[Sentence]], ended: Sequence[str] = ()) -> None:
        """Rank the sentences of these messages; ``ended`` are the first words of rules that no longer hold."""
        found: dict[str, tuple[int, Sentence]] = {}
        for at, message in enumerate(messages):
            for sentence in message:
                found.pop(sentence.text, None)  # the user repeats it, perhaps after taking it back
                found[sentence.text] = at, sentence
        self._messages = [at for at, _ in found.values()]
        self._every = [sentence for _, sentence in found.values()]
        ranked = sorted(range(len(self._every)), key=lambda at: -self._every[at].score)
        ranked = [at for at in ranked if not any(words in self._every[at].text for words in ended)]
        self._binding = [at for at in ranked if self._every[at].score >= LEAST_SCORE]
        self._remarks = [at for at in ranked if self._every[at].is_remark]
        later = LaterSentences([one.is_question for one in self._every], [one.terms for one in self._every])
        pairs = ((at, later.than(at)) for at in self._binding)
        self._later = {at: other for at, other in pairs if other is not None}
        wanted = {*self._binding, *self._later.values(), *self._remarks}
        self._costs = {at: self._every[at].tokens + (_LABEL_TOKENS if at in self._later else 0) for at in wanted}

    @property
    def tokens(self) -> int:
        """The tokens of all sentences that may be quoted."""
        return sum(self._costs.values())

    def chosen(self, reserve: int, more: int, quoted: Container[int], texts: Sequence[str]) -> list[QuotedSentence]:
        """Return the sentences that fit the tokens of the reserve, and those that bind also more, oldest first.

        Those of messages that are ``quoted``, and those in these texts, are left out, because they follow anyway.
        """
        is_quoted = [
            at in quoted or any(one.text in text for text in texts)
            for at, one in zip(self._messages, self._every, strict=True)
        ]
        remarks = sum(self._costs[at] for at in self._remarks)
        room = left = reserve + more - min(remarks, int((reserve + more) * _REMARK_SHARE))
        taken: set[int] = set()
        for at in self._binding:
            chain = [one for one in self._chain(at) if one not in taken and not is_quoted[one]]
            cost = sum(self._costs[one] for one in chain)
            if not is_quoted[at] and cost <= left:
                left -= cost
                taken.update(chain)
        spare = max(int(reserve * _REMARK_SHARE), reserve - (room - left))
        first = min(taken, default=len(self._every))
        for at in self._remarks:
            if at > first and at not in taken and not is_quoted[at] and self._costs[at] <= spare:
                spare -= self._costs[at]
                taken.add(at)
        return [QuotedSentence(self._every[at].text, self._start_of_later(at)) for at in sorted(taken)]

    def _chain(self, at: int) -> list[int]:
        """Return a sentence and the later ones about the same thing."""
        chain = [at]
        while (later := self._later.get(chain[-1])) is not None and len(chain) <= _MOST_LATER:
            chain.append(later)
        return chain

    def _start_of_later(self, at: int) -> str:
        """Return the first words of the later sentence about the same thing; empty if there is none."""
        text = self._every[self._later[at]].text if at in self._later else ""
        return text if len(text) <= _START_CHARS else text[:_START_CHARS].rstrip() + "…"
