"""The parts of a session, put together by one function."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from anyio import to_thread

from ...arguments import check_parts, check_text, check_type
from ...cache.prices import rates_of
from ...cache.usage import usage_of
from ...conversation.entries import DECISION, Entry
from ...conversation.log import ParsedLog
from ...conversation.view import View
from ...conversation.wire.carried_items import CARRIED
from ...conversation.wire.request import awaits_provider, build_request
from ...errors import InputError, StorageError
from ...events import CacheBroken, ReplyObserved
from ...layers.l4_compact import compacted_tokens
from ...model_facts import ModelFacts, facts_of
from ...ports import Model, Storage
from ...schemas import LOG
from ...settings import Settings
from ...storage.files import FileStorage
from ...values import record
from ..places.projects import session_key
from ..places.storage import database_of
from .accounts import Accounts
from .background import BackgroundTasks
from .cache_plan import CachePlan
from .changes import model_change
from .compact.compactor import Compactor
from .forks import Forks
from .host import SessionHost
from .inbox import Inbox
from .ledger import open_ledger
from .limits import compact_patience, offload_policy, trim_policy
from .log import Mode, SessionLog, decisions_since_call
from .notes.activity import SessionActivity
from .notes.keeper import NotesKeeper
from .notes.rules import RuleKeeper
from .offload.offloader import Offloader
from .offload.read_back import ReadBack
from .plan.keeper import PlanKeeper, StepsSource
from .policy import SessionPolicy
from .prefix import ProgramTexts, RequestOptions
from .standing_context import StandingContext
from .thinking import ThinkingWatch, unreadable_thinking
from .trim import Trimmer


class NoMemory:
    """The memory of a session that has none; a subclass does its work at these points of a query."""

    async def open(self) -> None:
        """Begin, when the session's log is open."""

    async def begin_query(self, prompt: str | list[dict[str, Any]]) -> None:
        """Take a message of the user, before it is logged."""

    async def before_request(self) -> None:
        """Log everything that the next request should show."""

    async def end_query(self) -> None:
        """Take note that a reply without tool calls is logged."""

    async def close(self) -> None:
        """End all work, while the log is still open; a second call does nothing."""


@record
class SessionOptions:
    """The options a session is opened with."""

    name: str
    storage: Storage
    project: str
    settings: Settings
    mode: Mode = "write"
    cwd: str = ""
    clock: Callable[[], float] = time.time
    owns_storage: bool = False
    """Whether closing the session closes the storage, and its calls are entered in the home's ledger."""
    capabilities: frozenset[str] = frozenset()
    model: Model | None = None
    folder: str = ""
    """The key of the session's folder; empty for its default place among its project's sessions."""
    memory: bool = False
    """Whether the session shows and extracts memories of its project."""
    subject: str = ""
    """The person that the session is about, by an id of the caller, for export and erasure."""
    is_known: bool = False
    """Whether opening raises ``SessionNotFound`` instead of beginning a session, because it may have been deleted."""

    @property
    def key(self) -> str:
        """The key of the session's folder in the storage."""
        return self.folder or session_key(self.project, self.name)

    @property
    def on_files(self) -> bool:
        """Whether the storage is a directory that a person can read."""
        return isinstance(self.storage, FileStorage)


