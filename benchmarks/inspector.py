"""How large is the inspector's page, how soon is it drawn and scrubbed, and what does its server cost at idle?

    python benchmarks/inspector.py [--messages N] [--tokens N] [--long N] [--agents N] [--seconds N] [--check] [--json]

A session of ``--messages`` messages and ``--tokens`` tokens is written as a page and opened in headless Chromium; times
are ratios to loading an empty page in the same browser, the median of several loads. A session of ``--long`` messages
must open. The server follows ``--agents`` open agents while a page looks; its processor time is a share of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser import Browser, opened_browser  # noqa: E402
from reverie import Session, load_settings  # noqa: E402
from reverie.conversation.decisions import Cause, Compacted, body_of  # noqa: E402
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, iso  # noqa: E402
from reverie.importers import ImportedSession  # noqa: E402
from reverie.servers.inspector.film import page_data, session_data  # noqa: E402
from reverie.servers.inspector.page import page  # noqa: E402

MODEL = "claude-sonnet-4-5"
EMPTY = "<!doctype html><meta charset=utf-8><title>empty</title><p>empty"
LOADS = 3
COMPACT_EVERY = 260
LIMITS = {"first_paint": 6.0, "ready": 60.0, "scrub_ms": 16.7, "idle_share": 0.02}
_READY = "return document.documentElement.dataset.ready === 'yes' || document.title === 'empty'"
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SCRUB = """
const scrub = document.querySelector('.scrub'), last = Number(scrub.max), began = performance.now();
const steps = Math.min(last + 1, 500);
for (let k = 0; k < steps; k++) {
  scrub.value = Math.round((k * last) / Math.max(1, steps - 1));
  scrub.dispatchEvent(new Event('input'));
  document.body.offsetHeight;
}
return [last + 1, steps, performance.now() - began];
"""


def invented(messages: int, tokens: int) -> ImportedSession:
    """Return a session of so many messages; all of them together have about so many tokens."""
    entries: list[Entry] = []
    words = max(1, 2 * tokens // messages * 4 // 12)  # only every other message has a long text

    def add(kind: str, content: Any, **more: Any) -> None:
        role, number = "assistant" if kind == ASSISTANT else "user", len(entries)
        body = {"message": {"role": role, "content": content}, **more}
        entries.append(Entry(f"e{number}", f"e{number - 1}", iso(1_790_000_000 + 20 * number), "long", kind, body))

    each = tokens // messages
    while len(entries) < messages:
        number = len(entries)
        text = " ".join(f"line-{number}-{at}" for at in range(words))
        add(USER, [{"type": "tool_result", "tool_use_id": f"t{number - 1}", "content": text}] if number else "go on")
        read = 2_000 + each * (number % COMPACT_EVERY)
        usage = {"input_tokens": 10, "cache_read_input_tokens": read, "cache_creation_input_tokens": each}
        use = {"type": "tool_use", "id": f"t{number + 1}", "name": "Bash", "input": {"command": f"make {number}"}}
        add(ASSISTANT, [use], reply={"id": f"m{number}", "model": MODEL, "usage": {**usage, "output_tokens": 50}})
        if len(entries) % COMPACT_EVERY == 0:
            cause = Cause("compact", "the window is full", moves_prefix=True)
            cut = Compacted(cause, "auto", "full", f"Summary {number}.", read, entries[-1].uuid, None)
            at = iso(1_790_000_000 + 20 * number)
            entries.append(Entry(f"c{number}", f"e{number}", at, "long", DECISION, body_of(cut)))
    return ImportedSession("reverie", "long", "A long session", "", MODEL, tuple(entries))


def loaded(browser: Browser, file: Path) -> list[float]:
    """Open a file and return the milliseconds until its first paint and until it is ready."""
    browser.tell("POST", "/url", {"url": "about:blank"})
    began = time.perf_counter()
    browser.tell("POST", "/url", {"url": file.as_uri()})
    browser.wait(_READY)
    ready = (time.perf_counter() - began) * 1000
    return [browser.wait(_PAINT), ready]


def opened(browser: Browser, folder: Path, session: ImportedSession) -> dict[str, Any]:
    """Write a session as a page and return its size, its times as ratios to an empty page, and the time to scrub."""
    file, empty = folder / "page.html", folder / "empty.html"
    film = session_data(session)
    file.write_text(page(page_data([film], version="1")), "utf-8")
    empty.write_text(EMPTY, "utf-8")
    pairs = [(loaded(browser, empty), loaded(browser, file)) for _ in range(LOADS)]
    bare, full = ([statistics.median(one[side][at] for one in pairs) for at in (0, 1)] for side in (0, 1))
    requests, steps, scrub = browser.run(_SCRUB)
    return {
        "messages": len(session.entries),
        "tokens": sum(film["tokens"]),
        "requests": requests,
        "bytes": file.stat().st_size,
        "first_paint": full[0] / bare[0],
        "ready": full[1] / bare[1],
        "first_paint_ms": full[0],
        "ready_ms": full[1],
        "empty_ready_ms": bare[1],
        "scrub_steps": steps,
        "scrub_ms": scrub / steps,
        "scrub_all_over_empty": scrub / bare[1],
    }


async def team(count: int, seconds: float, profile: Path) -> dict[str, Any]:
    """Keep so many agents open, let a page follow them, and return the server's share of one core."""
    async with anyio.create_task_group():
        held = [await Session.open(f"agent-{at}", folder=f"agents/agent-{at}").__aenter__() for at in range(count)]
        for session in held:
            await session.say("wait for the others")
            await session.log.sync()
        program = [sys.executable, "-m", "reverie", "inspect", "--json"]
        server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            shown = await anyio.to_thread.run_sync(lambda: watched(server, count, seconds, profile))
        finally:
            server.terminate()
            server.wait(60)
        for session in held:
            await session.__aexit__(None, None, None)
    return shown


