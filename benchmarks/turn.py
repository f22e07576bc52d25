"""How long does it take to prepare a turn, and what does it cost, compared with LangChain, deepagents and OpenHands?

    python benchmarks/turn.py [--json] [--check] [--rounds 8] [--seeds 1 2 3] [--tokens 350000] [--no-peers]
        [--files DIR]
    python benchmarks/turn.py --setup [--python python3.12]

Time: a tool loop drives a session in memory to 200 and to 2,000 messages, alternately, so that other load affects
both: once with layer 2 clearing old results when it saves money, and once without any clearing, so that all 1.2 M
tokens are in the view. ``prepare`` includes everything: size results, clear old ones if that saves money, log
decisions, hash the new part for the watch, build the request and place its breakpoints. A peer gets the same
conversation: ``decide`` is its own reduction alone with nothing due, ``ready`` adds the conversion of the messages to
the provider's format, which prepare includes too.

Files (``--files DIR``, on a disk): the same turn with its log in files and in memory, alternately, then a bare
write with fdatasync of as many bytes in the same directory. A turn with files may cost two bare writes more. The same
write, waited for in a thread, is the least that a turn can cost without blocking the event loop.

Cost: each program sends a generated coding session in its own way, billed by one simulator and one price list;
see ``peers/bill.py``. The peers' turns are timed there too, with their own summaries on. Peers run with their
defaults, in their own environments, without a network, with a scripted model that answers immediately. A peer
without an environment is skipped, and the output says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from peers.bill import bill_of_peer, bills_of_ours, recorded, told
from peers.environments import PEERS, is_ready, is_sealed, run, set_up
from view import SYSTEM, TOOLS, Talk

from reverie.layers.l2_trim import TrimPolicy
from reverie.runtime.session.log import StorageThread
from reverie.runtime.session.session import Session
from reverie.settings import Settings, Switches
from reverie.storage.in_memory import InMemoryStorage

SIZES = (200, 2_000)
SPREAD = 30  # turns measured at each size
PEER_TURNS = 12
LIMITS = {"prepare_ms": 0.6, "growth": 1.2}
FILES_LIMIT = 2.0  # bare writes with fdatasync
MODEL = "claude-sonnet-4-5"
WINDOW = 200_000

Body = dict[str, Any]


class Clock:
    """A clock that a tool loop advances: eight seconds per turn, so that the provider's cache stays alive."""

    def __init__(self) -> None:
        self.now = 1.79e9

    def __call__(self) -> float:
        return self.now


class Loop:
    """A session, in memory unless it has a home, and the tool loop that drives it."""

    def __init__(self, talk: Talk, size: int, trim: TrimPolicy, home: str = "") -> None:
        self.talk = talk
        self.clock = Clock()
        # The usage that is played grows as if nothing were ever cut, and the view is to hold all of it: no compaction,
        # and a window without an end.
        switches = Switches(compact=False)
        endless = {MODEL: {"window_tokens": 1_000_000_000}}
        settings = Settings(Path(home), trim=trim, switches=switches, models=endless)
        storage = None if home else InMemoryStorage()  # None: files in the home, with the ledger
        self.session = Session.open(f"turns-{size}", storage=storage, settings=settings, clock=self.clock)
        self.turns = 0

    async def begin(self) -> None:
        """Open the session and send its first request."""
        await self.session.__aenter__()
        await self.session.say("Make the failing tests of this repository pass.")
        await self._prepare()

    async def turn(self) -> tuple[float, float, float]:
        """Take one turn; return the microseconds spent on the reply, on the result and on the next request."""
        said, given = self.talk.turn(self.turns)
        reply = {**said["reply"], **said["message"]}
        block = given["message"]["content"][0]
        self.turns += 1
        self.clock.now += 8.0
        start = time.perf_counter_ns()
        await self.session.observe(reply)
        observed = time.perf_counter_ns()
        await self.session.result(block["tool_use_id"], block["content"])
        taken = time.perf_counter_ns()
        await self._prepare()
        prepared = time.perf_counter_ns()
        return (observed - start) / 1e3, (taken - observed) / 1e3, (prepared - taken) / 1e3

    async def _prepare(self) -> Body:
        return await self.session.prepare(model=MODEL, max_tokens=8_000, system=SYSTEM, tools=TOOLS)


