"""The standing context of a session: say each item once, and again after every cut that removed it.

Sources give the items that hold now; which items were said, and which of them a cut removed, is folded from the log,
so that a resumed session needs nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from ...arguments import check_text
from ...conversation.decisions import Cause, ContextSaid, SaidItem
from ...conversation.entries import Entry, clean
from ...conversation.standing_context import (
    AGAIN,
    RULES,
    USER_CONTEXT,
    BudgetLimit,
    StandingItem,
    StandingRow,
    digest_of,
    items_to_say,
)
from ...conversation.view import View
from ...conversation.wire.request import awaits_provider
from ...errors import InputError
from ...values import replace
from ..guard.hooks import Hooks
from .forks import forking
from .host import SessionHost

LAYER: Final = "context"
NOTE: Final = "note"
"""The source of items whose value has no other place than the log."""
_HOOKS: Final = "hooks:session_start"
_FENCE_TAG: Final = re.compile(r"(</?hook-)[0-9a-f]+")
_OLDER: Final = "The context that opened the session is older: where it differs from this, this holds."
_PADDING: Final = 0.75  # counts are padded until the next reply reports
_LEAST_SHARE: Final = 0.02  # the blocking limit leaves as much
_AFTER_CUT_SHARE: Final = 0.12
_LEAST_TOKENS: Final = 2_000
_RULES_TOKENS: Final = 2_000
_RULES_SHARE: Final = 0.04


class ContextSource:
    """A source of standing items; a subclass gives them."""

    name = ""
    """The name that its items have as their ``source``."""
    only_after_cuts = False
    """Whether it is asked only after a cut, so that its items never change or end without one."""

    async def items(self, view: View) -> Sequence[StandingItem]:
        """Return the items that hold now."""
        raise NotImplementedError

    def reload(self) -> None:
        """Read files again when the items are asked for next; nothing for a source that reads none."""


class FilesSource(ContextSource):
    """A source that reads files at the start of a query and after a cut, not for every request."""

    def __init__(self) -> None:
        self._is_due = True
        self._cuts: int = -1

    def reload(self) -> None:
        """Read the files again when the items are asked for next."""
        self._is_due = True

    def takes_files(self, view: View) -> bool:
        """Return whether the files have to be read for this view: once after ``reload``, and once after a cut."""
        is_due = self._is_due or view.cuts != self._cuts
        self._is_due, self._cuts = False, view.cuts
        return is_due


class StandingContext:
    """Says the standing items of one session."""

    def __init__(self, session: SessionHost) -> None:
        self._session = session
        self.later_words: Callable[[Sequence[SaidItem], int], str] = lambda said, tokens: ""
        """Returns the user's words, within a number of tokens, that may change the rules among some sayings."""
        self._sources: list[ContextSource] = []
        self._is_due = True
        self._seen: tuple[Any, ...] = ()

    def add(self, source: ContextSource) -> None:
        """Ask this source too; sources that were added first are said first."""
        self._sources.append(source)
        self._is_due = True

    def refresh(self) -> None:
        """Ask all sources before the next request; without it they are asked only after a cut."""
        self._is_due = True

    async def set(
        self, key: str, text: str, *, name: str = "", source: str = NOTE, budget: str = "whole", digest: str = ""
    ) -> Entry | None:
        """Say a text that holds from now on and keep it in view; return the entry, None if it is in view already.

        A text with the same key replaces the older one, unless both have the same ``digest``. The log is the only
        place of the text.
        """
        check_text("key", key)
        check_text("text", text)
        if not key.strip() or not text.strip():
            raise InputError("standing context needs a key and a text; remove_context() ends it")
        key = clean(key)
        item = StandingItem(key, source, name or f"the note {key!r}", text, digest=digest, budget=budget)
        facts, view = self._session.log.view.facts, self._session.log.view
        row, fallen = facts.standing.get(key), facts.fallen
        table = {key: row} if row is not None else {}
        here = {key: fallen[key]} if key in fallen else {}
        _, said = items_to_say(table, here, [item], attached=set(), room=self._room(view), limits={})
        return await self._say([replace(one, held=True) for one in said], "set") if said else None

    async def remove(self, key: str) -> Entry | None:
        """End an item of the standing context; return the entry, None if there is no such item."""
        key = clean(key)
        row = self._session.log.view.facts.standing.get(key)
        if row is None or row.item.state == "ended":
            return None
        fallen = self._session.log.view.facts.fallen
        here = {key: fallen[key]} if key in fallen else {}
        table = {key: replace(row, item=replace(row.item, held=False))}
        _, said = items_to_say(table, here, [], attached={row.item.source}, room=0, limits={})
        return await self._say(said, "removed")

    async def run_start_hooks(self, hooks: Hooks, source: str) -> None:
        """Run the hooks of a session's start; their context holds until they give another one."""
        outcome = await hooks.run("session_start", {"source": source})
        if outcome.context:
            name, digest = "the context of the session's hooks", digest_of(_FENCE_TAG.sub(r"\1", outcome.context))
            await self.set(_HOOKS, outcome.context, name=name, source="hooks", digest=digest)

    async def opening(self) -> list[SaidItem]:
        """Return the sayings that open a new session: every item of every source."""
        items = await self._current(self._session.log.view, after_cut=False)
        own, rest = items_to_say({}, {}, items, attached=set(), room=2**40, limits={})
        return [*own, *rest]

    async def say_opening(self, items: Sequence[SaidItem]) -> None:
        """Log the first message of a new session."""
        cause = Cause(LAYER, "the session opens")
        await self._session.log.decide(ContextSaid(cause, list(items), opening=True))

    async def before_request(self) -> None:
        """Say the items that are new, that changed, and that a cut removed from the view."""
        view = self._session.log.view
        seen = (view.cuts, view.overrides, view.facts.clearing, view.clearing)
        changed = len(self._seen) != len(seen) or any(one is not two for one, two in zip(seen, self._seen, strict=True))
        if forking() or awaits_provider(view) or not (self._is_due or changed):
            return
        for said in await self.preview(view):
            await self._session.log.decide(said)
        view = self._session.log.view
        self._is_due, self._seen = False, (view.cuts, view.overrides, view.facts.clearing, view.clearing)

    async def preview(self, view: View) -> list[ContextSaid]:
        """Return the sayings that would come next if this were the view."""
        facts, after_cut = view.facts, view.cuts != view.facts.context_cuts
        asked = [source for source in self._sources if after_cut or not source.only_after_cuts]
        if not (asked or facts.fallen):
            return []
        items = await self._current(view, after_cut=after_cut)
        attached = {source.name for source in self._sources if not source.only_after_cuts}
        kept_out = {source.name for source in self._sources if source.only_after_cuts}
        table = {key: facts.standing[key] for key in facts.standing}
        given = {item.key for item in items}
        for key in [key for key, row in table.items() if row.item.source in kept_out and key not in given]:
            del table[key]  # such a source gives all that is worth saying again
        own, rest = items_to_say(
            table, facts.fallen, items, attached=attached, room=self._room(view), limits=self._limits(view)
        )
        if not self._speaks_as_system(view):
            own, rest = [], [*own, *rest]
        again = {one.key for one in (*own, *rest)} & facts.fallen.keys()
        out: list[ContextSaid] = []
        for said, role in ((rest, "user"), (own, "system")):
            if said:
                heading = _heading(table, said, again) if role == "user" else ""
                cause = Cause(LAYER, _reason(said, again))
                words = self.later_words(said, self._rule_tokens)
                out.append(ContextSaid(cause, said, role, heading=heading, cuts=view.cuts, later_words=words))
        return out

    async def _say(self, said: list[SaidItem], reason: str) -> Entry:
        cuts, words = self._session.log.view.facts.context_cuts, self.later_words(said, self._rule_tokens)
        return await self._session.log.decide(ContextSaid(Cause(LAYER, reason), said, cuts=cuts, later_words=words))

    async def _current(self, view: View, *, after_cut: bool) -> list[StandingItem]:
        found: dict[str, StandingItem] = {}
        for source in self._sources:
            if after_cut or not source.only_after_cuts:
                for item in await source.items(view):
                    key = clean(item.key)  # as the log has it: a path may have bytes that are no text
                    found.setdefault(key, replace(item, key=key, digest=item.digest or digest_of(item.value)))
        return list(found.values())

    def _room(self, view: View) -> int:
        """Return the tokens that may be said.

        After a cut the window may fill up to half of the threshold, or by a share of the window where system prompt and
        tools take most of that; otherwise it may fill up half of the free room.
        """
        at, tokens = self._session.policy.thresholds, view.token_count.threshold_tokens
        least = min(_LEAST_TOKENS, int(at.effective * _LEAST_SHARE))
        after_cut = view.cuts != view.facts.context_cuts
        if not after_cut:
            return max(least, int((at.blocking - tokens) // 2 * _PADDING))
        share = min(int(at.effective * _AFTER_CUT_SHARE), (at.auto_compact - tokens) // 2)
        return max(least, share, int((at.auto_compact // 2 - tokens) * _PADDING))

    @property
    def _rule_tokens(self) -> int:
        return min(_RULES_TOKENS, int(self._session.policy.thresholds.effective * _RULES_SHARE))

    def _limits(self, view: View) -> dict[str, BudgetLimit]:
        """Return the limits by budget, each at most its share of the window (L4.9, T8).

        After the compaction of a short session, files fill it up to at most half of its size before: they can be
        read again.
        """
        policy, effective = self._session.policy.settings.compact, self._session.policy.thresholds.effective
        was, tokens = view.facts.compacted_from, view.token_count.threshold_tokens
        most = max(0, was // 2 - tokens) if was and view.cuts != view.facts.context_cuts else effective

        def fit(tokens: int, share: float) -> int:
            return min(tokens, int(effective * share))

        recall = self._session.policy.settings.recall
        return {
            RULES: BudgetLimit(self._rule_tokens, self._rule_tokens),
            "files": BudgetLimit(
                policy.restore_file_tokens, min(most, fit(policy.restore_files_tokens, 0.28)), policy.restore_files
            ),
            "skills": BudgetLimit(policy.restore_skill_tokens, fit(policy.restore_skills_tokens, 0.14)),
            "memories": BudgetLimit(recall.file_bytes // 2, fit(recall.session_bytes // 4, 0.08)),
        }

    def _speaks_as_system(self, view: View) -> bool:
        prefix = view.facts.prefix
        able = prefix is not None and "system_messages" in prefix.capabilities
        return able and not self._session.policy.messages_only


def _heading(table: Mapping[str, StandingRow], said: Sequence[SaidItem], again: Container[str]) -> str:
    """Return the line before some sayings: why they are said again, and that an old opening yields to them."""
    follows = any(one.source != USER_CONTEXT for one in said)
    opened = follows and any(row.item.source == USER_CONTEXT for row in table.values())
    lines = (AGAIN if any(one.key in again for one in said) else "", _OLDER if opened else "")
    return " ".join(filter(None, lines))


def _reason(said: Iterable[SaidItem], again: set[str]) -> str:
    """Return the reason of a saying in words."""
    parts: dict[str, list[str]] = {}
    for one in said:
        kind = "removed by a cut" if one.key in again else "new or changed"
        kind = "no longer holds" if one.state == "ended" else kind
        parts.setdefault(kind, []).append(one.key)
    return "; ".join(f"{kind}: {', '.join(keys[:6])}{' ...' if len(keys) > 6 else ''}" for kind, keys in parts.items())
