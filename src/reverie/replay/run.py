"""Replay a recorded session under a policy: every request is built, checked, and billed by the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from math import inf
from operator import is_
from typing import Any, Final

from ..cache.economics import PING_SECONDS
from ..cache.prices import Prices, prices_for
from ..cache.usage import Usage, usage_fields
from ..cache.watch import IDLE_LONG, IDLE_SHORT
from ..conversation.decisions import (
    Compacted,
    Decision,
    ResultOffloaded,
    ResultsCleared,
    ResultsKept,
    Snipped,
    body_of,
    name_of,
)
from ..conversation.entries import ASSISTANT, DECISION, USER, Entry, Message, reply_id
from ..conversation.tokens.estimate import estimate_text
from ..conversation.wire.request import build_request
from ..conversation.wire.validate import problems
from ..values import replace
from .drops import drops
from .needs import NeededResults
from .outcome import LayerAction, Point, ReplayBreak, ReplayOutcome
from .policies import ReplayPolicy
from .recording import RecordedRequest, Recording
from .simulated_requests import RequestSimulator

_BROKEN_SHARE: Final = 0.95
_BROKEN_TOKENS: Final = 2_000
_OPENING: Message = {"role": USER, "content": "."}


def billed_outcome(recording: Recording, prices: Prices) -> ReplayOutcome | None:
    """Return the outcome that the provider billed; None if a request of the recording has no bill."""
    if not recording.billed:
        return None
    points: list[Point] = []
    for step in recording.steps:
        assert step.billed is not None
        points.append(_point(step, step.billed, prices))
    breaks = [
        ReplayBreak(one.number, one.at, one.reason, one.tokens, one.usd or 0.0, one.registered)
        for one in drops(recording, prices)
    ]
    outcome = ReplayOutcome(
        "recorded", recording.name, recording.session, recording.model, tuple(points), breaks=tuple(breaks)
    )
    if recording.bill is None:
        return outcome
    bill = recording.bill
    other, recorded = (
        sum((prices_for(model) or prices).cost_of(usage) for model, usage in calls)
        for calls in (bill.other_usage.items(), bill.calls)
    )
    return replace(outcome, program_usd=bill.total_usd, priced_usd=recorded + other, other_calls_usd=other)


def replay_recording(
    recording: Recording, policy: ReplayPolicy, prices: Prices, *, model: str = "", check: bool = True
) -> ReplayOutcome:
    """Replay every request of a recording under a policy and return the outcome.

    ``model`` is the one whose cache is simulated, by default the recorded one. With ``check`` the outcome counts
    requests that a provider would refuse.
    """
    run = _PolicyRun(recording, policy, prices, model or recording.model, check)
    for step in recording.steps:
        run.step(step)
    before = run.ping_usd + run.summary_usd
    if recording.steps:
        last = recording.steps[-1]
        run.arrive(last, last.reply)
        run.keep_warm(last, inf)
    return replace(run.outcome(), after_usd=run.ping_usd + run.summary_usd - before, needing=len(run.needing))


class _PolicyRun:
    """The replay of one recording under one policy, request by request."""

    def __init__(self, recording: Recording, policy: ReplayPolicy, prices: Prices, model: str, check: bool) -> None:
        self.recording = recording
        self.policy = policy
        self.prices = prices
        self.checks = RequestChecks(recording.shared.accepted) if check else None
        self.view = recording.shared.start
        self.built: list[Message] = []
        """The messages of the last request as they were built, and as objects that all policies share."""
        self.messages: list[Message] = []
        self.sender = RequestSimulator(recording, model)
        self.needs = NeededResults(recording.lines)
        self.points: list[Point] = []
        self.acts: list[LayerAction] = []
        self.breaks: list[ReplayBreak] = []
        self.read_backs = self.read_back_tokens = 0
        self.read_back_usd = 0.0
        self.removed = 0
        self.needed: dict[str, int] = {}
        self.needing: set[int] = set()
        self.sent: RecordedRequest | None = None
        self.sent_id = ""
        self.usage = Usage()
        self.made = 0
        self.compactions = self.pings = 0
        self.summary_usd = self.ping_usd = 0.0
        self.warm_at: float | None = None
        """The time at which the cache was used last."""

    def step(self, step: RecordedRequest) -> None:
        """Replay one request: fold its entries and decisions, send it, record its cost, breaks and read-backs."""
        answer = len([*takewhile(self._is_answer, step.entries)])  # an idle session has it already
        moved = self.arrive(step, step.entries[:answer])
        moved += self.keep_warm(step, step.at)
        moved += self.arrive(step, step.entries[answer:])
        moved += self.decide(step, self.policy.prepare(self.view, step))
        request = build_request(self.view)
        built, before = request["messages"], self.built
        same = [*map(is_, built, before), False].index(False)
        self.messages = request["messages"] = self.messages[:same] + self.recording.shared.messages(built[same:])
        self.built = built
        if self.checks is not None:
            self.checks.add(request, same)
        usage = self.send(step, request["messages"], same)
        self.policy.billed(self.view, replace(usage, output=step.output_tokens))
        self.watch(step, usage, moved)
        self.points.append(_point(step, usage, self.prices))
        self.read_back(step, usage)
        self.sent, self.usage, self.sent_id = step, usage, reply_id(step.reply[0])

    def arrive(self, step: RecordedRequest, entries: Iterable[Entry]) -> list[str]:
        """Fold entries between two requests; return a reason for each recorded compaction among them."""
        moved: list[str] = []
        for entry in entries:
            again = self.needs.add(entry)
            self.needed.update(again)
            self.needing.update([step.number] if again else [])
            self.decide(step, self.policy.arrived(self.view, entry))
            cuts = self.view.cuts
            self.view = self.recording.shared.fold(self.view, *self._as_simulated(entry))
            if self.view.cuts != cuts:
                moved.append("compaction, as recorded")
                self.sender.epoch = step.number
        return moved

    def _is_answer(self, entry: Entry) -> bool:
        """Say whether an entry is a part of the reply to the last request."""
        return entry.kind == ASSISTANT and reply_id(entry) == self.sent_id

    def _as_simulated(self, entry: Entry) -> tuple[Entry, int]:
        """Return the reply to the last request with its simulated usage, and its tokens; other entries unchanged."""
        if self.sent is None or not self._is_answer(entry):
            return entry, 0
        usage = usage_fields(self.usage, self.sent.output_tokens)
        edits = {"applied_edits": [{"cleared_input_tokens": self.policy.hidden_tokens}]}
        reply = {**entry.reply, "usage": usage, "context_management": edits}
        return replace(entry, body={**entry.body, "reply": reply}), self.usage.input + self.policy.hidden_tokens

    def decide(self, step: RecordedRequest, decisions: Sequence[Decision]) -> list[str]:
        """Fold decisions into the view and record their effects; return the names of prefix-moving ones."""
        moved: list[str] = []
        for decision in decisions:
            cause = decision.cause
            items, frees = 1, cause.frees
            if isinstance(decision, ResultsCleared):
                items = len(decision.cleared)
                for one in decision.cleared:
                    self.needs.removed(one.tool_use_id, one.tokens)
                self.removed += cause.frees
            elif isinstance(decision, Snipped):
                self.snip(decision)
            elif isinstance(decision, Compacted):
                self.compact(step, decision)
            elif isinstance(decision, ResultOffloaded):
                self.needs.removed(decision.tool_use_id, cause.frees)
                self.needs.shown(decision.text)
                self.removed += cause.frees
            before = self.view
            self.made += 1
            uuid = f"7e914a79-0000-4000-8000-{self.made:012x}"  # summaries name it: as long as that of a live session
            entry = Entry(uuid, None, "", "replay", DECISION, body_of(decision))
            is_common = cause.layer == "offload"  # layer 1 decides the same under every preset
            shared = self.recording.shared
            self.view = shared.fold(before, entry, repr(decision)) if is_common else before.fold(entry)
            if isinstance(decision, Compacted):
                frees = before.tokens - self.view.tokens
                self.removed += frees + estimate_text(decision.summary)
            if not isinstance(decision, ResultsKept):
                self.acts.append(LayerAction(step.number, step.at, cause.layer, cause.reason, items, max(0, frees)))
            if cause.moves_prefix:
                moved.append(name_of(decision).replace("_", " "))
        return moved

    def snip(self, decision: Snipped) -> None:
        """Record the results that leave with the messages of a snip, and count the freed tokens."""
        gone = set(decision.messages)
        for one in self.view.results:
            if one.message in gone:
                self.needs.removed(one.tool_use_id, one.tokens)
        self.removed += decision.cause.frees

    def compact(self, step: RecordedRequest, decision: Compacted) -> None:
        """Charge the summary of a compaction, and record the results that leave with it."""
        in_view = (item.uuid for item in self.view.items_in_view())
        cut = set(takewhile(lambda uuid: uuid != decision.first_kept, in_view))
        for one in self.view.results:
            if one.message in cut:
                self.needs.removed(one.tool_use_id, one.tokens)
        self.needs.shown(decision.summary)
        self.summarise(step.at, estimate_text(decision.summary))
        self.compactions += 1

    def keep_warm(self, step: RecordedRequest, until: float) -> list[str]:
        """Compact or send the last request again before its cache entries end, as the policy wants.

        Return the names of decisions that move the prefix.
        """
        for pings in count() if self.warm_at is not None else ():
            at = (self.warm_at or 0.0) + PING_SECONDS
            if at >= until:
                break
            due = self.policy.when_idle(self.view, at)
            if due:
                return self.decide(replace(step, at=at), due)
            if not self.policy.pings_again(self.view, pings):
                break
            used = self.sender.again(at)
            self.ping_usd += self.prices.cost(used.read, used.write_5m, used.write_1h, used.uncached)
            self.pings += 1
            self.warm_at = at
            self.policy.pinged(self.view, at)
        return []

    def summarise(self, at: float, output: int) -> None:
        """Charge a request for a summary."""
        counted = self.view.token_count
        # The request for it shows the results that the provider left out, which no cache has.
        read = min(self.sender.held(at), round(counted.overhead) if counted.cleared_tokens else counted.raw_tokens)
        self.summary_usd += self.prices.cost(read=read, uncached=counted.raw_tokens - read, output=output)

    def send(self, step: RecordedRequest, messages: list[dict[str, object]], same: int) -> Usage:
        """Send one request to the simulated cache and return its usage."""
        planned = self.policy.mark(self.view, messages, step)
        if planned is not None:
            self.warm_at = step.at
        return self.sender.send(messages, planned, step.at, same, step.billed.read if step.billed is not None else 0)

    def watch(self, step: RecordedRequest, usage: Usage, moved: list[str]) -> None:
        """Record a break if a large part of the tokens that the last request left in the cache was not read.

        ``moved`` are the reasons for which the prefix moved.
        """
        held = self.usage.read + self.usage.write
        lost = held - usage.read
        if self.sent is None or usage.read >= _BROKEN_SHARE * held or lost < _BROKEN_TOKENS:
            return
        idle = step.at - self.sent.at
        paused = IDLE_LONG if idle >= 3600 else IDLE_SHORT if idle >= 300 else "prefix changed"
        reason = moved[-1] if moved else paused
        long = usage.write_1h > usage.write_5m
        rates = self.prices.rates(usage.input)
        price = lost * ((rates.cache_write_1h if long else rates.cache_write_5m) - rates.cache_read) / 1_000_000
        self.breaks.append(ReplayBreak(step.number, step.at, reason, lost, price, bool(moved) or idle >= 300))

    def read_back(self, step: RecordedRequest, usage: Usage) -> None:
        """Charge each removed result that the reply needs: its tokens as a cache write, and one more request."""
        for called, tokens in self.needs.wanted(step.reply):
            self.read_backs += 1
            self.read_back_tokens += tokens
            self.needed[called] = tokens
            self.needing.add(step.number)
            write = {"write_1h": tokens} if usage.write_1h and not usage.write_5m else {"write_5m": tokens}
            self.read_back_usd += self.prices.cost(read=usage.input, **write)
            trimmer = getattr(self.policy, "trimmer", None)
            if trimmer is not None:
                trimmer.read_backs += 1

    def outcome(self) -> ReplayOutcome:
        """Return the outcome of all requests replayed so far."""
        notes = () if self.recording.timed else ("the recording has no times: 10 s between requests were assumed",)
        return ReplayOutcome(
            self.policy.name,
            self.recording.name,
            self.recording.session,
            self.recording.model,
            tuple(self.points),
            tuple(self.acts),
            tuple(self.breaks),
            self.read_backs,
            self.read_back_tokens,
            self.read_back_usd,
            self.removed,
            sum(self.needed.values()),
            self.checks.invalid() if self.checks is not None else 0,
            self.compactions,
            self.summary_usd,
            self.pings,
            self.ping_usd,
            notes=notes,
        )


def _point(step: RecordedRequest, usage: Usage, prices: Prices) -> Point:
    kinds = {"read": usage.read, "write_5m": usage.write_5m, "write_1h": usage.write_1h, "uncached": usage.uncached}
    paid = prices.cost(**kinds)
    # Output is priced with its request, because output of long requests may cost more.
    output = prices.cost(**kinds, output=step.output_tokens) - paid
    return Point(
        number=step.number,
        at=step.at,
        window=usage.input,
        output=step.output_tokens,
        input_usd=paid,
        output_usd=output,
        **kinds,
    )


class RequestChecks:
    """Checks the messages of each request that are new or have a new neighbour, and the longest request as a whole.

    Most rules look at a message and the one before it. Those that look further are checked in the longest request
    alone: unique ids of calls, thinking at the start of a tool round, totals.
    """

    def __init__(self, accepted: set[tuple[int, int]] | None = None) -> None:
        """Add the pairs of messages that pass, by identity, to ``accepted``, and check none of them again."""
        self._accepted = set[tuple[int, int]]() if accepted is None else accepted
        self._longest: dict[str, Any] = {"messages": []}
        self._invalid = 0
        self._was_valid = False

    def add(self, request: dict[str, Any], same: int = 0) -> None:
        """Check the next request, whose messages are objects that stay alive; the same object is the same message.

        The first ``same`` of them are those of the request before.
        """
        messages: list[Message] = request["messages"]
        if not messages:
            self._invalid += 1
            return
        if len(messages) >= len(self._longest["messages"]):
            self._longest = request
        begin = same if self._was_valid else 0
        ids = list(map(id, messages[max(0, begin - 1) :]))
        pairs = dict(enumerate(zip(ids if begin else [0, *ids], ids[1:] if begin else ids, strict=False), begin))
        fresh = [at for at, pair in pairs.items() if pair not in self._accepted]
        start, self._was_valid = 0, False
        for at in fresh:
            if at < start:
                continue
            start = _end(messages, at)
            if problems({**request, "messages": _part(messages, at, start)}):
                self._invalid += 1
                return
        self._was_valid = True
        self._accepted.update(pairs[at] for at in fresh)

    def invalid(self) -> int:
        """Return the number of requests that a provider would refuse; one beyond a limit counts once."""
        return self._invalid or int(bool(self._longest["messages"] and problems(self._longest)))


def _part(messages: list[Message], start: int, end: int) -> list[Message]:
    """Return some messages as the messages of a request: results keep their calls, and the first is a user's."""
    start = max(0, start - 1)
    if start and messages[start]["role"] != ASSISTANT:
        start -= 1
    return [*([_OPENING] if start else []), *messages[start:end]]


def _end(messages: list[Message], at: int) -> int:
    """Return the end of the shortest part with this message that ends where a request may end."""
    end = at + 1
    while end < len(messages) and messages[end - 1]["role"] == ASSISTANT:
        end += 1
    return end
