"""Random worlds of standing context: facts that change, cuts of every kind, kills and resumes. Seeded, without waiting.

A world keeps the truth beside the log. After each request it compares both: the newest value of each item stands
exactly once, after any older one, or is named by its handle; an item that ended is not the last thing said of it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from reverie.conversation.decisions import (
    Cause,
    Collapsed,
    Compacted,
    CompactionUndone,
    Decision,
    PrefixRendered,
    Replacement,
    ResultsCleared,
    ResultsClearedByProvider,
    Snipped,
    body_of,
)
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, decode_entry, encode_entry
from reverie.conversation.standing_context import StandingItem, digest_of, handle_of
from reverie.conversation.tokens.window import Window, thresholds
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.conversation.wire.request import build_request
from reverie.layers.l4_compact.tail import legal_starts, visible_items
from reverie.runtime.session.standing_context import StandingContext
from reverie.settings import Settings

__all__ = ["StandingWorld"]

_CAUSE: Final = Cause("test", "random", moves_prefix=True)
_LIVE: Final = ("date", "rules:a", "rules:b", "index")
_OWN: Final = ("date",)
_HELD: Final = ("note:x", "note:y")
_FILES: Final = ("file:1", "file:2")
_NATIVE: Final = "steps"
_SETTINGS: Final = Settings(home=Path("home"))
_ACTS: Final = (
    *("change", "change", "change", "end", "hold", "release", "native", "talk", "talk", "tool"),
    *("compact", "compact", "from", "provider", "snip", "collapse", "undo", "clear", "provider clears"),
    *("kill", "half said", "other model", "request", "request"),
)


class _Source:
    """The items of the world whose truth lies outside the log."""

    only_after_cuts = False

    def __init__(self, world: StandingWorld, name: str, keys: Sequence[str]) -> None:
        self.name = name
        self._world = world
        self._keys = keys

    async def items(self, view: View) -> list[StandingItem]:
        found = ((key, self._world.truth.get(key)) for key in self._keys)
        return [
            StandingItem(key, self.name, f"item {key}", value, own=key in _OWN)
            for key, value in found
            if value is not None
        ]


class _Files(_Source):
    only_after_cuts = True

    async def items(self, view: View) -> list[StandingItem]:
        return [
            StandingItem(key, self.name, f"item {key}", self._world.truth[key] or "", budget="files")
            for key in self._keys
        ]


class _Steps(_Source):
    """An item that a tool result shows by itself while the view has it."""

    async def items(self, view: View) -> list[StandingItem]:
        value = self._world.truth.get(_NATIVE)
        if value is None:
            return []
        called = self._world.shown_by
        gone = called in view.overrides.results or called in view.facts.cleared_by_provider
        stands = view.tool_call(called) is not None and not gone
        return [StandingItem(_NATIVE, self.name, "item steps", value, stands=stands)]


class StandingWorld:
    """One random history, with the part of a session that ``StandingContext`` uses."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.entries: list[Entry] = []
        self.view = View()
        self.settings = _SETTINGS
        self.thresholds = thresholds(Window(self.random.choice((30_000, 60_000, 200_000)), "facts", 8_000))
        self.messages_only = False
        self.truth: dict[str, str | None] = {}
        self.older: dict[str, list[str]] = {}
        self.returned: set[tuple[str, str]] = set()
        self.shown_by = ""
        self.violations: list[str] = []
        self.done: list[str] = []
        self._numbers = 0
        self._undone: set[str] = set()
        self._answered_cuts = -1
        self._opening: list[Any] = []
        for key in (*_LIVE, *_FILES):
            self._change(key)
        self.standing = self._opened()
        self.decide_now(PrefixRendered(_CAUSE, "m", capabilities=self.random.choice(([], ["system_messages"]))))
        opening = _run(self.standing.opening())
        _run(self.standing.say_opening(opening))

    # -- the session

    async def decide(self, decision: Decision) -> Entry:
        return self.decide_now(decision)

    def decide_now(self, decision: Decision) -> Entry:
        return self._append(DECISION, body_of(decision))

    def emit(self, event: object) -> None:
        pass

    def _append(self, kind: str, body: dict[str, Any]) -> Entry:
        self._numbers += 1
        entry = Entry(f"u{self._numbers:06}", self.view.last, "", "s", kind, body)
        self.entries.append(entry)
        self.view = self.view.fold(entry)
        return entry

    def _opened(self) -> StandingContext:
        standing = StandingContext(self)  # type: ignore[arg-type]
        standing.add(_Source(self, "live", _LIVE))
        standing.add(_Steps(self, "steps", ()))
        standing.add(_Files(self, "files", _FILES))
        return standing

    # -- the history

    def play(self, acts: int) -> StandingWorld:
        """Play random acts, each followed by a check of the next request where one leaves."""
        for _ in range(acts):
            act = self.random.choice(_ACTS)
            self.done.append(act)
            getattr(self, "_" + act.replace(" ", "_"))(*([] if act != "change" else [self.random.choice(_LIVE)]))
        self.done.append("request")
        self.request()
        return self

    def _change(self, key: str) -> None:
        self._numbers += 1
        size = self.random.choice((0, 0, 0, 40, 400, 6_000))
        value = f"<{key} {self._numbers}> " + "word " * size
        known = [one for one in (*self.older.get(key, ()), self.truth.get(key)) if one is not None]
        if known and self.random.random() < 0.2:  # an earlier value comes back
            value = self.random.choice(known)
            self.returned.add((key, value))
        self.older[key] = list(dict.fromkeys(known))
        self.truth[key] = value

    def _end(self) -> None:
        key = self.random.choice(_LIVE)
        if (value := self.truth.get(key)) is not None:
            self.older.setdefault(key, []).append(value)
        self.truth[key] = None

    def hold(self, key: str) -> None:
        """Say the value of an item whose only place is the log."""
        _run(self.standing.set(key, self.truth[key] or "", name=f"item {key}"))

    def _hold(self) -> None:
        key = self.random.choice(_HELD)
        self._change(key)
        self.hold(key)

    def _release(self) -> None:
        self.release(self.random.choice(_HELD))

    def release(self, key: str) -> None:
        """End an item whose only place is the log."""
        if (value := self.truth.get(key)) is not None:
            self.older.setdefault(key, []).append(value)
        self.truth[key] = None
        _run(self.standing.remove(key))

    def _talk(self) -> None:
        self._append(USER, {"message": {"role": "user", "content": "Go on. " + "talk " * self.random.randrange(200)}})
        self._reply([{"type": "text", "text": "Done. " + "said " * self.random.randrange(200)}])

    def _tool(self, text: str = "result") -> str:
        self._numbers += 1
        called = f"call{self._numbers}"
        self._append(USER, {"message": {"role": "user", "content": "Look."}})
        self._reply([{"type": "tool_use", "id": called, "name": "Read", "input": {}}])
        result = {"type": "tool_result", "tool_use_id": called, "content": text}
        self._append(USER, {"message": {"role": "user", "content": [result]}})
        return called

    def _native(self) -> None:
        self._numbers += 1
        if (before := self.truth.get(_NATIVE)) is not None:
            self.older.setdefault(_NATIVE, []).append(before)
        self.truth[_NATIVE] = value = f"<{_NATIVE} {self._numbers}>"
        self.shown_by = self._tool(value)

    def _reply(self, content: list[dict[str, Any]]) -> None:
        self._numbers += 1
        body = {"message": {"role": "assistant", "content": content}, "reply": {"id": f"m{self._numbers}"}}
        self._append(ASSISTANT, body)

    # -- cuts

    def _compact(self, *, signed: bool = False) -> None:
        items = visible_items(self.view)
        legal = legal_starts(items)
        places = [at for at in range(1, len(items)) if legal[at] and (not signed or items[at].kind == ASSISTANT)]
        first = items[self.random.choice(places)].uuid if places and (signed or self.random.random() < 0.9) else None
        block = {"type": "compaction", "content": "Summary.", "signature": "s"} if signed else {}
        self.decide_now(
            Compacted(_CAUSE, "auto", "provider" if signed else "notes", "Summary.", 9, None, first, block=block)
        )

    def cut_all(self) -> None:
        """Compact everything but the opening."""
        self.decide_now(Compacted(_CAUSE, "auto", "notes", "Summary.", 9, None, None))

    def undo_last(self) -> None:
        """Undo the last compaction."""
        self.decide_now(CompactionUndone(_CAUSE, self.view.facts.compactions[-1]))

    def _provider(self) -> None:
        self._compact(signed=True)

    def _from(self) -> None:
        items = visible_items(self.view)
        legal = legal_starts(items)
        places = [at for at in range(2, len(items)) if legal[at]]
        if places:
            first = items[self.random.choice(places)].uuid
            self.decide_now(Compacted(_CAUSE, "manual", "from", "Summary.", 9, None, None, from_message=first))

    def _span(self) -> list[str]:
        items = visible_items(self.view)
        legal = [at for at, is_legal in enumerate(legal_starts(items)) if is_legal and at > 0] + [len(items)]
        if len(legal) < 2:
            return []
        start = self.random.randrange(len(legal) - 1)
        end = min(start + self.random.randrange(1, 4), len(legal) - 1)
        return [item.uuid for item in items[legal[start] : legal[end]]]

    def _snip(self) -> None:
        if gone := self._span():
            self.decide_now(Snipped(_CAUSE, gone))

    def _collapse(self) -> None:
        if gone := self._span():
            self.decide_now(Collapsed(_CAUSE, gone[0], gone[-1], "[a finished part]"))

    def _undo(self) -> None:
        active = [one for one in self.view.facts.compactions if one not in self.view.facts.undone]
        if active:
            self.decide_now(CompactionUndone(_CAUSE, self.random.choice(active)))

    def _clear(self) -> None:
        found = [result.tool_use_id for result in self.view.results]
        if found:
            gone = self.random.sample(found, self.random.randrange(1, len(found) + 1))
            self.decide_now(ResultsCleared(_CAUSE, [Replacement(one, "[cleared]") for one in gone]))

    def _provider_clears(self) -> None:
        found = [result.tool_use_id for result in self.view.results]
        if found:
            self.decide_now(ResultsClearedByProvider(Cause("test", "random"), found[: self.random.randrange(4)]))

    def _other_model(self) -> None:
        prefix = self.view.facts.prefix
        able = prefix is None or "system_messages" not in prefix.capabilities
        self.decide_now(PrefixRendered(_CAUSE, "m", capabilities=["system_messages"] if able else []))

    # -- the process

    def _kill(self) -> None:
        """Lose everything but the log."""
        self.entries = [decode_entry(encode_entry(entry)) for entry in self.entries]
        self.view = View().fold_all(self.entries)
        self.standing = self._opened()

    def _half_said(self) -> None:
        """Die between two decisions of one saying."""
        for said in _run(self.standing.preview(self.view))[:1]:
            self.decide_now(said)
        self._kill()

    # -- the check

    def _request(self) -> None:
        self.request()

    def request(self) -> None:
        """Prepare the next request, and compare it with the truth."""
        self._append(USER, {"message": {"role": "user", "content": "Next."}})
        after_cut = self.view.cuts != self.view.facts.context_cuts
        self.standing.refresh()
        _run(self.standing.before_request())
        texts = [
            str(block.get("text") or f"result: {block.get('content')}")
            for message in build_request(self.view)["messages"]
            for block in as_blocks(message)
            if block.get("tool_use_id") not in self.view.facts.cleared_by_provider
        ]
        for key in {*self.truth, *self.older}:
            if key not in _FILES or after_cut:
                self._check(key, texts)
        self._check_opening()
        if self.random.random() < 0.7:
            self._reply([{"type": "text", "text": "Yes."}])

    def _check(self, key: str, texts: list[str]) -> None:
        newest, older = self.truth.get(key), self.older.get(key, [])
        old = [at for at, text in enumerate(texts) if any(_shows(text, one) for one in older if one != newest)]
        ended = [at for at, text in enumerate(texts) if text.startswith(f"This no longer holds: item {key}.")]
        if newest is None:
            if old and not (ended and ended[-1] > old[-1]):
                self._violated(key, "an ended item is in view and nothing says that it ended")
            return
        shown = [at for at, text in enumerate(texts) if _shows(text, newest)]
        named = [at for at, text in enumerate(texts) if handle_of(digest_of(newest)) in text]
        last = max([*shown, *named], default=-1)
        said = [at for at in shown if not texts[at].startswith("result: ")]  # a tool result is history, and no saying
        # A value that came back may stand twice where a cut took all between: kept turns do not change.
        if len(said) > 1 and (key, newest) not in self.returned:
            self._violated(key, f"the newest value stands {len(said)} times")
        if last < 0:
            self._violated(key, "the newest value is neither in view nor named")
        elif old and old[-1] > last:
            self._violated(key, "an older value comes after the newest")

    def _check_opening(self) -> None:
        first = self.view.group(0)
        opening = [piece.message for piece in first.pieces if piece.uuid == "u000008"]
        if opening:
            self._opening = self._opening or opening
            if opening != self._opening:
                self._violated("opening", "the opening message was rewritten")

    def _violated(self, key: str, what: str) -> None:
        self.violations.append(f"{key}: {what}; seed {self.seed}, after {', '.join(self.done)}")


def _shows(text: str, value: str) -> bool:
    """Whether a text shows a value; files and skills may be shortened."""
    return value[: value.index(">") + 1] in text


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("nothing here waits")
