"""Hostile models: forks that fork, fork bombs, loops, huge prompts, spoofed senders, ignored stops.

The quick form follows a few plans and kills a few parents; ``--torture`` follows 500 and kills 100.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage
from reverie.cache.usage import usage_of
from reverie.conversation.decisions import AgentFinished, AgentSpawned, CallRecorded, MessageQueued, decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.layers.l7_relay.policy import RelayPolicy
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.team.roster import AgentStatus
from reverie.values import replace

PROGRAM = Path(__file__).with_name("hostile_plans.py")
PLAN_SECONDS = 200.0
GONE_SECONDS = 60.0


def loaded() -> Any:
    """Return the module of plans; tests do not import each other."""
    spec = importlib.util.spec_from_file_location("hostile_plans", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLANS = loaded()


def marked(mark: str) -> list[int]:
    """Return the living processes whose environment holds a mark."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            is_dead = (Path("/proc") / name / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if not is_dead and mark.encode() in (Path("/proc") / name / "environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def gone(mark: str, seconds: float = GONE_SECONDS) -> list[int]:
    """Wait for all marked processes to be gone, and return those that are not."""
    until = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _tokens(call: CallRecorded) -> int:
    usage = usage_of(call.usage)
    return usage.input + usage.output


class Watched:
    """One plan, followed to its end, and what was seen on the way."""

    def __init__(self, folder: Path, seed: int, relay: RelayPolicy, *, shells: bool, huge: int) -> None:
        self.outside = folder / "outside"
        self.outside.mkdir(parents=True)
        self.storage = InMemoryStorage()
        self.plan = PLANS.Plan(seed, self.outside, shells=shells, huge=huge)
        self.agent: Agent = PLANS.main_agent(
            self.plan, folder / "home", folder / "work", storage=self.storage, relay=relay
        )
        self.relay = relay
        self.random = random.Random(seed)
        self.most_alive = 0
        self.stopped: list[AgentStatus] = []
        self.letters = 0
        self.agent.listen(self._seen)

    def _seen(self, event: Any) -> None:
        self.most_alive = max(self.most_alive, sum(one.state == "running" for one in self.agent.agents()))

    async def follow(self) -> None:
        """Let the plan run, stop one agent now and then, and end."""
        with anyio.fail_after(PLAN_SECONDS):
            async with self.agent as agent:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._stop_some, agent)
                    async for _ in agent.ask("go"):
                        pass
                    group.cancel_scope.cancel()
                assert agent._relay is not None
                self.spawned = dict(agent._relay.spawner.roster.agents)
                self.tools = set(agent.parts.runs.tools)

    async def _stop_some(self, agent: Agent) -> None:
        while True:
            await anyio.sleep(self.random.uniform(0.1, 0.6))  # so that agents are stopped at any moment
            running = [one.agent for one in agent.agents() if one.state == "running"]
            if running:
                chosen = self.random.choice(running)
                await agent.stop_agent(chosen)
                self.stopped += [one for one in agent.agents() if one.agent == chosen]

    def logs(self) -> dict[str, list[Any]]:
        """Return every log's entries, by the name of its agent."""
        keys = [key for key in self.storage.list("") if key.endswith(".jsonl")]
        return {
            key.rpartition("/")[2].removesuffix(".jsonl"): parse_log(self.storage.load(key) or b"").entries
            for key in keys
        }

    def decisions(self, kind: type[Any]) -> list[tuple[str, Any]]:
        """Return decisions of a kind, each with the agent whose log it is in."""
        found = [(name, entry) for name, entries in self.logs().items() for entry in entries if entry.kind == DECISION]
        decided = [(name, decision_of(entry.body)) for name, entry in found]
        return [(name, one) for name, one in decided if isinstance(one, kind)]

    # -- what must hold

    def check(self) -> None:
        """Hold what happened against every promise."""
        self._limits()
        self._tools()
        self._senders()
        assert list(self.outside.iterdir()) == []  # no permission came out of a message
        assert all(one.state != "running" for one in self.stopped), "a stop returns when it is over"
        ended = {one.agent for _, one in self.decisions(AgentFinished)}
        assert {one.agent for _, one in self.decisions(AgentSpawned)} <= ended | self._abandoned()

    def _abandoned(self) -> set[str]:
        """Return the agents whose starter was ended first: its log was closed before theirs."""
        return {one.id for one in self.spawned.values() if one.depth > 1}

    def _limits(self) -> None:
        started = [one for _, one in self.decisions(AgentSpawned)]
        assert len(started) <= self.relay.max_started
        assert self.most_alive <= self.relay.max_alive
        assert all(one.options["depth"] <= self.relay.max_depth for one in started)
        assert all(len(one.directive) <= 4_000 for one in started)
        calls = self.decisions(CallRecorded)
        largest = max((_tokens(call) for _, call in calls), default=0)
        for one in self.spawned.values():
            assert one.turns <= self.relay.max_turns
            own = [_tokens(call) for name, call in calls if name == one.id and call.source == "main"]
            assert sum(own[:-1]) < self.relay.max_tokens  # whatever the last turn took, it was the last
            if one.kind == "fork":
                assert one.tokens < self.relay.max_tokens + largest

    def _tools(self) -> None:
        for one in self.spawned.values():
            parents = set(self.spawned[one.parent].tools) if one.parent else self.tools
            assert set(one.tools) <= parents
            if one.kind == "fork":
                assert not {"Agent", "AgentStop", "SendMessage"} & set(one.tools)
                assert not [each for each in self.spawned.values() if each.parent == one.id]

    def _senders(self) -> None:
        """See that every message names whoever wrote it, by the log that holds the call."""
        wrote: dict[str, str] = {}
        for name, entries in self.logs().items():
            for entry in entries:
                if entry.kind == "assistant":
                    text = str(entry.message)
                    wrote.update({nonce: name for nonce in self.plan.nonces if nonce in text})
        for reader, message in self.decisions(MessageQueued):
            for nonce in self.plan.nonces:
                if nonce in message.text and not message.id.endswith(".ended"):
                    self.letters += 1
                    assert message.sender == wrote[nonce]
                    assert message.sender != reader
                    assert message.sender in message.text.split("\n")[0]
                    assert "\nHuman:" not in message.text


