"""Quality measures of sessions: cache use, facts kept by compactions, background cost, use of memories.

Every number is computed from logs alone, so anyone can reproduce it from the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

from ...cache.ledger import MAIN, Ledger, LedgerCall, PriceList
from ...cache.usage import reported_usage, usage_of
from ...cache.watch import RESTARTED, UNSEEN, restarts
from ...conversation.authorship import is_prompt, strings_of, utterances
from ...conversation.decisions import (
    CallRecorded,
    Cause,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    MemoriesSurfaced,
    ThinkingDropped,
    decision_of,
)
from ...conversation.entries import ASSISTANT, DECISION, META, REWOUND, Entry
from ...conversation.identifiers import TextNames, mine, mine_entries
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...layers.l4_compact import LossReport, loss_of
from ...values import field, object_of, record, replace
from ..archive.recordings import GATEWAY

T = TypeVar("T", "FactRetention", "UnusedMemories", "Measures")

_SURFACED: Final = "memories_surfaced"
_FREQUENT: Final = ("results_kept", "notes_updated")
"""Decisions of nearly every turn that no measure counts; reading them takes time."""


@record
class FactRetention:
    """The uses of exact names in messages that compactions removed, and how many of them the summaries kept."""

    used: int = 0
    kept: int = 0
    tokens: int = 0
    """The size of the summaries in tokens."""

    @property
    def share(self) -> float | None:
        """The share of uses that was kept; None if no name was removed."""
        return self.kept / self.used if self.used else None

    @property
    def per_1000_tokens(self) -> float | None:
        """Kept uses of exact names per thousand tokens of summary; None without a summary."""
        return 1000 * self.kept / self.tokens if self.tokens else None


@record
class UnusedMemories:
    """The number of memories that were shown to the model, and of those that no later reply used."""

    surfaced: int = 0
    unused: int = 0

    @property
    def rate(self) -> float | None:
        """The share of shown memories that were not used; None if no memory was shown."""
        return self.unused / self.surfaced if self.surfaced else None


@record
class Measures:
    """The measures of one session, or the totals of several."""

    sessions: int = 0
    calls: int = 0
    input_tokens: int = 0
    read_tokens: int = 0
    breaks: int = 0
    lost_usd: float = 0.0
    usd: float = 0.0
    background_calls: int = 0
    background_usd: float = 0.0
    compactions: int = 0
    imported: int = 0
    """The compactions among them that another program made and recorded."""
    undone: int = 0
    failed: int = 0
    breaker_openings: int = 0
    thinking_dropped: int = 0
    """Replies whose thinking could not be sent again, as the log says."""
    facts: FactRetention = field(default_factory=FactRetention)
    pollution: UnusedMemories = field(default_factory=UnusedMemories)

    @property
    def hit_rate(self) -> float | None:
        """The share of input tokens read from the provider's cache; None without input tokens."""
        return self.read_tokens / self.input_tokens if self.input_tokens else None

    @property
    def compactions_per_session(self) -> float | None:
        """The average number of compactions per session; None without sessions."""
        return self.compactions / self.sessions if self.sessions else None

    @property
    def background_share(self) -> float | None:
        """The share of the cost that background work caused; None if there was no cost."""
        return self.background_usd / self.usd if self.usd else None


def measure(
    entries: Sequence[Entry],
    prices: PriceList,
    *,
    failures_open: int = 3,
    session: str = "",
    project: str = "",
    reported_calls: list[LedgerCall] | None = None,
) -> Measures:
    """Return the measures of one log; every ``failures_open`` failed compactions in a row open the circuit breaker.

    The calls that the replies of a recording report, which no ledger has, are added to ``reported_calls``.
    """
    ledger, view = Ledger(session, project), View()
    reported, calls = _reported_calls(entries), list[LedgerCall]()
    background: list[CallRecorded] = []
    counts: Counter[str] = Counter()
    facts, in_a_row = FactRetention(), 0
    for entry in entries:
        counted = entry.kind == DECISION and entry.body.get("decision") not in _FREQUENT
        decision = decision_of(entry.body) if counted else None
        before, view = view, view.fold(entry)
        ledger = ledger.fold(entry, prices)
        if entry.uuid in reported:
            ledger = ledger.called(reported[entry.uuid], entry, prices)
            calls += [ledger.last] if ledger.last is not None else []
        match decision:
            case CallRecorded() if decision.source != MAIN:
                background.append(decision)
            case Compacted() if view.cuts != before.cuts:
                counts["compactions"] += 1
                counts["imported"] += entry.imported
                in_a_row = 0
                facts = _plus(facts, _retention(before, view, decision))
            case CompactionUndone():
                counts["undone"] += 1
            case ThinkingDropped():
                counts["thinking"] += len(decision.messages)
            case CompactionFailed():
                counts["failed"] += 1
                in_a_row += 1
                counts["opened"] += in_a_row % failures_open == 0
            case _:
                pass
    if reported_calls is not None:
        reported_calls += _with_restarts(calls, entries)
    totals = ledger.totals
    spent = [call.cost_usd if call.cost_usd is not None else _price(call, prices) for call in background]
    return Measures(
        sessions=1,
        calls=totals.calls,
        input_tokens=totals.actual.input,
        read_tokens=totals.actual.read,
        breaks=totals.breaks,
        lost_usd=totals.lost_usd,
        usd=totals.usd,
        background_calls=len(background),
        background_usd=sum(spent),
        compactions=counts["compactions"],
        imported=counts["imported"],
        undone=counts["undone"],
        failed=counts["failed"],
        breaker_openings=counts["opened"],
        thinking_dropped=counts["thinking"],
        facts=facts,
        pollution=_unused_memories(entries),
    )


