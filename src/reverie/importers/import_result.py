"""The result of an importer, and the draft it is built from."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, cast

from ..cache.usage import Usage
from ..conversation.authorship import OUR_RESULTS, is_our_tool, own_words
from ..conversation.decisions import Cause, Compacted, Decision, body_of
from ..conversation.entries import ASSISTANT, ATTACHMENT, DECISION, META, USER, Entry
from ..conversation.log import Damage
from ..schemas import LOG
from ..values import field, object_of, record
from .foreign_values import Record, as_list, as_text, compact_json

_NAMESPACE: Final = uuid.UUID("5f0f3b52-6f5e-5b0a-9a36-6d1f7f1f0c11")
_MESSAGES: Final = frozenset({USER, ASSISTANT, ATTACHMENT})
_TITLE_CHARS: Final = 80


@record
class RecordSource:
    """The readable records of a file, and the damage in it."""

    name: str
    rows: Sequence[Record]
    damage: tuple[Damage, ...] = ()
    directory: str = ""
    """The project's directory, where a file beside the recording names it."""
    parents: tuple[str, ...] = ()
    """The names of the folders around the file, the nearest last."""
    lines: Sequence[int] = ()
    """The number of the line of each record, where records are lines."""

    @property
    def folder(self) -> str:
        """The name of the folder of the file; empty if it is unknown."""
        return self.parents[-1] if self.parents else ""

    @property
    def stem(self) -> str:
        """The file's name without its known endings."""
        return re.sub(r"(\.traj|\.jsonl|\.json|\.zst)+$", "", self.name) or "session"


@record
class RecordedBill:
    """A program's own total in dollars, the reported usage of each call, and that of calls which are not recorded."""

    total_usd: float
    calls: tuple[tuple[str, Usage], ...]
    """The model and the usage of each recorded reply."""
    other_usage: Mapping[str, Usage]


@record
class ImportedSession:
    """One session from a file: its entries and metadata, the skipped records by reason, and the damage."""

    format: str
    session_id: str
    title: str
    cwd: str
    model: str
    entries: tuple[Entry, ...]
    skipped: Mapping[str, int] = field(default_factory=lambda: {})
    damage: tuple[Damage, ...] = ()
    system: str | None = None
    tools: list[dict[str, Any]] | None = None
    cost_usd: float | None = None
    agent: str | None = None
    window: list[dict[str, Any]] | None = None
    """The messages as the program sent them last, with its newest reply and results; None if it records none."""
    bill: RecordedBill | None = None
    stored_results: Mapping[str, str] = field(default_factory=lambda: {})
    """By the name of a file that the program stored beside the recording: the call whose whole result it holds."""
    abandoned: frozenset[str] = frozenset()
    """The ids of messages in the file that the program went back from; they are no entries."""
    begins_late: bool = False
    """Whether the file lacks the beginning: a message before the first, or the call that the first results answer."""

    @property
    def messages(self) -> tuple[Entry, ...]:
        """The entries that carry a message."""
        return tuple(entry for entry in self.entries if entry.kind in _MESSAGES and entry.message is not None)


