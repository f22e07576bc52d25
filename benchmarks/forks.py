"""What do parallel forks of a long session cost, compared with one write and one read of its prefix?

    python benchmarks/forks.py [--forks 8] [--tokens 150000] [--json] [--check]

A session grows to a number of tokens on a server with the Messages API that bills like the provider. After a pause the
provider's cache is cold, and several forks ask at the same time. The cost is the server's bill for input, at the
installed prices. With --check: exit with 1 unless the prefixes are byte-identical and the input of all forks together
costs at most 1.5 times one write and one cached read of that prefix.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from reverie import InMemoryStorage, Session
from reverie.cache.prices import prices_for
from reverie.cache.usage import Usage, usage_of
from reverie.conversation.wire.canonical import canonical
from reverie.models.anthropic import AnthropicModel
from reverie.settings import Settings, Switches
from reverie.testing.messages_server import ManualClock, MessagesServer

MODEL = "claude-sonnet-4-5"
START = 1_790_000_000.0
COLD_SECONDS = 2 * 3_600.0
MOST = 1.5
SYSTEM = "You keep the harbour book: every ship, every tide. " * 40
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": f"{name} something.", "input_schema": {"type": "object"}}
    for name in ("Read", "Agent")
]
PAGE = "The harbour master wrote down every ship that came in, the tide it came with, and what it carried. " * 80


def answer(request: dict[str, Any]) -> Any:
    """Read page after page, and answer a side question in one line."""
    if "reverie-fork" in str(request["messages"][-1]["content"])[-400:]:
        return "Seven ships."
    return [{"type": "tool_use", "name": "Read", "input": {"page": len(request["messages"])}}]


async def grown(session: Session, model: AnthropicModel, clock: ManualClock, tokens: int) -> None:
    """Let a session read until it has a number of tokens; its last reply has an open call."""
    await session.say("Read the whole book.")
    while True:
        request = await session.prepare(model=MODEL, max_tokens=1_000, system=SYSTEM, tools=TOOLS)
        calls = await session.observe((await model.complete(request)).body)
        if session.view.token_count.tokens >= tokens:
            return
        for number, call in enumerate(calls):
            await session.result(call.id, f"Page {session.view.length + number}. {PAGE}")
        clock.advance(10)


def input_usd(used: Usage) -> float:
    """Return the cost of the input of a call."""
    prices = prices_for(MODEL)
    assert prices is not None
    return prices.cost(used.read, used.write_5m, used.write_1h, used.uncached)


async def measured(forks: int, tokens: int) -> dict[str, Any]:
    """Grow a session, wait until its cache is cold, fork it, and return the server's bill."""
    clock = ManualClock(START)
    settings = Settings(Path("."), switches=Switches(notes=False, compact=False, idle_trim=False, priced_trim=False))
    async with MessagesServer(answer, clock=clock) as server:
        model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
        storage = InMemoryStorage()
        async with Session.open("book", storage=storage, settings=settings, clock=lambda: clock.now) as session:
            await grown(session, model, clock, tokens)
            clock.advance(COLD_SECONDS)
            before = len(server.requests)
            questions = [f"How many ships came on day {day}?" for day in range(forks)]
            replies = await session.fork(*questions, model=model, max_tokens=200)
        await model.aclose()
        sent = server.requests[before:]
        usages = [usage_of(used) for _, used in server.usages[before:]]
    blocks = [canonical(request) for request in sent]
    first, rest = usages[0], usages[1:]
    write, read = input_usd(first), sum(input_usd(used) for used in rest) / max(1, len(rest))
    total = sum(map(input_usd, usages))
    return {
        "forks": forks,
        "answered": sum(not isinstance(one, BaseException) for one in replies),
        "prefix_tokens": first.input,
        "identical": len({tuple(one[:-1]) for one in blocks}) == 1 and len({one[-1] for one in blocks}) == forks,
        "read_share": [round(used.read / used.input, 4) for used in usages],
        "total_usd": round(total, 4),
        "write_usd": round(write, 4),
        "read_usd": round(read, 4),
        "to_write_and_read": round(total / (write + read), 3),
        "to_own_sessions": round(total / (forks * write), 3),
    }


def main() -> int:
    """Measure, print, and return the exit status: 0 if the limit holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=150_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    found = anyio.run(measured, given.forks, given.tokens)
    if not given.json:
        print(f"{found['forks']} forks of a session of {found['prefix_tokens']:,} tokens, its cache cold")
        print(f"prefixes byte-identical          {'yes' if found['identical'] else 'NO'}")
        shares = found["read_share"]
        print(f"read from the cache              first {shares[0]:.1%}, others {min(shares[1:], default=0.0):.1%}")
        print(f"input of all of them             ${found['total_usd']:.4f}")
        print(f"one write + one read of prefix   ${found['write_usd'] + found['read_usd']:.4f}")
        print(f"ratio (at most {MOST})              {found['to_write_and_read']:.3f}")
        print(f"ratio to sessions of their own   {found['to_own_sessions']:.3f}")
    print(json.dumps(found))
    holds = found["identical"] and found["answered"] == given.forks and found["to_write_and_read"] <= MOST
    return 0 if holds or not given.check else 1


if __name__ == "__main__":
    sys.exit(main())
