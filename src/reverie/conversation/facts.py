"""The state in a log besides its messages: prefix, notes, cursors, pins, compactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from ..values import field, record, replace
from .amendments import told_in_part
from .cuts import BLOCK, Item
from .decisions import (
    AgentFinished,
    AgentSpawned,
    CacheEdits,
    CallRecorded,
    ClearingBoundaryMoved,
    Compacted,
    CompactionFailed,
    CompactionPrepared,
    CompactionUndone,
    ContextSaid,
    CursorMoved,
    Decision,
    InstructionsAttached,
    MemoriesSurfaced,
    MessageQueued,
    NotesUpdated,
    Pinned,
    PlanChanged,
    PrefixAmended,
    PrefixRendered,
    ReloadAsked,
    ResultOffloaded,
    ResultsClearedByProvider,
    ResultsRestored,
    ResultStubbed,
    SaidItem,
    ThinkingRepaired,
    ToolsDeferred,
    ToolsFound,
    WindowLearned,
)
from .entries import ASSISTANT, META, Entry
from .file_reads import FILES, FileReads, logged_reads
from .layered_map import LayeredMap
from .plans import Plan, plan_after
from .standing_context import RULES, USER_CONTEXT, StandingRow, is_shown, said_in
from .wire.carried_items import CARRIED
from .wire.options import opening_of

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_PROJECTIONS: Final = 32


@record
class LoggedAgent:
    """An agent by the log of the session that started it; ``finished`` is None if the log has no end of it."""

    spawned: AgentSpawned
    finished: AgentFinished | None = None

    @property
    def kind(self) -> str:
        """The type of the agent, or ``fork``."""
        return str(self.spawned.options.get("kind") or "")

    @property
    def description(self) -> str:
        """The agent's task in a few words; may be empty."""
        return str(self.spawned.options.get("description") or "")

    @property
    def is_background(self) -> bool:
        """Whether its result comes as a message and not as the result of a tool call."""
        return self.spawned.options.get("background") is True


@record
class Facts:
    """The state of a session after its decisions and metadata; ``opening`` is a request without its messages."""

    prefix: PrefixRendered | None = None
    opening: Mapping[str, Any] | None = None
    amendments: tuple[tuple[str, PrefixAmended], ...] = ()
    """The changes of system prompt and tools since the prefix was rendered, each with its entry's uuid."""
    retired: frozenset[str] = frozenset()
    """The uuids of system messages about changes that a later prefix already has, which are no longer shown."""
    amended: PrefixAmended | None = None
    """The last of these changes that the view still shows."""
    meta: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    notes: Mapping[str, str] = field(default_factory=lambda: _NONE)
    notes_covered: str | None = None
    notes_tokens: int = 0
    """The token count of the view when the notes were last written, minus the tokens freed since."""
    notes_calls: int = 0
    notes_foreign: frozenset[str] = frozenset()
    """Sections of the notes that a person or a model has written."""
    notes_projections: tuple[str, ...] = ()
    """Hashes of the last 32 documents written to the notes file, the newest last."""
    cursors: Mapping[str, str] = field(default_factory=lambda: _NONE)
    pinned: frozenset[str] = frozenset()
    plan: Plan | None = None
    queued: frozenset[str] = frozenset()
    compactions: tuple[str, ...] = ()
    compacted_from: int = 0
    """The tokens of the view before its last compaction."""
    undone: frozenset[str] = frozenset()
    prepared: CompactionPrepared | None = None
    """The compaction that was written in the background and waits for the next request."""
    failures: int = 0
    edits: tuple[CacheEdits, ...] = ()
    boundary: ClearingBoundaryMoved | None = None
    """Up to which call the provider leaves results out of requests."""
    clearing: ResultsClearedByProvider | None = None
    """The last report of the provider about results that it left out of a request."""
    cleared_by_provider: frozenset[str] = frozenset()
    """The tool calls whose results the provider leaves out of requests, also those that a cut removed."""
    last_call: CallRecorded | None = None
    given_up: frozenset[str] = frozenset()
    carries_items: bool = False
    """Whether replies may carry items of another provider than Anthropic (see ``wire.carried_items``)."""
    drops_refused_thinking: str = ""
    """The field by which requests ask the provider to drop thinking that it would refuse; empty if they do not."""
    deferred_tools: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """The tools that are declared only after they were found, with the tokens of their definitions."""
    found_tools: tuple[str, ...] = ()
    """The deferred tools that were found, in order."""
    agents: Mapping[str, LoggedAgent] = field(default_factory=lambda: _NONE)
    """The agents that this session's agent started, by id, in order."""
    windows: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """The windows in tokens that refusals taught, by model."""
    files: FileReads = FileReads()
    """The files that tools have read or written, whether or not the view still shows them."""
    files_answered: int = 0
    """How many of these reads and writes the last reply has seen."""
    restorations: int = 0
    """How many decisions brought removed results back."""
    reload_asked: bool = False
    """Whether the next request renders system prompt and tools anew."""
    standing: LayeredMap[StandingRow] = field(default_factory=LayeredMap)
    """The standing context: the newest saying of each item, by its key."""
    visible: LayeredMap[StandingRow] = field(default_factory=LayeredMap)
    """The last saying of each item that the view shows, by its key."""
    context_cuts: int = 0
    """The number of cuts in the view when standing context was last said."""
    rules_unchecked: bool = False
    """Whether rules of the user were said together with later words that no notes have compared with them."""
    says_as_system: bool = False
    """Whether standing context was ever said in the role ``system``."""

    @property
    def has_system_messages(self) -> bool:
        """Whether the history has messages of the role ``system``."""
        return self.says_as_system or bool(self.amendments)

    @property
    def fallen(self) -> dict[str, SaidItem | None]:
        """The items whose newest saying a cut removed from the view, each with the older one that it shows, if any."""
        rows = ((self.standing[key].item, self.visible.get(key)) for key in self.standing)
        pairs = ((said, shown and shown.item) for said, shown in rows)
        return {said.key: shown for said, shown in pairs if not is_shown(said, shown)}

    def after_cut(self, items: Iterable[Item]) -> Facts:
        """Return the facts after a cut that left these items: which sayings are in view, which amendments hold."""
        left = list(items)
        said = ((one, item.uuid) for item in left if item.uuid == item.entry.uuid for one in said_in(item.entry.body))
        visible = LayeredMap[StandingRow]().changed(_rows(said))
        return replace(self.with_amendments_in(left), visible=visible)

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """The declarations of the tools that the model knows now, with those that were added at the end."""
        declared = self.amended or self.prefix
        return declared.tools if declared is not None else ()

    def with_amendments_in(self, items: Iterable[Item]) -> Facts:
        """Return the facts after a cut: of the changes to the prefix only those that these items show hold."""
        if self.prefix is None:
            return self
        shown = {item.uuid: item for item in items}
        told = [amended for uuid, amended in self.amendments if uuid in shown]
        carried = [change for item in shown.values() if item.kind == BLOCK for change in _carried_changes(item)]
        if carried or any(uuid not in shown for uuid, _ in self.amendments[: len(told)]):
            return replace(self, amended=told_in_part(self.prefix, told, carried))
        return replace(self, amended=told[-1] if told else None)


