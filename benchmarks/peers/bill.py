"""What does each way of sending the same conversation cost, by one simulator and one price list?

A peer is billed for the requests it reports. Its breakpoints are placed for it as the provider recommends (the system
prompt, the end of the last request, the end), which is more than some of them do by themselves. If a later reply quotes
a removed result, the same charge applies to all: the result's tokens written again, and one request to fetch it. A
peer's summary is a call with a prompt of its own, charged uncached; ours extends the conversation and reads its cache.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from reverie.cache.breakpoints import BlockPosition, BreakpointPlan, CacheState
from reverie.cache.prices import Prices, prices_for
from reverie.conversation.decisions import Compacted, decision_of
from reverie.conversation.entries import ASSISTANT, DECISION, Entry, reply_id
from reverie.conversation.tokens.estimate import estimate_block
from reverie.conversation.wire.blocks import as_blocks
from reverie.importers import ImportedSession
from reverie.replay.compare import compare
from reverie.replay.needs import NeededResults
from reverie.replay.recording import Recording, recording_of
from reverie.replay.simulated_requests import RequestSimulator

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from coding_session import MODEL, SYSTEM, TITLE, TOOLS, coding_session

__all__ = ["bill_of_peer", "bills_of_ours", "recorded", "told"]

Body = dict[str, Any]


def recorded(seed: int, tokens: int) -> Recording:
    """Return a long generated coding session, ready to be played."""
    entries = tuple(coding_session(seed, tokens))
    imported = ImportedSession("invented", "session", TITLE, "", MODEL, entries, system=SYSTEM, tools=TOOLS)
    return recording_of(imported, f"seed {seed}")


def prices() -> Prices:
    """Return the price list for all programs."""
    found = prices_for(MODEL)
    assert found is not None, f"no prices for {MODEL}"
    return found


def told(recording: Recording, window: int) -> Body:
    """Return a recording in a peer's input format: items, and how many of them come before each request."""
    items: list[Body] = []
    turns: list[int] = []
    replies: dict[str, Body] = {}
    for step in recording.steps:
        for entry in step.entries:
            _tell(entry, items, replies)
        turns.append(len(items))
    summary = max((one.summary for one in _compactions(recording)), key=len, default="What was done so far. " * 80)
    return {
        "items": items,
        "turns": turns,
        "system": SYSTEM,
        "tools": TOOLS,
        "window": window,
        "summary": summary,
        "tells": True,
    }


def _tell(entry: Entry, items: list[Body], replies: dict[str, Body]) -> None:
    if entry.kind == DECISION or entry.message is None:
        return
    blocks = as_blocks(entry.message)
    if entry.kind == ASSISTANT:
        item = replies.get(reply_id(entry))
        if item is None:
            item = replies[reply_id(entry)] = {"role": "assistant", "blocks": []}
            items.append(item)
        item["blocks"] += blocks
        return
    results = [block for block in blocks if block["type"] == "tool_result"]
    items.extend({"role": "tool", "blocks": [block]} for block in results)
    rest = [block for block in blocks if block["type"] != "tool_result"]
    if rest:
        items.append({"role": "user", "blocks": rest})


def _compactions(recording: Recording) -> list[Compacted]:
    entries = [entry for step in recording.steps for entry in step.entries if entry.kind == DECISION]
    found = [decision_of(entry.body) for entry in entries]
    return [decision for decision in found if isinstance(decision, Compacted)]


def bills_of_ours(recording: Recording) -> dict[str, Body]:
    """Bill append-only and our layers; both compact by their own rules."""
    report = compare([recording], policies=("append-only", "reverie"))
    return {
        outcome.policy: _bill(
            sum(point.input_usd for point in outcome.points) + outcome.ping_usd,
            outcome.read_back_usd,
            outcome.summary_usd,
            summaries=outcome.compactions,
            read_backs=outcome.read_backs,
            window=sum(point.window for point in outcome.points) / len(outcome.points),
        )
        for outcome in report.outcomes
    }