def watched(server: subprocess.Popen[str], count: int, seconds: float, profile: Path) -> dict[str, Any]:
    """Open the page of a server, wait, and measure the processor time of both."""
    assert server.stdout is not None
    said = ""
    while not said.rstrip().endswith("}"):
        said += server.stdout.readline()
    browsers: Iterator[Browser] = opened_browser(profile, 1280)
    browser = next(browsers)
    browser.tell("POST", "/url", {"url": json.loads(said)["address"]})
    browser.wait(f"return document.querySelectorAll('.now').length === {count}")
    before = spent(server.pid)
    time.sleep(seconds)
    share = (spent(server.pid) - before) / seconds
    click = "document.querySelector('[data-view=agents]').click()"
    step = browser.run(f"const began = performance.now(); {click}; return performance.now() - began")
    for _ in browsers:
        pass
    return {"agents": count, "idle_share": share, "click_ms": step}


def spent(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, print, and with --check exit with 1 over a limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("messages", 2_000), ("tokens", 1_200_000), ("long", 20_000), ("agents", 30), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["REVERIE_HOME"] = str(Path(place, "home"))
        load_settings()
        found: dict[str, Any] = {}
        browsers = opened_browser(Path(place, "profile"), 1280)
        browser = next(browsers)

        def told(part: str, figures: dict[str, Any]) -> None:
            found[part] = figures
            if not asked.json:
                print(part, ", ".join(f"{key} {value:,.4g}" for key, value in figures.items()), flush=True)

        told("session", opened(browser, Path(place), invented(asked.messages, asked.tokens)))
        told("long", opened(browser, Path(place), invented(asked.long, asked.tokens)))
        for _ in browsers:
            pass
        told("live", anyio.run(team, asked.agents, float(asked.seconds), Path(place, "other")))
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    figures = {**found["session"], **found["live"]}
    found["over"] = [name for name, limit in LIMITS.items() if figures[name] > limit]
    if asked.json:
        print(json.dumps(found, indent=2))
    return int(bool(asked.check and found["over"]))


if __name__ == "__main__":
    sys.exit(main())
