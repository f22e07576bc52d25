"""What does clearing by the provider cost on a model that checks thinking, compared with no clearing?

    python benchmarks/clearing.py [--json] [--check] [--windows 90000 200000 1000000] [--tokens 5000]

A session reads one file a turn on the test server, which refuses thinking whose past has changed, applies context edits
and bills by its cache; 40 turns, or 160 in a window of a million. With compaction the provider also compacts, as it
does by default, and all calls are on the bill; without, nobody does. ``none`` has ``trim.mode = "off"``, and without
compaction a window that holds all of it. ``constant`` asks on every request for the same number of recent results, from
half of the compaction threshold on. ``boundary`` is the default: the price rule decides which results are cleared, and
the request says so until the next decision. Limits: ``boundary`` costs less than ``constant`` and at most a hundredth
more than ``none``; no request is refused and no thinking dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any, TypeAlias

from reverie import InMemoryStorage, Session, load_settings
from reverie.cache.usage import usage_of
from reverie.conversation.decisions import (
    CallRecorded,
    Compacted,
    ResultsClearedByProvider,
    ThinkingDropped,
    decision_of,
)
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.conversation.tokens.window import Window, thresholds
from reverie.layers.l2_trim import TrimPolicy
from reverie.layers.l4_compact import CompactPolicy
from reverie.models.anthropic import AnthropicModel
from reverie.ports import Reply
from reverie.runtime.places.projects import log_key, project_slug
from reverie.settings import Switches
from reverie.testing.messages_server import ManualClock, MessagesServer
from reverie.values import replace

MODEL = "claude-opus-5-5"
BETA = "context-management-2025-06-27"
TOOLS: list[dict[str, Any]] = [{"name": "Read", "input_schema": {"type": "object"}}]
WAYS = ("none", "constant", "boundary")
Figures: TypeAlias = dict[str, Any]


def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Think, and read the next file."""
    number = sum(message["role"] == "assistant" for message in request["messages"])
    return [
        {"type": "thinking", "thinking": f"File {number} may hold it. " * 20},
        {"type": "tool_use", "name": "Read", "input": {"file_path": f"/{number}"}},
    ]


def constant(window: int) -> dict[str, Any]:
    """Return the option that keeps a constant number of results and frees enough to pay for itself in 30 turns."""
    threshold = thresholds(Window(window, "facts")).auto_compact
    results: dict[str, Any] = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": threshold // 2},
        "keep": {"type": "tool_uses", "value": min(5, threshold // 20_000)},
        "clear_at_least": {"type": "input_tokens", "value": threshold // 2 * 24 // 54},
    }
    return {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}, results]}


async def run(server: MessagesServer, way: str, window: int, reads: int, tokens: int, *, summary: bool) -> Figures:
    """Drive one session and return its figures."""
    storage = InMemoryStorage()
    settings = replace(
        load_settings(),
        trim=TrimPolicy(mode="off" if way == "none" else "auto"),
        switches=Switches(notes=False, auto_compact=summary),
        compact=CompactPolicy(in_background=False),
        window_tokens=window if summary or way != "none" else None,
    )
    model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
    options: dict[str, Any] = {"context_management": constant(window)} if way == "constant" else {}
    session = Session.open("s", storage=storage, settings=settings, model=model, clock=lambda: server.clock.now)
    async with session:
        await session.say("Read them all.")
        for number in range(reads):
            server.clock.advance(10.0)
            request = await session.prepare(
                model=MODEL, max_tokens=2_000, system="Be brief. " * 600, tools=TOOLS, betas=[BETA], **options
            )
            said = [piece.body async for piece in model.stream(request) if isinstance(piece, Reply)]
            (called,) = await session.observe(said[-1])
            await session.result(called.id, f"word{number} " * (tokens * 10 // 16), max_chars=1e9)
    entries = parse_log(storage.load(log_key(project_slug(Path()), "s")) or b"").entries
    decided = [decision_of(entry.body) for entry in entries if entry.kind == DECISION]
    calls = [one for one in decided if isinstance(one, CallRecorded)]
    turns = [usage_of(one.usage) for one in calls if one.source == "main"]
    return {
        "written": round(mean(one.write_5m + one.write_1h for one in turns)),
        "read": round(mean(one.read for one in turns)),
        "turns_usd": round(sum(one.cost_usd or 0 for one in calls if one.source == "main"), 3),
        "usd": round(sum(one.cost_usd or 0 for one in calls), 3),
        "clearings": sum(isinstance(one, ResultsClearedByProvider) and bool(one.tool_use_ids) for one in decided),
        "compactions": sum(isinstance(one, Compacted) for one in decided),
        "refused": len(server.refusals),
        "dropped": sum(isinstance(one, ThinkingDropped) for one in decided),
    }


def measure(way: str, window: int, reads: int, tokens: int, *, summary: bool) -> Figures:
    """Run one way in one window on a server of its own."""
    with MessagesServer(reply, clock=ManualClock(1.79e9)) as server:
        return asyncio.run(run(server, way, window, reads, tokens, summary=summary))


def is_met(found: dict[str, Figures]) -> bool:
    """Say whether the limits hold."""
    sound = all(one["refused"] == one["dropped"] == 0 for one in found.values())
    ours = found["boundary"]["usd"]
    return sound and ours < found["constant"]["usd"] and ours <= 1.01 * found["none"]["usd"]


def main() -> int:
    """Print the table, and return 1 if a limit is not met and was to be checked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--windows", type=int, nargs="+", default=[90_000, 200_000, 1_000_000])
    parser.add_argument("--tokens", type=int, default=5_000)
    asked = parser.parse_args()
    met = True
    for window in asked.windows:
        for summary in (True, False):
            reads = 160 if window > 500_000 else 40
            found = {way: measure(way, window, reads, asked.tokens, summary=summary) for way in WAYS}
            met = met and is_met(found)
            if asked.json:
                print(json.dumps({"window": window, "summary": summary, **found}))
                continue
            print(f"window {window:,}, {reads} reads, {'with' if summary else 'without'} compaction")
            for way, one in found.items():
                print(f"  {way:9}", ", ".join(f"{name} {value:,}" for name, value in one.items()))
    print("limits met" if met else "limits not met", file=sys.stderr)
    return 1 if asked.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
