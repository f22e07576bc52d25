"""Take the pictures of the inspector for the guides, in headless Chromium: every view, wide and narrow, light and dark.

Run it in the repository: ``.venv/bin/python docs/inspector_pictures.py``. It needs chromium and chromedriver.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from threading import Thread

import anyio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser import Browser, opened_browser  # noqa: E402
from inspected_home import inspected_home  # noqa: E402
from reverie import Settings  # noqa: E402
from reverie.cli.costs.inspect_session import session_doors  # noqa: E402
from reverie.cli.sessions.recordings import with_agents  # noqa: E402
from reverie.servers.inspector.live import LiveHome  # noqa: E402
from reverie.servers.inspector.server import InspectorServer  # noqa: E402

FOLDER = ROOT / "docs" / "guides" / "inspector"
PAGE = ROOT / "docs" / "guides" / "inspector-pictures.md"
OPENED = {"film": "booking", "people": "test_login"}
"""The views before which another session is opened, and a word of its title."""
VIEWS = {
    "now": "Now: running sessions with window and cost, and the questions that wait for you",
    "memories": "Memories: one that waits, and the sentence another one came from",
    "dreams": "Dreams: the changes of a dream as a diff, with its undo",
    "agents": "Agents: the tree of a session's agents, with their messages",
    "costs": "Costs: by day, project, layer and session, with budgets",
    "search": "Search: memories and messages of all sessions",
    "film": "Film: the window of each request, the acts of the layers and the cache breaks",
    "request": "Request: the changes since the request before, with prices",
    "said": "Request: the words of the session beside those that the model sees",
    "compactions": "Compactions: the names that are no longer in view",
    "bill": "Bill: the cost of a session, and its causes",
    "replay": "Replay: the same session under other policies",
    "people": "Memories and agents of a session",
}
SIZES = ((1280, 1000), (400, 1000))
_READY = "return document.documentElement.dataset.ready === 'yes'"
_CLICK = "[...document.querySelectorAll('{}')].find(one => one.textContent.includes('{}')).click()"


def shown(browser: Browser, view: str) -> None:
    """Open a view and bring it into the state that the picture shows."""
    name = "request" if view == "said" else view
    if view in OPENED:
        browser.run("document.querySelector('[data-view=now]').click()")
        browser.run(_CLICK.format("main h3 button, main tbody button", OPENED[view]))
        browser.wait("return document.querySelector('main .scrub') !== null")
    browser.run(f"document.querySelector('[data-view={name}]').click()")
    browser.wait("return !document.querySelector('main').textContent.includes('Loading')")
    if view == "memories":
        browser.run(_CLICK.format("main .split tbody button", "Real database"))
        browser.wait("return document.querySelector('.origin') !== null")
    elif view == "search":
        browser.run(
            "const box = document.querySelector('main input'); box.value = 'database'; "
            "box.dispatchEvent(new Event('input'))"
        )
        browser.wait("return document.querySelectorAll('main .block').length > 3")
    elif view == "film":
        browser.run("const s = document.querySelector('.scrub'); s.value = 10; s.dispatchEvent(new Event('input'))")
    elif name == "request":
        browser.run(f"document.querySelector('[data-way={'beside' if view == 'said' else 'difference'}]').click()")
    elif view == "replay":
        browser.wait("return document.querySelector('main .chart') !== null")
    time.sleep(0.4)  # transitions end


def taken(browser: Browser, address: str, width: int, height: int, scheme: str) -> None:
    """Take the pictures of all views at one width and in one colour scheme."""
    browser.renew(width, prefers_color_scheme=scheme)
    browser.tell("POST", "/url", {"url": address})
    browser.wait(_READY)
    for view in VIEWS:
        shown(browser, view)
        browser.run("window.scrollTo(0, 0)")
        browser.run("document.querySelectorAll('.block').forEach(one => one.style.contentVisibility = 'visible')")
        full = int(browser.cdp("Page.getLayoutMetrics")["cssContentSize"]["height"])
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, full), "scale": 1}
        found = browser.cdp("Page.captureScreenshot", format="webp", quality=45, captureBeyondViewport=True, clip=clip)
        (FOLDER / f"{view}-{width}-{scheme}.webp").write_bytes(base64.b64decode(found["data"]))


def written() -> str:
    """Return the page that shows all pictures."""
    parts = [
        "# Pictures of the inspector",
        "Every view of [the inspector](inspector.md), at a width of 1280 and of 400 pixels, light and dark, of an "
        "invented home. `docs/inspector_pictures.py` takes them.",
    ]
    for view, about in VIEWS.items():
        parts.append(f"## {about}")
        pictures = [
            f"![{view}, {width} pixels, {scheme}](inspector/{view}-{width}-{scheme}.webp)"
            for width, _ in SIZES
            for scheme in ("light", "dark")
        ]
        parts.append("\n".join(pictures))
    return "\n\n".join(parts) + "\n"


def serve(settings: Settings) -> None:
    """Serve the home while the pictures are taken."""
    home = LiveHome(settings, partial(with_agents, settings=settings), session_doors(settings), target="", version="1")
    with InspectorServer(home.reads, home.acts, version="1", token="t" * 43) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with tempfile.TemporaryDirectory() as profile:
            for browser in opened_browser(Path(profile)):
                for width, height in SIZES:
                    for scheme in ("light", "dark"):
                        taken(browser, server.address, width, height, scheme)
        server.shutdown()


async def main() -> None:
    """Fill a home, take the pictures and write their page."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        home, cwd = Path(place, "home"), Path(place, "harbour")
        home.mkdir()
        cwd.mkdir()
        os.environ["REVERIE_HOME"] = str(home)
        (home / "config.toml").write_text("[agent]\nbudget_day_usd = 5.0\nbudget_usd = 2.0\n")
        async with inspected_home(cwd) as settings:
            await anyio.to_thread.run_sync(serve, settings)
    PAGE.write_text(written(), "utf-8")


if __name__ == "__main__":
    anyio.run(main)
