"""Many processes that compete for the dream lock under faults, and a witness that checks them.

Run as ``python dream_crowd.py SOURCE SITE FOLDER MANY SECONDS SEED HOW``; prints the result as JSON. HOW is ``ours``,
or ``pidfile`` for the lock that many write: read the file, look whether that process lives, write, read again.

The witness does not use the lock. Each process that believes it holds the lock takes a record lock on another file,
which the kernel refuses while any other process has it, and records the start and end of holding, which are checked
for overlaps.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

sys.path[:0] = sys.argv[1:3]

from reverie.layers.l6_dream.policy import DreamPolicy  # noqa: E402
from reverie.runtime.dream.control import take_lock  # noqa: E402
from reverie.runtime.dream.gate import DreamGate  # noqa: E402
from reverie.runtime.dream.lock import DreamLock  # noqa: E402

FOLDER, MANY, SECONDS, SEED, HOW = Path(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), sys.argv[6], sys.argv[7]
ROOT, HOME, LOG = FOLDER / "memory", FOLDER / "home", FOLDER / "witness.log"
STAMP, LOCK, PIDFILE = ROOT / ".consolidate-lock", ROOT / ".journal" / "dream-lock", ROOT / "pidfile"
DAY = 86_400.0
MIN_STRUCK = 5  # on a busy machine it takes longer to meet so many holders
LIMIT_SECONDS = max(200.0, 2 * SECONDS)
HUNG_SECONDS = 0.5
PAUSE_SECONDS = 0.0015 * MANY  # so that the crowd as a whole tries equally often, however large it is
POLICY = DreamPolicy(every_hours=0.1 / 3_600, scan_minutes=0.02 / 60, min_sessions=2, hung_minutes=HUNG_SECONDS / 60)
DIE_WITH_PARENT = 1


class PidFile:
    """The known-bad twin: the holder is whoever the file names, if that process lives."""

    def __init__(self) -> None:
        self.taken = time.monotonic()

    @classmethod
    def take(cls) -> PidFile | None:
        with suppress(OSError, ValueError):
            pid = int(PIDFILE.read_text())
            os.kill(pid, 0)
            return None
        PIDFILE.write_text(str(os.getpid()))
        with suppress(FileNotFoundError):
            return cls() if PIDFILE.read_text() == str(os.getpid()) else None
        return None

    def end(self, how: str) -> None:
        PIDFILE.unlink(missing_ok=True)


class Ours:
    """The lock under test, taken through the gate or past it, by a clock that jumps."""

    def __init__(self, held) -> None:  # type: ignore[no-untyped-def]
        self.held = held
        self.taken = held.holder.taken

    @classmethod
    def take(cls, gate: DreamGate, draw: random.Random, now: float) -> Ours | None:
        if draw.random() < 0.3:
            if gate.check(f"s{os.getpid()}") is not None:
                return None
            note("opened", os.getpid(), time.monotonic())
        holder = gate.lock.holder()
        if holder is not None and holder.is_hung(HUNG_SECONDS):
            note("held", holder.pid, holder.taken)
            note("killed", holder.pid, time.monotonic())
        held = take_lock(ROOT, POLICY, now)
        return None if held is None else cls(held)

    def end(self, how: str) -> None:
        if how == "raise":
            with suppress(RuntimeError), self.held:
                raise RuntimeError
        elif how == "fail":
            self.held.fail()
        else:
            self.held.succeed()


def note(what: str, pid: int, when: float, more: str = "") -> None:
    os.write(log, json.dumps([what, pid, when, more]).encode() + b"\n")


def live(number: int) -> None:
    """Try, hold, let go, again and again, until killed."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(0)
    draw = random.Random(f"{SEED} {number}")
    witness = os.open(FOLDER / "witness", os.O_RDWR)  # lower than the lock's own number: the kernel closes it first
    jump = 0.0
    gate = DreamGate(ROOT, home=HOME, project="app", policy=POLICY, clock=lambda: time.time() + jump)
    while True:
        jump = draw.choice((0.0, 0.0, 0.0, DAY, -DAY))
        held = PidFile.take() if HOW == "pidfile" else Ours.take(gate, draw, time.time() + jump)
        if held is not None:
            note("took", os.getpid(), held.taken)
            try:
                fcntl.lockf(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                note("two", os.getpid(), time.monotonic())
            time.sleep(draw.random() * 0.02)  # hold it for a random time, so that others meet the holder
            note("left", os.getpid(), time.monotonic())
            fcntl.lockf(witness, fcntl.LOCK_UN)
            held.end(draw.choice(("succeed", "fail", "raise")))
        time.sleep(draw.random() * PAUSE_SECONDS)  # so that the processes do not go in step


def born(number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        live(number)
    except BaseException as error:
        note("error", os.getpid(), time.monotonic(), repr(error))
    os._exit(1)


class Chaos:
    """What goes wrong, by chance, while the crowd lives."""

    def __init__(self, innocent: int) -> None:
        self.draw = random.Random(SEED)
        self.innocent = innocent
        self.born = 0
        self.alive: set[int] = set()
        self.stopped: dict[int, float] = {}
        self.did: dict[str, int] = {}
        self.killed: set[int] = set()
        self.holder, self.since = 0, 0.0
        self.hung = self.struck = 0

    def people(self) -> None:
        """Bury the dead and replace them."""
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) > 0:
                self.alive.discard(pid)
                self.hung += pid in self.stopped and pid not in self.killed
                self.stopped.pop(pid, None)
        while len(self.alive) < MANY:
            self.alive.add(born(self.born))
            self.born += 1

    def strike(self) -> None:
        name = self.draw.choice(("kill", "kill", "stop", "stop", "stamp", "stamp", "session", "hang", "note"))
        self.did[name] = self.did.get(name, 0) + 1
        getattr(self, name)()
        for pid, until in list(self.stopped.items()):
            if time.monotonic() > until:
                del self.stopped[pid]
                os.kill(pid, signal.SIGCONT)

    def is_hanging(self, pid: int = 0) -> bool:
        stopped = [self.stopped.get(pid, 0.0)] if pid else self.stopped.values()
        return any(until > time.monotonic() + HUNG_SECONDS for until in stopped)

    def victim(self) -> int:
        """Choose who suffers: whoever seems to hold the lock, or anybody."""
        self.holder = 0
        with suppress(OSError, ValueError, TypeError, KeyError):
            said = {"pid": PIDFILE.read_text()} if HOW == "pidfile" else json.loads(LOCK.read_bytes())
            self.holder, self.since = int(said["pid"]), float(said.get("taken", 0.0))
            if self.holder in self.alive and self.draw.random() < 0.4 and not self.is_hanging(self.holder):
                return self.holder
        return self.draw.choice([pid for pid in sorted(self.alive) if not self.is_hanging(pid)])

    def kill(self) -> None:
        pid = self.victim()
        if pid == self.holder:
            self.struck += 1
            note("held", pid, self.since)
        note("killed", pid, time.monotonic(), "holder" if pid == self.holder else "")
        self.killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # one that waits for the disk dies only when that has answered
        note("died", pid, time.monotonic())
        self.alive.discard(pid)
        self.stopped.pop(pid, None)

    def stop(self, seconds: float = 0.0) -> None:
        pid = self.victim()
        os.kill(pid, signal.SIGSTOP)
        self.stopped[pid] = time.monotonic() + (seconds or self.draw.random() * 0.15)

    def hang(self) -> None:
        """Stop somebody for so long that others end it; rarely, for it takes the lock out of play."""
        if not self.is_hanging() and self.draw.random() < 0.1:
            self.stop(4 * HUNG_SECONDS)

    def stamp(self) -> None:
        with suppress(FileNotFoundError):
            when = self.draw.choice((0.0, 1.0, time.time() + DAY, time.time() - DAY, None, None))
            STAMP.unlink() if when is None else os.utime(STAMP, (when, when))
            if self.draw.random() < 0.5:
                STAMP.write_text(json.dumps(self.stale()))

    def note(self) -> None:
        """Let the lock name a process that is dead, or one that was given the number of a dead one."""
        if self.is_hanging() or self.draw.random() < 0.5:
            return  # that somebody hangs, the others know only by this note
        with suppress(FileNotFoundError), open(LOCK, "r+b", buffering=0) as file:
            file.write(json.dumps(self.stale()).encode().ljust(511) + b"\n")

    def stale(self) -> dict[str, object]:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
        ticks = Path(f"/proc/{self.innocent}/stat").read_text().rsplit(")", 1)[1].split()[19]
        who = self.draw.choice(
            (
                {"pid": 2**22 + 1, "started": "7", "boot": boot},
                {"pid": self.innocent, "started": str(int(ticks) - 1), "boot": boot},
                {"pid": self.innocent, "started": ticks, "boot": "another"},
                {"pid": os.getpid(), "started": "1", "boot": boot},
            )
        )
        return {**who, "space": space, "began": 0.0, "taken": -1e6}

    def session(self) -> None:
        path = HOME / "projects" / "app" / f"{self.draw.randrange(5)}.jsonl"
        path.write_text("{}\n")
        when = time.time() + self.draw.choice((0.0, DAY, -DAY))
        os.utime(path, (when, when))


def verdict(chaos: Chaos) -> dict[str, object]:
    """Read what was written down: who held when, and what came after each death."""
    rows = sorted((json.loads(line) for line in LOG.read_text().splitlines()), key=lambda row: row[2])
    spans: list[list[float]] = []
    mine: dict[int, int] = {}
    struck: dict[int, float] = {}
    deaths: list[tuple[float, float]] = []
    for what, pid, when, more in rows:
        if what == "killed" and (pid in mine or more == "holder"):
            struck[pid] = when
        if what == "died" and pid in struck:
            deaths.append((struck[pid], when))
        if what == "took":
            mine[pid] = len(spans)
            spans.append([when, float("inf")])
        elif what in ("left", "killed") and pid in mine:
            spans[mine.pop(pid)][1] = when
    ended = [span for span in spans if span[1] != float("inf")]
    # Who was killed before it could write anything down had taken the lock all the same, by its own note.
    starts = sorted(when for what, _, when, _ in rows if what in ("took", "held"))
    freed = [next((start - died for start in starts if start > killed), 0.0) for killed, died in deaths]
    return {
        "holds": len(spans),
        "two": sum(what == "two" for what, *_ in rows),
        "overlaps": sum(later[0] < earlier[1] for earlier, later in pairwise(ended)),
        "errors": [more for what, _, _, more in rows if what == "error"][:5],
        "deaths_of_holders": len(deaths),
        "freed_seconds": round(max(freed, default=0.0), 4),
        "gates_opened": sum(what == "opened" for what, *_ in rows),
        "hung_ended": chaos.hung,
        "born": chaos.born,
        "did": chaos.did,
    }


def main() -> None:
    global log
    (HOME / "projects" / "app").mkdir(parents=True)
    ROOT.mkdir()
    (FOLDER / "witness").touch()
    log = os.open(LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    innocent = subprocess.Popen(["sleep", "1000"])
    chaos = Chaos(innocent.pid)
    began = time.monotonic()
    while b'"two"' not in (seen := LOG.read_bytes()):
        spent = time.monotonic() - began
        enough = chaos.struck >= MIN_STRUCK and seen.count(b'"took"') > 10 and seen.count(b'"opened"') > 1
        if spent > SECONDS and (enough or spent > LIMIT_SECONDS):
            break
        chaos.people()
        chaos.strike()
        time.sleep(chaos.draw.random() * 0.02)  # so that each strike comes at another moment
    for pid in chaos.alive:
        os.kill(pid, signal.SIGKILL)
    spared = innocent.poll() is None
    innocent.kill()
    innocent.wait()
    for pid in chaos.alive:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    held = DreamLock(ROOT).take(time.time())
    print(json.dumps({**verdict(chaos), "spared": spared, "free_at_the_end": held is not None}))


log = -1
main()
