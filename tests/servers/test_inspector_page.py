"""The inspector's page in a real browser: nothing leaves it, everything is text, and keys reach every view."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from coding_session import coding_session
from played_sessions import played
from reverie.conversation.entries import ASSISTANT, USER, Entry, iso
from reverie.importers.import_result import ImportedSession
from reverie.servers.inspector.film import page_data, session_data
from reverie.servers.inspector.page import page

pytestmark = pytest.mark.slow

READY = "return document.documentElement.dataset.ready === 'yes'"
RIGHT, END, SLASH = "\ue014", "\ue010", "/"
THUMB = """
const scrub = document.querySelector('.scrub'), box = scrub.getBoundingClientRect();
const cursor = document.querySelector('.cursor');
cursor.style.transition = 'none';
return box.left + 8 + (scrub.value / scrub.max) * (box.width - 16) - cursor.getBoundingClientRect().left - 1;
"""
"""The pixels between the cursor in the chart and the middle of the slider's thumb, which is 16 pixels wide."""
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\u202egnp.exe\u202c and \u200bhidden",
    "]]><svg onload=document.title='owned'>",
    "${document.title='owned'}`",
)


def hostile_session() -> ImportedSession:
    """Return a session whose title, names, paths and texts try to be markup, with one line of 5 MB."""
    entries: list[Entry] = []

    def add(kind: str, content: Any, **more: Any) -> None:
        role, number = "assistant" if kind == ASSISTANT else "user", len(entries)
        body = {"message": {"role": role, "content": content}, **more}
        entries.append(Entry(f"e{number}", f"e{number - 1}", iso(1_800_000_000 + number), "bad", kind, body))

    for number, text in enumerate(HOSTILE):
        add(USER, text)
        use = {"type": "tool_use", "id": f"t{number}", "name": text, "input": {text: text, "path": f"/tmp/{text}"}}
        add(ASSISTANT, [{"type": "text", "text": text}, use], reply={"id": f"m{number}", "model": text})
        result = text if number else "y" * 5_000_000
        add(USER, [{"type": "tool_result", "tool_use_id": f"t{number}", "content": result}])
    add(ASSISTANT, [{"type": "text", "text": "end"}], reply={"id": "last", "model": HOSTILE[1]})
    return ImportedSession("reverie", HOSTILE[0], HOSTILE[0], HOSTILE[1], HOSTILE[2], tuple(entries))


@pytest.fixture(scope="module")
def worked() -> str:
    """Return the page of a played session in which layers act."""
    session, _ = played(coding_session(7, 160_000, compact_at=90_000))
    return page(page_data([session_data(session, name="played")], version="1"))


def visited(browser: Browser, text: str, folder: Path) -> tuple[list[str], list[str]]:
    """Open a page and wait until it is drawn; return what the console said and what was asked for."""
    file = folder / "page.html"
    file.write_text(text, "utf-8")
    said, asked = browser.visit(file)
    browser.wait(READY)
    return said, asked


class _Scripts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "img", "link", "iframe", "svg"):
            self.found.append({"tag": tag, **dict(attrs)})


