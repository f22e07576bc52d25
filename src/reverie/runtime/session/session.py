"""A session: one log, its view, and the requests made from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from ...cache.breakpoints import with_marks
from ...cache.watch import registered_by
from ...conversation.decisions import Cause, Pinned, PrefixRendered, ResultsRestored
from ...conversation.entries import ASSISTANT, META, USER, Entry, Message, new_uuid
from ...conversation.reads import forgotten
from ...conversation.wire.blocks import text_block
from ...conversation.wire.options import BODY_OPTIONS, declared
from ...conversation.wire.request import CONTINUE, build_request, ends_with_reply, repairs
from ...errors import InputError, PromptTooLong, SessionError
from ...events import CacheBroken, FellBack, ReplyObserved, RequestPrepared, ResultsTrimmed
from ...layers.l1_offload import Applied
from ...layers.l2_trim import Trimming, plan_budget
from ...ports import Model, Storage
from ...settings import Flags, Settings, limits_by, load_settings, switched_by
from ...storage.files import FileStorage
from ...values import replace
from ..places.projects import canonical_root, project_slug
from .accounts import rates_of
from .compact.compactor import CompactionReport
from .forks import ForkReply
from .inbox_commands import drain
from .limits import betas_of, compact_at, offload_policy, trim_policy, window_tokens
from .parts import Kept, Mode
from .prefix import clearing_asked, refuse_unusable
from .replies import Call, calls_of, plain_reply, result_content

__all__ = ["Session"]

T = TypeVar("T")


class Session(Kept):
    """An agent's conversation, kept whole in its log and inside the window in its requests."""

    _observed: tuple[Any, Any] | None = None

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
    ) -> Session:
        """Name a session to be entered with ``async with``; it is created where it does not exist yet.

        ``capabilities`` names what the provider can do beyond the public rules (``cache_edits``); a ``model`` lets
        notes and summaries be written by it; ``folder`` is where it is kept, if not among its project's sessions.
        """
        directory = Path(cwd)
        settings = settings or load_settings(project=canonical_root(directory))
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
            capabilities=capabilities,
            model=model,
            folder=folder,
        )

    # -- what is said

    async def say(self, content: str | list[dict[str, Any]]) -> Entry:
        """Log what the user said."""
        if not content or (isinstance(content, str) and not content.strip()):
            raise InputError("there is nothing in that message: say something")
        return await self.append(USER, {"message": {"role": "user", "content": content}})

    async def observe(self, reply: Any) -> list[Call]:
        """Log the provider's reply and what it cost, and return the tools it asks for."""
        message, rest = plain_reply(reply)
        if self._observed == (
            rest.get("id"),
            message["content"],
        ):  # the same reply again, after a call that was cut off
            return self._calls(message)
        await self.append(ASSISTANT, {"message": message, "reply": rest})
        if not self._accounts.knows(rest):
            await to_thread.run_sync(lambda: self._accounts.learn(rest))  # loads a table of prices, once
        billed = self._accounts.after(rest, cache=self.pipeline.state())
        if billed is not None:
            entry = await self.decide(billed.call)
            await self._run(lambda: self._accounts.enter(billed, entry.uuid))
            if billed.broke is not None:
                self._emit(CacheBroken(self.name, billed.broke.reason, billed.broke.tokens, billed.lost_usd))
            if billed.cleared:
                self._emit(ResultsTrimmed(self.name, "provider", [], [], billed.input + billed.cleared, billed.input))
            self.pipeline.reprice(rates_of(self._accounts.prices(billed.call.model)))
        usage = dict(rest["usage"]) if isinstance(rest.get("usage"), Mapping) else {}
        self._emit(ReplyObserved(self.name, str(rest.get("id", "")), str(rest.get("model", "")), usage))
        self._observed = (rest.get("id"), message["content"])
        await self.noting.after_reply()
        return self._calls(message)

    def _calls(self, message: Message) -> list[Call]:
        """Return the calls of a reply that stand in the view; a provider would refuse the results of others."""
        prefix = self.view.facts.prefix
        made = calls_of(message, prefix.tools if prefix is not None else ())
        return [call for call in made if self.view.use(call.id) is not None]

    async def result(
        self, tool_use_id: str, output: Any, *, is_error: bool = False, max_chars: float | None = None
    ) -> Entry:
        """Log what a tool gave back; a big one moves to disk at once and a preview is logged in its place.

        ``max_chars`` is what the tool declares about its own results.
        """
        use = self.view.use(tool_use_id)
        if use is None:
            raise InputError(f"no tool call {tool_use_id!r} stands in this session: pass an id from observe()")
        late = tool_use_id not in self.view.unanswered()
        # What stands in for a result that was given up has been sent: a late one is said anew, by another handle.
        handle = f"{tool_use_id}-late-{new_uuid()[:8]}" if late else tool_use_id
        if not late and tool_use_id in self.view.shown.results:  # an earlier try was decided on and never said
            again = Cause("offload", "the result came again")
            await self.decide(ResultsRestored(again, [tool_use_id]))
        given = bytes(output) if isinstance(output, (bytes, bytearray)) else result_content(output)
        applied = await self._offloaded(use.name, handle, given, max_chars)
        await self._apply(applied.before)
        if late:
            said = f"[Result of tool call {tool_use_id}, after it was given up]"
            content = (
                applied.content if isinstance(applied.content, list) else [text_block(applied.content or "(empty)")]
            )
            entry = await self.attach([text_block(said), *content], type="late_result")
        else:
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use_id, "content": applied.content}
            if is_error:
                block["is_error"] = True
            entry = await self.append(USER, {"message": {"role": "user", "content": [block]}})
        await self._apply(applied.after)
        return entry

    async def _offloaded(self, tool: str, handle: str, output: Any, max_chars: float | None) -> Applied:
        """Run layer 1 on one result."""
        if not self.settings.switches.offload:
            return Applied(result_content(output))
        applied = await self._run(lambda: self._offloading.result(self.view, tool, handle, output, max_chars))
        if applied.fallback is not None:
            self._emit(FellBack(self.name, "offload", applied.fallback))
        return applied

    async def trim(self, target_tokens: int | None = None) -> ResultsTrimmed | None:
        """Clear old tool results until what is left fits the target; say what went."""
        if self.pipeline.trim.mode == "provider":
            raise SessionError("the provider clears in this session: set trim.mode to 'client' to clear from here")
        self.pipeline.pending.follow(self.view)
        pinned = self.view.facts.pinned
        made = plan_budget(self.pipeline.pending, self.pipeline.trim, target=target_tokens, pinned=pinned)
        return await self._trimmed(made) if made is not None else None

    async def restore(self, tool_use_ids: list[str]) -> Entry:
        """Bring cleared results back into the view, to stay."""
        unknown = [called for called in tool_use_ids if called not in self.view.shown.results]
        if unknown or not tool_use_ids:
            raise InputError(f"{', '.join(unknown) or 'nothing'} was not cleared here; name results that were")
        self._offloading.restart()
        reason = "brought back on request"
        await self.decide(Pinned(Cause("trim", reason), tool_use_ids=tool_use_ids))
        return await self.decide(ResultsRestored(Cause("trim", reason, moves_prefix=True), tool_use_ids))

    async def fork(
        self,
        *directives: str,
        model: Model | None = None,
        max_tokens: int = 4_096,
        timeout_seconds: float | None = None,
    ) -> list[ForkReply | BaseException]:
        """Ask side questions on what was said so far, all at once and without tools; nothing of them is said here.

        Each answer stands in its question's place, or the exception it came to. All of them read one cached prefix.
        """
        asked = model or self.model
        if asked is None:
            raise SessionError("there is nobody to ask: open the session with a model, or give one")
        forks = self.forks(asked)
        return await forks.ask_many(directives, source="fork", max_tokens=max_tokens, timeout_seconds=timeout_seconds)

    async def describe(self, **facts: Any) -> Entry:
        """Log metadata: title, model, tags."""
        return await self.append(META, facts)

    # -- the past

    async def compact(
        self,
        trigger: str = "manual",
        *,
        instructions: str = "",
        from_message: str | None = None,
        up_to: str | None = None,
        dry_run: bool = False,
    ) -> CompactionReport:
        """Turn the past into a summary, all of it, from a message on or up to one; ``dry_run`` only says what it would.

        Raise ``CompactionError`` where it cannot be done or would free too little; nothing is changed then.
        """
        return await self.compacting.compact(
            trigger=trigger, instructions=instructions, from_message=from_message, up_to=up_to, dry_run=dry_run
        )

    async def compact_reactively(self, error: PromptTooLong | None = None) -> CompactionReport:
        """Compact because the provider says that the prompt is too long; ``error`` says by how much, where it does."""
        tokens, limit = (error.tokens, error.limit) if error is not None else (None, None)
        return await self.compacting.reactively(tokens, limit)

    async def undo(self, compaction: str | None = None) -> Entry:
        """Bring back what the last compaction took out of view, byte for byte; what came later stays."""
        return await self.compacting.undo(compaction)

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
        await self._run(self._writer.settle)
        if self.mode == "write":
            await drain(self, self._storage, self._inbox, self._run)
        if self._flags is not None:
            self._switch(self._flags)
        if not self.view.length:
            raise SessionError("nothing has been said yet: call say() first")
        if "cache_control" in options:
            raise InputError("cache_control is not taken here: prepare() places the breakpoints")
        beside = {key: value for key, value in options.items() if key not in BODY_OPTIONS}
        body = {key: value for key, value in options.items() if key in BODY_OPTIONS}
        self.beside, self._betas = beside, (betas := betas_of(options))
        if model != self._model:
            await to_thread.run_sync(lambda: compact_at(model, self.settings, betas))  # loads a table, once
            self._model = model
        self.pipeline.compact_at = compact_at(model, self.settings, betas)
        if self.pipeline.trim.mode == "provider" and "context_management" not in body:
            now, full = self._writer.clock(), self.pipeline.compact_at
            body["context_management"] = clearing_asked(self.view, body.get("thinking"), now=now, compact_at=full)
        known = tools or declared(self.view.tool_names())
        await self._render_prefix(model, system, known, {"max_tokens": max_tokens, **body}, given=bool(tools))
        if ends_with_reply(self.view):
            await self.attach(CONTINUE, type="continue")
        await self._layers()
        await self.compacting.before_request()
        await self._apply(repairs(self.view))
        request = build_request(self.view)
        now = self._writer.clock()
        registered, self._registered = registered_by(self._registered), []
        self._accounts.before(request, registered, self.view.settled)
        marked = with_marks(request, self.pipeline.mark(self.view, request["messages"], now), own=True)
        self._emit(
            RequestPrepared(
                self.name,
                len(request["messages"]),
                self.view.counted.tokens,
                window_tokens(model, self.settings, betas),
            )
        )
        return {**marked, **beside}

    def _switch(self, flags: Flags) -> None:
        """Turn off what the flag provider says, from this request on."""
        switches = switched_by(flags, self._switches, failed=self._flags_failed)
        self.settings = replace(self.settings, switches=switches, offload_limits=limits_by(flags, self._limits))
        self.pipeline.trim = trim_policy(self.settings)
        self._offloading.policy = offload_policy(self.settings)

    def _flags_failed(self, why: str) -> None:
        """Say once that the flag provider has no say."""
        if not self._said_flags_failed:
            self._emit(FellBack(self.name, "flags", why))
        self._said_flags_failed = True

    async def _layers(self) -> None:
        """Run layers 1 and 2 over the view that is about to be sent."""
        if self.settings.switches.offload:
            applied = await self._run(lambda: self._offloading.message(self.view))
            await self._apply(applied.before)
            if applied.fallback is not None:
                self._emit(FellBack(self.name, "offload", applied.fallback))
        planned = self.pipeline.plan(self.view, self._writer.clock())
        if self.pipeline.last is not None:
            await self._trimmed(self.pipeline.last, noted=True)
            return
        await self._apply(planned)
        if self.settings.switches.budget_trim and self.pipeline.trim.mode == "client":
            await self.trim()

    async def _trimmed(self, made: Trimming, *, noted: bool = False) -> ResultsTrimmed:
        """Log a clearing and tell everybody."""
        before = self.view
        gone = [one.tool_use_id for one in made.decision.cleared]
        uses = [use for use in map(self.view.use, gone) if use is not None]
        if not noted:
            self.pipeline.note(made.decision)
        try:
            await self.decide(made.decision)
        except BaseException:
            self.pipeline.forget()  # it was not logged, so it did not happen
            raise
        tools, paths = sorted({use.name for use in uses}), forgotten(before, self.view)
        event = ResultsTrimmed(self.name, made.trigger, tools, paths, before.tokens, self.view.tokens)
        self._emit(event)
        return event

    async def _render_prefix(
        self, model: str, system: Any, tools: list[dict[str, Any]], options: dict[str, Any], *, given: bool
    ) -> None:
        """Log system prompt, tools, model and options where they differ from what was sent last."""
        before = self.view.facts.prefix
        if tools and not given and (before is None or before.tools != tools):
            self._emit(FellBack(self.name, "tools", "calls stand in the log and no tools were given: declared by name"))
        if before is None and self.pipeline.trim.mode == "cache_edit" and "cache_edits" not in self._capabilities:
            why = "the provider cannot edit its cache: results are cleared here, when the cache is cold"
            self._emit(FellBack(self.name, "cache_edit", why))
        reason = "first request" if before is None else "system, tools, model or options changed"
        cause = Cause("request", reason, moves_prefix=before is not None)
        prefix = PrefixRendered(cause, model, system, tools, options, capabilities=sorted(self._capabilities))
        if before is None or replace(before, cause=cause) != prefix:
            refuse_unusable(prefix)
            await self.decide(prefix)