@dataclass(slots=True)
class SessionParts:
    """The layers of one session and the state they share."""

    host: SessionHost
    """The session as its layers, forks and background work see it."""
    policy: SessionPolicy
    storage: Storage
    folder: str
    capabilities: frozenset[str]
    cache: CachePlan
    accounts: Accounts
    offload: Offloader
    trim: Trimmer
    notes: NotesKeeper
    compact: Compactor
    standing: StandingContext
    rules: RuleKeeper
    steps: StepsSource
    plan: PlanKeeper
    inbox: Inbox
    background: BackgroundTasks
    thinking: ThinkingWatch
    answered: View | None = None
    """While the log is opened, the view that the last recorded call answered."""
    sent: dict[str, Any] | None = None
    """The last request of this process; a resumed session sends none again."""
    program: ProgramTexts | None = None
    """The parts of requests that an agent's program wrote; None in the caller's own loop."""
    told_model: str = ""
    """The model of the last request, or one whose use was announced since."""

    async def configure(self, log: SessionLog, asked: RequestOptions) -> None:
        """Apply the flag provider's switches and the next request's model to policy, layers and cache plan."""
        if self.policy.apply_flags(log):
            self.apply_policy()
        await self.tell_change(log, asked.model)
        await self.policy.use(asked)
        self.fit_window()
        await self.load_prices(log.view, asked.model)

    async def load_prices(self, view: View, model: str) -> None:
        """Decide by the prices of this model from now on; of the one that was billed if its name is an alias."""
        if self.cache.model == model:
            return
        call, prefix = view.facts.last_call, view.facts.prefix
        is_last = call is not None and prefix is not None and prefix.model == model
        for name in (model, call.model if call is not None and is_last else model):
            await to_thread.run_sync(self.accounts.prices, name)  # the first look-up loads a price list
            self.use_prices(name)
            if self.accounts.prices(name) is not None:
                break
        self.cache.model = model

    async def tell_change(self, log: SessionLog, model: str) -> None:
        """Emit the event of a change to another model than the last one that was asked or told; nothing otherwise."""
        before, self.told_model = self.told_model, model
        if not before or before == model or not log.view.token_count.known:
            return
        prices = await to_thread.run_sync(self.accounts.prices, model)  # the first look-up loads a price list
        facts = facts_of(model, self.policy.settings.models)
        log.emit(model_change(log.view, log.name, before=before, after=model, facts=facts, prices=prices))

    def fit_window(self) -> None:
        """Give layers 1 and 2 and the cache plan the window and the rules of the model in use."""
        settings, facts, at = self.policy.settings, self.policy.facts, self.policy.thresholds
        trim = trim_policy(settings, facts, self.policy.betas, binds=self.thinking.binds)
        self.offload.policy = offload_policy(settings, at, trim.mode)
        self.trim.use(trim, facts, by_budget=settings.switches.budget_trim, is_chosen=settings.trim.mode != "auto")
        self.trim.blocking, self.cache.compact_at = at.blocking, at.auto_compact
        self.cache.patience = compact_patience(settings)

    def use_prices(self, model: str) -> None:
        """Decide by the prices of a model and by its smallest cached prefix."""
        facts = facts_of(model, self.policy.settings.models)
        prices = self.accounts.prices(model)
        self.cache.rates, self.cache.is_priced = rates_of(prices, facts), prices is not None
        self.cache.least_cached = facts.least_cached_tokens

    def meter(self, reply: Mapping[str, Any]) -> None:
        """Add the usage of a reply to the cost of carrying the window (L4.18)."""
        usage = reply.get("usage")
        if isinstance(usage, Mapping):
            self.cache.billed(usage_of(cast("Mapping[str, Any]", usage)), self.compacted_tokens())

    def compacted_tokens(self) -> int:
        """Return the size in tokens that a compaction is expected to leave."""
        return compacted_tokens(self.host.log.view, self.policy.settings.compact, self.policy.thresholds.effective)

    async def take_reply(self, log: SessionLog, entry: Entry, rest: Mapping[str, Any]) -> None:
        """Log the cost of a logged reply and the provider's reports in it, emit its event, and update the notes."""
        await self._bill(log, rest)
        await self.thinking.take_report(log, self.policy.facts, rest, entry.uuid)
        if not awaits_provider(log.view):  # the next reply reports it again
            await self.trim.after_reply(log, rest)
        usage = dict(rest["usage"]) if isinstance(rest.get("usage"), Mapping) else {}
        log.emit(ReplyObserved(log.name, str(rest.get("id", "")), str(rest.get("model", "")), usage))
        unreadable = unreadable_thinking(log.view, rest)
        if unreadable is not None:
            await log.decide(unreadable)
        await self.notes.after_reply()

    async def _bill(self, log: SessionLog, reply: Mapping[str, Any]) -> None:
        """Log a reply's usage and cost, also in the ledger, and report a cache break; skip one without usage."""
        accounts = self.accounts
        await self.host.load_prices(reply)
        self.meter(reply)
        billed = accounts.after(reply, cache={**self.cache.state(), **self.trim.state()})
        if billed is None:
            return
        entry = await log.decide(billed.call, sync=False)
        log.run_later(lambda: accounts.enter(billed, entry.uuid))
        if billed.broke is not None:
            log.emit(CacheBroken(log.name, billed.broke.reason, billed.broke.tokens, billed.lost_usd))
        if accounts.prices(self.policy.model_name) is None:  # the name may be an alias of the provider
            self.use_prices(billed.call.model)

    def capabilities_of(self, facts: ModelFacts) -> frozenset[str]:
        """Return the capabilities given for the session and those of the model, as the log names them."""
        named = {
            "preserved_thinking": facts.checks_thinking,
            "system_messages": facts.system_messages,
            "tool_changes": facts.tool_changes,
            CARRIED: facts.api != "messages",
        }
        return self.capabilities | {name for name, able in named.items() if able}

    def apply_policy(self) -> None:
        """Give layers 1 and 2 the policies and switches of the settings in force."""
        self.offload.enabled = self.policy.settings.switches.offload
        self.fit_window()

    def read(self, entry: Entry, view: View) -> None:
        """Take one entry of the log that is being opened and the view before it; each comes once, oldest first."""
        body = entry.body
        if entry.kind == DECISION and body.get("decision") == "call_recorded":
            if body.get("cache"):
                self.cache.read(body["cache"])
            if body.get("source") == "main":
                self.answered = view
            self.accounts.read(entry)
        self.compact.read(entry)
        self.thinking.read(entry)

    def resume(self, loaded: ParsedLog, view: View) -> None:
        """Restore the state of cache plan, trimmer, accounts, model name and circuit breaker from the log."""
        call, prefix, meta = view.facts.last_call, view.facts.prefix, view.facts.meta
        answered, self.answered = self.answered, None
        if call is not None and answered is not None:
            sent = build_request(answered)
            self.cache.resume(sent["messages"])
            self.trim.resume(call.cache, decisions_since_call(loaded.entries))
            self.accounts.resume(sent, call, view.last_reply)
        named = prefix.model if prefix is not None else meta.get("model")
        if isinstance(named, str):
            self.policy.use_name(named, tuple(prefix.betas) if prefix is not None else ())
            self.told_model = named
        for model, tokens in view.facts.windows.items():
            self.policy.learn_window(model, tokens)
        self.policy.use_preset(meta.get("preset"))
        self.fit_window()
        self.thinking.resume(loaded.entries)

    def stored(self, view: View, handle: str, *, listed: bool = False) -> bytes | None:
        """Return content that left a view, by its path or handle; None if it is not readable. This may block.

        Of a cut it is the text of the messages that it removed, or with ``listed`` the list of them.
        """
        try:
            found = self.read_back(view).find(handle)
            return (found.listing if listed else found.text).encode() if found.listing else found.data
        except (InputError, StorageError):
            return None

    def read_back(self, view: View) -> ReadBack:
        """Return a reader of content that left a view."""
        return ReadBack(self.storage, self.folder, view)