@pytest.mark.requirement("S8")
def test_the_policy_allows_exactly_the_script_and_the_style_of_the_page(worked: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', worked)
    assert policy is not None
    said = policy.group(1).replace("&#x27;", "'")
    assert said.startswith("default-src 'none';")
    assert "unsafe" not in said
    for tag in (r'<script type="module">(.*?)</script>', r"<style>(.*?)</style>"):
        inside = re.search(tag, worked, re.DOTALL)
        assert inside is not None
        assert f"'sha256-{b64encode(sha256(inside.group(1).encode()).digest()).decode()}'" in said


def test_nothing_of_a_hostile_session_is_markup_in_the_file() -> None:
    parser = _Scripts()
    parser.feed(page(page_data([session_data(hostile_session())], version="1")))
    assert [one["tag"] for one in parser.found] == ["style", "script", "script"]
    assert [one.get("type") for one in parser.found] == [None, "application/json", "module"]


def test_a_hostile_session_is_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    assert visited(browser, page(page_data([session_data(hostile_session())], version="1")), tmp_path) == ([], [])
    for view in ("film", "request", "compactions", "bill", "people", "search"):
        browser.run(f"document.querySelector('[data-view={view}]').click()")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    browser.run("document.querySelector('[data-view=request]').click()")
    browser.press(END)
    browser.run("document.querySelector('[data-way=whole]').click()")
    assert browser.run("return document.querySelectorAll('main img, main script, main svg, main iframe').length") == 0
    shown = browser.run("return document.querySelector('main').textContent")
    assert HOSTILE[0] in shown
    assert "\u202e" not in shown
    assert "\\u202egnp.exe" in shown
    assert re.search(r"5,000,0\d\d characters", shown)
    assert browser.run("return document.title").startswith("</script>")
    assert browser.run("return document.title") != "owned"


@pytest.mark.requirement("I3", "I4", "I6")
@pytest.mark.parametrize("browser", [1280, 400], indirect=True)
def test_a_person_scrubs_opens_an_act_reads_a_difference_and_searches(
    worked: str, browser: Browser, tmp_path: Path
) -> None:
    assert visited(browser, worked, tmp_path) == ([], [])

    def heading() -> str:
        return browser.run("return document.querySelector('main h2').textContent")

    assert heading().startswith("Request 1 of")
    assert abs(browser.run(THUMB)) < 2
    browser.press(RIGHT)
    assert heading().startswith("Request 2 of")
    browser.run("const s = document.querySelector('.scrub'); s.value = 20; s.dispatchEvent(new Event('input'))")
    assert heading().startswith("Request 21 of")
    browser.run("[...document.querySelectorAll('.marks button')].find(b => b.title.startsWith('compact')).click()")
    card = "return [...document.querySelectorAll('.act')].find(one => one.textContent.includes('compacted'))"
    browser.run(f"const found = (() => {{ {card} }})(); found.querySelectorAll('details').forEach(d => d.open = true)")
    opened = browser.wait(f"const found = (() => {{ {card} }})(); return found.querySelectorAll('.block').length")
    assert opened > 10
    told = browser.run(f"const found = (() => {{ {card} }})(); return found.textContent")
    assert "reverie" in told
    assert re.search(r"saves about \$0\.\d+ at each later request", told)
    browser.run("document.querySelector('.main').click()")
    assert browser.run("return document.querySelectorAll('.block.removed').length") > 10
    assert browser.run("return document.querySelectorAll('.block.added').length") > 0
    browser.run("document.querySelector('[data-way=beside]').click()")
    assert browser.run("return document.querySelectorAll('.beside li').length") > 10
    beside = browser.run("return document.querySelector('main').textContent")
    assert "are no longer in the request as they were said" in beside
    assert "compacted, request" in beside
    browser.press(SLASH)
    browser.run(
        "const b = document.querySelector('[type=search]'); b.value = 'harbour'; b.dispatchEvent(new Event('input'))"
    )
    assert browser.wait("return document.querySelectorAll('mark').length") > 0
    assert browser.run("return document.querySelectorAll('button:not([aria-label])').length") == browser.run(
        "return [...document.querySelectorAll('button:not([aria-label])')].filter(one => one.textContent.trim()).length"
    )
    for view in ("film", "request", "compactions", "bill", "people", "search"):
        browser.run(f"document.querySelector('[data-view={view}]').click()")
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), view
    assert browser.said() == []


def test_the_request_in_the_browser_equals_the_one_that_was_sent(browser: Browser, tmp_path: Path) -> None:
    session, sent = played(coding_session(5, 40_000, compact_at=None))
    visited(browser, page(page_data([session_data(session)], version="1")), tmp_path)
    last = len(sent) - 1
    browser.run(f"const s = document.querySelector('.scrub'); s.value = {last}; s.dispatchEvent(new Event('input'))")
    browser.run("document.querySelector('[data-view=request]').click()")
    browser.run("document.querySelector('[data-way=raw]').click()")
    browser.run("document.querySelector('main pre + button')?.click()")
    text = browser.run("return document.querySelector('main pre').textContent")
    assert json.loads(text) == json.loads(sent[last])
