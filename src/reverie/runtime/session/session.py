"""A session: one log, its view, and the requests made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from anyio import CancelScope

from ...arguments import check_callable, check_number, check_type
from ...cache.economics import PING_SECONDS, IdleChoice
from ...conversation.decisions import Cause, Pinned, ReloadAsked, ResultsRestored
from ...conversation.entries import ASSISTANT, META, USER, Entry, clean
from ...conversation.file_reads import FileRead, named_files
from ...conversation.tokens.window import Thresholds
from ...conversation.view import View
from ...conversation.wire.blocks import check_content
from ...errors import InputError, PromptTooLong, SessionError, SessionNotFound
from ...events import FellBack, Listener, LogDamaged, ResultsTrimmed, SessionClosed, SessionOpened
from ...models.failures import failure_of_exception
from ...models.shapes import Shape, shaped_request
from ...ports import Model, Storage
from ...settings import PRESETS, Preset, Settings
from ...tools.function_tool import FunctionTool
from ...tools.tool import checked_tools, declaration
from ..guard.hooks import Hooks
from ..places.projects import directory_of, project_slug
from ..places.storage import given_settings, storage_of
from . import replies
from .cache_renewal import record_ping, warming_request, when_idle
from .changes import ChangePrice, price_of_change, price_of_reload
from .compact.compactor import CompactionReport
from .forks import ForkReply, Forks
from .log import Mode, SessionLog
from .offload.read_back import EXPAND_TOOL
from .parts import NoMemory, SessionOptions, assemble, new_facts
from .prefix import RequestOptions, with_beta_header
from .prepare import prepare
from .recovery import make_room, read_windows, recover
from .replies import Call, calls_of, is_billed, plain_reply, repeated_ids, repeated_reply, text_call


class Session:
    """An agent's conversation: kept whole in its log, and inside the window in its requests."""

    EXPAND_TOOL: Final = EXPAND_TOOL
    """The declaration of a tool that calls ``expand``, for the tools of a request."""

    def __init__(self, options: SessionOptions) -> None:
        """Build a session from its options without opening its log; most callers use ``open``."""
        self._options = options
        self.log = SessionLog(
            options.name,
            options.storage,
            options.key,
            mode=options.mode,
            clock=options.clock,
        )
        self.parts = assemble(self.log, options)
        self._memory = self._new_memory() if options.memory else NoMemory()

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
        capabilities: frozenset[str] = frozenset(),
        model: Model | None = None,
        folder: str = "",
        memory: bool = False,
        subject: str = "",
    ) -> Self:
        """Return a session to enter with ``async with``, which opens its log; write mode creates a missing one.

        A log of a newer Reverie is only read: an event says so, and the first write raises ``NewerVersion``.
        ``capabilities`` names provider features beyond the public rules (``cache_edits``); ``model`` writes notes
        and summaries, with ``memory`` also memories; ``folder`` is the session's place in the storage, if not among
        its project's sessions. ``memory`` shows the index of the project's memories, recalls those that fit a message
        of ``say``, and extracts new ones after a reply without tool calls; without a model it makes no call for that.
        ``subject`` is your id of the person it is about, by which ``reverie delete --subject`` finds it.
        """
        directory = directory_of(cwd)
        settings = given_settings(settings, directory, storage)
        return cls(
            SessionOptions(
                name,
                storage=storage or storage_of(settings),
                project=project_slug(directory),
                settings=settings,
                mode=mode,
                cwd=str(directory.resolve()),
                clock=clock,
                owns_storage=storage is None,
                capabilities=capabilities,
                model=model,
                folder=folder,
                memory=memory,
                subject=subject,
            )
        )

    def _new_memory(self) -> NoMemory:
        raise InputError("this class knows no memories: open reverie.Session with memory=True")

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:  # an opening that failed or was cancelled must not keep the lease
            await self._leave(0.0)
            raise
        return self

    async def _enter(self) -> None:
        loaded = await self.log.open(self.parts.read)
        if self._options.is_known and not loaded.entries:
            raise SessionNotFound(f"there is no session {self.name!r} any more")
        self.log.emit(SessionOpened(self.name, len(loaded.entries), self.log.mode))
        for damage in loaded.damage:
            self.log.emit(LogDamaged(self.name, damage.line, damage.reason))
        if self.log.newer_version:
            self.log.emit(FellBack(self.name, "log", str(self.log.newer_version)))
        await read_windows(self.log, self.parts)
        self.parts.resume(loaded, self.view)
        if self.log.mode == "write":
            if facts := new_facts(self._options, loaded, self.view):
                await self.log.append(META, facts)
            self.log.run_later(self.parts.accounts.heal)
            await self.parts.background.open()
            await self._memory.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._leave(0.0 if kind is not None else self.settings.compact.wait_seconds)
        self.log.emit(SessionClosed(self.name))

    async def _leave(self, wait_seconds: float) -> None:
        try:
            try:
                await self._memory.close()
            finally:
                await self.parts.background.close(wait_seconds)
        finally:
            with CancelScope(shield=True):
                try:
                    await self.log.close()
                finally:
                    self.parts.accounts.close()
                    if self._options.owns_storage:
                        await self.log.run_blocking(self._options.storage.close)

    # -- state

    @property
    def name(self) -> str:
        """The session's name."""
        return self.log.name

    @property
    def view(self) -> View:
        """The current view: the messages that the next request would show the model."""
        return self.log.view

    @property
    def settings(self) -> Settings:
        """The settings in force; a flag provider may change them between requests."""
        return self.parts.policy.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self.parts.policy.settings = settings
        self.parts.apply_policy()

    @property
    def thresholds(self) -> Thresholds:
        """The token thresholds of the window of the model in use."""
        return self.parts.policy.thresholds

    @property
    def model(self) -> Model | None:
        """The model that writes notes and summaries; without one they are written locally."""
        return self.parts.host.model

    @property
    def hooks(self) -> Hooks | None:
        """The hooks that run around a compaction, if there are any."""
        return self.parts.host.hooks

    @hooks.setter
    def hooks(self, hooks: Hooks | None) -> None:
        self.parts.host.hooks = hooks

    def listen(self, listener: Listener) -> None:
        """Call a listener with every event from now on."""
        check_callable("listener", listener)
        self.log.on_event(listener)

    # -- the conversation

    async def attach(self, content: str | list[dict[str, Any]], *, type: str = "note") -> Entry:
        """Log an attachment: content that the program adds for the model, such as a date or a changed file."""
        check_content("the attachment", content)
        return await self.log.attach(await self.parts.offload.images.admitted(self.log, content), type=type)

    async def set_context(self, key: str, text: str) -> Entry | None:
        """Say a text that holds until it is replaced or removed, such as a mode or a deadline; it survives every cut.

        A text with the same key replaces the older one. Return the entry, None if the text is in view already.
        """
        return await self.parts.standing.set(key, text)

    async def remove_context(self, key: str) -> Entry | None:
        """End a text of ``set_context``, and say so; return the entry, None if there is no such text."""
        return await self.parts.standing.remove(key)

    async def say(self, content: str | list[dict[str, Any]], *, output_of: str | None = None) -> Entry:
        """Log a message of the user and return its entry; raise ``InputError`` if the message is empty.

        With ``output_of``, a command in the text of the last reply, layers 1 and 2 treat it as that command's result.
        """
        if output_of is not None:
            call = text_call(self.view, output_of)
            await self.log.append(ASSISTANT, call, sync=False)
            return await self.result(call["message"]["content"][0]["id"], content)
        check_content("the message", content, may_be_empty=False)
        await self._memory.begin_query(content)
        shown = await self.parts.offload.images.admitted(self.log, content)
        return await self.log.append(USER, {"message": {"role": "user", "content": shown}})

    async def observe(self, reply: Any) -> list[Call]:
        """Log the provider's reply and its cost, update the notes if due, and return a list of its tool calls.

        The reply may be a message, a chat completion or a response, as an SDK object or a mapping, or a ``Reply`` of
        a Reverie model. One that was observed before, by its id, changes nothing. A reply with tool calls, and its
        results, are on disk when the next ``prepare`` or ``sync`` returns; a killed process does not lose them.
        """
        await self.log.settle()
        message, rest = plain_reply(reply, replies.asked_model(self.view))
        logged = repeated_reply(self.view, message, rest)
        last = self.view.last_reply
        is_last = logged is None or (last is not None and logged.uuid == last.uuid)
        if logged is None:
            binding = self.parts.thinking.binding(self.view, self.parts.policy.facts)
            bound = {} if binding is None else {"bound": binding}
            entry = await self.log.append(ASSISTANT, {"message": message, "reply": rest, **bound}, sync=False)
            self.parts.thinking.bind(entry.uuid, binding)
            await self.parts.take_reply(self.log, entry, rest)
        elif is_last and isinstance(rest.get("usage"), Mapping) and not is_billed(self.view, rest):
            await self.parts.take_reply(self.log, logged, rest)
        # A provider refuses results of calls that are not in the view.
        calls = [call for call in calls_of(message, self.view.facts.tools) if self.view.tool_call(call.id) is not None]
        for problem in repeated_ids(self.view, calls) if logged is None else ():
            self.log.emit(FellBack(self.name, "model", problem))
        if not calls:  # otherwise prepare() waits for the disk once for the whole turn
            await self.log.sync()
            if is_last:
                await self._memory.end_query()
        return calls

    async def result(
        self,
        tool_use_id: str,
        output: Any,
        *,
        is_error: bool = False,
        max_chars: float | None = None,
        files: Sequence[FileRead] = (),
    ) -> Entry:
        """Log the result of a tool call; a big one moves to disk at once and a preview is logged in its place.

        ``max_chars`` is the limit that the tool declares for its own results; ``files`` are the files that the call
        read or wrote. A result that arrives after its placeholder was sent is logged as an attachment. Raise
        ``InputError`` for an unknown tool call. A call that has its result keeps it, so a retried step changes nothing.
        """
        use = self.view.tool_call(tool_use_id)
        if use is None and (logged := replies.logged_result(self.view, tool_use_id, output)) is not None:
            return logged  # a step that was retried after its call left the view
        if use is None:
            raise InputError(f"this session has no tool call {tool_use_id!r}: pass an id from observe()")
        late = tool_use_id not in self.view.unanswered()
        if late and (logged := replies.logged_result(self.view, tool_use_id, output)) is not None:
            return logged  # a step that was retried
        # The placeholder of a given-up result was already sent, so a late result is a new message with a new handle.
        handle = replies.late_handle(tool_use_id, output) if late else tool_use_id
        if not late and tool_use_id in self.view.overrides.results:  # an earlier try was decided on and never logged
            await self.log.decide(ResultsRestored(Cause("offload", "the result came again"), [tool_use_id]))
        content = await self.parts.offload.result(self.log, use.name, handle, output, max_chars)
        if late:
            return await self.log.attach(replies.late_result(tool_use_id, content), type="late_result", files=files)
        body = {
            "message": {"role": "user", "content": [replies.result_block(tool_use_id, content, is_error)]},
            **named_files(files),
        }
        return await self.log.append(USER, body, sync=False)

    async def prepare(
        self,
        *,
        model: str,
        max_tokens: int,
        system: str | list[dict[str, Any]] | None = None,
        tools: Sequence[dict[str, Any] | FunctionTool[..., Any]] | None = None,
        shape: Shape = "messages",
        **options: Any,
    ) -> dict[str, Any]:
        """Bring the window into bounds and return the next request, which is always valid.

        It extends the last request unless a logged decision changes the prefix. ``tools`` are declarations or functions
        with ``@tool``. ``options`` are other fields of the request and arguments of the SDK call, named as in the
        Messages API; ``shape`` is the API of the request. Raise ``WindowFull`` if it cannot fit.
        """
        await self._memory.before_request()
        given = checked_tools(() if tools is None else tools, declared=True)
        declared = [one if isinstance(one, dict) else declaration(one) for one in given]
        asked = RequestOptions.of(model, system, declared, {"max_tokens": max_tokens, **options})
        request = await prepare(self.log, self.parts, asked)
        extras = asked.extras_for(request, self.view) if shape == "messages" else asked.extras
        facts, carries = self.parts.policy.facts, self.view.facts.carries_items
        return shaped_request({**request, **extras}, shape, facts=facts, carries_items=carries)

    async def sync(self) -> None:
        """Return when everything logged is on disk; call it before a tool whose effect must not outlive the log."""
        await self.log.sync()

    # -- the window

    async def trim(self, target_tokens: int | None = None) -> ResultsTrimmed | None:
        """Clear the oldest tool results until the clearable ones fit a target; return the event, None if all fit.

        Without ``target_tokens``, the target is the policy's budget.
        """
        check_number("target_tokens", target_tokens, 0, is_whole=True)
        return await self.parts.trim.clear_to(self.log, target_tokens)

    async def restore(self, tool_use_ids: list[str]) -> Entry:
        """Bring cleared or offloaded results back into the view, pin them there, and return the logged entry.

        On a model that checks thinking, an event reports the price in thinking first. Raise ``InputError`` if the list
        is empty, or if a result was not removed or was removed by the provider.
        """
        check_type("tool_use_ids", tool_use_ids, (list, tuple), "a list of ids of tool calls")
        unknown = [called for called in tool_use_ids if called not in self.view.overrides.results]
        if away := [called for called in unknown if called in self.view.facts.cleared_by_provider]:
            raise InputError(f"the provider cleared {', '.join(away)}: read_back() returns the content")
        if unknown or not tool_use_ids:
            raise InputError(f"{', '.join(unknown) or 'nothing'} was not cleared here: name results that were")
        price = self.parts.trim.report_price(self.log, tool_use_ids)
        reason = f"brought back on request; {price}" if price else "brought back on request"
        await self.log.decide(Pinned(Cause("trim", reason), tool_use_ids=tool_use_ids))
        return await self.log.decide(ResultsRestored(Cause("trim", reason, moves_prefix=True), tool_use_ids))

    async def compact(
        self,
        trigger: Literal["manual", "reactive"] = "manual",
        *,
        instructions: str = "",
        from_message: str | None = None,
        up_to: str | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Replace old messages, or those from or up to a named message, by a summary, and return a report.

        ``dry_run`` only estimates the effect, without a call. Where the model writes no summary the local note-taker
        does. Raise ``CompactionError`` where it would free too little; the view is not changed then, and a dry run
        gives the reason as ``refusal`` of its report.
        """
        await self.parts.load_prices(self.view, self.parts.policy.model_name)
        return await self.parts.compact.compact(
            trigger=trigger, instructions=clean(instructions), from_message=from_message, up_to=up_to, dry_run=dry_run
        )

    async def background_request(self, *, shape: Shape = "messages") -> dict[str, Any] | None:
        """Return a request for the provider's summary of the older messages, if one is due; None if not.

        Send it beside the conversation with ``beta.messages.create`` and pass the reply to ``background_reply``; with
        the shape ``responses`` it is for ``responses.compact``. A session that was opened with a model does this by
        itself.
        """
        request = await self.parts.compact.background_request()
        if request is None:
            return None
        if shape == "messages":
            request = with_beta_header(request, self.parts.policy.betas)
        return shaped_request(request, shape, facts=self.parts.policy.facts)

    async def background_reply(self, reply: Any) -> bool:
        """Take the reply to ``background_request``, or the error raised instead of it; a summary is used next.

        Return whether there is a summary.
        """
        if isinstance(reply, BaseException):
            return await self.parts.compact.background.reply(reply)
        message, rest = plain_reply(reply, replies.asked_model(self.view))
        return await self.parts.compact.background.reply({**rest, **message})

    async def compact_reactively(self, error: PromptTooLong | None = None) -> CompactionReport:
        """Compact because the provider refused the prompt as too long, and lower the window to its limit."""
        return await make_room(self.log, self.parts, error)

    async def recover(self, error: Exception) -> bool:
        """Change the view after a provider refused the last request; return whether to prepare and send again.

        The error is one of ours or of an SDK. An image that was refused is no longer sent; after ``PromptTooLong``
        the past is compacted; after ``ThinkingRefused`` the provider is asked to drop such thinking, for the rest of
        the session. An error with another cause changes nothing.
        """
        return await recover(self.log, self.parts, failure_of_exception("the provider", error))

    async def undo(self, compaction: str | None = None) -> Entry:
        """Undo the last compaction, or the one with this entry id: its messages return, and later ones stay."""
        return await self.parts.compact.undo(compaction)

    async def undo_price(self, compaction: str | None = None) -> ChangePrice:
        """Return the effect of ``undo`` without doing it: tokens, cost, thinking that is lost and valid again."""
        parts = self.parts
        after = await self.log.foresee(parts.compact.undoing(compaction))
        return await self.log.run_blocking(lambda: price_of_change(self.view, after, parts.thinking, parts.accounts))

    async def reload(self) -> ChangePrice:
        """Let the next request render system prompt and tools anew, not as a message, and return the price of that."""
        parts = self.parts
        await self.log.decide(ReloadAsked(Cause("request", "asked for")))
        return await self.log.run_blocking(lambda: price_of_reload(self.view, parts.thinking, parts.accounts))

    async def set_preset(self, name: Preset) -> None:
        """Use another preset from now on, also after a resume; raise ``InputError`` for an unknown name."""
        if name not in PRESETS:
            raise InputError(f"there is no preset {name!r}; choose from {', '.join(PRESETS)}")
        await self.log.append(META, {"preset": name})
        self.parts.policy.use_preset(name)
        self.parts.apply_policy()

    async def when_idle(self, pings: int) -> IdleChoice:
        """Return the decision about a cache that ends soon, after so many pings; a due compaction begins here."""
        return await when_idle(self.log, self.parts, pings)

    def seconds_to_ping(self) -> float:
        """Return the seconds until the cache should be renewed; 0 if that is now."""
        placed = self.parts.cache.placed
        return 0.0 if placed is None else max(0.0, placed.at + PING_SECONDS - self.log.clock())

    def warming_request(self) -> dict[str, Any] | None:
        """Return the last request with ``max_tokens`` 0, to send for ``record_ping``; None if it is too late."""
        return warming_request(self.log, self.parts)

    async def record_ping(self, reply: Any) -> None:
        """Log the reply to a ``warming_request`` and its price."""
        message, rest = plain_reply(reply)
        await record_ping(self.log, self.parts, {**rest, **message})

    async def read_back(self, handle: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """Return bytes of content that left the view, by its handle: ``limit`` bytes from ``offset``, or all."""
        self.parts.trim.read_backs += 1
        reader = self.parts.read_back(self.view)
        return await self.log.run_blocking(lambda: reader.read(handle, offset=offset, limit=limit))

    async def expand(self, handle: str, *, offset: int = 0, about: str = "") -> str:
        """Open one level of content that left the view, by its handle, at most 20,000 characters from ``offset`` on.

        A summary gives the list of the messages it replaced, each with its handle; anything else gives its text, with
        ``about`` only the part around these words. It is the function of ``EXPAND_TOOL``. Raise ``InputError`` for an
        unknown handle.
        """
        self.parts.trim.read_backs += 1
        reader = self.parts.read_back(self.view)
        return await self.log.run_blocking(lambda: reader.expand(handle, offset=offset, about=about))

    # -- forks

    def use_model(self, model: Model) -> None:
        """Let another model write notes and summaries from now on; its window holds for requests to it."""
        self.parts.policy.use_model(model)
        self.parts.fit_window()
        self.parts.host.model = model
        self.parts.notes.forks = Forks(self.parts.host, model)

    async def fork(
        self,
        *directives: str,
        model: Model | None = None,
        max_tokens: int = 4_096,
        timeout_seconds: float | None = None,
    ) -> list[ForkReply | BaseException]:
        """Ask side questions about the conversation, all at once and without tools; the conversation is unchanged.

        Return a list with one answer per question, or with the exception that it raised. All questions read one
        cached prefix. Raise ``SessionError`` if there is no model.
        """
        asked = model or self.model
        if asked is None:
            raise SessionError("no model: pass model= to Session.open() or to fork()")
        return await Forks(self.parts.host, asked).ask_many(
            directives, source="fork", max_tokens=max_tokens, timeout_seconds=timeout_seconds
        )
