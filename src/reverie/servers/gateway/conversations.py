"""Tell the conversations of a gateway apart: by the names that clients send, else by their messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...conversation.decisions import PrefixRendered, Snipped, decision_of
from ...conversation.entries import ASSISTANT, DECISION, Entry
from ...importers.foreign_values import as_text
from ...importers.import_result import safe_id
from ...values import record
from .content import SeenMessage, SeenRequest, identity_of, message_of

_SESSIONS: Final = (
    "x-claude-code-session-id",
    "x-parent-session-id",
    "session-id",
    "session_id",
    "x-session-id",
    "x-opencode-session",
    "conversation_id",
)
"""The headers that name a session, a parent before its child."""
_AGENTS: Final = ("x-claude-code-agent-id", "thread-id", "x-session-id", "conversation_id")
"""The headers that name an agent of a session, if they differ from the session's name."""


@record
class SessionName:
    """The names that a client gives: of the session, and of the agent in it; empty where it gives none."""

    session: str
    agent: str = ""


def name_of(headers: Mapping[str, str], request: SeenRequest) -> SessionName:
    """Return the names in a request's headers, or the session that its body names."""
    session = next((headers[name] for name in _SESSIONS if headers.get(name)), "") or request.session
    if not session:
        return SessionName("")
    agents = (headers[name] for name in _AGENTS if headers.get(name) not in (None, "", session))
    return SessionName(safe_id(session), safe_id(agent) if (agent := next(agents, "")) else "")


class Conversation:
    """One conversation: the messages of its last request with the reply, and every entry recorded of it."""

    def __init__(self, session_id: str, identity: str = "") -> None:
        """Begin a conversation; ``session_id`` is the name of its log."""
        self.session_id = session_id
        self.identity = identity
        self.messages: list[tuple[str, str]] = []
        """The uuid and the digest of each message in view."""
        self.entries: dict[str, Entry] = {}
        self.replies: dict[str, int] = {}
        """By the id of a reply: the number of messages in view with it."""
        self.prefix: PrefixRendered | None = None
        self.project = ""
        self.sent = 0
        """The number of messages of the last request."""

    @property
    def is_agent(self) -> bool:
        """Whether this is a conversation beside the main one of its session."""
        return ".agent-" in self.session_id

    def shared(self, messages: Sequence[SeenMessage]) -> int:
        """Return how many messages at its start a request shares with this conversation."""
        count = 0
        for (_, digest), message in zip(self.messages, messages, strict=False):
            if digest != message.digest:
                break
            count += 1
        return count

    def is_continued_by(self, messages: Sequence[SeenMessage]) -> bool:
        """Return whether a request has every message of the last one, or is the same one again."""
        return bool(self.sent) and self.shared(messages) >= self.sent

    def restore(self, entries: Sequence[Entry]) -> None:
        """Take over the entries of a log."""
        self.entries = {entry.uuid: entry for entry in entries}
        seen: dict[str, str] = {}
        for entry in entries:
            decision = decision_of(entry.body) if entry.kind == DECISION else None
            if isinstance(decision, Snipped):
                seen = {uuid: digest for uuid, digest in seen.items() if uuid not in decision.messages}
            elif isinstance(decision, PrefixRendered):
                self.prefix, self.identity = decision, identity_of(decision.system, decision.tools)
            elif (message := message_of(entry)) is not None:
                seen[entry.uuid] = message.digest
        self.follow(list(seen.items()))

    def follow(self, messages: list[tuple[str, str]]) -> None:
        """Take the messages that are in view now, the last reply among them."""
        self.messages = messages
        answered = [at for at, (uuid, _) in enumerate(messages) if self.entries[uuid].kind == ASSISTANT]
        self.replies |= {as_text(self.entries[messages[at][0]].reply.get("id")): at + 1 for at in answered}
        self.sent = answered[-1] if answered and answered[-1] == len(messages) - 1 else len(messages)

    def past(self, reply: str) -> tuple[SeenMessage, ...]:
        """Return the messages up to a reply."""
        found = (message_of(self.entries[uuid]) for uuid, _ in self.messages[: self.replies[reply]])
        return tuple(message for message in found if message is not None)


def chosen(known: Sequence[Conversation], request: SeenRequest, *, named: bool) -> Conversation | None:
    """Return the conversation that a request goes on with; None for a new one.

    Of a named session it is the one with the longest common start, else one of the same agent, whose client replaced
    its messages. Without a name it is the one whose last request this one has whole.
    """
    if not named:
        return max(
            (one for one in known if one.is_continued_by(request.messages)), key=lambda one: one.sent, default=None
        )
    best = max(known, key=lambda one: one.shared(request.messages), default=None)
    if best is not None and best.shared(request.messages):
        return best
    identity = identity_of(request.system, request.tools)
    return next((one for one in known if one.identity == identity), None)


def is_fork(known: Conversation, request: SeenRequest) -> bool:
    """Return whether a request of an unnamed session goes another way after a reply of a known conversation."""
    count = known.shared(request.messages)
    return any(message.kind == ASSISTANT for message in request.messages[:count])


def is_side_call(request: SeenRequest) -> bool:
    """Return whether a request asks one question without tools, such as that for a title."""
    return not request.tools and not any(message.kind == ASSISTANT for message in request.messages)
