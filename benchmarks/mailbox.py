"""How long does a poll take with 100,000 waiting messages, and what does sending one cost?

    python benchmarks/mailbox.py [--json] [--check] [--messages 100000] [--rounds 9]

An inbox is filled with signed messages of 1, 16 and 1,000 senders, and polled by a new reader, which remembers nothing
from earlier polls. For comparison, the run measures the minimum for an inbox that looks at all of its messages: listing
as many files in one folder with ``os.scandir``, names only, without opening any. The best round counts, and the median
of the ratios. Sending is compared with its unavoidable steps: write, flush, rename, flush the folder;
it has no limit, because a file system in memory flushes for free.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from reverie.layers.l7_relay.controls import stamped_letter
from reverie.layers.l7_relay.messages import sealed
from reverie.runtime.mail.files import key_of, place_of
from reverie.runtime.mail.mailbox import Mailbox

SENDERS = (1, 16, 1_000)
LIMITS = {"poll_ms": 50.0, "poll_to_floor": 1.0}
TEAM = "default"
TEXT = "The parser is done: 14 tests pass, and the two that fail are named in notes.md. " * 3
WHOLE = 50


def fill(home: Path, senders: int, messages: int) -> None:
    """Store messages as senders would, without waiting for the disk."""
    Mailbox(home, TEAM, "reader").close()
    new = home / "teams" / TEAM / "reader" / "new"
    now = time.time_ns()
    for sender in range(senders):
        name = f"sender-{sender}"
        Mailbox(home, TEAM, name).close()
        key = key_of(str(home), TEAM, name) or b""
        for number in range(1, messages // senders + 1):
            letter = stamped_letter(
                str(number),
                TEXT,
                sender=(TEAM, name),
                to=(TEAM, "reader"),
                sequence=number,
                time_ns=now + number * senders + sender,
                summary="The parser is done",
            )
            place = place_of(letter)
            folder = f"{new}/{place.folder}/{place.bucket}"
            if number % 256 <= 1:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor = os.open(f"{folder}/{place.file}", os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(descriptor, sealed(letter, key))
            os.close(descriptor)


def fill_flat(flat: Path, messages: int) -> None:
    """Create the same number of empty files in one folder, named like messages of an ordinary maildir."""
    flat.mkdir()
    now = time.time_ns()
    for number in range(messages):
        os.close(os.open(f"{flat}/{now + number:020d},{number:012d},sender-{number % 16}", os.O_CREAT | os.O_WRONLY))


def poll_ms(home: Path) -> float:
    with Mailbox(home, TEAM, "reader") as mailbox:
        mailbox.acquire()  # once in a reader's life
        began = time.perf_counter()
        letters = mailbox.poll(WHOLE)
        took = time.perf_counter() - began
    if len(letters) != WHOLE or mailbox.refused:
        raise SystemExit(f"{len(letters)} letters came, {len(mailbox.refused)} were refused: this measures nothing")
    return took * 1_000


def floor_ms(flat: Path) -> float:
    began = time.perf_counter()
    with os.scandir(flat) as entries:
        names = [entry.name for entry in entries]
    took = time.perf_counter() - began
    assert names
    return took * 1_000


def polled(senders: int, messages: int, rounds: int, flat: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), senders, messages)
        pairs = [(poll_ms(Path(folder)), floor_ms(flat)) for _ in range(rounds)]
    ratio = median(one / two for one, two in pairs)
    return {
        "senders": senders,
        "poll_ms": min(one for one, _ in pairs),
        "floor_ms": min(two for _, two in pairs),
        "poll_to_floor": ratio,
    }


def bare_ms(folder: Path, number: int) -> float:
    data = TEXT.encode()
    began = time.perf_counter()
    descriptor = os.open(folder / "tmp" / str(number), os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, data)
    os.fdatasync(descriptor)
    os.close(descriptor)
    os.rename(folder / "tmp" / str(number), folder / "new" / str(number))
    where = os.open(folder / "new", os.O_RDONLY)
    os.fsync(where)
    os.close(where)
    return (time.perf_counter() - began) * 1_000


def sent(rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder, "bare")
        for name in ("tmp", "new"):
            (bare / name).mkdir(parents=True)
        Mailbox(folder, TEAM, "reader").close()
        pairs: list[tuple[float, float]] = []
        with Mailbox(folder, TEAM, "sender") as mailbox:
            for number in range(rounds * 20):
                began = time.perf_counter()
                mailbox.send("reader", TEXT)
                pairs.append(((time.perf_counter() - began) * 1_000, bare_ms(bare, number)))
    ours, floor = median(one for one, _ in pairs), median(two for _, two in pairs)
    return {"send_ms": ours, "floor_ms": floor, "send_to_floor": ours / floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is not met")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flat = Path(folder, "flat")
        fill_flat(flat, options.messages)
        polls = [polled(senders, options.messages, options.rounds, flat) for senders in SENDERS]
    sending = sent(options.rounds)
    worst = {
        "poll_ms": max(one["poll_ms"] for one in polls),
        "poll_to_floor": max(one["poll_to_floor"] for one in polls),
    }
    met = {name: worst[name] <= limit for name, limit in LIMITS.items()}
    report: dict[str, Any] = {
        "messages": options.messages,
        "polls": polls,
        "sending": sending,
        "limits": LIMITS,
        "met": met,
        "load": os.getloadavg()[0],
    }
    if options.as_json:
        print(json.dumps(report, indent=2))
    else:
        print(f"{options.messages:,} messages wait; the first {WHOLE} are read and checked (load {report['load']:.1f})")
        for one in polls:
            print(
                f"  {one['senders']:>5,.0f} senders: poll {one['poll_ms']:6.1f} ms, scandir of all "
                f"{one['floor_ms']:6.1f} ms, ratio {one['poll_to_floor']:.2f}"
            )
        print(
            f"  sending: {sending['send_ms']:.2f} ms, bare write, flush and rename {sending['floor_ms']:.2f} ms,"
            f" ratio {sending['send_to_floor']:.2f}"
        )
        for name, limit in LIMITS.items():
            print(f"  {name} <= {limit:g}: {worst[name]:.2f}, {'met' if met[name] else 'NOT met'}")
    if options.check and not all(met.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
