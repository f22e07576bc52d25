"""The three seams every integration shares: a tool result, the next request, a reply.

A host keeps its own history and shows all of it before every call. ``Hosted`` maps it onto a session's log piece by
piece: what is new is appended, what the host took back or rewrote leaves the view by a decision that says so. The log
stays the only state: what is held here is recovered from it when a host comes back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from anyio import Lock, to_thread

from ..conversation.cuts import USER_CONTEXT, Item
from ..conversation.decisions import Cause, Replacement, ResultsCleared, Snipped
from ..conversation.entries import ASSISTANT, ATTACHMENT, USER, Entry
from ..conversation.rounds import reply_id
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from ..errors import InputError, PromptTooLong, ReverieError, SessionError
from ..events import EntryAppended, Event, FellBack
from ..memories.rules.guidance import index_context
from ..runtime.memory.memory import Memory
from ..runtime.memory.recall import Recalling
from ..runtime.session.session import Session
from .history_pieces import (
    Block,
    HistoryPiece,
    HistoryReader,
    common_length,
    content_key,
    detached,
    reply_key,
    without_cache_marks,
)
from .session_history import OWN, LoggedResult, LoggedTurn, kept_positions, logged_turns

__all__ = ["LAYER", "HostSession"]

LAYER: Final = "host"
"""Who is named as the cause of what the host did to its history."""
_TAG_BYTES: Final = 4
_TAKEN: Final = frozenset({"messages", "model", "max_tokens", "system", "tools", "stream", "cache_control", "thread"})


class HostSession:
    """A conversation that another program keeps, followed in a session's log."""

    def __init__(self, session: Session, memory: Memory | None = None) -> None:
        """Follow a host; with ``memory`` its index opens the conversation, and what helps with a saying is recalled."""
        self.session = session
        self._lock = Lock()
        self._memory = memory
        self._recalling = (
            Recalling(session, memory.path, policy=session.settings.recall) if memory is not None else None
        )
        self._spoken: list[LoggedTurn] | None = None
        self._first = LoggedTurn(b"", [])
        """Where results go that come before any reply."""
        self._continued = False
        self._reader = HistoryReader()
        self._followed: list[HistoryPiece] = []
        """The host's history as it stood when it was last followed, with ``_met`` sayings and replies."""
        self._met = 0
        self._added = 0
        """How many sayings and replies a host that keeps its history here has added itself, or come back to."""
        self._entries: dict[str, Entry] = {}
        self._entries_read = 0
        self._asked: dict[str, Any] = {}
        self._replied = ""
        self._logged = ""
        session.listen(self._hear)

    # -- the three seams

    async def prepare(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request to send in place of the host's own; both are in the wire's shape.

        Raise where the host's request is not one to change: it is a conversation of its own, or ends in a reply that
        the model is to go on with.
        """
        async with self._lock:
            pieces = self._reader.pieces(body.get("messages") or [])
            if not pieces or pieces[-1].kind == "reply":
                raise InputError("the request ends in words put into the model's mouth: it passes as it is")
            options = {key: value for key, value in body.items() if key not in _TAKEN and value is not None}
            thread: Mapping[str, Any] = body.get("thread") or {}
            if thread.get("type") == "continue":
                await self._go_on(pieces, str(thread.get("previous_message_id")))
                return self._sent(await self.session.prepare(**{**self._asked, **options}), body)
            self._refuse_others(pieces, body)
            await self._follow(pieces)
            self._asked = {
                "model": str(body.get("model") or ""),
                "max_tokens": body.get("max_tokens") or DEFAULT_MAX_TOKENS,
                "system": without_cache_marks(body.get("system")),
                "tools": without_cache_marks(list(body.get("tools") or ())),
                **options,
            }
            return self._sent(await self.session.prepare(**self._asked), body)

    async def make_room(self, error: PromptTooLong, body: Mapping[str, Any]) -> dict[str, Any]:
        """Compact because the provider says that the prompt is too long, and return the request anew."""
        async with self._lock:
            await self.session.compact_reactively(error)
            return self._sent(await self.session.prepare(**self._asked), body)

    async def observe(self, reply: Any) -> None:
        """Log a reply and what it cost."""
        async with self._lock:
            self._logged = ""
            await self.session.observe(detached(reply))
            if self._logged:  # the same reply a second time is not logged again
                entry = self._known_entries()[self._logged]
                self._heard_so_far().append(LoggedTurn(reply_key((entry.message or {}).get("content")), [entry.uuid]))
                self._replied = reply_id(entry)

    async def result(self, call_id: str, output: Any, *, is_error: bool = False) -> str | list[Block] | None:
        """Log what a tool gave back, and return what is to be shown in its place; None where no such call is known."""
        async with self._lock:
            spoken = self._heard_so_far()
            owner = spoken[-1] if spoken else self._first
            if self.session.view.tool_call(call_id) is None or call_id in owner.results:
                return None
            piece = HistoryPiece("result", content_key(output), detached(output), call_id, is_error)
            return await self._log_result(owner, piece)

    # -- for hosts that keep their history here

    async def take_in(self, pieces: Sequence[HistoryPiece]) -> None:
        """Log what the host adds to what it added before, but for what was logged while it was sent."""
        async with self._lock:
            spoken = self._heard_so_far()
            for piece in pieces:
                if piece.kind == "result":
                    await self._follow_result(spoken[self._added - 1] if self._added else self._first, piece)
                elif self._added < len(spoken) and spoken[self._added].key == piece.key:
                    self._added += 1
                else:
                    spoken.append(await self._log_spoken(piece))
                    self._added = len(spoken)

    async def replace_last(self, pieces: Sequence[HistoryPiece]) -> None:
        """Take back the last saying or reply with its results, and log these pieces in its place."""
        async with self._lock:
            spoken = self._heard_so_far()
            await self._take_back([spoken.pop()])
            for piece in pieces:
                if piece.kind == "result":
                    await self._follow_result(spoken[-1], piece)
                else:
                    spoken.append(await self._log_spoken(piece))
            self._added = len(spoken)

    async def take_back_all(self) -> None:
        """Take back all that stands: what was said, and what was shown beside it."""
        async with self._lock:
            said = dict.fromkeys(uuid for one in self._heard_so_far() for uuid in one.entries())
            said |= dict.fromkeys(piece.uuid for group in self.session.view.groups for piece in group.pieces)
            if said:
                cause = Cause(LAYER, "the host emptied its history", moves_prefix=True)
                await self.session.decide(Snipped(cause, list(said)))
            self._spoken, self._first, self._followed, self._added = [], LoggedTurn(b"", []), [], 0

    def history(self, start: int = 0) -> list[Entry]:
        """Return what the host has said and heard, without so many sayings and replies, each result after its reply."""
        return [entry for found in self._entries_of(self._heard_so_far()[start:]) for entry in found]

    def latest(self) -> Iterator[list[Entry]]:
        """Return the same from its end on: the last saying or reply with its results, then the one before it."""
        return self._entries_of(reversed(self._heard_so_far()))

    def _entries_of(self, spoken: Iterable[LoggedTurn]) -> Iterator[list[Entry]]:
        entries = self._known_entries()
        return ([entries[uuid] for uuid in one.entries() if uuid in entries] for one in spoken)

    @property
    def count(self) -> int:
        """How many sayings and replies stand."""
        return len(self._heard_so_far())

    def _known_entries(self) -> dict[str, Entry]:
        """Return all that was said by its uuid, and read only what is new of it."""
        new = self.session.view.history_from(self._entries_read)
        self._entries_read += len(new)
        self._entries.update((one.uuid, one.entry) for one in new if isinstance(one, Item))
        return self._entries

    # -- following the host

    def _hear(self, event: Event) -> None:
        if isinstance(event, EntryAppended) and event.kind == ASSISTANT:
            self._logged = event.uuid

    def _heard_so_far(self) -> list[LoggedTurn]:
        if self._spoken is None:
            self._spoken = logged_turns(self.session.view, self._first)
            self._continued = len(self._spoken) > 1
            self._added = len(self._spoken)
        return self._spoken

    def _refuse_others(self, pieces: Sequence[HistoryPiece], body: Mapping[str, Any]) -> None:
        """Refuse a request that is opened differently, and shares with what was said here no more than a question."""
        prefix = self.session.view.facts.prefix
        if prefix is None or (self._goes_on(pieces) and any(piece.kind == "reply" for piece in self._followed)):
            return
        tools = [tool.get("name") for tool in body.get("tools") or ()]
        known_tools = [tool.get("name") for tool in prefix.tools]
        if tools == known_tools and without_cache_marks(body.get("system")) == prefix.system:
            return
        known = {one.key for one in self._heard_so_far()}
        shared = [piece for piece in pieces if piece.key in known]
        replied = any(piece.kind == "reply" for piece in pieces)
        if any(piece.kind == "reply" for piece in shared) or (shared and replied and tools and tools == known_tools):
            return  # the second: an answer that was drawn anew, under other words of the system's
        refused = self._continued
        if self._replied and not refused:  # nothing went on from the first reply: what looks like a title passes
            refused = bool(known_tools or (shared and not tools and not replied))
        if refused:
            raise SessionError(
                "the request does not go on from this session's conversation and passes as it is: "
                "give each conversation a session of its own"
            )

    async def _go_on(self, pieces: Sequence[HistoryPiece], previous: str) -> None:
        """Append what a host adds that lets the provider hold its history: here it is ours that is held."""
        spoken = self._heard_so_far()
        if not self._asked or previous != self._replied:
            raise SessionError(f"the request goes on from {previous!r}, not from the last reply: it passes as it is")
        for piece in pieces:
            if piece.kind == "result":
                await self._follow_result(spoken[-1], piece)
            else:
                spoken.append(await self._log_spoken(piece))

    def _goes_on(self, pieces: Sequence[HistoryPiece]) -> bool:
        """Say whether a history begins with all of what was followed last."""
        return bool(self._followed) and common_length(self._followed, pieces) == len(self._followed)

    async def _follow(self, pieces: Sequence[HistoryPiece]) -> None:
        """Bring the log to where the host is; where its history only grew, its past is not gone through again."""
        spoken = self._heard_so_far()
        done, met = (len(self._followed), self._met) if self._goes_on(pieces) else (0, 0)
        self._followed = []
        fresh = pieces[done:]
        told = [piece for piece in fresh if piece.kind != "result"]
        kept = kept_positions([one.key for one in spoken[met:]], [piece.key for piece in told])
        self._continued = self._continued or any(piece.kind == "reply" for piece in told[: len(kept)])
        standing = set(kept)
        gone = [at for at in range(len(spoken) - met) if at not in standing]
        if gone:
            await self._take_back([spoken[met + at] for at in gone])
            self._added -= sum(met + at < self._added for at in gone)
            self._spoken = spoken = [*spoken[:met], *(spoken[met + at] for at in kept)]
        await self._open_memory()
        at = met - 1
        for piece in fresh:
            if piece.kind == "result":
                await self._follow_result(spoken[at] if at >= 0 else self._first, piece)
                continue
            at += 1
            if at == len(spoken):
                spoken.append(await self._log_spoken(piece))
        self._followed, self._met = list(pieces), at + 1
        if self._recalling is not None:
            await self._recalling.surface()

    async def _open_memory(self) -> None:
        """Show the index of memories before anything is said."""
        if self._memory is None or self.session.view.length or not self.session.settings.switches.memory:
            return
        memory, tag = self._memory, os.urandom(_TAG_BYTES).hex()
        try:
            index = await to_thread.run_sync(memory.index)
            waiting = [one.file for one in await to_thread.run_sync(memory.list) if one.trust == "unconfirmed"]
        except (ReverieError, OSError) as error:
            self.session.emit(FellBack(self.session.name, "memory", f"the index cannot be read: {error}"))
            return
        text = index_context(index, path=str(memory.path), tag=tag, scope="private", unconfirmed=waiting)
        await self.session.attach(text, type=USER_CONTEXT)

    async def _take_back(self, gone: Sequence[LoggedTurn]) -> None:
        self._followed = []
        uuids = [uuid for one in gone for uuid in one.entries()]
        reason = f"the host took back or rewrote {len(gone)} message{'s' if len(gone) > 1 else ''} of its history"
        await self.session.decide(Snipped(Cause(LAYER, reason, moves_prefix=True), uuids))

    async def _log_spoken(self, piece: HistoryPiece) -> LoggedTurn:
        if piece.kind == "said":
            if self._recalling is not None:
                self._recalling.start(_text(piece.content))
            own = {OWN: piece.own} if piece.own else {}
            if piece.stands:
                entry = await self.session.append(ATTACHMENT, {"type": USER_CONTEXT, "content": piece.content, **own})
            else:
                message = {"role": "user", "content": piece.content}
                entry = await self.session.append(USER, {"message": message, **own})
        else:
            # A reply we did not see come: an example, another client's, or one whose logging failed.
            message = {"role": "assistant", "content": piece.content}
            reply = {OWN: piece.own} if piece.own else {}
            entry = await self.session.append(ASSISTANT, {"message": message, "reply": reply})
        return LoggedTurn(piece.key, [entry.uuid])

    async def _follow_result(self, owner: LoggedTurn, piece: HistoryPiece) -> None:
        heard = owner.results.get(piece.id)
        if heard is None:
            await self._log_result(owner, piece)
        elif not heard.contents:
            heard.contents.add(piece.key)  # recovered from a log that holds a preview: the host's word is taken for it
        elif piece.key not in heard.contents:
            cause = Cause(LAYER, "the host rewrote this result", moves_prefix=True)
            await self.session.decide(ResultsCleared(cause, [Replacement(piece.id, _text(piece.content), piece.id, 0)]))
            heard.contents, self._followed = {piece.key}, []

    async def _log_result(self, owner: LoggedTurn, piece: HistoryPiece) -> str | list[Block]:
        if self.session.view.tool_call(piece.id) is None:  # an orphan: kept in the log, and left out of requests
            block = {"type": "tool_result", "tool_use_id": piece.id, "content": piece.content}
            entry = await self.session.append(USER, {"message": {"role": "user", "content": [block]}})
        else:
            entry = await self.session.result(piece.id, piece.content, is_error=piece.is_error)
        shown = _shown(entry, piece)
        owner.results[piece.id] = LoggedResult(entry.uuid, (piece.key, content_key(shown)))
        return shown

    def _sent(self, request: dict[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        return {**request, "stream": body["stream"]} if "stream" in body else request


def _list(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _shown(entry: Entry, piece: HistoryPiece) -> str | list[Block]:
    """Return the content a result was logged with."""
    content: Any = (entry.message or {}).get("content")
    for block in _list(content) if content else ():
        if block.get("type") == "tool_result" and block.get("tool_use_id") == piece.id:
            return block.get("content", "")
    return piece.content


def _text(content: str | list[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in content)
