"""A session: one log, its view, and the requests made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from anyio import Lock, to_thread

from ..conversation.decisions import Cause, Decision, MessageQueued, PrefixRendered
from ..conversation.entries import ASSISTANT, ATTACHMENT, META, SCHEMA, USER, Entry
from ..conversation.options import BODY_OPTIONS, options_of, tools_of
from ..conversation.request import CONTINUE, build_request, ends_with_reply, needs_tools, repairs
from ..conversation.view import View
from ..conversation.window import window_for
from ..errors import InputError, SessionError
from ..events import (
    DecisionMade,
    EntryAppended,
    Event,
    FellBack,
    InboxDrained,
    Listener,
    LogDamaged,
    ReplyObserved,
    RequestPrepared,
    SessionClosed,
    SessionOpened,
)
from ..ports import Storage
from ..settings import Settings, load_settings
from ..storage.files import FileStorage
from .inbox import delivered, set_aside, waiting
from .projects import inbox_key, log_key, project_slug
from .wire import Call, calls_of, plain_reply, result_content
from .writer import LogWriter

__all__ = ["Session"]

T = TypeVar("T")
Mode = Literal["write", "read"]


class Session:
    """An agent's conversation, kept whole in its log and inside the window in its requests."""

    def __init__(
        self,
        name: str,
        *,
        storage: Storage,
        project: str,
        settings: Settings,
        mode: Mode = "write",
        cwd: str = "",
        clock: Callable[[], float] = time.time,
        owns_storage: bool = False,
    ) -> None:
        self.name = name
        self.mode: Mode = mode
        self.settings = settings
        self._storage = storage
        self._owns_storage = owns_storage
        self._inline = not isinstance(storage, FileStorage)
        self._writer = LogWriter(storage, log_key(project, name), name, clock=clock)
        self._inbox = inbox_key(project, name)
        self._cwd = cwd
        self._lock = Lock()
        self._listeners: list[Listener] = []

    @classmethod
    def open(
        cls,
        name: str,
        *,
        mode: Mode = "write",
        cwd: str | Path = ".",
        storage: Storage | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Session:
        """Name a session to be entered with ``async with``; it is created where it does not exist yet."""
        settings = settings or load_settings()
        directory = Path(cwd)
        owned = storage is None
        return cls(
            name,
            storage=storage or FileStorage(settings.home, durability=settings.durability),
            project=project_slug(directory),
            settings=settings,
            mode=mode,
            cwd=str(directory.resolve()),
            clock=clock,
            owns_storage=owned,
        )

    async def __aenter__(self) -> Session:
        loaded = await self._run(lambda: self._writer.open(write=self.mode == "write"))
        self._emit(SessionOpened(self.name, len(loaded.entries), self.mode))
        for damage in loaded.damage:
            self._emit(LogDamaged(self.name, damage.line, damage.reason))
        if self.mode == "write" and not loaded.entries:
            await self.append(META, {"schema": SCHEMA, "cwd": self._cwd})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        if self._owns_storage:
            await self._run(self._storage.close)
        self._emit(SessionClosed(self.name))

    @property
    def view(self) -> View:
        """What the model would be shown now."""
        return self._writer.view

    def listen(self, listener: Listener) -> None:
        """Call this with every event from now on."""
        self._listeners.append(listener)

    # -- what is said

    async def say(self, content: str | list[dict[str, Any]]) -> Entry:
        """Log what the user said."""
        if not content or (isinstance(content, str) and not content.strip()):
            raise InputError("there is nothing in that message: say something")
        return await self.append(USER, {"message": {"role": "user", "content": content}})

    async def attach(self, content: str | list[dict[str, Any]], *, type: str = "note") -> Entry:
        """Log something the program adds for the model to see: a date, a file that changed, a listing."""
        return await self.append(ATTACHMENT, {"type": type, "message": {"role": "user", "content": content}})

    async def observe(self, reply: Any) -> list[Call]:
        """Log the provider's reply and return the tools it asks for."""
        message, rest = plain_reply(reply)
        await self.append(ASSISTANT, {"message": message, "reply": rest})
        usage = dict(rest["usage"]) if isinstance(rest.get("usage"), Mapping) else {}
        self._emit(ReplyObserved(self.name, str(rest.get("id", "")), str(rest.get("model", "")), usage))
        return calls_of(message)

    async def result(self, tool_use_id: str, output: Any, *, is_error: bool = False) -> Entry:
        """Log what a tool gave back."""
        if self.view.use(tool_use_id) is None:
            raise InputError(f"no tool call {tool_use_id!r} stands in this session: pass an id from observe()")
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": tool_use_id,
            "content": result_content(output),
        }
        if is_error:
            block["is_error"] = True
        return await self.append(USER, {"message": {"role": "user", "content": [block]}})

    async def describe(self, **facts: Any) -> Entry:
        """Log metadata: title, model, tags."""
        return await self.append(META, facts)

    # -- what leaves

    async def prepare(
        self,
        *,
        model: str,
        max_tokens: int,
        system: str | list[dict[str, Any]] | None = None,
        tools: list[dict[str, Any]] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return the next request: always valid, and an extension of the last one unless a decision says otherwise."""
        await self._drain()
        if not self.view.groups:
            raise SessionError("nothing has been said yet: call say() first")
        beside = {key: value for key, value in options.items() if key not in BODY_OPTIONS}
        body = {key: value for key, value in options.items() if key in BODY_OPTIONS}
        await self._render_prefix(model, system, tools or [], {"max_tokens": max_tokens, **body})
        if ends_with_reply(self.view):
            await self.attach(CONTINUE, type="continue")
        for decision in repairs(self.view):
            await self.decide(decision)
        request = build_request(self.view)
        window = window_for(model).tokens
        self._emit(RequestPrepared(self.name, len(request["messages"]), self.view.counted.tokens, window))
        return {**request, **beside}

    async def _render_prefix(
        self, model: str, system: Any, tools: list[dict[str, Any]], options: dict[str, Any]
    ) -> None:
        """Log system prompt, tools, model and options where they differ from what was sent last."""
        before = self.view.facts.prefix
        if not tools and before is None and needs_tools(self.view):
            self._emit(FellBack(self.name, "tools", "calls stand in the log and no tools were given: declared by name"))
        if before is not None and (before.model, before.system, before.tools, before.options) == (
            model,
            system,
            tools,
            options,
        ):
            return
        reason = "first request" if before is None else "system, tools, model or options changed"
        cause = Cause("request", reason, moves_prefix=before is not None)
        prefix = PrefixRendered(cause, model, system, tools, options)
        _refuse_unusable(prefix)
        await self.decide(prefix)

    async def _drain(self) -> None:
        """Take in what other processes left, each exactly once."""
        if self.mode != "write":
            return
        found = await self._run(lambda: waiting(self._storage, self._inbox))
        for key, command in found:
            if command is None:
                kept = await self._run(lambda key=key: set_aside(self._storage, key))
                self._emit(FellBack(self.name, "inbox", f"a command cannot be read; it is kept at {kept}"))
                continue
            if command.id not in self.view.facts.queued:
                text = command.body.get("text")
                cause = Cause("relay", command.name)
                shown = text if isinstance(text, str) else ""
                await self.decide(MessageQueued(cause, command.id, shown, command.sender))
            await self._run(lambda key=key: delivered(self._storage, key))
        if found:
            self._emit(InboxDrained(self.name, len(found)))

    # -- the log

    async def append(self, kind: str, body: dict[str, Any]) -> Entry:
        """Log one entry; when this returns it is safe."""
        async with self._lock:
            entry = await self._run(lambda: self._writer.append(kind, body))
        self._emit(EntryAppended(self.name, entry.uuid, kind))
        return entry

    async def decide(self, decision: Decision) -> Entry:
        """Log one decision; when this returns it is safe and in the view."""
        async with self._lock:
            entry = (await self._run(lambda: self._writer.decide([decision])))[0]
        self._emit(DecisionMade(self.name, entry.uuid, decision))
        return entry

    async def _run(self, act: Callable[[], T]) -> T:
        return act() if self._inline else await to_thread.run_sync(act)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            with suppress(Exception):
                listener(event)


def _refuse_unusable(prefix: PrefixRendered) -> None:
    """Refuse tools and options that a provider would refuse, before anything is logged."""
    usable = tools_of(prefix)
    if len(usable) != len(prefix.tools):
        kept = [tool["name"] for tool in usable]
        wrong = next(tool for tool in prefix.tools if tool.get("name") not in kept or prefix.tools.count(tool) > 1)
        raise InputError(
            f"tool {wrong.get('name')!r} cannot be declared: a tool has a unique name of letters, digits, '_' and '-', "
            "and an input_schema of type object"
        )
    taken = options_of(prefix, usable)
    for key, value in prefix.options.items():
        if value is not None and taken.get(key) != value:
            raise InputError(f"option {key}={value!r} would be refused by the provider")