def new_facts(options: SessionOptions, loaded: ParsedLog, view: View) -> dict[str, Any]:
    """Return the facts about the session that its log does not have yet."""
    first = {} if loaded.entries else {"schema": LOG, "cwd": options.cwd}
    is_told = not options.subject or view.facts.meta.get("subject") == options.subject
    return first if is_told else {**first, "subject": options.subject}


def assemble(log: SessionLog, options: SessionOptions) -> SessionParts:
    """Build the parts of a session and connect them to its log; raise ``InputError`` for an option of no use."""
    if options.mode not in ("write", "read"):
        raise InputError(f"mode is {options.mode!r}: pass 'write' or 'read'")
    check_type("memory", options.memory, bool, "True or False")
    check_parts("model", options.model, ("model_id", "stream"), "a Model, such as open_model(NAME)")
    check_text("subject", options.subject)
    check_text("folder", options.folder)
    settings, storage, folder = options.settings, options.storage, options.key
    policy = SessionPolicy(settings)
    if options.model is not None:
        policy.use_model(options.model)
    root = str(settings.home) if options.on_files else ""
    shared = storage if database_of(storage) is not None else None
    keeps_ledger = options.owns_storage or shared is not None
    store = open_ledger(settings, shared, session=log.name, listener=log.emit) if keeps_ledger else None
    facts = policy.facts
    cache = CachePlan(
        compact_at=policy.thresholds.auto_compact, rates=rates_of(None, facts), least_cached=facts.least_cached_tokens
    )
    accounts = Accounts(store, session=log.name, project=options.project, clock=options.clock)
    thinking = ThinkingWatch(accounts)
    host = SessionHost(log, policy, cache, accounts, thinking, options.model)
    activity = SessionActivity()
    notes = NotesKeeper(host, storage, folder, activity, root=root)
    if options.model is not None:
        notes.forks = Forks(host, options.model)
    standing = StandingContext(host)
    rules = notes.rules = RuleKeeper(host, standing)
    steps, plan = StepsSource(), PlanKeeper(host, storage, folder, standing, root=root)
    standing.add(steps)
    standing.add(plan)
    compact = Compactor(host, cache, notes, activity, thinking, standing)
    parts = SessionParts(
        policy=policy,
        storage=storage,
        folder=folder,
        capabilities=options.capabilities,
        cache=cache,
        accounts=accounts,
        host=host,
        offload=Offloader(
            storage,
            folder,
            offload_policy(settings, policy.thresholds, settings.trim.mode),
            lambda: policy.facts,
            root=root,
        ),
        trim=Trimmer(settings.trim, cache),
        notes=notes,
        compact=compact,
        standing=standing,
        rules=rules,
        inbox=Inbox(storage, f"{folder}/inbox", compact, rules),
        steps=steps,
        plan=plan,
        background=BackgroundTasks(notes, compact.background, host),
        thinking=thinking,
    )
    parts.apply_policy()
    log.on_event(parts.offload.on_event)
    log.on_event(compact.on_event)
    log.on_event(parts.thinking.on_event)
    return parts
