"""Random worlds of standing context: facts that change, cuts of every kind, kills and resumes. Seeded, without waiting.

A world keeps the truth beside the log. After each request it compares both: behind the last older value of an item
that the request shows, or the word that it ended, the newest value stands exactly once, said or shown by a tool call
that set it, or is named by its handle. A copy before an older value is only there if this value was the newest before
too and came back; the older value may be a result that an earlier request showed and that was cleared since. An item
that ended is not the last thing said of it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from types import MappingProxyType
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
    ResultsRestored,
    Snipped,
    body_of,
)
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, decode_entry, encode_entry
from reverie.conversation.standing_context import StandingItem, digest_of, handle_of
from reverie.conversation.tokens.window import Window, thresholds
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.conversation.wire.request import build_request
from reverie.layers.l4_compact.tail import legal_starts
from reverie.runtime.agent.context_sources import skill_item
from reverie.runtime.session.plan.keeper import StepsSource
from reverie.runtime.session.standing_context import StandingContext
from reverie.settings import Settings
from reverie.tools.loaded_skills import LoadedSkills

__all__ = ["SKILL", "StandingWorld"]

_CAUSE: Final = Cause("test", "random", moves_prefix=True)
_LIVE: Final = ("date", "rules:a", "rules:b", "index")
_OWN: Final = ("date",)
_HELD: Final = ("note:x", "note:y")
_FILES: Final = ("file:1", "file:2")
_STEPS: Final = "steps"
SKILL: Final = "skill:knots"
_NAMES: Final = {_STEPS: "the list of open steps", SKILL: "the skill knots"}
_MARKS: Final = {SKILL: "knots"}  # a skill's text may not open the tag around it
_SETTINGS: Final = Settings(home=Path("home"))
_ACTS: Final = (
    *("change", "change", "change", "end", "hold", "release", "steps", "load", "edit", "talk", "talk", "tool"),
    *("compact", "compact", "from", "provider", "snip", "collapse", "undo", "undo", "clear", "provider clears"),
    *("bring back",),
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


class _Skills(_Source):
    """The loaded skill, whose text a result shows by itself until it changes on disk."""

    def __init__(self, world: StandingWorld) -> None:
        super().__init__(world, "skills", ())
        self._loaded = LoadedSkills()

    async def items(self, view: View) -> list[StandingItem]:
        text = self._world.truth.get(SKILL) or ""
        return [skill_item(view, skill, text) for skill in self._loaded.follow(view)]


class StandingWorld:
    """One random history, with the part of a session that ``StandingContext`` uses."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.entries: list[Entry] = []
        self.view = View()
        self.log = self.policy = self
        self.settings = _SETTINGS
        self.thresholds = thresholds(Window(self.random.choice((30_000, 60_000, 200_000)), "facts", 8_000))
        self.messages_only = False
        self.truth: dict[str, str | None] = {}
        self.older: dict[str, list[str]] = {}
        self.returned: set[tuple[str, str]] = set()
        self.calls: dict[str, str] = {}
        """The last call that set an item and shows its value by itself."""
        self.set_by: dict[str, str] = {}
        """By call: the value that it set."""
        self.sent: set[str] = set()
        """The calls of ``set_by`` whose value a request showed."""
        self.brought_back: set[str] = set()
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
        standing.add(StepsSource())
        standing.add(_Skills(self))
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
        value = f"<{_MARKS.get(key, key)} {self._numbers}> " + "word " * size
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

    def _tool(self, text: str = "result", name: str = "Read", given: Mapping[str, Any] = MappingProxyType({})) -> str:
        self._numbers += 1
        called = f"call{self._numbers}"
        self._append(USER, {"message": {"role": "user", "content": "Look."}})
        self._reply([{"type": "tool_use", "id": called, "name": name, "input": dict(given)}])
        result = {"type": "tool_result", "tool_use_id": called, "content": text}
        self._append(USER, {"message": {"role": "user", "content": [result]}})
        return called

    def _steps(self) -> None:
        """Write a new list of steps, which the call shows."""
        value = self._new(_STEPS)
        self._set_by(_STEPS, self._tool("Noted.", "TodoWrite", {"todos": [{"content": value, "status": "pending"}]}))

    def _load(self) -> None:
        self.load()

    def load(self) -> None:
        """Load a new text of the skill, which the result shows."""
        self._set_by(SKILL, self._tool(self._new(SKILL), "Skill", {"name": "knots"}))

    def _set_by(self, key: str, called: str) -> None:
        self.calls[key] = called
        self.set_by[called] = self.truth[key] or ""

    def _edit(self) -> None:
        """Change the loaded skill on disk."""
        if SKILL in self.calls:
            self._change(SKILL)

    def edit_back(self) -> None:
        """Bring the last older text of the loaded skill back on disk."""
        before, self.truth[SKILL] = self.truth[SKILL] or "", self.older[SKILL][-1]
        self.older[SKILL].append(before)
        self.returned.add((SKILL, self.truth[SKILL] or ""))

    def _new(self, key: str) -> str:
        """Give an item a value that it never had."""
        self._numbers += 1
        if (before := self.truth.get(key)) is not None:
            self.older.setdefault(key, []).append(before)
        self.truth[key] = value = f"<{_MARKS.get(key, key)} {self._numbers}>"
        return value

    def _reply(self, content: list[dict[str, Any]]) -> None:
        self._numbers += 1
        body = {"message": {"role": "assistant", "content": content}, "reply": {"id": f"m{self._numbers}"}}
        self._append(ASSISTANT, body)

    # -- cuts

    def _compact(self, *, signed: bool = False) -> None:
        items = self.view.items_in_view()
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
        items = self.view.items_in_view()
        legal = legal_starts(items)
        places = [at for at in range(2, len(items)) if legal[at]]
        if places:
            first = items[self.random.choice(places)].uuid
            self.decide_now(Compacted(_CAUSE, "manual", "from", "Summary.", 9, None, None, from_message=first))

    def _span(self) -> list[str]:
        items = self.view.items_in_view()
        legal = [at for at, is_legal in enumerate(legal_starts(items)) if is_legal and at > 0] + [len(items)]
        if len(legal) < 2:
            return []
        start = self.random.randrange(len(legal) - 1)
        end = min(start + self.random.randrange(1, 4), len(legal) - 1)
        return [item.uuid for item in items[legal[start] : legal[end]]]

    def _snip(self) -> None:
        if gone := self._span():
            self.snip(gone)

    def snip(self, messages: list[str]) -> None:
        """Remove these messages from the view."""
        self.decide_now(Snipped(_CAUSE, messages))

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
            self.clear(*gone)

    def clear(self, *calls: str) -> None:
        """Clear the results of these calls."""
        self.decide_now(ResultsCleared(_CAUSE, [Replacement(one, "[cleared]") for one in calls]))

    def _provider_clears(self) -> None:
        found = [result.tool_use_id for result in self.view.results]
        if found:
            self.decide_now(ResultsClearedByProvider(Cause("test", "random"), found[: self.random.randrange(4)]))

    def _bring_back(self) -> None:
        """Show results again that were cleared; a saying that stood in for one was sent, and stays."""
        found = [
            result.tool_use_id for result in self.view.results if result.tool_use_id in self.view.overrides.results
        ]
        if found:
            self.brought_back.update(found)
            self.decide_now(ResultsRestored(_CAUSE, found))

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
        texts = self._texts()
        for key in {*self.truth, *self.older}:
            if key not in _FILES or after_cut:
                self._check(key, texts)
        self.sent.update(call for text, call in texts if call in self.set_by and _shows(text, self.set_by[call]))
        self._check_opening()
        if self.random.random() < 0.7:
            self._reply([{"type": "text", "text": "Yes."}])

    def _texts(self) -> list[tuple[str, str]]:
        """Return the texts of the request, each with the id of the call that it belongs to."""
        gone = self.view.facts.cleared_by_provider
        return [
            (
                str(block.get("text") or block.get("content") or block.get("input"))
                if block.get("tool_use_id") not in gone
                else "",
                _call_of(block),
            )
            for message in build_request(self.view)["messages"]
            for block in as_blocks(message)
        ]

    def copies(self, key: str) -> list[str]:
        """Return how the request shows the newest value of an item, for each copy: said, or as a result."""
        newest = self.truth[key] or ""
        return ["result" if call else "said" for text, call in self._texts() if _shows(text, newest)]

    def _check(self, key: str, texts: list[tuple[str, str]]) -> None:
        newest, older = self.truth.get(key), self.older.get(key, [])
        name = _NAMES.get(key, f"item {key}")
        gone = [one for one in older if one != newest]
        old = [at for at, (text, _) in enumerate(texts) if any(_shows(text, one) or _names(text, one) for one in gone)]
        ended = [at for at, (text, _) in enumerate(texts) if text.startswith(f"This no longer holds: {name}.")]
        if newest is None:
            if old and not (ended and ended[-1] > old[-1]):
                self._violated(key, "an ended item is in view and nothing says that it ended")
            return
        said = [at for at, (text, call) in enumerate(texts) if not call and _shows(text, newest)]
        native = [
            at
            for at, (text, call) in enumerate(texts)
            if call and _shows(text, newest) and not (said and call in self.brought_back)
        ]
        named = [at for at, (text, _) in enumerate(texts) if _names(text, newest)]
        if key in _NAMES:  # their names do not tell the value
            named = [at for at, (text, _) in enumerate(texts) if f"to save room: {name} (" in text]
            old += [at for at in named if any(at < shown for shown in said)]
        last = max([*old, *ended], default=-1)
        copies = sorted(at for at in (*said, *native) if at > last)
        parted = [at for at, (_, call) in enumerate(texts) if call in self.sent and self.set_by[call] in gone]
        if any(not any(one < at < two for at in parted) for one, two in pairwise(copies)):
            self._violated(key, f"the newest value stands {len(copies)} times")
        if not copies and not any(at > last for at in named):
            self._violated(key, "the newest value is neither in view nor named behind older ones")
        if min(said, default=last) < last and (key, newest) not in self.returned:
            self._violated(key, "a value that never went away stands before an older one")

    def _check_opening(self) -> None:
        first = self.view.group(0)
        opening = [piece.message for piece in first.pieces if piece.uuid == "u000008"]
        if opening:
            self._opening = self._opening or opening
            if opening != self._opening:
                self._violated("opening", "the opening message was rewritten")

    def _violated(self, key: str, what: str) -> None:
        self.violations.append(f"{key}: {what}; seed {self.seed}, after {', '.join(self.done)}")


def _call_of(block: Mapping[str, Any]) -> str:
    return str(block.get("tool_use_id") or block.get("id") or "")


def _shows(text: str, value: str) -> bool:
    """Whether a text shows a value; files and skills may be shortened."""
    return value[: value.index(">") + 1] in text


def _names(text: str, value: str) -> bool:
    """Whether a text names a value by its handle."""
    return handle_of(digest_of(value)) in text


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("nothing here waits")
