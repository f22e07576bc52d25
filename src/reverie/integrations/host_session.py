"""The three operations that all integrations share: log a tool result, prepare the next request, observe a reply.

A host keeps its own history and sends all of it before every call. ``HostSession`` maps it onto a session's log piece
by piece: new pieces are appended, and pieces that the host removed or rewrote leave the view by a logged decision.
The log is the only state: everything in memory here is rebuilt from it when a host resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from anyio import Lock

from ..conversation.cuts import USER_CONTEXT, Item
from ..conversation.decisions import Cause, Replacement, ResultsCleared, Snipped
from ..conversation.entries import ASSISTANT, ATTACHMENT, USER, Entry, reply_id
from ..conversation.wire.fields import similar_field
from ..conversation.wire.options import DEFAULT_MAX_TOKENS
from ..errors import InputError, ModelError, SessionError
from ..events import EntryAppended, Event
from ..runtime.memory.memory import Memory
from ..runtime.memory.session import Session
from ..runtime.memory.session_memory import MemoryContext
from ..text.counts import counted
from .history_pieces import (
    Block,
    HistoryPiece,
    HistoryReader,
    block_list,
    common_length,
    content_key,
    detached,
    is_text,
    reply_key,
    signatures,
    without_cache_marks,
)
from .session_history import OWN, LoggedResult, LoggedTurn, kept_positions, logged_turns

SendBeside: TypeAlias = "Callable[[dict[str, Any]], None]"
"""Sends a request for a summary beside the conversation, without waiting, and passes on its reply later."""

LAYER: Final = "host"
"""The layer named as the cause of decisions about the host's changes to its history."""
_TAKEN: Final = frozenset({"messages", "model", "max_tokens", "system", "tools", "stream", "cache_control", "thread"})


