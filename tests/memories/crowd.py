"""One of many processes that add, edit, delete, rebuild, read and recall at once, and report acknowledged changes.

Run as ``python -S -E crowd.py SRC SITE ROOT NAME SECONDS HOW``; with HOW ``careless`` it writes over what it read
without comparing.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

sys.path[:0] = sys.argv[1:3]
ROOT, NAME, SECONDS, HOW = sys.argv[3:]

from reverie.errors import InputError, StorageConflict  # noqa: E402
from reverie.runtime.memory.memory import Memory  # noqa: E402

SHARED = 3
chance = random.Random(f"{NAME}-crowd")
memory = Memory(ROOT)
added: dict[str, int] = {}
removed: list[str] = []
counted = [0] * SHARED
torn: list[str] = []
missed: list[str] = []
recalled: dict[str, set[str]] = {}
reads = recalls = 0


def text(number: int) -> str:
    """Return a text that shows whether all of it is there."""
    return f"Count {number} is the count. " + f"<{number}>" * 200 + f" end {number}."


def check(body: str) -> int:
    number = int(body.split()[1])
    if body.strip() != text(number).strip():
        torn.append(body[:80])
    return number


def add() -> None:
    number = len(added) + len(removed)
    saved = memory.save(
        text(number), type="user", name=f"{NAME} {number}", description=f"memory {NAME} number {number}"
    )
    added[saved.file] = number


def edit() -> None:
    """Add one to a shared number, again and again until it was the number that was read."""
    which = chance.randrange(SHARED)
    file = f"user_shared_{which}.md"
    while True:
        there = memory.get(file)
        number = check(there.body) + 1
        try:
            memory.update(file, text(number), expect=None if HOW == "careless" else there.version, author=NAME)
        except StorageConflict:
            continue
        counted[which] += 1
        return


def delete() -> None:
    if added:
        file = chance.choice(list(added))
        memory.forget(file)
        del added[file]
        removed.append(file)


def read() -> None:
    global reads
    for head in chance.sample(found := memory.list(), min(5, len(found))):
        try:
            there = memory.get(head.file)
        except InputError:
            continue  # deleted meanwhile
        reads += 1
        if there.problem:
            torn.append(there.problem)
        check(there.body)
    memory.index()


def recall() -> None:
    """Ask for a memory of one's own, which must be found, and for others, of which every one must be whole."""
    global recalls
    mine = chance.choice(list(added.items())) if added else None
    queries = ["a number that all share", f"memory number {chance.randrange(50)}"]
    queries += [f"memory {NAME} number {mine[1]}"] if mine else []
    for query in queries:
        found = memory.recall(query, limit=5)
        recalls += len(found)
        for one in found:
            if one.problem:
                torn.append(one.problem)
            check(one.body)
            recalled.setdefault(one.file, set()).add(one.version)
    if mine and mine[0] not in [one.file for one in found]:
        missed.append(mine[0])


acts = [add] * 4 + [edit] * 4 + [delete] * 2 + [read] * 3 + [recall] * 3 + [memory.reindex]
os.writev(1, [b'{"ready": true}\n'])
sys.stdin.readline()
until = time.monotonic() + float(SECONDS)
done = 0
while time.monotonic() < until or done < 2 or recalls < 2:  # on a busy machine too, each does something
    chance.choice(acts)()
    done += 1
said = {
    "added": added,
    "removed": removed,
    "counted": counted,
    "torn": torn,
    "missed": missed,
    "recalled": {file: sorted(versions) for file, versions in recalled.items()},
    "reads": reads,
    "recalls": recalls,
    "done": done,
}
os.writev(1, [json.dumps(said).encode() + b"\n"])
