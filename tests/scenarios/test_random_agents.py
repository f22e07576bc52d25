"""Random conversations of an agent against an enforcing provider, and agents that are killed while they work.

The load: 12 prompts a run with up to 6 rounds of calls each, in windows of 16,384 to 1,000,000 tokens (thresholds are
lowered in the large ones), on models that check thinking and on others; settings, tools, system prompt, AGENTS.md and
files change between prompts; an agent is closed or killed after up to 4 prompts. The normal run plays 12 runs, and with
``--torture`` 300.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

import agent_child
from agent_child import MODEL, WINDOW_TOKENS, agent_of
from random_agents import RandomAgentRun
from random_repairs import GUARD, PROMPTS, REPAIRS, damage, seeds
from random_runs import WINDOWS
from reverie.conversation.decisions import Compacted, ThinkingDropped, decision_of
from reverie.conversation.log import parse_log
from reverie.events import QueryEnded
from reverie.testing.messages_server import MessagesServer

pytestmark = pytest.mark.slow
CHILD = Path(agent_child.__file__)
PATIENCE_SECONDS = 60
FIRST = "bindings are read from the log on resume"
"""The repair whose absence shows in every run with a resume."""


def played(chosen: range, folder: Path, *, calm: bool = False) -> list[RandomAgentRun]:
    runs: list[RandomAgentRun] = []
    for seed in chosen:
        run = RandomAgentRun(seed, WINDOWS[seed % len(WINDOWS)], folder / str(seed), calm=calm)
        anyio.run(run.play, PROMPTS)
        runs.append(run)
    return runs


@pytest.mark.requirement("V2", "V6")
def test_no_request_of_an_agent_is_refused_and_no_thinking_is_dropped_unsaid(tmp_path: Path, torture: bool) -> None:
    chosen = seeds(300 if torture else 12)
    runs = played(chosen, tmp_path)
    done: Counter[str] = sum((run.done for run in runs), Counter())
    cuts: Counter[str] = sum((run.methods() for run in runs), Counter())
    refused, dropped = damage(runs)
    print(
        f"\nseeds {chosen}, windows {WINDOWS}: {done['request']} requests, {refused} refused, {dropped} times dropped"
    )
    print(f"{done['compared']} compared with the log; cuts {dict(cuts)}; {dict(done)}")
    assert [(run.seed, run.main, run.window, run.refusals[0]) for run in runs if run.refusals] == []
    assert [(run.seed, run.main, run.window, run.drops()) for run in runs if run.drops()] == []
    assert [(run.seed, run.main, run.window, run.stopped[0]) for run in runs if run.stopped] == []
    assert [(run.seed, run.main, run.window, run.surprises[0]) for run in runs if run.surprises] == []
    assert cuts["provider"] >= len(runs) // 4
    assert done["kill"]
    assert done["close"]
    assert done["compared"] > done["request"] / 2


@pytest.mark.requirement("V2")
def test_with_one_repair_taken_out_agents_lose_thinking_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torture: bool
) -> None:
    chosen = seeds(60 if torture else 4)
    taken = list(REPAIRS) if torture else [FIRST]
    table: dict[str, tuple[int, int]] = {}
    for number, repair in enumerate(taken):
        with monkeypatch.context() as patch:
            patch.setattr(*REPAIRS[repair])
            table[repair] = damage(played(chosen, tmp_path / str(number), calm=True))
    for repair, (refused, dropped) in table.items():
        print(f"without: {repair:55} {refused:4} refused, {dropped:4} times dropped")
    assert [repair for repair, found in table.items() if found == (0, 0)] == []
    assert not torture or table[GUARD][0] > 0


def reply_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return thinking with calls of Read, or an answer, by the number of messages."""
    pick = random.Random(len(request["messages"]))
    thought = {"type": "thinking", "thinking": f"Thought {pick.random()}. " * pick.randrange(1, 9)}
    if not request.get("tools") or pick.random() < 0.3:
        return [thought, {"type": "text", "text": f"Answer {pick.random()}."}]
    paths = [f"file_{pick.randrange(6)}.txt" for _ in range(pick.choice([1, 1, 2]))]
    return [thought, *({"type": "tool_use", "name": "Read", "input": {"file_path": path}} for path in paths)]


def kill_after(requests: int, server: MessagesServer, folder: Path) -> None:
    """Run an agent in a process of its own and kill it after it has sent this many requests."""
    until = len(server.requests) + requests
    child = subprocess.Popen([sys.executable, "-E", str(CHILD), server.base_url, str(folder)])
    bound = time.monotonic() + PATIENCE_SECONDS
    try:
        while len(server.requests) < until and time.monotonic() < bound:
            assert child.poll() is None
            time.sleep(0.005)  # the event is a request at the server; this only leaves it the processor
    finally:
        child.kill()
        child.wait(PATIENCE_SECONDS)


async def ask_again(url: str, folder: Path) -> str:
    ends: list[str] = []
    async with agent_of(url, folder) as agent:
        async for event in agent.ask("Are you still there?"):
            ends += [event.end] if isinstance(event, QueryEnded) else []
    return ends[-1]


@pytest.mark.requirement("V2", "V5")
def test_an_agent_that_is_killed_again_and_again_is_never_refused(tmp_path: Path, torture: bool) -> None:
    pick = random.Random(int(os.environ["REVERIE_TEST_SEED"]))
    (tmp_path / "project").mkdir()
    for number in range(6):
        (tmp_path / "project" / f"file_{number}.txt").write_text(f"line {number} of a file\n" * (40 * 3**number // 4))
    kills = 40 if torture else 4
    with MessagesServer(reply_of, window=WINDOW_TOKENS, models=[MODEL]) as server:
        for _ in range(kills):
            kill_after(pick.randrange(10, 25), server, tmp_path)
        assert anyio.run(ask_again, server.base_url, tmp_path) == "completed"
        refused = [words for _, words in server.refusals if "too long" not in words]
        requests = len(server.requests)
    [path] = (tmp_path / "home").rglob("run.jsonl")
    found = [decision_of(one.body) for one in parse_log(path.read_bytes()).entries if one.kind == "decision"]
    cuts = [one.method for one in found if isinstance(one, Compacted)]
    print(f"\n{kills} kills, {requests} requests, {len(refused)} refused, cuts {Counter(cuts)}")
    assert refused == []
    assert server.errors == []
    assert [one.cause.reason for one in found if isinstance(one, ThinkingDropped)] == []
    assert "provider" in cuts
