"""How far are the replay's policies from ones that know the future?

Two of these are computed. The best schedule of compactions and pings is a dynamic programme over the requests of the
joined session: before each request it may compact (a summary call, then summary and a tail of whole steps), and in each
pause it may renew the cache or let it go; nothing is read back.

The lower bound for clearing alone pays for every token when it is first sent, and for reading it on every request as
long as it is needed, and for nothing else: a result leaves as soon as no later reply quotes it, and leaving is free; a
pause of 5 to 60 minutes costs the cheaper of a rewrite and the long lifetime's premium, token by token; a longer pause
costs a rewrite. A policy that decides without knowledge of the future and pays for cache breaks cannot reach it.

Run: python benchmarks/bound.py [PATH...] [--model NAME]... [--json] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from reverie.cache.economics import PING_SECONDS, RelativeRates
from reverie.cache.prices import prices_for, rates_of
from reverie.conversation.entries import ASSISTANT, DECISION
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.layers.l2_trim import TrimPolicy
from reverie.model_facts import facts_of
from reverie.replay.compare import compare, recordings_in
from reverie.replay.outcome import totals
from reverie.replay.recording import RecordedRequest, Recording, joined
from reverie.values import replace

MODELS = ("claude-opus-5", "claude-opus-5-5", "claude-fable-5-1")
"""Models that read the cache at 0.1, 0.05 and 0.025 of the input price."""
PRESETS = ("faithful", "balanced", "thrifty")
WARM = tuple(f"{name}-warm" for name in PRESETS)
CUTS = (3, 4, 6, 9, 12, 16, 20, 25, 30)
"""The requests after which sessions are cut, to see short ones."""
POLICIES = (
    "uncached",
    "append-only",
    "append-only-1h",
    "append-only-warm",
    "compact-150k",
    "compact-300k",
    *PRESETS,
    *WARM,
)
CORPUS = Path(os.environ.get("REVERIE_CORPUS") or Path(__file__).resolve().parents[2] / "shared" / "corpus/claude-code")


def last_needed(recording: Recording) -> dict[str, int]:
    """Return, for each result, the last request whose reply quotes it and has no other source for it."""
    born: dict[str, int] = {}
    needed: dict[str, int] = {}
    holders: dict[str, str] = {}
    said: set[str] = set()
    for step in recording.steps:
        for entry in step.entries:
            if entry.kind in (ASSISTANT, DECISION) or entry.message is None:
                continue
            for block in as_blocks(entry.message):
                if block["type"] == "tool_result":
                    called: str = block["tool_use_id"]
                    born[called] = needed[called] = step.number
                    holders.update(dict.fromkeys(recording.lines.of(block), called))
                else:
                    said.update(recording.lines.of(block))
        for entry in step.reply:
            for block in as_blocks(entry.message or {"content": []}):
                for line in recording.lines.of(block):
                    if line in holders and line not in said:
                        needed[holders[line]] = step.number
                    said.add(line)
    return needed


def bound(recording: Recording, rates: RelativeRates) -> float:
    """Return the lowest possible input cost of this recording, in tokens at the input price."""
    needed, policy = last_needed(recording), TrimPolicy()
    view, before = View(), None
    paid: dict[object, str] = {}
    cost = 0.0
    for step in recording.steps:
        view = view.fold_all(step.entries)
        idle = 0.0 if before is None else step.at - before
        shown: dict[object, int] = dict(enumerate(recording.prefix))
        for message in view.messages():
            for block in as_blocks(message):
                if block["type"] == "tool_result" and step.number > needed.get(block["tool_use_id"], step.number):
                    use = view.tool_call(block["tool_use_id"])
                    if use is not None and policy.may_clear(use.name):
                        continue
                shown[("block", id(block))] = recording.sizes.of(block)
        for key, tokens in shown.items():
            if key not in paid or idle >= 3600:
                cost += rates.write_5m * tokens
                paid[key] = "5m"
            elif idle >= 300 and paid[key] == "5m":
                premium = rates.read + rates.write_1h - rates.write_5m
                cost += min(premium, rates.write_5m) * tokens
                paid[key] = "1h"
            else:
                cost += rates.read * tokens
        paid = {key: ttl for key, ttl in paid.items() if key in shown}
        before = step.at
    return cost


SUMMARY, TAIL = 6_000, 10_000  # tokens


def best_schedule(recording: Recording, rates: RelativeRates) -> float:
    """Return the cost of the best compactions and pings in hindsight, in tokens at the input price."""
    steps, prefix = joined(recording).steps, sum(recording.prefix)
    grown = [sum(recording.sizes.of(block) for block in _blocks(step)) for step in steps]
    idle = [0.0, *(after.at - before.at for before, after in pairwise(steps))]
    count, total = len(steps), [0, *accumulate(grown)]
    best = [0.0, *[float("inf")] * count]
    """The least cost of the requests before each one, with the summary call if a compaction comes before it."""
    for start in range(count):
        cost, window, readable = best[start], prefix, 0
        if start:
            tail = next(tokens for at in range(start, -1, -1) if (tokens := total[start] - total[at]) >= TAIL or not at)
            window, readable = prefix + SUMMARY + tail, prefix
        for at in range(start, count):
            if at == start:
                cost += rates.read * readable + rates.write_5m * (window - readable)
            else:
                cost += _bridged(window, idle[at], rates)
            cost += rates.write_5m * grown[at]
            window += grown[at]
            if at + 1 < count:
                called = _bridged(window, idle[at + 1], rates) + rates.output * SUMMARY
                best[at + 1] = min(best[at + 1], cost + called)
        best[count] = min(best[count], cost)
    return best[count]


def _blocks(step: RecordedRequest) -> Iterator[dict[str, Any]]:
    """Yield the blocks that a request has and the one before had not."""
    for entry in step.entries:
        if entry.kind != DECISION and entry.message is not None:
            yield from as_blocks(entry.message)


def _bridged(held: float, idle: float, rates: RelativeRates) -> float:
    """Return the price of having a prefix read after a pause: by pings, or by writing it again."""
    pings = int(idle // PING_SECONDS) if idle >= 300 else 0
    return min(rates.read * held * (1 + pings), rates.write_5m * held)


def _rates(model: str) -> RelativeRates:
    return rates_of(prices_for(model), facts_of(model))


def main() -> int:
    """Print the bounds and the cost of each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[CORPUS])
    parser.add_argument("--model", action="append", metavar="NAME", help="at the prices of this model (repeatable)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail if a preset costs more than it should")
    arguments = parser.parse_args()
    if not all(path.exists() for path in arguments.paths):
        print("no recordings there; give files or directories of recorded sessions", file=sys.stderr)
        return 2
    recordings, _ = recordings_in(arguments.paths)
    found = {model: figures(recordings, model) for model in arguments.model or MODELS}
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        names = list(next(iter(found.values())))
        print(f"{'':24}" + "".join(f"{model:>20}" for model in found))
        for name in names:
            print(f"{name:24}" + "".join(f"{one[name]:20.4f}" for one in found.values()))
    wrong = [problem for model, one in found.items() for problem in problems(model, one)] if arguments.check else []
    for problem in wrong:
        print(problem, file=sys.stderr)
    return 1 if wrong else 0


