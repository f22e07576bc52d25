"""How far is the replay's best policy from one that knows the future?

The lower bound pays for every token when it is first sent, and for reading it on every request as long as it is needed,
and for nothing else: a result leaves as soon as no later reply quotes it, and leaving is free; a pause of 5 to 60
minutes costs the cheaper of a rewrite and the long lifetime's premium, token by token; a longer pause costs a rewrite.
A policy that decides without knowledge of the future and pays for cache breaks cannot reach it.

Run: python benchmarks/bound.py [PATH...] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from reverie.cache.economics import RelativeRates
from reverie.cache.prices import prices_for, rates_of
from reverie.conversation.entries import ASSISTANT, DECISION
from reverie.conversation.view import View
from reverie.conversation.wire.blocks import as_blocks
from reverie.layers.l2_trim import TrimPolicy
from reverie.model_facts import facts_of
from reverie.replay.compare import compare, recordings_in
from reverie.replay.needs import lines_of_block, lines_of_result
from reverie.replay.outcome import totals
from reverie.replay.recording import Recording

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "claude-code"


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
                    called = block["tool_use_id"]
                    born[called] = needed[called] = step.number
                    holders.update(dict.fromkeys(lines_of_result(block), called))
                else:
                    said.update(lines_of_block(block))
        for entry in step.reply:
            for block in as_blocks(entry.message or {"content": []}):
                for line in lines_of_block(block):
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


def _rates(model: str) -> RelativeRates:
    return rates_of(prices_for(model), facts_of(model))


def main() -> int:
    """Print the bound and the cost of each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[CORPUS])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not all(path.exists() for path in arguments.paths):
        print("no recordings there; give files or directories of recorded sessions", file=sys.stderr)
        return 2
    recordings, _ = recordings_in(arguments.paths)
    report = compare(recordings, policies=("uncached", "append-only", "reverie"), check=False)
    whole = totals(report.of(policy="uncached"))
    least = sum(bound(one, _rates(one.model)) for one in recordings) / whole["uncached"]
    found: dict[str, Any] = {
        name: totals(report.of(policy=name))["input_usd"] / whole["input_usd"] for name in report.policies
    }
    found["bound"] = least
    found["reverie_over_bound"] = found["reverie"] / least
    found["share_of_possible_saving"] = (found["append-only"] - found["reverie"]) / (found["append-only"] - least)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, figure in found.items():
        print(f"{name.replace('_', ' '):26} {figure:8.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
