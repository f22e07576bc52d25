"""Record exchanges as sessions of the library: their messages, the bill of every call, and each break of the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID, uuid5

from ...cache.usage import Usage
from ...conversation.decisions import Cause, PrefixRendered
from ...conversation.entries import DECISION, iso
from ...errors import ReverieError
from ...events import Event, FellBack
from ...importers import ImportedSession
from ...importers.foreign_values import Record
from ...importers.import_result import RecordSource, SessionDraft
from ...runtime.archive.recordings import DELETED, GATEWAY, Recordings, project_of
from ...runtime.library import Library
from ...runtime.places.archive_index import load_index
from ...runtime.places.projects import session_of
from ...runtime.places.storage import storage_of
from ...runtime.session.accounts import Accounts, CallBill
from ...runtime.session.ledger import open_ledger
from ...settings import Settings
from ...values import replace
from .content import SeenMessage, SeenRequest, Unreadable, identity_of, reply_message, reply_of, request_of
from .conversations import Conversation, chosen, is_fork, is_side_call, name_of
from .exchange import SeenExchange

_NAMESPACE: Final = UUID("0d6a2c5e-8f0a-5c39-9b0a-3f6f1f7a4e21")
_CAUSE: Final = Cause("gateway", "as the client sent it")
_MAX_SENTENCES: Final = 1_000
_MAX_SESSIONS: Final = 256
"""The sessions whose conversations stay in memory; an older one is read from its logs again."""


class Recorder:
    """Records the exchanges of a gateway, one after the other; a failure is reported and stops nothing."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        """Record where the settings keep sessions; ``tell`` gets each new reason why something is not recorded."""
        self._home = settings.home
        self._tell = tell
        self._told = set[str]()
        self._storage = storage_of(settings)
        self._library = Library(self._storage)
        self._ledger = open_ledger(settings, self._storage, listener=self._fell_back)
        self._known: dict[str, list[Conversation]] = {}
        self._waiting: dict[str, list[tuple[SeenExchange, Conversation]]] = {}
        """Side calls by their session, whose project only its main conversation names."""
        self._accounts: dict[str, Accounts] = {}
        self._now = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for session in list(self._waiting):
            for exchange, conversation in self._waiting.pop(session):
                self.take(exchange, conversation)
        self._ledger.close()
        self._storage.close()

    def take(self, exchange: SeenExchange, conversation: Conversation | None = None) -> str | None:
        """Record an exchange and return the key of its log; None if it is not recorded, or not yet.

        A side call waits for the main conversation of its session, unless its own ``conversation`` is given.
        """
        if not 200 <= exchange.status < 300:
            return None
        try:
            return self._take(exchange, conversation)
        except Unreadable as error:
            self._say(f"a request of {exchange.headers.get('user-agent', 'a client')[:40]} is not recorded: {error}")
        except Exception as error:  # one bad request must not stop the recording of the next
            said = str(error) if isinstance(error, ReverieError | OSError) else f"{type(error).__name__}: {error}"
            self._say(f"a request is not recorded: {said}")
            self._known.clear()  # the next request reads the logs again
        return None

    def _say(self, sentence: str) -> None:
        if sentence not in self._told and len(self._told) < _MAX_SENTENCES:
            self._told.add(sentence)
            self._tell(sentence)

    def _fell_back(self, event: Event) -> None:
        if isinstance(event, FellBack):
            self._say(event.why)

    def _take(self, exchange: SeenExchange, given: Conversation | None) -> str | None:
        request = request_of(exchange)
        conversation = given or self._conversation(exchange, request)
        session = conversation.session_id.split(".agent-")[0]
        project = self._project(session)
        if conversation.is_agent and not project and given is None:
            self._waiting.setdefault(session, []).append((exchange, conversation))
            return None
        conversation.project = conversation.project or project
        reply = reply_of(exchange, request.model)
        if request.follows and request.follows in conversation.replies:
            past = conversation.past(request.follows)
            request = replace(request, messages=(*past, *request.messages))
        recorded = _RecordedExchange(conversation, request, iso(exchange.at))
        conversation.project = conversation.project or project_of(recorded.session())
        bill = self._bill(recorded, reply, exchange) if reply is not None else None
        if reply is not None:
            recorded.answer(reply, bill)
        found = recorded.session()
        filed = Recordings(self._library, index=load_index(str(self._home)))
        key, result = filed.file(found, conversation.project, Path())
        if result == DELETED:
            return None
        if bill is not None and recorded.call:
            self._accounts[conversation.session_id].enter(bill, recorded.call)
        recorded.commit()
        self._forget_oldest(session)
        for waiting, its in self._waiting.pop(session, ()):
            self.take(waiting, its)
        return key

    def _forget_oldest(self, newest: str) -> None:
        """Keep the conversations of the sessions that were used last."""
        self._known[newest] = self._known.pop(newest, [])
        while len(self._known) > _MAX_SESSIONS:
            for one in self._known.pop(next(iter(self._known))):
                self._accounts.pop(one.session_id, None)

    def _project(self, session: str) -> str:
        return next((one.project for one in self._known.get(session, ()) if one.session_id == session), "")

    def _bill(self, recorded: _RecordedExchange, reply: Record, exchange: SeenExchange) -> CallBill | None:
        conversation = recorded.conversation
        name = conversation.session_id
        if name not in self._accounts:
            self._accounts[name] = Accounts(
                self._ledger, session=name, project=conversation.project, clock=lambda: self._now
            )
        self._now = exchange.at
        self._accounts[name].before(recorded.request.body, [], None)
        saved = self._saved(recorded, self._accounts[name], exchange.saved) if exchange.saved else {}
        bill = self._accounts[name].after(reply, cache={"at": exchange.at, **saved})
        if saved and bill is not None:
            cost = "unknown" if bill.call.cost_usd is None else f"${bill.call.cost_usd:.4f}"
            gain = "" if saved["saved_usd"] is None else f", about ${saved['saved_usd']:.4f}"
            self._tell(f"{name}: this reply cost {cost}; saving left out {saved['saved_tokens']:,} tokens{gain}")
        return bill

    def _saved(self, recorded: _RecordedExchange, accounts: Accounts, saved: Record) -> Record:
        """Log the decisions about results that saving replaced, and return the tokens and dollars saved."""
        recorded.decide(saved["decisions"])
        prices = accounts.prices(recorded.request.model)
        old = Usage(saved["tokens"] - saved["new_tokens"], saved["new_tokens"])
        usd = prices.cost_of(old) if prices is not None else None
        return {"saved_tokens": saved["tokens"], "saved_usd": usd}

    # -- which conversation

    def _conversation(self, exchange: SeenExchange, request: SeenRequest) -> Conversation:
        name = name_of(exchange.headers, request)
        if request.follows and (found := self._answered(request.follows)) is not None:
            return found
        if not name.session:
            first = identity_of(request.system, request.tools) + request.messages[0].digest
            return self._unnamed(f"{GATEWAY}-{uuid5(_NAMESPACE, first).hex[:12]}", request)
        session = f"{GATEWAY}-{name.session}"
        known = self._all(session)
        if name.agent:
            log = f"{session}.agent-{name.agent}"
            return next((one for one in known if one.session_id == log), None) or self._new(session, log, request)
        if all(one.is_agent for one in known) and not is_side_call(request):
            return self._new(session, session, request)
        found = chosen(known, request, named=True)
        return found or self._new(session, _agent_name(session, known), request)

    def _unnamed(self, base: str, request: SeenRequest) -> Conversation:
        """Return the conversation of a client that gives no name; its opening and a number are its name."""
        number = 1
        while True:
            session = base if number == 1 else f"{base}-{number}"
            known = self._all(session)
            if not known:
                return self._new(session, session, request)
            if (found := chosen(known, request, named=False)) is not None:
                return found
            if any(is_fork(one, request) for one in known):
                return self._new(session, _agent_name(session, known), request)
            number += 1

    def _answered(self, reply: str) -> Conversation | None:
        return next((one for rows in self._known.values() for one in rows if reply in one.replies), None)

    def _new(self, session: str, log: str, request: SeenRequest) -> Conversation:
        made = Conversation(log, identity_of(request.system, request.tools))
        self._known.setdefault(session, []).append(made)
        return made

    def _all(self, session: str) -> list[Conversation]:
        """Return the conversations of a session, those on disk too."""
        if session not in self._known:
            beginnings = (f"/{session}.jsonl", f"/{session}.agent-")
            keys = [key for key in sorted(self._library.keys()) if any(one in key for one in beginnings)]
            self._known[session] = [*map(self._restored, keys)]
        return self._known[session]

    def _restored(self, key: str) -> Conversation:
        made = Conversation(session_of(key))
        made.project = key.split("/")[1]
        made.restore(self._library.load(key).entries)
        return made


def _agent_name(session: str, known: Sequence[Conversation]) -> str:
    taken = {one.session_id for one in known}
    return next(name for number in range(1, 100_000) if (name := f"{session}.agent-{number}") not in taken)


class _RecordedExchange:
    """An exchange on its way into the log of its conversation."""

    def __init__(self, conversation: Conversation, request: SeenRequest, time: str) -> None:
        self.conversation = conversation
        self.request = request
        self.call = ""
        """The id of the entry with the bill."""
        self._time = time
        self._turns: dict[str, int] = {}
        self._draft = draft = SessionDraft(GATEWAY, conversation.session_id, RecordSource(GATEWAY, ()))
        draft.model, draft.cwd = request.model, request.directory
        draft.agent = conversation.session_id.rsplit(".agent-", 1)[1] if conversation.is_agent else None
        self._messages = [(self._uuid(one), one) for one in request.messages]
        self._prefix = PrefixRendered(_CAUSE, request.model, request.system, request.tools, request.options)
        known = [uuid in conversation.entries for uuid, _ in self._messages]
        new = known.index(False) if False in known else len(known)
        for uuid, message in self._messages[:new]:
            self._say(uuid, message)
        if self._prefix != conversation.prefix:
            name = f"{conversation.session_id}:prefix:{time}:{len(conversation.entries)}"
            draft.decide(self._prefix, time, str(uuid5(_NAMESPACE, name)))
        for uuid, message in self._messages[new:]:
            self._say(uuid, message)
        draft.abandoned |= {uuid for uuid, _ in conversation.messages} - {uuid for uuid, _ in self._messages}

    def _uuid(self, message: SeenMessage) -> str:
        """Return the id of a message: the same in every request that has it."""
        turn = self._turns[message.digest] = self._turns.get(message.digest, 0) + 1
        return str(uuid5(_NAMESPACE, f"{self.conversation.session_id}:{message.digest}:{turn}"))

    def _say(self, uuid: str, message: SeenMessage, **more: Any) -> None:
        known = self.conversation.entries.get(uuid)
        if known is not None:
            self._draft.add(known.kind, known.body, known.time, uuid)
            return
        if message.attachment:
            more["attachment"] = {"type": message.attachment}
        self._draft.say(message.kind, message.role, message.content, self._time, uuid, **more)

    def decide(self, decisions: Sequence[Record]) -> None:
        """Add decisions about results of this request."""
        for body in decisions:
            name = f"{self.conversation.session_id}:{body.get('tool_use_id')}:decision"
            self._draft.add(DECISION, body, self._time, str(uuid5(_NAMESPACE, name)))

    def answer(self, reply: Record, bill: CallBill | None) -> None:
        """Add the reply, and the bill of its call."""
        message = reply_message(reply)
        if message is None:
            return
        about = {key: reply[key] for key in ("id", "model", "stop_reason", "usage") if reply.get(key)}
        uuid = self._uuid(message)
        self._messages.append((uuid, message))
        self._draft.abandoned.discard(uuid)
        self._say(uuid, message, reply=about)
        if bill is not None:
            self.call = str(uuid5(_NAMESPACE, f"{uuid}:{about.get('id')}:{self._time}"))
            self._draft.decide(bill.call, self._time, self.call)

    def session(self) -> ImportedSession:
        """Return the exchange as a recording that extends the log."""
        return self._draft.done()

    def commit(self) -> None:
        """Add the new log entries to the conversation."""
        self.conversation.entries |= {entry.uuid: entry for entry in self._draft.entries}
        self.conversation.prefix = self._prefix
        self.conversation.follow([(uuid, message.digest) for uuid, message in self._messages])