async def measure_ours(talk: Talk, rounds: int, trim: TrimPolicy) -> Body:
    """Measure turns at both sizes, alternately, in new sessions each round; the first round warms up."""
    spent: dict[int, list[tuple[float, float, float]]] = {size: [] for size in SIZES}
    tokens = 0
    for lap in range(rounds + 1):
        loops = {size: Loop(talk, size, trim) for size in SIZES}
        for size, loop in loops.items():
            await loop.begin()
            while loop.session.view.length + SPREAD < size:
                await loop.turn()
        for step in range(SPREAD):
            for size in SIZES if step % 2 else reversed(SIZES):
                took = await loops[size].turn()
                if lap:
                    spent[size].append(took)
        tokens = loops[SIZES[1]].session.view.tokens
        for loop in loops.values():
            await loop.session.__aexit__(None, None, None)
    found: Body = {"turns_measured": len(spent[SIZES[0]]), "tokens": tokens}
    for size in SIZES:
        observe, result, prepare = zip(*spent[size], strict=True)
        found[f"at_{size}"] = {
            "prepare_us": median(prepare),
            "prepare_mean_us": mean(prepare),
            "prepare_p99_us": sorted(prepare)[len(prepare) * 99 // 100],
            "observe_us": median(observe),
            "result_us": median(result),
        }
    few, many = (found[f"at_{size}"] for size in SIZES)
    found["growth"] = many["prepare_us"] / few["prepare_us"]
    found["growth_of_mean"] = many["prepare_mean_us"] / few["prepare_mean_us"]
    return found


def durably(descriptor: int, data: bytes) -> None:
    """Write bytes and wait for the disk."""
    os.write(descriptor, data)
    os.fdatasync(descriptor)


async def measure_files(talk: Talk, rounds: int, directory: str) -> Body:
    """Measure a turn of the larger size in memory and in files, and a bare durable write of as many bytes."""
    data, size, spent = b"", SIZES[1], {"memory_us": [], "files_us": [], "bare_us": [], "hop_us": []}
    thread = StorageThread()
    with tempfile.TemporaryDirectory(dir=directory, prefix="turn-") as home:
        loops = {"memory_us": Loop(talk, size, TrimPolicy()), "files_us": Loop(talk, size, TrimPolicy(), home)}
        for loop in loops.values():
            await loop.begin()
            while loop.session.view.length + SPREAD * rounds < size:
                await loop.turn()
        log = next(Path(home).rglob(f"turns-{size}.jsonl"))
        bare = os.open(Path(home) / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for _ in range(SPREAD * rounds):
            before = log.stat().st_size
            for name in reversed(loops):  # memory last: the disk has rested as long before each durable write
                spent[name].append(sum(await loops[name].turn()))
            data = b"x" * (log.stat().st_size - before)
            write = partial(durably, bare, data)
            start = time.perf_counter_ns()
            write()
            written = time.perf_counter_ns()
            await thread.run(write)
            spent["bare_us"].append((written - start) / 1e3)
            spent["hop_us"].append((time.perf_counter_ns() - written) / 1e3)
        thread.close()
        os.close(bare)
        for loop in loops.values():
            await loop.session.__aexit__(None, None, None)
    found: Body = {name: median(times) for name, times in spent.items()}
    found["bare_writes"] = (found["files_us"] - found["memory_us"]) / found["bare_us"]
    return {**found, "turns_measured": SPREAD * rounds, "bytes": len(data)}


def created_directory(given: str) -> str:
    """Create a directory if it is missing; return its path."""
    try:
        Path(given).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot create {given}: {error.strerror}") from None
    return given


def as_items(talk: Talk, size: int) -> Body:
    """Return the tool loop in a peer's input format, with requests only near its end and no summary due."""
    items: list[Body] = [{"role": "user", "blocks": [{"type": "text", "text": "Make the failing tests pass."}]}]
    turns: list[int] = []
    while len(items) < size:
        reply, result = talk.turn(len(turns))
        items.append({"role": "assistant", "blocks": reply["message"]["content"]})
        items.append({"role": "tool", "blocks": result["message"]["content"]})
        turns.append(len(items))
    last = turns[-PEER_TURNS:]
    base = {"system": SYSTEM, "tools": TOOLS, "window": 10**9, "summary": "", "tells": False}
    return {"items": items, "turns": last, **base}


def measure_peer(peer: str, talk: Talk, *, sealed: bool) -> Body:
    """Measure a peer at both sizes."""
    found: Body = {}
    for size in SIZES:
        played = run(peer, as_items(talk, size), sealed=sealed)
        requests = played["requests"][2:]  # the first ones warm up
        found["version"] = played["version"]
        found[f"at_{size}"] = {key: median(one[key] for one in requests) for key in ("decide_us", "ready_us")}
    found["growth"] = found[f"at_{SIZES[1]}"]["decide_us"] / found[f"at_{SIZES[0]}"]["decide_us"]
    return found


def measure_costs(seeds: list[int], tokens: int, peers: list[str], *, sealed: bool) -> Body:
    """Bill all programs for the same conversations, and sum up."""
    sums: dict[str, Body] = {}
    notes: dict[str, str] = {}
    turns: dict[str, list[Body]] = {peer: [] for peer in peers}
    requests = 0
    for seed in seeds:
        recording = recorded(seed, tokens)
        requests += len(recording.steps)
        conversation = told(recording, WINDOW)
        bills = bills_of_ours(recording)
        for peer in peers:
            played = run(peer, conversation, sealed=sealed)
            bills[peer] = bill_of_peer(recording, played, conversation)
            notes[peer] = played["settings"]
            turns[peer] += played["requests"]
        for name, bill in bills.items():
            into = sums.setdefault(name, dict.fromkeys(bill, 0))
            for key, value in bill.items():
                into[key] += value / len(seeds) if key == "mean_window" else value
    for bill in sums.values():
        bill["to_append_only"] = bill["usd"] / sums["append-only"]["usd"]
    times = {
        peer: {key: median(one[key] for one in taken) for key in ("decide_us", "ready_us")}
        for peer, taken in turns.items()
    }
    return {"seeds": seeds, "tokens": tokens, "requests": requests, "bills": sums, "settings": notes, "times": times}


def checked(ours: dict[str, Body], timed: dict[str, Body], costs: Body) -> dict[str, Body]:
    """Compare the measurements with the limits."""
    at = f"at_{SIZES[1]}"
    slowest = {f"at_{size}": max(one[f"at_{size}"]["prepare_us"] for one in ours.values()) / 1e3 for size in SIZES}
    values = {"prepare_ms": slowest[at], "growth": max(one["growth"] for one in ours.values())}
    checks: dict[str, Body] = {
        name: {"value": values[name], "limit": limit, "met": values[name] <= limit} for name, limit in LIMITS.items()
    }
    bills = costs["bills"]
    for peer, found in timed.items():
        for size in SIZES:  # against the peer's reduction alone, though prepare does more
            mine, theirs = slowest[f"at_{size}"], found[f"at_{size}"]["decide_us"] / 1e3
            checks[f"faster than {peer} at {size}"] = {"value": mine, "limit": theirs, "met": mine < theirs}
    for name in bills:
        if name != "reverie":
            mine, theirs = bills["reverie"]["usd"], bills[name]["usd"]
            checks[f"cheaper than {name}"] = {"value": mine, "limit": theirs, "met": mine < theirs}
    return checks


def table(ours: dict[str, Body], timed: dict[str, Body], costs: Body, missing: list[str]) -> None:
    """Print the measurements."""
    print(f"{'one turn, milliseconds':<44}" + "".join(f"{f'at {size:,}':>12}" for size in SIZES) + f"{'growth':>10}")
    rows = {"prepare_us": "median", "prepare_mean_us": "mean", "prepare_p99_us": "99th of 100"}
    rows |= {"observe_us": "observe", "result_us": "result"}
    for name, found in ours.items():
        print(f"reverie prepare, {name} ({found['tokens']:,} tokens)")
        for key, label in rows.items():
            row(f"  {label}", [found[f"at_{size}"][key] for size in SIZES])
    for peer, found in timed.items():
        row(f"{PEERS[peer]} {found['version']}", [found[f"at_{size}"]["decide_us"] for size in SIZES])
        row("  and the request built", [found[f"at_{size}"]["ready_us"] for size in SIZES])
    print(f"\n{costs['requests']} requests of {len(costs['seeds'])} coding sessions, dollars of input")
    columns = ("usd", "to_append_only", "input_usd", "read_back_usd", "summary_usd")
    print(
        f"{'':<36}" + "".join(f"{name:>16}" for name in columns) + f"{'summaries':>11}{'read backs':>12}{'window':>10}"
    )
    for name, bill in costs["bills"].items():
        figures = "".join(f"{bill[column]:>16.3f}" for column in columns)
        counts = f"{bill['summaries']:>11,}{bill['read_backs']:>12,}{bill['mean_window']:>10,.0f}"
        print(f"{PEERS.get(name, name):<36}{figures}{counts}")
    for peer, note in costs["settings"].items():
        print(f"({PEERS[peer]}: {note})")
        taken = costs["times"][peer]
        print(
            f"  a turn of these sessions, with its own summaries on: {taken['decide_us'] / 1e3:.3f} ms, "
            f"with the request built {taken['ready_us'] / 1e3:.3f} ms"
        )
    for peer in missing:
        print(f"({PEERS[peer]} is left out: it is not set up; run this with --setup)")
    print()


def row(label: str, microseconds: list[float]) -> None:
    """Print one line of times."""
    times = "".join(f"{one / 1e3:>12.3f}" for one in microseconds)
    print(f"{label:<44}{times}{microseconds[1] / microseconds[0]:>10.2f}")


def prepared_peers(python: str) -> int:
    """Make the environments of all peers and report the results."""
    failed = 0
    for peer, name in PEERS.items():
        print(f"{name}: setting up ...", flush=True)
        wrong = set_up(peer, python)
        failed += wrong is not None
        print(f"{name}: {wrong or 'ready'}")
    return 1 if failed else 0


def main() -> int:
    """Measure, print, and with ``--check`` return the exit status: 0 if all limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail where a limit is missed or a peer is left out")
    parser.add_argument("--rounds", type=int, default=8, help="fresh sessions to measure turns in")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="coding sessions to be billed for")
    parser.add_argument("--tokens", type=int, default=350_000, help="about how much is said in each")
    parser.add_argument("--no-peers", action="store_true", help="measure only ours")
    parser.add_argument(
        "--files", metavar="DIR", type=created_directory, help="also measure a turn with its log in this directory"
    )
    parser.add_argument("--setup", action="store_true", help="make the peers' environments, and stop")
    parser.add_argument("--python", default=sys.executable, help="the Python to set them up with (OpenHands: 3.12)")
    options = parser.parse_args()
    if options.setup:
        return prepared_peers(options.python)
    peers = [] if options.no_peers else [peer for peer in PEERS if is_ready(peer)]
    missing = [] if options.no_peers else [peer for peer in PEERS if peer not in peers]
    sealed = is_sealed()
    talk = Talk()
    ours = {
        "old results cleared": asyncio.run(measure_ours(talk, options.rounds, TrimPolicy())),
        "nothing cleared": asyncio.run(measure_ours(talk, options.rounds, TrimPolicy(mode="off"))),
    }
    timed = {peer: measure_peer(peer, talk, sealed=sealed) for peer in peers}
    costs = measure_costs(options.seeds, options.tokens, peers, sealed=sealed)
    checks = checked(ours, timed, costs)
    files: Body = asyncio.run(measure_files(talk, options.rounds, options.files)) if options.files else {}
    if files:
        value = files["bare_writes"]
        checks["bare writes of a turn in files"] = {"value": value, "limit": FILES_LIMIT, "met": value <= FILES_LIMIT}
    if options.json:
        found = {"ours": ours, "peers": timed, "costs": costs, "missing": missing, "sealed": sealed, "checks": checks}
        print(json.dumps({**found, "files": files}, indent=2))
    else:
        table(ours, timed, costs, missing)
        if files:
            print(
                f"one turn at {SIZES[1]:,}, microseconds: {files['files_us']:,.0f} in files, {files['memory_us']:,.0f} "
                f"in memory; a bare write of {files['bytes']:,} bytes with fdatasync {files['bare_us']:,.0f}, the same "
                f"from another thread {files['hop_us']:,.0f}\n"
            )
        for name, check in checks.items():
            verdict = "met" if check["met"] else "MISSED"
            print(f"{name:<32}{check['value']:10.3f} <= {check['limit']:<10.3f} {verdict}")
    failed = bool(missing) or not all(check["met"] for check in checks.values())
    return 1 if options.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