def total_of(found: Iterable[Measures]) -> Measures:
    """Return the sums of several measures as one ``Measures``."""
    total = Measures()
    for one in found:
        total = _plus(total, one)
    return total


def _plus(one: T, other: T) -> T:
    """Return the sum of two records, field by field."""
    pairs = ((getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return type(one)(
        *(mine + theirs if isinstance(mine, int | float) else _plus(mine, theirs) for mine, theirs in pairs)
    )


def _retention(before: View, after: View, made: Compacted) -> FactRetention:
    """Count the uses of exact names in messages a compaction removed, and of those names that its summary has."""
    left = {piece.uuid for group in after.groups for piece in group.pieces}
    shown = {piece.uuid for group in before.groups for piece in group.pieces} - left
    said = (item.entry for item in before.items_in_view() if item.uuid in shown)
    used = mine_entries(entry for entry in said if entry.body.get("decision") not in ("compacted", "collapsed"))
    text = "\n".join([made.summary, *strings_of(made.attachments)])
    shown = TextNames(text)
    kept = sum(count for name, count in used.items() if name.text in shown)
    return FactRetention(used.total(), kept, round(estimate_text(text)))


def _reported_calls(entries: Sequence[Entry]) -> dict[str, CallRecorded]:
    """Return the calls that imported replies report, by each reply's entry uuid.

    If the log records calls, replies that Reverie logged itself are among them; those that a rewind copied are not.
    A log of the gateway has every call, and the ledger too.
    """
    if entries and object_of(entries[0].body.get("source")).get("format") == GATEWAY:
        return {}
    copied = max((at for at, entry in enumerate(entries) if entry.kind == META and REWOUND in entry.body), default=-1)
    entries = entries[copied + 1 :]
    records = any(entry.kind == DECISION and entry.body.get("decision") == "call_recorded" for entry in entries)
    replies: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == ASSISTANT and (entry.imported or not records):
            replies.setdefault(str(entry.reply.get("id") or entry.uuid), []).append(entry)
    found: dict[str, CallRecorded] = {}
    for pieces in replies.values():
        usage = reported_usage(pieces)
        if usage is not None:
            model = str(pieces[0].reply.get("model") or "")
            found[pieces[-1].uuid] = CallRecorded(Cause("model", "as the recording reports"), model, usage)
    return found


def _with_restarts(calls: Sequence[LedgerCall], entries: Sequence[Entry]) -> list[LedgerCall]:
    """Return the reported calls, those that missed the cache at new prompts with the client as cause if it is."""
    replies, prompted, is_prompted = {one.id for one in calls}, set[str](), False
    for entry in entries:
        is_prompted = is_prompted or is_prompt(entry)
        if entry.uuid in replies:
            prompted |= {entry.uuid} if is_prompted else set()
            is_prompted = False
    at_prompt = restarts([one.id for one in calls if one.broke == UNSEEN], prompted, len(calls))
    return [replace(one, broke=RESTARTED) if one.id in at_prompt else one for one in calls]


def _unused_memories(entries: Sequence[Entry]) -> UnusedMemories:
    """Count the memories that were shown, each once, and those that no later reply used.

    A reply uses a memory if its text or a tool input contains an exact name that the memory introduced to the session.
    """
    surfaced: set[str] = set()
    known: set[str] = set()
    waiting: list[tuple[int, set[str]]] = []
    shown = [at for at, entry in enumerate(entries) if entry.body.get("decision") == _SURFACED]
    last = shown[-1] if shown else -1
    for at, entry in enumerate(entries if shown else ()):
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, MemoriesSurfaced):
            first = set(decision.names) - surfaced  # one that left the view may be shown again
            surfaced |= first
            if first:
                waiting.append((len(first), {name.text for name in mine(decision.text)} - known))
            continue
        if at < last:  # names that are known later change nothing
            known |= {name.text for name in mine_entries((entry,))}
        if entry.kind == ASSISTANT and waiting:
            said = "\n".join(text for one in utterances(entry) for text in (one.text, *strings_of(one.input)))
            waiting = [one for one in waiting if not any(name in said for name in one[1])]
    return UnusedMemories(len(surfaced), sum(count for count, _ in waiting))


def _price(call: CallRecorded, prices: PriceList) -> float:
    found = prices(call.model)
    return found.cost_of(usage_of(call.usage)) if found is not None else 0.0


@record
class CompactionLoss:
    """One compaction in a log, with its token counts and a report of the names it kept and removed from view."""

    uuid: str
    time: str
    decision: Compacted
    tokens_before: int
    tokens_after: int
    undone: bool
    loss: LossReport


def losses(entries: Iterable[Entry]) -> list[CompactionLoss]:
    """Return a log's compactions, each with the names that the view had before but not after it."""
    out: list[CompactionLoss] = []
    view = View()
    for entry in entries:
        before, view = view, view.fold(entry)
        decision = decision_of(entry.body) if entry.kind == DECISION and view.cuts != before.cuts else None
        if isinstance(decision, Compacted):
            loss = loss_of(before, view, decision)
            tokens_before = decision.tokens_before or before.token_count.raw_tokens
            tokens_after = decision.tokens_after or view.token_count.tokens
            out.append(CompactionLoss(entry.uuid, entry.time, decision, tokens_before, tokens_after, False, loss))
    return [replace(one, undone=one.uuid in view.facts.undone) for one in out]


def loss_report(loss: LossReport) -> dict[str, Any]:
    """Return a loss as a dict for JSON: counts by kind of name, share of names kept, and the lost names."""
    return {"by_kind": loss.counts, "share_kept": loss.share_kept, "lost": list(loss.lost)}
