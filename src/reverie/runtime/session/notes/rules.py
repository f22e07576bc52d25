"""The rules of the user in a session: found by the model that takes notes, added and dropped by people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from ....conversation.decisions import Cause, CursorMoved, SaidItem
from ....conversation.rules import Rule, ended_rules, next_rule_id, rules_in, rules_said
from ....conversation.standing_context import RULES
from ....conversation.wire.request import awaits_provider
from ....errors import InputError
from ....events import FellBack
from ....layers.l3_notes import rule_changes, rules_prompt
from ....layers.l4_compact import UserMessages
from ....text.counts import counted
from ....values import replace
from ..host import SessionHost
from ..standing_context import StandingContext

_LAYER: Final = "notes"
_MOST_CHARS: Final = 2_000
_LATER: Final = (
    "Later words of the user, not yet compared with the rules above: where they take a rule back or disagree with it, "
    "the words hold and the rule does not."
)


class RuleKeeper:
    """Keeps the rules of one session in its standing context."""

    def __init__(self, session: SessionHost, standing: StandingContext) -> None:
        self._session = session
        self._standing = standing
        self._messages = UserMessages()
        standing.later_words = self.later_words

    @property
    def rules(self) -> list[Rule]:
        """The rules that hold, oldest first."""
        return rules_in(self._session.log.view.facts.standing)

    @property
    def newest(self) -> str:
        """The uuid of the user's newest message; empty if there is none."""
        spoken = self._messages.follow(self._session.log.view)
        return spoken[-1].handle if spoken else ""

    @property
    def prompt(self) -> str:
        """The part of the prompt for notes that asks for rules."""
        return rules_prompt(self.rules)

    async def add(self, text: str) -> Rule:
        """Add a rule in the user's words; raise ``InputError`` if it is empty or too long."""
        words = text.strip()
        if not words or len(words) > _MOST_CHARS:
            raise InputError(f"a rule has 1 to {_MOST_CHARS:,} characters: say it in a sentence")
        rule = next((one for one in self.rules if one.text == words), None)
        return rule if rule is not None else await self._add(Rule("", words, added_after=self.newest))

    async def drop(self, id: str) -> Rule:
        """End a rule and say so to the model; raise ``InputError`` if there is no such rule."""
        rule = self.named(id)
        await self._standing.remove(rule.key)
        return rule

    def named(self, id: str) -> Rule:
        """Return the rule with an id; raise ``InputError`` if there is none."""
        rule = next((one for one in self.rules if one.id == id), None)
        if rule is None:
            listed = ", ".join(one.id for one in self.rules) or "none"
            raise InputError(f"there is no rule {id!r}: the session's rules are {listed}")
        return rule

    async def learn(self, answer: str, seen: str) -> None:
        """Apply the changes of a model's answer that the user's messages confirm.

        ``seen`` is the newest message of the user that the model read; words after it are said with the rules.
        """
        view = self._session.log.view
        if awaits_provider(view):
            return  # nothing may be said now; the next notes ask again
        spoken = self._messages.follow(view)
        said = [(one.handle, one.text) for one in spoken]
        shown = {item.uuid for item in view.items_in_view()}
        visible = {one.handle for one in takewhile(lambda one: one.handle in shown, reversed(spoken))}
        changes = rule_changes(answer, said, self.rules, ended_rules(view.facts.standing), visible=visible)
        over = {one: self.named(one) for one in (*changes.ended, *(new.replaces for new in changes.found)) if one}
        for rule in over.values():
            await self._standing.remove(rule.key)
        if seen != view.facts.cursors.get(RULES) and (changes.found or self.rules or view.facts.rules_unchecked):
            await self._session.log.decide(CursorMoved(Cause(_LAYER, "rules compared"), RULES, seen))
        for new in changes.found:
            await self._add(Rule("", new.text, new.message))
        if changes.refused:
            why = f"left out {counted(changes.refused, 'change')} of rules that no later words of the user say"
            self._session.log.emit(FellBack(self._session.log.name, "rules", why))

    def later_words(self, said: Sequence[SaidItem], tokens: int) -> str:
        """Return the words of the user after every rule in these sayings that no notes have compared with them."""
        view, rules = self._session.log.view, rules_said(said)
        compared, messages = view.facts.cursors.get(RULES, ""), [rule.message or rule.added_after for rule in rules]
        words = self._messages.text_after(view, compared, messages, tokens=tokens) if rules else ""
        return f"{_LATER}\n\n{words}" if words else ""

    async def _add(self, found: Rule) -> Rule:
        rule = replace(found, id=next_rule_id(self._session.log.view.facts.standing))
        await self._standing.set(rule.key, rule.value, name=rule.name, source=RULES, budget=RULES)
        return rule