@pytest.mark.requirement("L7.2", "L7.3", "L7.4", "S3", "S5")
def test_hostile_plans_stay_within_every_limit(
    tmp_path: Path, torture: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"hostile-{uuid.uuid4().hex}"
    monkeypatch.setenv("REVERIE_TEST_MARK", mark)
    plans = 500 if torture else 8
    started = letters = stops = 0
    for number in range(10 * plans):
        if number >= plans and letters > 0 and started > number:
            break  # agents are stopped at random moments: on a busy machine before many of them have said anything
        huge = 10_000_000 if torture or number == 0 else 100_000
        folder = tmp_path / str(number)
        watched = Watched(
            folder, seed + number, PLANS.POLICY, shells=number % 4 == 0 and (torture or not number), huge=huge
        )
        anyio.run(watched.follow)
        try:
            watched.check()
        except AssertionError as error:
            raise AssertionError(f"plan {number} of seed {seed}") from error
        started += len(watched.spawned)
        stops += len(watched.stopped)
        letters += watched.letters
        shutil.rmtree(folder)
    assert gone(mark) == []
    print(f"{plans} plans, {started} agents started, {letters} letters, {stops} stops, load {os.getloadavg()[0]:.1f}")
    assert started > plans
    assert letters > 0


def test_without_limits_the_same_plans_are_caught(tmp_path: Path, seed: int) -> None:
    """The twin: a policy that allows everything."""
    free = replace(PLANS.POLICY, max_alive=10_000, max_started=60, max_depth=50, max_turns=50)

    def is_caught(number: int) -> bool:
        watched = Watched(tmp_path / str(number), seed + number, free, shells=False, huge=100_000)
        watched.relay = PLANS.POLICY
        anyio.run(watched.follow)
        try:
            watched.check()
        except AssertionError:
            return True
        return False

    assert any(map(is_caught, range(20)))


@pytest.mark.requirement("L7.4")
def test_nothing_survives_a_parent_that_is_killed(tmp_path: Path, torture: bool, seed: int) -> None:
    tries = 100 if torture else 2
    pick = random.Random(seed)
    most = 0
    for number in range(tries):
        mark = f"orphan-{uuid.uuid4().hex}"
        environment = {**os.environ, "REVERIE_TEST_MARK": mark, "REVERIE_HOME": str(tmp_path / "home")}
        command = [sys.executable, str(PROGRAM), str(tmp_path / f"h{number}"), str(tmp_path / f"w{number}")]
        child = subprocess.Popen(
            [*command, str(pick.randrange(10**9))], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"begun\n"
            until = time.monotonic() + GONE_SECONDS
            while (living := len(marked(mark))) < 4 and time.monotonic() < until:
                time.sleep(0.05)
            most = max(most, living)
            time.sleep(pick.uniform(0.0, 0.3))  # so that it is killed at one moment or another
        finally:
            child.kill()
            child.communicate()
        left = gone(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == [], f"try {number}"
    print(f"{tries} parents killed, up to {most} processes each, 0 left")
    assert most >= 4


def test_a_command_that_is_only_put_into_a_group_outlives_its_parent(tmp_path: Path) -> None:
    """The twin: a process group of its own, and nobody who watches."""
    mark = f"orphan-{uuid.uuid4().hex}"
    program = (
        "import subprocess, time\n"
        "subprocess.Popen(['bash', '-c', 'sleep 600 & wait'], start_new_session=True, stdout=-3, stderr=-3)\n"
        "print('begun', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "REVERIE_TEST_MARK": mark}, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    until = time.monotonic() + GONE_SECONDS
    while len(marked(mark)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    child.kill()
    child.communicate()
    left = gone(mark, 0.5)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 2
