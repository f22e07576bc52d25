"""OpenAI Agents: a session on our log, a filter that sends its view, and hooks that log every response.

    session = ReverieSession(opened)
    await Runner.run(agent, text, session=session, run_config=session.run_config(), hooks=session.hooks)

The filter works without the session too, where another one keeps the history. A big tool output is kept as the preview
that stands for it. The provider caches by itself, so there is nothing to mark: what saves money is a prefix that stays.

The SDK's own compaction may stand around the session, and then shortens what was really sent:

    kept = OpenAIResponsesCompactionSession("name", session)   # in any of its modes
    await Runner.run(agent, text, session=kept, run_config=session.run_config(), hooks=session.hooks)
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

import msgspec
from agents import Agent, ModelResponse, RunConfig, RunHooks
from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.run_config import CallModelData, ModelInputData

from ..conversation.entries import Entry
from ..errors import InputError
from ..runtime.memory.memory import Memory
from ..runtime.session.session import Session
from .history_pieces import detached, pieces_of
from .host_session import HostSession
from .openai_items import Body, OpenAITranslator, items_of, model_name, wire_reply
from .sync_session import SessionBridge

__all__ = ["ReverieHooks", "ReverieSession"]

_WHAT: Final = "openai-agents"
_HELD: Final = (
    "the provider holds this conversation (previous_response_id or conversation_id), so there is no past here to "
    "shorten and the request passes as it is: keep the conversation in a session instead"
)
_encode: Final = msgspec.json.Encoder().encode


class ReverieSession:
    """The history of one conversation, kept in a session's log."""

    session_settings: SessionSettings | None = None

    def __init__(self, session: Session, *, memory: Memory | None = None) -> None:
        self.session_id = session.name
        self.hooks = ReverieHooks(self)
        """Give this to the runner, so that responses are logged with what they cost."""
        self._door = SessionBridge(session)
        self._hosted = HostSession(session, memory)
        self._wire = OpenAITranslator()
        self._sent: list[Body] | None = None
        self._sent_count = 0
        """How many sayings and replies stood when that was sent."""
        self._known: dict[str, bytes] = {}
        """Logged messages as items, by their uuid."""
        self._passed: dict[int, Agent[Any]] = {}
        """Agents whose last request passed as it was: what is answered there is not said in this conversation."""

    def run_config(self, **options: Any) -> RunConfig:
        """Return a configuration with the filter in it."""
        return RunConfig(call_model_input_filter=self.input_filter, **options)

    # -- the history

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest so many items, or all."""
        return cast(Any, await self._door.acall(partial(self._items, limit)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Log new items; what the filter and the hooks have logged already is not logged twice."""
        await self._door.acall(partial(self._add, cast("list[Body]", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take back the latest item and return it."""
        return cast(Any, await self._door.acall(self._pop))

    async def clear_session(self) -> None:
        """Take back all items; the log keeps them."""
        self._sent = None
        await self._door.acall(self._hosted.take_back_all)

    async def _read_compaction_items(self, limit: int | None) -> tuple[list[TResponseInputItem], bool]:
        """Return what the SDK's compaction may shorten, and whether that is all of it.

        The SDK asks its store for this by name and compacts only what it finds in the last request. The items of the
        log are not those: what was cleared stands whole in them. So it is told what was sent, and what came since.
        """
        items = await self._door.acall(self._exchanged)
        shown = items if limit is None else items[-limit:] if limit > 0 else []
        return cast(Any, shown), limit is not None and len(items) < limit

    async def _exchanged(self) -> list[Body]:
        if self._sent is None:
            return await self._items()
        return [*self._sent, *(item for entry in self._hosted.history(self._sent_count) for item in self._told(entry))]

    async def _items(self, limit: int | None = None) -> list[Body]:
        """Return the latest so many items, read from the end."""
        found: list[list[Body]] = []
        left = limit
        for entries in self._hosted.latest():
            if left is not None and left <= 0:
                break
            found.append([item for entry in entries for item in self._told(entry)])
            left = left - len(found[-1]) if left is not None else None
        items = [item for group in reversed(found) for item in group]
        return items if limit is None else items[-limit:] if limit > 0 else []

    def _told(self, entry: Entry) -> list[Body]:
        """Return a logged message as items that are the host's to write into."""
        known = self._known.get(entry.uuid)
        if known is None:
            known = self._known[entry.uuid] = _encode(items_of(entry))
        return msgspec.json.decode(known)

    async def _add(self, items: list[Body]) -> None:
        await self._hosted.take_in(pieces_of(OpenAITranslator().messages(detached(items))))

    async def _pop(self) -> Body | None:
        entries = next(self._hosted.latest(), list[Entry]())
        last = [item for entry in entries for item in self._told(entry)]
        if not last:
            return None
        self._sent = None
        *left, popped = last
        await self._hosted.replace_last(pieces_of(OpenAITranslator().messages(left)))
        return popped

    # -- the seams

    async def input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the session's view in place of the items that would be sent."""
        sent = await self._door.asoftly(_WHAT, partial(self._prepared, data))
        if sent is None:
            self._sent = None
            self._passed[id(data.agent)] = data.agent
            return data.model_data
        self._passed.pop(id(data.agent), None)
        self._sent, self._sent_count = sent, self._hosted.count
        return ModelInputData(input=cast(Any, list(sent)), instructions=data.model_data.instructions)

    async def _prepared(self, data: CallModelData[Any]) -> list[Body]:
        if not self._wire.goes_on(data.model_data.input):
            self._wire = OpenAITranslator()
        wire = self._wire
        body = wire.request(data)
        if wire.held_elsewhere:
            raise InputError(_HELD)
        return wire.items((await self._hosted.prepare(body))["messages"])

    def passed(self, agent: Agent[Any]) -> bool:
        """Say whether an agent's last request was none of this conversation's, or could not be changed."""
        return id(agent) in self._passed

    async def observe(self, response: ModelResponse, model: str) -> None:
        """Log a response and what it cost."""
        await self._door.asoftly(_WHAT, partial(self._observe, response, model))

    async def _observe(self, response: ModelResponse, model: str) -> None:
        await self._hosted.observe(wire_reply(response, model))


class ReverieHooks(RunHooks[Any]):
    """Tells a session of every response."""

    def __init__(self, session: ReverieSession) -> None:
        self._session = session

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        """Log a response and what it cost, but for one to a request that passed as it was."""
        if not self._session.passed(agent):
            await self._session.observe(response, model_name(agent))