def _carried_changes(item: Item) -> list[Any]:
    content: Any = item.message.get("content")
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    return [change for block in blocks for change in block.get("tool_changes") or ()]


def facts_with(facts: Facts, entry: Entry) -> Facts:
    """Return the facts after an entry that is no decision: a message or metadata."""
    if entry.kind == META:
        return replace(facts, meta={**facts.meta, **entry.body})
    if entry.kind == ASSISTANT:
        if not facts.reload_asked and facts.files_answered == facts.files.count:
            return facts
        return replace(facts, reload_asked=False, files_answered=facts.files.count)
    if entry.body.get("type") == USER_CONTEXT:
        return _with_said(facts, entry.uuid, said_in(entry.body))
    return replace(facts, files=facts.files.after(logged_reads(entry.body[FILES]))) if FILES in entry.body else facts


def facts_after(facts: Facts, uuid: str, decision: Decision) -> Facts:  # noqa: C901 - one case per decision
    """Return the facts after a decision; ``uuid`` is the id of its log entry."""
    if decision.cause.frees and facts.notes_tokens and not isinstance(decision, ResultOffloaded):
        facts = replace(facts, notes_tokens=max(0, facts.notes_tokens - decision.cause.frees))
    match decision:
        case PrefixRendered():
            return _facts_after_prefix(facts, decision)
        case PrefixAmended():
            return replace(facts, amendments=(*facts.amendments, (uuid, decision)), amended=decision)
        case ResultsRestored():
            return replace(facts, restorations=facts.restorations + 1)
        case ReloadAsked():
            return replace(facts, reload_asked=True)
        case ThinkingRepaired():
            return replace(facts, drops_refused_thinking=decision.field)
        case NotesUpdated():
            return _facts_after_notes(facts, decision)
        case ContextSaid() | MemoriesSurfaced() | InstructionsAttached():
            return _facts_after_saying(facts, uuid, decision)
        case CursorMoved():
            is_unchecked = facts.rules_unchecked and decision.cursor != RULES
            cursors = {**facts.cursors, decision.cursor: decision.message}
            return replace(facts, cursors=cursors, rules_unchecked=is_unchecked)
        case Pinned():
            return replace(facts, pinned=facts.pinned | {*decision.messages, *decision.tool_use_ids})
        case PlanChanged():
            return replace(facts, plan=plan_after(facts.plan, decision))
        case MessageQueued():
            return replace(facts, queued=facts.queued | {decision.id})
        case Compacted():
            before = decision.tokens_before
            return replace(
                facts, compactions=(*facts.compactions, uuid), failures=0, prepared=None, compacted_from=before
            )
        case CompactionPrepared():
            return replace(facts, prepared=decision)
        case CompactionUndone():
            return replace(facts, undone=facts.undone | {decision.compaction}, prepared=None)
        case CompactionFailed():
            return replace(facts, failures=facts.failures + 1, prepared=None)
        case WindowLearned():
            return replace(facts, windows={**facts.windows, decision.model: decision.tokens})
        case CacheEdits():
            return replace(facts, edits=(*facts.edits, decision))
        case ClearingBoundaryMoved():
            return replace(facts, boundary=decision)
        case ResultsClearedByProvider():
            cleared = facts.cleared_by_provider.union(decision.tool_use_ids).difference(decision.shown_again)
            return replace(facts, clearing=decision, cleared_by_provider=cleared)
        case ResultStubbed() if decision.cause.moves_prefix:
            return replace(facts, given_up=facts.given_up | {decision.tool_use_id})
        case CallRecorded() if decision.source == "main":
            return replace(facts, last_call=decision)
        case ToolsDeferred():
            return replace(facts, deferred_tools=decision.tools)
        case ToolsFound():
            return replace(facts, found_tools=tuple(dict.fromkeys((*facts.found_tools, *decision.names))))
        case AgentSpawned():
            return replace(facts, agents={**facts.agents, decision.agent: LoggedAgent(decision)})
        case AgentFinished():
            known = facts.agents.get(decision.agent)
            ended = {decision.agent: replace(known, finished=decision)} if known is not None else {}
            return replace(facts, agents={**facts.agents, **ended})
        case _:
            return facts


