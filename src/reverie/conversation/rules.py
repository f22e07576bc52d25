"""Rules of the user: sentences that bind for the rest of a session, as items of its standing context. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ..values import record

if TYPE_CHECKING:
    from .causes import SaidItem
    from .standing_context import StandingRow


_KEY: Final = "rule:"
_SAID: Final = "Rule of the user, unless a later message of theirs took it back (message {}):"
_ADDED: Final = "Rule of the user, until they drop it{}:"
_AFTER: Final = " (set after message {})"
_MESSAGE: Final = re.compile(r"\ARule of the user, [^(]+ \((set after )?message (\S+)\):\Z")
_NAME: Final = re.compile(r"\Athe user's rule \S+ \((.*?): “(.*?)(…?)”\)\Z", re.DOTALL)
_NAMED_CHARS: Final = 60
_HANDLE_CHARS: Final = 13


@record
class Rule:
    """A sentence of the user that binds for the rest of the session, and the message that it comes from."""

    id: str
    text: str
    message: str = ""
    """The uuid of the message; empty for a rule that the user added by a command."""
    added_after: str = ""
    """The uuid of the user's last message before they added the rule by a command."""

    @property
    def key(self) -> str:
        """The key of the rule in the standing context."""
        return f"{_KEY}{self.id}"

    @property
    def name(self) -> str:
        """The rule in a sentence, short."""
        source = f"message {self.message[:_HANDLE_CHARS]}" if self.message else "set by hand"
        return f"the user's rule {self.id} ({source}: “{self.opening}”)"

    @property
    def opening(self) -> str:
        """The first words of the rule."""
        return self.text if len(self.text) <= _NAMED_CHARS else f"{self.text[: _NAMED_CHARS - 1]}…"

    @property
    def value(self) -> str:
        """The text that the model reads."""
        added = _ADDED.format(_AFTER.format(self.added_after) if self.added_after else "")
        return f"{_SAID.format(self.message) if self.message else added}\n{self.text}"

    def equals(self, other: Rule) -> bool:
        """Say whether both are the same sentence of the same message."""
        return (self.opening, self.message[:_HANDLE_CHARS]) == (other.opening, other.message[:_HANDLE_CHARS])


def rules_in(standing: Mapping[str, StandingRow]) -> list[Rule]:
    """Return the rules that hold, oldest first."""
    held = (standing[key].item for key in standing if key.startswith(_KEY))
    return sorted(rules_said(held), key=lambda rule: int(rule.id) if rule.id.isdigit() else 0)


def rules_said(items: Iterable[SaidItem]) -> list[Rule]:
    """Return the rules that these sayings have, without those that end."""
    return [_rule(one.key, one.value) for one in items if one.key.startswith(_KEY) and one.state != "ended"]


def ended_rules(standing: Mapping[str, StandingRow]) -> list[Rule]:
    """Return the rules that no longer hold; of a long one the text has only the first words."""
    found: list[Rule] = []
    for key, row in standing.items():
        named = _NAME.match(row.item.name) if key.startswith(_KEY) and row.item.state == "ended" else None
        if named is not None:
            message = named[1].removeprefix("message ") if named[1] != "set by hand" else ""
            found.append(Rule(key.removeprefix(_KEY), named[2] + named[3], message))
    return found


def next_rule_id(standing: Mapping[str, StandingRow]) -> str:
    """Return an id that no rule of the session has had."""
    used = [key.removeprefix(_KEY) for key in standing if key.startswith(_KEY)]
    return str(max((int(one) for one in used if one.isdigit()), default=0) + 1)


def _rule(key: str, value: str) -> Rule:
    lead, _, text = value.partition("\n")
    said = _MESSAGE.match(lead)
    message, is_added = (said[2], bool(said[1])) if said else ("", False)
    return Rule(key.removeprefix(_KEY), text, "" if is_added else message, message if is_added else "")
