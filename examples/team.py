"""Two processes share a task, exchange their results, and finish although one is killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from reverie import Mailbox

NUMBERS = range(2, 12)


def work(home: str, me: str, other: str) -> None:
    box, killed = Mailbox(home, "demo", me), f"{home}/killed"
    Mailbox(home, "demo", other).close()  # a letter may be written to one who has not begun yet
    known: dict[int, int] = {}
    for number in (n for n in NUMBERS if ("even", "odd")[n % 2] == me):
        known[number] = sum(range(number**4))
        box.send(other, json.dumps([number, known[number]]), summary=f"sum for {number}", id=f"{me}-{number}")
        if me == "odd" and number == 5 and not os.path.exists(killed):
            open(killed, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)  # no warning, nothing is tidied up
    until = time.monotonic() + 30
    while len(known) < len(NUMBERS) and time.monotonic() < until:
        known.update(json.loads(letter.text) for letter in box.poll())
        time.sleep(0.01)
    print(f"{me}: {len(known)} of {len(NUMBERS)} sums, together {sum(known.values())}", flush=True)


if len(sys.argv) == 4:
    work(*sys.argv[1:])
else:
    with tempfile.TemporaryDirectory() as home:
        start = lambda me, other: subprocess.Popen([sys.executable, __file__, home, me, other])  # noqa: E731
        even, odd = start("even", "odd"), start("odd", "even")
        print(f"odd was killed by signal {-odd.wait()} and is started again", flush=True)
        assert (start("odd", "even").wait(), even.wait()) == (0, 0)