def _facts_after_prefix(facts: Facts, rendered: PrefixRendered) -> Facts:
    """Return the facts after a prefix; earlier amendments stay in force if system and tools are the same."""
    before, carries = facts.prefix, facts.carries_items or CARRIED in rendered.capabilities
    facts = replace(facts, prefix=rendered, opening=opening_of(rendered), carries_items=carries)
    if before is not None and (before.system, before.tools) == (rendered.system, rendered.tools):
        return facts
    told = frozenset(uuid for uuid, amended in facts.amendments if amended.message.get("role") == "system")
    return replace(facts, amendments=(), amended=None, retired=facts.retired | told)


def _facts_after_saying(
    facts: Facts, uuid: str, decision: ContextSaid | MemoriesSurfaced | InstructionsAttached
) -> Facts:
    """Return the facts after standing context was said."""
    facts = _with_said(facts, uuid, decision.items)
    if isinstance(decision, ContextSaid):
        as_system = facts.says_as_system or decision.role == "system"
        is_unchecked = facts.rules_unchecked or bool(decision.later_words)
        facts = replace(facts, context_cuts=decision.cuts, says_as_system=as_system, rules_unchecked=is_unchecked)
    return facts


def _with_said(facts: Facts, uuid: str, items: Sequence[SaidItem]) -> Facts:
    said = {one.key: StandingRow(one, uuid) for one in items}
    visible = _rows((one, uuid) for one in items)
    return replace(facts, standing=facts.standing.changed(said), visible=facts.visible.changed(visible))


def _rows(said: Iterable[tuple[SaidItem, str]]) -> dict[str, StandingRow]:
    return {one.key: StandingRow(one, entry) for one, entry in said if one.text.strip()}


def _facts_after_notes(facts: Facts, update: NotesUpdated) -> Facts:
    """Return the facts after an update of the notes."""
    foreign = facts.notes_foreign if update.by == "local" else facts.notes_foreign | update.sections.keys()
    projections = facts.notes_projections
    if update.projection and update.projection not in projections:
        projections = (*projections, update.projection)[-_PROJECTIONS:]
    return replace(
        facts,
        notes={**facts.notes, **update.sections},
        notes_covered=update.covered or facts.notes_covered,
        notes_tokens=update.tokens or facts.notes_tokens,
        notes_calls=update.calls or facts.notes_calls,
        notes_foreign=foreign,
        notes_projections=projections,
        rules_unchecked=facts.rules_unchecked and (update.by != "local" or update.covered is None),
    )