class HostSession:
    """A conversation that another program keeps, mirrored in a session's log."""

    def __init__(self, session: Session, memory: Memory | None = None, *, messages_only: bool = False) -> None:
        """Mirror a host's conversation in this session.

        With ``memory`` the memory index opens the conversation, and memories that fit are recalled. With
        ``messages_only`` the host takes over only messages and system prompt of a request, and declares its own tools.
        """
        self.session = session
        if messages_only:
            session.parts.policy.use_messages_only()
        self._lock = Lock()
        self._memory = MemoryContext(session, memory) if memory is not None else None
        if self._memory is not None:
            self._memory.add_to_session()
        self._logged_turns: list[LoggedTurn] | None = None
        self._first = LoggedTurn(b"", [])
        """Holds the results that come before any reply."""
        self._continued = False
        self._reader = HistoryReader()
        self._followed: list[HistoryPiece] = []
        """The host's history at the last request; it holds ``_met`` messages and replies."""
        self._met = 0
        self._added = 0
        """The number of messages and replies that a host with its history in this log has added itself."""
        self._entries: dict[str, Entry] = {}
        self._bindings: dict[str, str] = {}
        """The binding of each logged reply by the signatures of its thinking: the host may send it at another place."""
        self._entries_read = 0
        self._asked: dict[str, Any] = {}
        self._replied = ""
        self._logged = ""
        session.listen(self._note_entry)

    # -- the three operations

    async def prepare(self, body: Mapping[str, Any], beside: SendBeside | None = None) -> dict[str, Any]:
        """Log the changes of the host's history and return the request to send in place of the host's own.

        Both requests are in the wire's shape. A request for a summary that is due is sent by ``beside``. Raise
        ``InputError`` or ``SessionError`` for a request that must pass unchanged: it belongs to another conversation,
        or it ends in a reply that the model should continue.
        """
        async with self._lock:
            pieces = self._reader.pieces(body.get("messages") or [])
            if not pieces or pieces[-1].kind == "reply":
                raise InputError("the request ends in a prefilled reply: it passes unchanged")
            options = {key: value for key, value in body.items() if key not in _TAKEN and value is not None}
            thread: Mapping[str, Any] = body.get("thread") or {}
            if thread.get("type") == "continue":
                await self._go_on(pieces, str(thread.get("previous_message_id")))
                return await self._prepared({**self._asked, **options}, body)
            self._refuse_others(pieces, body)
            await self._follow(pieces)
            self._asked = {
                "model": str(body.get("model") or "unnamed"),  # such a host takes only the messages
                "max_tokens": body.get("max_tokens") or DEFAULT_MAX_TOKENS,
                "system": without_cache_marks(body.get("system")),
                "tools": without_cache_marks(list(body.get("tools") or ())),
                **options,
            }
            await self._ask_for_summary(beside)
            return await self._prepared(self._asked, body)

    async def recover(self, error: ModelError, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return another request after the provider refused the last prepared one; None if a change cannot help."""
        async with self._lock:
            if not await self.session.recover(error):
                return None
            return await self._prepared(self._asked, body)

    async def observe(self, reply: Any, beside: SendBeside | None = None) -> None:
        """Log a reply and its cost, once; a request for a summary that is due is sent by ``beside``."""
        async with self._lock:
            self._logged = ""
            await self.session.observe(detached(reply))
            if self._logged:  # a repeated reply is not logged again
                entry = self._known_entries()[self._logged]
                self._turns().append(LoggedTurn(reply_key((entry.message or {}).get("content")), [entry.uuid]))
                self._replied = reply_id(entry)
            await self._ask_for_summary(beside)

    async def _ask_for_summary(self, beside: SendBeside | None) -> None:
        """Send a request for the provider's summary beside the conversation, if one is due."""
        prefix = self.session.view.facts.prefix
        if (
            beside is None
            or self.session.model is not None
            or prefix is None
            or prefix.model != self._asked.get("model")
        ):
            return  # a session with a model asks for summaries itself
        request = await self.session.background_request()
        if request is not None:
            beside(request)

    async def result(self, call_id: str, output: Any, *, is_error: bool = False) -> str | list[Block] | None:
        """Log a tool's output and return the content to show; None for an unknown call or one with a result."""
        async with self._lock:
            turns = self._turns()
            owner = turns[-1] if turns else self._first
            if self.session.view.tool_call(call_id) is None or call_id in owner.results:
                return None
            piece = HistoryPiece("result", content_key(output), detached(output), call_id, is_error)
            return await self._log_result(owner, piece)

    # -- for hosts that keep their history in this log

    async def add(self, pieces: Sequence[HistoryPiece]) -> None:
        """Log the pieces that the host adds, except those that were logged when they were sent."""
        async with self._lock:
            turns = self._turns()
            for piece in pieces:
                if piece.kind == "result":
                    await self._follow_result(turns[self._added - 1] if self._added else self._first, piece)
                elif self._added < len(turns) and turns[self._added].key == piece.key:
                    self._added += 1
                else:
                    turns.append(await self._log_turn(piece))
                    self._added = len(turns)

    async def replace_last(self, pieces: Sequence[HistoryPiece]) -> None:
        """Remove the last message or reply, with its results, from the view, and log these pieces in its place."""
        async with self._lock:
            turns = self._turns()
            await self._remove([turns.pop()])
            await self._log_pieces(turns, pieces)
            self._added = len(turns)

    async def remove_all(self) -> None:
        """Remove the whole conversation from the view; the log keeps it."""
        async with self._lock:
            said = dict.fromkeys(uuid for one in self._turns() for uuid in one.entries())
            said |= dict.fromkeys(piece.uuid for group in self.session.view.groups for piece in group.pieces)
            if said:
                cause = Cause(LAYER, "the host emptied its history", moves_prefix=True)
                await self.session.log.decide(Snipped(cause, list(said)))
            self._logged_turns, self._first, self._followed, self._added = [], LoggedTurn(b"", []), [], 0

    def history(self, start: int = 0) -> list[Entry]:
        """Return a list of the entries from message or reply number ``start`` on, results after their reply."""
        return [entry for found in self._entries_of(self._turns()[start:]) for entry in found]

    def latest(self) -> Iterator[list[Entry]]:
        """Yield the entries of each message or reply with its results, from the last one to the first."""
        return self._entries_of(reversed(self._turns()))

    def _entries_of(self, turns: Iterable[LoggedTurn]) -> Iterator[list[Entry]]:
        entries = self._known_entries()
        return ([entries[uuid] for uuid in one.entries() if uuid in entries] for one in turns)

    @property
    def count(self) -> int:
        """The number of messages and replies of the host's history that the log holds and no snip removed."""
        return len(self._turns())

    def _known_entries(self) -> dict[str, Entry]:
        """Return a dict of all logged messages by their uuid; only entries since the last call are read."""
        new = self.session.view.history_from(self._entries_read)
        self._entries_read += len(new)
        for one in new:
            if isinstance(one, Item):
                self._entries[one.uuid] = one.entry
                if isinstance(bound := one.entry.body.get("bound"), str):
                    self._bindings |= dict.fromkeys(signatures(one.message["content"]), bound)
        return self._entries

    # -- following the host

    def _note_entry(self, event: Event) -> None:
        if isinstance(event, EntryAppended) and event.kind == ASSISTANT:
            self._logged = event.uuid

    def _turns(self) -> list[LoggedTurn]:
        if self._logged_turns is None:
            self._logged_turns = logged_turns(self.session.view, self._first)
            self._continued = len(self._logged_turns) > 1
            self._added = len(self._logged_turns)
        return self._logged_turns

    def _refuse_others(self, pieces: Sequence[HistoryPiece], body: Mapping[str, Any]) -> None:
        """Raise ``SessionError`` for a request with another system prompt or tools and no reply that is logged.

        Until a request continues the first reply, some of these are accepted.
        """
        prefix = self.session.view.facts.prefix
        if prefix is None or (self._goes_on(pieces) and any(piece.kind == "reply" for piece in self._followed)):
            return
        tools = [tool.get("name") for tool in body.get("tools") or ()]
        known_tools = [tool.get("name") for tool in prefix.tools]
        if tools == known_tools and without_cache_marks(body.get("system")) == prefix.system:
            return
        known = {one.key for one in self._turns()}
        shared = [piece for piece in pieces if piece.key in known]
        replied = any(piece.kind == "reply" for piece in pieces)
        if any(piece.kind == "reply" for piece in shared) or (shared and replied and tools and tools == known_tools):
            return  # the second case: a reply was regenerated under another system prompt
        refused = self._continued
        if self._replied and not refused:  # no request continued the first reply: a request for a title passes
            refused = bool(known_tools or (shared and not tools and not replied))
        if refused:
            raise SessionError(
                "the request does not continue this session's conversation and passes unchanged: "
                "give each conversation a session of its own"
            )

    async def _go_on(self, pieces: Sequence[HistoryPiece], previous: str) -> None:
        """Log a host's pieces whose provider keeps the history; raise ``SessionError`` unless they follow a reply."""
        turns = self._turns()
        if not self._asked or previous != self._replied:
            raise SessionError(f"the request continues {previous!r}, not the last reply: it passes unchanged")
        await self._log_pieces(turns, pieces)

    async def _log_pieces(self, turns: list[LoggedTurn], pieces: Sequence[HistoryPiece]) -> None:
        for piece in pieces:
            if piece.kind == "result":
                await self._follow_result(turns[-1], piece)
            else:
                turns.append(await self._log_turn(piece))

    def _goes_on(self, pieces: Sequence[HistoryPiece]) -> bool:
        return bool(self._followed) and common_length(self._followed, pieces) == len(self._followed)

    async def _follow(self, pieces: Sequence[HistoryPiece], *, may_cut: bool = True) -> None:
        """Log the differences between the host's history and the log, new parts only, then attach recalled memories.

        With ``may_cut``, the messages after a result that the host rewrote with images are logged again.
        """
        turns = self._turns()
        done, met = (len(self._followed), self._met) if self._goes_on(pieces) else (0, 0)
        self._followed = []
        fresh = pieces[done:]
        spoken = [piece for piece in fresh if piece.kind != "result"]
        kept = kept_positions([one.key for one in turns[met:]], [piece.key for piece in spoken])
        self._continued = self._continued or any(piece.kind == "reply" for piece in spoken[: len(kept)])
        still_there = set(kept)
        gone = [at for at in range(len(turns) - met) if at not in still_there]
        if gone:
            await self._remove([turns[met + at] for at in gone])
            self._added -= sum(met + at < self._added for at in gone)
            self._logged_turns = turns = [*turns[:met], *(turns[met + at] for at in kept)]
        if self._memory is not None:
            await self._memory.open_conversation()
        at = met - 1
        for piece in fresh:
            if piece.kind == "result":
                owner = turns[at] if at >= 0 else self._first
                if may_cut and at >= 0 and owner.rewrites(piece) and not is_text(piece.content):
                    await self._remove(turns[at:])  # a decision could only show text in place of the result
                    self._logged_turns, self._added = turns[:at], min(at, self._added)
                    return await self._follow(pieces, may_cut=False)
                await self._follow_result(owner, piece)
                continue
            at += 1
            if at == len(turns):
                turns.append(await self._log_turn(piece))
        self._followed, self._met = list(pieces), at + 1
        if self._memory is not None:
            await self._memory.recall.surface()
        return None

    async def _remove(self, gone: Sequence[LoggedTurn]) -> None:
        self._followed = []
        uuids = [uuid for one in gone for uuid in one.entries()]
        reason = f"the host removed or rewrote {counted(len(gone), 'message')} of its history"
        await self.session.log.decide(Snipped(Cause(LAYER, reason, moves_prefix=True), uuids))

    async def _log_turn(self, piece: HistoryPiece) -> LoggedTurn:
        if piece.kind == "said":
            if self._memory is not None:
                self._memory.begin_query(_text(piece.content))
            own = {OWN: piece.own} if piece.own else {}
            if piece.stands:
                entry = await self.session.log.append(
                    ATTACHMENT, {"type": USER_CONTEXT, "content": piece.content, **own}
                )
            else:
                message = {"role": "user", "content": piece.content}
                entry = await self.session.log.append(USER, {"message": message, **own})
        else:
            # A reply that was not observed: an example, another client's, or one that could not be logged.
            message = {"role": "assistant", "content": piece.content}
            reply = {OWN: piece.own} if piece.own else {}
            self._known_entries()
            bound = next((self._bindings[one] for one in signatures(piece.content) if one in self._bindings), None)
            body = {"message": message, "reply": reply, **({} if bound is None else {"bound": bound})}
            entry = await self.session.log.append(ASSISTANT, body)
            self.session.parts.thinking.bind(entry.uuid, bound)
        return LoggedTurn(piece.key, [entry.uuid])

    async def _follow_result(self, owner: LoggedTurn, piece: HistoryPiece) -> None:
        result = owner.results.get(piece.id)
        if result is None:
            await self._log_result(owner, piece)
        elif not result.contents:
            result.contents.add(piece.key)  # recovered from a log that holds a preview: accept the host's content
        elif owner.rewrites(piece):
            cause = Cause(LAYER, "the host rewrote this result", moves_prefix=True)
            await self.session.log.decide(
                ResultsCleared(cause, [Replacement(piece.id, _text(piece.content), piece.id, 0)])
            )
            result.contents, self._followed = {piece.key}, []

    async def _log_result(self, owner: LoggedTurn, piece: HistoryPiece) -> str | list[Block]:
        if (
            self.session.view.tool_call(piece.id) is None
        ):  # a result without a call: it is in the log, but not in requests
            block = {"type": "tool_result", "tool_use_id": piece.id, "content": piece.content}
            entry = await self.session.log.append(USER, {"message": {"role": "user", "content": [block]}})
        else:
            entry = await self.session.result(piece.id, piece.content, is_error=piece.is_error)
        shown = _shown(entry, piece)
        owner.results[piece.id] = LoggedResult(entry.uuid, (piece.key, content_key(shown)))
        return shown

    async def _prepared(self, asked: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the session's next request with all fields of the host's; the provider judges unknown names."""
        unknown = {name: value for name, value in asked.items() if similar_field(name)}
        known = {name: value for name, value in asked.items() if name not in unknown}
        streams = {"stream": body["stream"]} if "stream" in body else {}
        return {**await self.session.prepare(**known), **unknown, **streams}


def _shown(entry: Entry, piece: HistoryPiece) -> str | list[Block]:
    """Return the content of a result as its entry holds it; the piece's own content if the entry has none."""
    for block in block_list((entry.message or {}).get("content")):
        if block.get("type") == "tool_result" and block.get("tool_use_id") == piece.id:
            return block.get("content", "")
    return piece.content


def _text(content: str | list[Block]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in content)
