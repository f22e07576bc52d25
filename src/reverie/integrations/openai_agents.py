"""OpenAI Agents: a session on our log, a filter that sends its view, and hooks that log every response.

    session = ReverieSession(opened)
    agent = Agent(name="a", tools=[*tools, session.expand_tool])
    await Runner.run(agent, text, session=session, run_config=session.run_config(), hooks=session.hooks)

The filter also works alone, where another session keeps the history. A big tool output is stored as its preview. The
provider caches automatically, so no marks are needed: a stable prefix saves the money.

The SDK's own compaction may wrap the session; it then shortens the request that was really sent:

    kept = OpenAIResponsesCompactionSession("name", session)   # in any of its modes
    await Runner.run(agent, text, session=kept, run_config=session.run_config(), hooks=session.hooks)
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

import msgspec
from agents import Agent, FunctionTool, ModelResponse, RunConfig, RunHooks
from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.run_config import CallModelData, ModelInputData

from ..conversation.entries import Entry
from ..errors import InputError
from ..runtime.memory.memory import Memory
from ..runtime.memory.session import Session
from ..runtime.session.offload.read_back import EXPAND_TOOL
from .history_pieces import detached, pieces_of
from .host_session import HostSession
from .openai_items import Body, OpenAITranslator, items_of, model_name, system_text, wire_reply
from .sync_session import SessionBridge

__all__ = ["ReverieHooks", "ReverieSession"]

_WHAT: Final = "openai-agents"
_HELD: Final = (
    "the provider holds this conversation (previous_response_id or conversation_id), so there is no history here to "
    "shorten and the request passes unchanged: keep the conversation in a session instead"
)
_encode: Final = msgspec.json.Encoder().encode


class ReverieSession:
    """The history of one conversation, kept in a session's log."""

    session_settings: SessionSettings | None = None

    def __init__(self, session: Session, *, memory: Memory | None = None) -> None:
        self.session_id = session.name
        self.hooks = ReverieHooks(self)
        """Pass this to the runner, so that responses are logged with their cost."""
        self._bridge = SessionBridge(session)
        self._host_session = HostSession(session, memory, messages_only=True)
        self._translator = OpenAITranslator()
        self._sent: list[Body] | None = None
        self._sent_count = 0
        """The number of logged messages and replies when ``_sent`` was sent."""
        self._known: dict[str, bytes] = {}
        """Logged messages as encoded items, by their uuid."""
        self._passed: dict[int, Agent[Any]] = {}
        """Agents whose last request passed unchanged: their replies are not part of this conversation."""

    @property
    def expand_tool(self) -> FunctionTool:
        """The tool that opens the handles that the model is shown: pass it to the agent among its tools."""

        async def invoke(context: Any, given: str) -> str:
            try:
                arguments = msgspec.json.decode(given, type=dict[str, Any])
            except msgspec.DecodeError as error:
                return f"the arguments are no JSON object: {error}"
            return await self._bridge.expand(**arguments)

        declared = EXPAND_TOOL["name"], EXPAND_TOOL["description"], EXPAND_TOOL["input_schema"]
        return FunctionTool(*declared, invoke, strict_json_schema=False)

    def run_config(self, **options: Any) -> RunConfig:
        """Return a run configuration with these options and ``input_filter``."""
        return RunConfig(call_model_input_filter=self.input_filter, **options)

    # -- the history

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest items, oldest first: all, or at most ``limit``."""
        return cast(Any, await self._bridge.acall(partial(self._items, limit)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Log new items, except those that the filter and the hooks have logged."""
        await self._bridge.acall(partial(self._add, cast("list[Body]", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item from the history and return it; None if the history is empty."""
        return cast(Any, await self._bridge.acall(self._pop))

    async def clear_session(self) -> None:
        """Remove all items from the history; the log keeps them."""
        self._sent = None
        await self._bridge.acall(self._host_session.remove_all)

    async def _read_compaction_items(self, limit: int | None) -> tuple[list[TResponseInputItem], bool]:
        """Return the items that the SDK's compaction may shorten, and whether there are fewer than ``limit``.

        The SDK calls this method by name and compacts only items of the last request. The items of the log differ:
        cleared results are whole in them. So this returns the items that were sent, and the newer ones.
        """
        items = await self._bridge.acall(self._exchanged)
        shown = items if limit is None else items[-limit:] if limit > 0 else []
        return cast(Any, shown), limit is not None and len(items) < limit

    async def _exchanged(self) -> list[Body]:
        if self._sent is None:
            return await self._items()
        return [
            *self._sent,
            *(item for entry in self._host_session.history(self._sent_count) for item in self._items_of(entry)),
        ]

    async def _items(self, limit: int | None = None) -> list[Body]:
        """Return the latest items, oldest first: all, or at most ``limit``; older ones are not read."""
        found: list[list[Body]] = []
        left = limit
        for entries in self._host_session.latest():
            if left is not None and left <= 0:
                break
            found.append([item for entry in entries for item in self._items_of(entry)])
            left = left - len(found[-1]) if left is not None else None
        items = [item for group in reversed(found) for item in group]
        return items if limit is None else items[-limit:] if limit > 0 else []

    def _items_of(self, entry: Entry) -> list[Body]:
        """Return a logged message as new items, which the host may change."""
        known = self._known.get(entry.uuid)
        if known is None:
            known = self._known[entry.uuid] = _encode(items_of(entry))
        return msgspec.json.decode(known)

    async def _add(self, items: list[Body]) -> None:
        await self._host_session.add(pieces_of(OpenAITranslator().messages(detached(items))))

    async def _pop(self) -> Body | None:
        entries = next(self._host_session.latest(), list[Entry]())
        last = [item for entry in entries for item in self._items_of(entry)]
        if not last:
            return None
        self._sent = None
        *left, popped = last
        await self._host_session.replace_last(pieces_of(OpenAITranslator().messages(left)))
        return popped

    # -- requests and responses

    async def input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the session's view in place of the items that would be sent; these items if that fails."""
        sent = await self._bridge.try_acall(_WHAT, partial(self._prepared, data))
        if sent is None:
            self._sent = None
            self._passed[id(data.agent)] = data.agent
            return data.model_data
        self._passed.pop(id(data.agent), None)
        items, instructions = sent
        self._sent, self._sent_count = items, self._host_session.count
        return ModelInputData(input=cast(Any, list(items)), instructions=instructions)

    async def _prepared(self, data: CallModelData[Any]) -> tuple[list[Body], str | None]:
        """Return the items and the instructions to send; changes of the instructions are among the items."""
        if not self._translator.continues(data.model_data.input):
            self._translator = OpenAITranslator()
        translator = self._translator
        body = translator.request(data)
        if translator.held_elsewhere:
            raise InputError(_HELD)
        sent = await self._host_session.prepare(body)
        return translator.translated_back(sent["messages"]), system_text(sent) or data.model_data.instructions

    def passed(self, agent: Agent[Any]) -> bool:
        """Return whether an agent's last request passed unchanged."""
        return id(agent) in self._passed

    async def observe(self, response: ModelResponse, model: str) -> None:
        """Log a response and its cost; a failure is reported as an event."""
        await self._bridge.try_acall(_WHAT, partial(self._observe, response, model))

    async def _observe(self, response: ModelResponse, model: str) -> None:
        await self._host_session.observe(wire_reply(response, model))


class ReverieHooks(RunHooks[Any]):
    """Hooks that report every response to a session."""

    def __init__(self, session: ReverieSession) -> None:
        self._session = session

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        """Log a response and its cost, unless its request passed unchanged."""
        if not self._session.passed(agent):
            await self._session.observe(response, model_name(agent))
