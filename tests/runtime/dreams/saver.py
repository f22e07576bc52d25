"""One of several processes that save, update and forget memories during a dream, and report their changes.

Run as ``python -S -E saver.py SRC SITE ROOT NAME``. Each line on stdin requests a number of saves as JSON; the answer
names the files saved, updated and forgotten, with the version each has.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys

sys.path[:0] = sys.argv[1:3]
ROOT, NAME = sys.argv[3:]

from reverie.errors import InputError, StorageConflict  # noqa: E402
from reverie.runtime.memory.memory import Memory  # noqa: E402

KEPT = 4
WORDS = re.findall(
    r"\w+",
    "apple bottle carpet dinner elbow finger gravel hammer insect jacket kidney ladder mirror napkin oyster pencil "
    "rabbit signal ticket uncle violin window yellow zipper acorn barrel cactus dragon eraser feather guitar helmet",
)
chance = random.Random(f"{NAME}-saver")
memory = Memory(ROOT)
own: list[str] = []
number = 0


def save() -> tuple[str, str]:
    global number
    number += 1
    some = chance.sample(WORDS, 6)
    words = f"The {' '.join(some[:2])} of {NAME} holds the {' '.join(some[2:])} in box {number * 13} since day {number}"
    saved = memory.save(words, type="project", name=f"{NAME} {number}", why="the inventory", author=NAME)
    own.append(saved.file)
    return saved.file, memory.get(saved.file).version


def update() -> tuple[str, str] | None:
    file = chance.choice(own)
    try:
        there = memory.get(file)
        memory.update(file, there.body.split("\n\n")[0] + f" and bag {number}", why="it moved", expect=there.version)
        return file, memory.get(file).version
    except (InputError, StorageConflict):
        return None  # a dream or another was faster


os.writev(1, [b'{"ready": true}\n'])
for line in sys.stdin:
    asked = json.loads(line)
    saved = [save() for _ in range(asked["saves"])]
    updated = [done for _ in range(asked.get("updates", 0)) if (done := update())]
    forgotten: list[str] = []
    while len(own) > KEPT:
        file = own.pop(0)
        try:
            memory.forget(file, author=NAME)
            forgotten.append(file)
        except InputError:
            pass  # a dream took it
    os.writev(1, [json.dumps({"saved": saved, "updated": updated, "forgotten": forgotten}).encode() + b"\n"])
