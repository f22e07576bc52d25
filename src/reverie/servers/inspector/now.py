"""The sessions of a home as they are now: window, cost and current act, from the new lines of each log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...conversation.authorship import own_words
from ...conversation.decisions import CallRecorded, decision_of
from ...conversation.entries import DECISION, META, USER, Entry
from ...conversation.log import parse_log
from ...conversation.tokens.window import Thresholds
from ...conversation.view import View
from ...importers.import_result import first_words

LoadRest: TypeAlias = Callable[[int], bytes]
"""Returns the bytes of a log from an offset on."""
_TITLE_CHARS: Final = 120


class SessionWatch:
    """Follows one log: each reading folds only the lines that were added since the last one."""

    def __init__(self) -> None:
        self._offset = 0
        self._view = View()
        self._usd = 0.0
        self._calls = 0
        self._title = ""
        self._first = ""
        self._last: Entry | None = None

    def read(self, load: LoadRest) -> None:
        """Fold the whole lines that the log has beyond those read before."""
        data = load(self._offset)
        end = data.rfind(b"\n") + 1
        self._offset += end
        for entry in parse_log(data[:end]).entries:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        self._view, self._last = self._view.fold(entry), entry
        call = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(call, CallRecorded):
            self._usd += call.cost_usd or 0.0
            self._calls += 1
        elif entry.kind == META and isinstance(entry.body.get("title"), str):
            self._title = entry.body["title"]
        elif entry.kind == USER and not self._first:
            self._first = first_words(own_words(entry))

    @property
    def model(self) -> str:
        """The model of the last request; empty before the first."""
        prefix = self._view.facts.prefix
        return prefix.model if prefix is not None else self._view.token_count.model

    def row(self, name: str, *, is_open: bool, limits: Thresholds) -> dict[str, Any]:
        """Return the session as values of JSON; ``name`` leads to it, ``limits`` are those of its model's window."""
        return {
            "kind": "agent" if name.startswith("agents/") else "session",
            "name": name,
            "title": (self._title or self._first or name)[:_TITLE_CHARS],
            "model": self.model,
            "open": is_open,
            "doing": self._doing() if is_open else "closed",
            "tokens": self._view.token_count.tokens,
            "window_tokens": limits.window,
            "warn_at": limits.warning,
            "compact_at": limits.base,
            "compacts": limits.compacts,
            "block_at": limits.blocking,
            "usd": self._usd,
            "calls": self._calls,
            "compactions": sum(one not in self._view.facts.undone for one in self._view.facts.compactions),
            "at": self._last.at if self._last is not None else 0.0,
        }

    def _doing(self) -> str:
        """Return the state of a running session in a few words, from the end of its log."""
        waiting = [call.name for one in self._view.unanswered() if (call := self._view.tool_call(one)) is not None]
        if waiting:
            return f"runs {', '.join(dict.fromkeys(waiting))}"
        final = self._view.final
        if final is None:
            return "has not begun"
        return "waits for you" if final.role == "assistant" else "waits for the model"