def figures(recordings: list[Recording], model: str) -> dict[str, float]:
    """Return the input cost of each policy and of the bounds, as a share of the uncached cost."""
    report = compare(recordings, policies=POLICIES, model=model, check=False, cores=os.cpu_count() or 1)
    whole, rates = totals(report.of(policy="uncached")), _rates(model)
    found: dict[str, float] = {
        name: totals(report.of(policy=name))["input_usd"] / whole["input_usd"] for name in report.policies
    }
    found["best schedule"] = sum(best_schedule(one, rates) for one in recordings) / whole["uncached"]
    found["bound for clearing"] = sum(bound(joined(one), rates) for one in recordings) / whole["uncached"]
    found["worst of short sessions"] = worst_of_short(recordings, model)
    for name in PRESETS:
        found[f"needed again, {name}"] = totals(report.of(policy=name))["needed_share"]
    return found


def worst_of_short(recordings: list[Recording], model: str) -> float:
    """Return the highest cost of a preset beside append-only, over sessions cut after some requests and whole ones.

    Without keeping warm: its pings over a pause that they do not bridge are a loss that the user chose to risk.
    """
    cut = [
        replace(one, name=f"{one.name}:{size}", session=f"{one.session}:{size}", steps=one.steps[:size])
        for one in recordings
        for size in (*CUTS, len(one.steps))
    ]
    report = compare(cut, policies=("append-only", *PRESETS), model=model, check=False, cores=os.cpu_count() or 1)
    plain = {one.session: one.input_usd for one in report.of(policy="append-only")}
    return max((one.input_usd - one.after_usd) / plain[one.session] for one in report.outcomes)


def problems(model: str, one: dict[str, float]) -> list[str]:
    """Return the promises of the presets that do not hold at the prices of a model."""
    long, bare = one["append-only-1h"], facts_of(model).cache_read
    promises = {
        "balanced is 18 % below append-only with the long lifetime": one["balanced"] <= 0.82 * long,
        "balanced and kept warm is 25 % below it": one["balanced-warm"] <= 0.75 * long,
        "and within 1.35 of the best schedule": one["balanced-warm"] <= 1.35 * one["best schedule"],
        "thrifty costs no more than balanced": one["thrifty"] <= one["balanced"],
        "faithful costs no more than it, where reads are cheap": bare > 0.05 or one["faithful"] <= long,
        "no session, cut short or whole, costs 1 % more than append-only": one["worst of short sessions"] <= 1.01,
        "a quarter of what balanced removes is needed again, at most": one["needed again, balanced"] <= 0.25,
    }
    return [f"{model}: does not hold: {promise}" for promise, holds in promises.items() if not holds]


if __name__ == "__main__":
    sys.exit(main())
