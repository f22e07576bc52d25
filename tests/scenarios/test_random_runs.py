"""Random conversations against an enforcing provider, of an own loop and of an agent, and agents that are killed.

The load: 12 prompts a run with up to 7 rounds of calls each, in windows of 16,384 to 1,000,000 tokens (thresholds are
lowered in the large ones), on models that check thinking and on others, a fifth of the own loops with a budget for
thinking; settings, tools, system prompt, AGENTS.md and files change between prompts; a session is closed or killed
after up to 5 prompts. The normal run plays 16 loops and 6 agents, and with ``--torture`` 300 of each.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import agent_child
from agent_child import MODEL, WINDOW_TOKENS, agent_of
from random_agents import RandomAgentRun
from random_repairs import EDITS, GUARD, PROMPTS, REPAIRS, damage, seeds
from random_runs import MANUAL, WINDOWS, RandomRun
from reverie.conversation.decisions import Compacted, ThinkingDropped, decision_of
from reverie.conversation.log import parse_log
from reverie.conversation.wire.flatten import THINKING
from reverie.events import QueryEnded
from reverie.runtime.session import thinking
from reverie.testing.messages_server import MessagesServer

pytestmark = pytest.mark.slow
CHILD = Path(agent_child.__file__)
PATIENCE_SECONDS = 60
FIRST = "bindings are read from the log on resume"
"""The repair whose absence shows in every run with a resume."""


def played(chosen: Sequence[int], folder: Path | None = None, *, calm: bool = False) -> list[RandomRun]:
    """Return the runs of an own loop; with a folder, those of an agent that works there."""
    runs: list[RandomRun] = []
    for seed in chosen:
        window = WINDOWS[seed % len(WINDOWS)]
        run = RandomRun(seed, window, calm=calm)
        if folder is not None:
            run = RandomAgentRun(seed, window, folder / str(seed), calm=calm)
        anyio.run(run.play, PROMPTS)
        runs.append(run)
    return runs


def shown(table: dict[str, tuple[int, int]]) -> list[str]:
    """Print what is lost without each repair, and return the repairs without which nothing is lost."""
    for repair, (refused, dropped) in table.items():
        print(f"without: {repair:55} {refused:4} refused, {dropped:4} times dropped")
    return [repair for repair, found in table.items() if found == (0, 0)]


@pytest.mark.requirement("V2", "V6")
@pytest.mark.parametrize("kind", ["loop", "agent"])
def test_no_request_is_refused_and_thinking_is_left_out_only_by_decisions_that_say_so(
    kind: str, tmp_path: Path, torture: bool
) -> None:
    chosen = seeds(300 if torture else 16 if kind == "loop" else 6)
    runs = played(chosen, tmp_path if kind == "agent" else None)
    done: Counter[str] = sum((run.done for run in runs), Counter())
    cuts: Counter[str] = sum((run.methods() for run in runs), Counter())
    print(f"\n{kind}, seeds {chosen}, windows {WINDOWS}: {done['request']} requests, damage {damage(runs)}")
    print(f"{done['compared']} compared with the log; cuts {dict(cuts)}; {dict(done)}")
    assert [(run.seed, run.main, run.window, run.refusals[0]) for run in runs if run.refusals] == []
    assert [(run.seed, run.main, run.window, run.drops()) for run in runs if run.drops()] == []
    assert [(run.seed, run.main, run.window, run.unsaid()) for run in runs if run.unsaid()] == []
    assert [(run.seed, run.main, run.window, run.stopped[0]) for run in runs if run.stopped] == []
    assert [(run.seed, run.main, run.window, run.surprises[0]) for run in runs if run.surprises] == []
    assert cuts["provider"] >= len(runs) // 4
    assert done["kill"]
    assert done["close"]
    assert kind == "loop" or done["compared"] > done["request"] / 2
    assert kind == "agent" or any(run.main == MANUAL for run in runs)


@pytest.mark.requirement("V2")
def test_with_one_repair_taken_out_the_same_runs_lose_thinking_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, torture: bool
) -> None:
    chosen = seeds(60 if torture else 6)
    whole = played(chosen, calm=True)
    assert [(run.seed, run.refusals, run.drops()) for run in whole if run.refusals or run.drops()] == []
    table: dict[str, tuple[int, int]] = {}
    unguarded: dict[str, int] = {}
    for repair, broken in REPAIRS.items():
        with monkeypatch.context() as patch:
            patch.setattr(*broken)
            table[repair] = damage(played(chosen, calm=True))
            if torture:  # the guard turns refusals into drops that are logged, so it is taken out as well
                patch.setattr(*REPAIRS[GUARD])
                unguarded[repair] = damage(played(chosen, calm=True))[0]
    assert shown(table) == []
    print(f"refused without the first as well: {unguarded}")
    assert table[GUARD][0] > 0
    # The other two change nothing that was sent; without them the guard drops thinking that is valid.
    assert all(unguarded[repair] for repair in EDITS if torture)


@pytest.mark.requirement("V2")
def test_so_do_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torture: bool) -> None:
    chosen = seeds(60 if torture else 4)
    table: dict[str, tuple[int, int]] = {}
    for number, repair in enumerate(REPAIRS if torture else [FIRST]):
        with monkeypatch.context() as patch:
            patch.setattr(*REPAIRS[repair])
            table[repair] = damage(played(chosen, tmp_path / str(number), calm=True))
    assert shown(table) == []
    assert not torture or table[GUARD][0] > 0


@pytest.mark.requirement("V10")
def test_a_builder_that_leaves_thinking_out_of_tool_rounds_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = thinking.build_request

    def bare(*given: Any) -> dict[str, Any]:
        request = real(*given)
        for message in request["messages"]:
            if message["role"] == "assistant":
                kept = [block for block in message["content"] if block["type"] not in THINKING]
                message["content"] = kept or message["content"]
        return request

    monkeypatch.setattr(thinking, "build_request", bare)
    found = played([seed for seed in seeds(10) if seed % 5 == 4])
    assert all("Expected `thinking`" in run.refusals[0] for run in found)
    noted = played([seed for seed in seeds(2) if seed % 5 != 4][:1], calm=True)
    assert all(run.unsaid() for run in noted)


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
    kills = 40 if torture else 2
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