def bill_of_peer(recording: Recording, played: Body, conversation: Body) -> Body:
    """Bill a peer for the requests it would have sent."""
    peer = _Peer(recording, played, conversation)
    for step, request in zip(recording.steps, played["requests"], strict=True):
        peer.step(step, request["sent"])
    summary = conversation["summary"]
    summed_up = sum(_summary_usd(_tokens(one["prompt"]), summary) for one in played["asked"])
    return _bill(
        peer.input_usd,
        peer.read_back_usd,
        summed_up,
        summaries=len(played["asked"]),
        read_backs=peer.read_backs,
        window=peer.tokens / len(recording.steps),
    )


def _summary_usd(asked_tokens: int, summary: str) -> float:
    return prices().cost(uncached=asked_tokens, output=_tokens(summary))


def _tokens(text: str) -> int:
    return estimate_block({"type": "text", "text": text})


def _bill(input_usd: float, read_back_usd: float, summary_usd: float, **more: Any) -> Body:
    total = input_usd + read_back_usd + summary_usd
    return {
        "usd": total,
        "input_usd": input_usd,
        "read_back_usd": read_back_usd,
        "summary_usd": summary_usd,
        "summaries": more["summaries"],
        "read_backs": more["read_backs"],
        "mean_window": round(more["window"]),
    }


class _Peer:
    """One peer's requests, sent to the simulated provider one after the other."""

    def __init__(self, recording: Recording, played: Body, conversation: Body) -> None:
        self._recording = recording
        self._sender = RequestSimulator(recording, MODEL)
        self._needs = NeededResults()
        self._prices = prices()
        self._items = [_message(item) for item in conversation["items"]]
        self._made = [_message(item) for item in played["made"]]
        self._shown: dict[str, Any] = {}
        self._end: Any = None
        self.input_usd = self.read_back_usd = 0.0
        self.read_backs = self.tokens = 0

    def step(self, step: Any, ranges: list[list[int]]) -> None:
        """Send one request, and check which results its reply needed."""
        for entry in step.entries:
            self._needs.add(entry)
        messages = [self._at(at) for start, end in ranges for at in range(start, end)]
        self._forget(messages)
        ends = [at for at, one in enumerate(messages) if one is self._end or at == len(messages) - 1]
        marks = tuple((BlockPosition(at, len(messages[at]["content"]) - 1), "5m") for at in ends)
        self._end = messages[-1]
        plan = BreakpointPlan(marks, "5m", marks_system=True, marks_tools=False, after=CacheState("5m", None, step.at))
        usage = self._sender.send(messages, plan, step.at)
        price = self._prices
        self.input_usd += price.cost(read=usage.read, write_5m=usage.write_5m, uncached=usage.uncached)
        self.tokens += usage.input
        for _, tokens in self._needs.wanted(step.reply):
            self.read_backs += 1
            self.read_back_usd += price.cost(read=usage.input, write_5m=tokens)

    def _at(self, at: int) -> Body:
        return self._items[at] if at >= 0 else self._made[-at - 1]

    def _forget(self, messages: list[Body]) -> None:
        """Note which results are no longer sent; a result repeated in a summary is not lost."""
        shown = {
            block["tool_use_id"]: block
            for message in messages
            for block in message["content"]
            if block["type"] == "tool_result"
        }
        made = {id(message) for message in self._made}
        summary = "\n".join(
            block.get("text", "") for message in messages if id(message) in made for block in message["content"]
        )
        self._needs.shown(summary)
        for called, block in self._shown.items():
            if called not in shown:
                self._needs.removed(called, self._recording.sizes.of(block))
        self._shown = shown


def _message(item: Body) -> Body:
    role = "assistant" if item["role"] == "assistant" else "user"
    return {"role": role, "content": item["blocks"]}
