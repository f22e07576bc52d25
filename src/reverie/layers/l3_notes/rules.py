"""Read the rules of the user from a model's answer, and check each against the user's messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

from ...conversation.rules import Rule
from ...values import record
from .policy import NotesPolicy
from .prompts import fill_prompt, prompt_of

_FOUND: Final = re.compile(r"<rule(?:\s+replaces=\"([^\"\n]*)\")?\s*>(.*?)</rule>", re.DOTALL)
_ENDED: Final = re.compile(r"<rule_ended\s+id=\"([^\"\n]*)\"\s*>(.*?)</rule_ended>", re.DOTALL)
_LEAST_CHARS: Final = 4
_MOST_CHARS: Final = 600


@record
class FoundRule:
    """A sentence of the user that binds, its message, and the id of the rule that it replaces, if any."""

    text: str
    message: str
    replaces: str = ""


@record
class RuleChanges:
    """The changes of the rules in a model's answer that the user's messages confirm; others are only counted."""

    found: tuple[FoundRule, ...] = ()
    ended: tuple[str, ...] = ()
    refused: int = 0


def rules_prompt(rules: Sequence[Rule]) -> str:
    """Return the part of the prompt for notes that asks for the rules of the user."""
    listed = "\n".join(f"{rule.id}: {' '.join(rule.text.split())}" for rule in rules) or "(none)"
    return fill_prompt(prompt_of(NotesPolicy(), "rules"), {"rules": listed})


def rule_changes(
    answer: str,
    said: Sequence[tuple[str, str]],
    rules: Sequence[Rule],
    ended: Sequence[Rule],
    *,
    visible: Container[str],
) -> RuleChanges:
    """Return the changes in an answer that quote messages of the user, given as handles and texts.

    A rule ends, or is replaced, only by words of its own message or a later one. A rule that ended is not found again
    in the same message. A message that is not ``visible`` makes no new rule: a summary may quote it without the words
    that took it back.
    """
    order = {handle: at for at, (handle, _) in enumerate(said)}
    held = {rule.id: rule for rule in rules}
    found: list[FoundRule] = []
    over: list[str] = []
    refused = 0

    def ends(id: str, message: str) -> bool:
        return id in held and order[message] >= order.get(held[id].message, order.get(held[id].added_after, -2) + 1)

    for id, quote in _ENDED.findall(answer):
        text, message = _sourced(quote, said)
        if message and ends(id, message):
            over.append(id)
        else:
            refused += 1
    for replaced, quote in _FOUND.findall(answer):
        text, message = _sourced(quote, said)
        rule = Rule("", text, message)
        known = any(one.equals(rule) for one in (*rules, *ended)) or any(one.text == text for one in (*rules, *found))
        if not message:
            refused += 1
        elif not known and message in visible:
            found.append(FoundRule(text, message, replaced if ends(replaced, message) else ""))
    return RuleChanges(tuple(found), tuple(dict.fromkeys(over)), refused)


def _sourced(quote: str, said: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return a quote as the newest message with it has it, and the handle of that message; "" if none has it."""
    words = quote.split()
    if not _LEAST_CHARS <= len(" ".join(words)) <= _MOST_CHARS:
        return "", ""
    exact = re.compile(r"\s+".join(map(re.escape, words)))
    for handle, text in reversed(said):
        place = exact.search(text)
        if place is not None:
            return place.group(), handle
    return "", ""