class SessionDraft:
    """A session that is built entry by entry, each entry the parent of the next; ``done`` returns the result."""

    def __init__(self, format: str, session_id: str, source: RecordSource) -> None:
        self.format = format
        self.session_id = safe_id(session_id or source.stem)
        self.name = source.name
        self.skipped: Counter[str] = Counter()
        self.title = ""
        self.cwd = ""
        self.model = ""
        self.system: str | None = None
        self.tools: list[dict[str, Any]] | None = None
        self.cost_usd: float | None = None
        self.agent: str | None = None
        self.window: list[dict[str, Any]] | None = None
        self.bill: RecordedBill | None = None
        self.stored_results: dict[str, str] = {}
        self.abandoned: set[str] = set()
        self.begins_late = False
        self.entries: list[Entry] = []
        self.last_message: str | None = None
        self._meta = str(uuid.uuid5(_NAMESPACE, f"{self.session_id}:meta"))
        self._seen = {self._meta}
        self._tools: dict[str, str] = {}

    def add(self, kind: str, body: Record, time: str = "", given: str = "") -> Entry:
        """Append an entry and return it; its uuid is ``given``, or derived from its content if empty or taken."""
        name = given if given and given not in self._seen else self._derived(kind, time, body)
        self._seen.add(name)
        if "message" in body and self._is_ours(object_of(body["message"]).get("content")):
            body = {**body, OUR_RESULTS: True}
        parent = self.entries[-1].uuid if self.entries else self._meta
        entry = Entry(name, parent, time, self.session_id, kind, body)
        self.entries.append(entry)
        if kind in _MESSAGES and "message" in body:
            self.last_message = name
        return entry

    def _is_ours(self, content: Any) -> bool:
        """Return whether a message holds results alone, all of them from tools of Reverie; remember its calls."""
        blocks = [object_of(block) for block in as_list(content)]
        self._tools |= {
            as_text(one.get("id")): as_text(one.get("name")) for one in blocks if one.get("type") == "tool_use"
        }
        answered = [self._tools.get(as_text(one.get("tool_use_id")), "") for one in blocks]
        return bool(answered) and all(map(is_our_tool, answered))

    def say(self, kind: str, role: str, content: Any, time: str = "", given: str = "", **more: Any) -> Entry:
        """Append a message of the Messages API, with ``more`` fields of its body beside it, and return its entry."""
        return self.add(kind, {"message": {"role": role, "content": content}, **more}, time, given)

    def reply(self, id: str, *, model: str = "", **fields: Any) -> Record:
        """Return the ``reply`` field of an entry, without empty parts; the session has its model from now on."""
        self.model = model or self.model
        return {name: value for name, value in {"id": id, "model": model, **fields}.items() if value}

    def decide(self, decision: Decision, time: str = "", given: str = "") -> Entry:
        """Append a decision that the file records and return its entry."""
        return self.add(DECISION, body_of(decision), time, given)

    def compacted(
        self,
        program: str,
        summary: str,
        time: str = "",
        given: str = "",
        *,
        manual: bool = False,
        tokens_before: int = 0,
        first_kept: str | None = None,
        kept_texts: Sequence[str] = (),
    ) -> Entry:
        """Append the compaction that a program recorded and return its entry.

        Messages from ``first_kept`` on stay in view, and ``kept_texts`` are shown behind the summary.
        """
        decision = Compacted(
            Cause("compact", f"recorded by {program}", moves_prefix=True),
            trigger="manual" if manual else "auto",
            method="full",
            summary=summary,
            tokens_before=tokens_before,
            last_before=self.last_message,
            first_kept=first_kept,
            attachments=[{"type": "text", "text": text} for text in kept_texts],
        )
        return self.decide(decision, time, given)

    def skip(self, reason: str) -> None:
        """Count one record that is left out."""
        self.skipped[reason] += 1

    def abandon(self, id: str) -> None:
        """Leave out a message that the program went back from."""
        self.abandoned.add(id)
        self.skip("abandoned branch")

    def spend(self, cost_usd: float | None) -> None:
        """Add the cost of one call to the session's cost; None adds nothing."""
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd

    def done(self, damage: Sequence[Damage] = ()) -> ImportedSession:
        """Return the finished session with a metadata entry in front; its default title is the first prompt."""
        title = self.title or _title_of(self.entries)
        time = next((entry.time for entry in self.entries if entry.time), "")
        body: Record = {
            "schema": LOG,
            "title": title,
            "model": self.model,
            "cwd": self.cwd,
            "source": {"format": self.format, "name": self.name},
        }
        meta = Entry(self._meta, None, time, self.session_id, META, body)
        return ImportedSession(
            self.format,
            self.session_id,
            title,
            self.cwd,
            self.model,
            (meta, *self.entries),
            dict(self.skipped),
            tuple(damage),
            self.system,
            self.tools,
            self.cost_usd,
            self.agent,
            self.window,
            self.bill,
            self.stored_results,
            frozenset(self.abandoned),
            self.begins_late or _answers_unseen_calls(self.entries),
        )

    def _derived(self, kind: str, time: str, body: Record) -> str:
        """Return an id by content, which stays the same when other records of the file go."""
        said = compact_json(body.get("message") or body)
        name = str(uuid.uuid5(_NAMESPACE, f"{self.session_id}:{kind}:{time}:{said}"))
        while name in self._seen:
            name = str(uuid.uuid5(_NAMESPACE, name))
        return name


def safe_id(name: str) -> str:
    """Return a name as a session id that is a valid file name; other characters become hyphens."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:120].strip(".-")
    return kept or "session"


def plain(content: Any) -> str:
    """Return the text of a message's content: the string, or the texts of its blocks joined by line ends."""
    if isinstance(content, str):
        return content
    texts = [as_text(object_of(block).get("text")) for block in as_list(content)]
    return "\n".join(text for text in texts if text)


def first_words(text: str) -> str:
    """Return the first line of a text that is not blank, cut to the length of a title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 3].rstrip() + "..."


def sound_content(content: Any) -> str | list[Record] | None:
    """Return a string, or the valid blocks of a content, the same list if all are valid; None if it is empty."""
    if isinstance(content, str):
        return content or None
    blocks = as_list(content)
    good = [cast(Record, block) for block in blocks if isinstance(block, dict) and _typed(cast(Record, block))]
    if not good:
        return None
    return cast("list[Record]", blocks) if len(good) == len(blocks) else good


def _typed(block: Record) -> bool:
    kind = block.get("type")
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind == "tool_use":
        return all(isinstance(block.get(name), kind) for name, kind in (("id", str), ("name", str), ("input", dict)))
    if kind == "thinking":
        return isinstance(block.get("thinking"), str)
    if kind == "tool_result":
        return isinstance(block.get("tool_use_id"), str)
    return isinstance(kind, str)


def _answers_unseen_calls(entries: Sequence[Entry]) -> bool:
    """Say whether a result comes before the first reply, and no reply has its call."""
    contents = [(entry.kind, as_list(object_of(entry.body.get("message")).get("content"))) for entry in entries]
    before = takewhile(lambda one: one[0] != ASSISTANT, contents)
    answered = {as_text(object_of(block).get("tool_use_id")) for _, blocks in before for block in blocks} - {""}
    return bool(answered) and not answered <= {
        as_text(object_of(one).get("id")) for _, some in contents for one in some
    }


def _title_of(entries: Sequence[Entry]) -> str:
    texts = (own_words(entry).strip() for entry in entries if entry.kind == USER)
    return next((first_words(text) for text in texts if text and not text.startswith("<")), "")
