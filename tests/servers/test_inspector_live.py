"""The inspector on loopback: only its own page with the token reads anything, and it follows a running session."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest

from browser import Browser, opened_browser
from reverie import Session, load_settings
from reverie.cli.compaction.undo import undo_last
from reverie.cli.sessions.recordings import with_agents
from reverie.conversation.decisions import Cause, Compacted
from reverie.servers.inspector.live import InspectorServer, LiveSessions
from reverie.servers.inspector.now import SessionWatch

TOKEN = "t" * 43


@pytest.fixture
def server(home: Path) -> Iterator[InspectorServer]:
    """Return a running server over the sessions of this test's home, with one session in it."""
    asked("alpha", "look at the harbour")
    settings = load_settings()

    def undo(name: str) -> str:
        return str(anyio.run(undo_last, name, settings).get("text") or "queued")

    sessions = LiveSessions(settings, with_agents, undo, target="", version="1")
    with InspectorServer(sessions, token=TOKEN) as opened:
        thread = Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join(60)


def asked(name: str, text: str) -> None:
    """Say something in a session of the home, and answer it."""

    async def turn() -> None:
        async with Session.open(name, settings=load_settings()) as session:
            await session.say(text)
            await session.prepare(model="claude-sonnet-4-5", max_tokens=100, system="Be brief.")
            usage = {"input_tokens": 900, "output_tokens": 20}
            reply = {"role": "assistant", "content": [{"type": "text", "text": f"saw {text}"}]}
            await session.observe({**reply, "id": f"m-{text}", "model": "claude-sonnet-4-5", "usage": usage})

    anyio.run(turn)


def get(server: InspectorServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Ask the server; a header given as empty is left out."""
    wire = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    given = {"Host": f"127.0.0.1:{server.server_port}", "Authorization": f"Bearer {TOKEN}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        if value:
            wire.putheader(name, value)
    wire.endheaders()
    answer = wire.getresponse()
    body, found = answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    wire.close()
    return answer.status, found, gzip.decompress(body) if found.get("content-encoding") == "gzip" else body


@pytest.mark.requirement("S8")
def test_only_an_answer_with_the_token_names_the_session_to_open(home: Path) -> None:
    sessions = LiveSessions(
        load_settings(), with_agents, lambda name: name, target="/home/ada/secret.jsonl", version="1"
    )
    shown = re.search(rb"<script[^>]*application/json[^>]*>([^<]*)<", sessions.shell())
    assert shown is not None
    assert b"secret" not in sessions.shell() + gzip.decompress(base64.b64decode(shown[1].strip()))
    assert json.loads(sessions.now())["target"] == "/home/ada/secret.jsonl"


@pytest.mark.requirement("S8")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer " + "u" * 43}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
def test_only_its_own_page_with_the_token_reads_sessions(
    server: InspectorServer, headers: dict[str, str], status: int
) -> None:
    for path in ("/now", "/film?session=alpha"):
        got, said, body = get(server, path, **headers)
        assert got == status
        assert said["content-security-policy"].startswith("default-src 'none'")
        assert said["cache-control"] == "no-store"
        assert (b"alpha" in body) == (status == 200)


@pytest.mark.requirement("I1", "S8")
def test_the_page_needs_no_token_and_holds_no_session(server: InspectorServer) -> None:
    status, said, body = get(server, "/", Authorization="")
    assert status == 200
    assert "connect-src 'self'" in said["content-security-policy"]
    assert "unsafe" not in said["content-security-policy"]
    assert b"harbour" not in body
    assert TOKEN.encode() not in body
    assert get(server, "/", Authorization="", Host="evil.example")[0] == 421
    assert server.server_address[0] == "127.0.0.1"


def test_other_methods_paths_and_files_are_refused(server: InspectorServer, tmp_path: Path) -> None:
    file = tmp_path / "secret.jsonl"
    file.write_text('{"type": "user", "message": {"role": "user", "content": "hush"}}\n')
    for path in (f"/film?session={file}", "/film?session=../../etc/passwd", "/film", "/film?session=none", "/other"):
        status, _, body = get(server, path)
        assert status == 404, path
        assert b"hush" not in body
    for method, path, refused in (
        ("PUT", "/now", 501),
        ("OPTIONS", "/undo", 501),
        ("POST", "/now", 405),
        ("GET", "/undo", 405),
    ):
        status, said, _ = get(server, path, method)
        assert status == refused
        assert said["content-security-policy"].startswith("default-src 'none'")


def test_a_film_is_sent_again_only_when_its_log_has_grown(server: InspectorServer) -> None:
    status, said, body = get(server, "/film?session=alpha")
    assert status == 200
    assert len(json.loads(body)["sessions"][0]["requests"]) == 1
    assert get(server, "/film?session=alpha", If_None_Match=said["etag"])[0] == 304
    asked("alpha", "and the gate")
    status, _, body = get(server, "/film?session=alpha", If_None_Match=said["etag"])
    assert status == 200
    assert len(json.loads(body)["sessions"][0]["requests"]) == 2


def test_now_shows_each_session_with_window_and_cost_and_reads_only_new_lines(
    server: InspectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    take = SessionWatch._take
    monkeypatch.setattr(SessionWatch, "_take", lambda self, entry: (taken.append(entry.uuid), take(self, entry))[1])

    def rows() -> list[dict[str, Any]]:
        return json.loads(get(server, "/now")[2])["sessions"]

    first = rows()[0]
    assert (first["doing"], first["open"], first["calls"]) == ("closed", False, 1)
    assert 0 < first["tokens"] < first["compact_at"] < first["window_tokens"]
    assert first["usd"] > 0
    assert first["title"] == "look at the harbour"
    asked("alpha", "once more")
    second = rows()[0]
    assert second["calls"] == 2
    assert second["usd"] > first["usd"]
    assert rows() == [second]
    assert len(taken) == len(set(taken))


def test_now_says_what_a_running_session_does(server: InspectorServer) -> None:
    async def run() -> str:
        async with Session.open("alpha", settings=load_settings()) as session:
            await session.say("list the files")
            await session.prepare(model="claude-sonnet-4-5", max_tokens=100)
            use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
            await session.observe({"role": "assistant", "content": [use], "id": "m9", "model": "claude-sonnet-4-5"})
            await session.log.sync()
            found = await anyio.to_thread.run_sync(lambda: json.loads(get(server, "/now")[2]))
            return found["sessions"][0]["doing"]

    assert anyio.run(run) == "runs Bash"


def compacted(name: str) -> None:
    """Replace everything in a session of the home by a summary."""

    async def cut() -> None:
        async with Session.open(name, settings=load_settings()) as session:
            last = session.view.last_reply
            cause = Cause("compact", "asked for", moves_prefix=True)
            await session.log.decide(
                Compacted(cause, "manual", "full", "They looked.", 900, last.uuid if last else None, None)
            )

    anyio.run(cut)


def cut_of(server: InspectorServer) -> dict[str, Any]:
    acts = json.loads(get(server, "/film?session=alpha")[2])["sessions"][0]["acts"]
    return next(act for act in acts if act["name"] == "compacted")


def test_a_compaction_is_undone_only_by_a_post_of_its_own_page_with_the_token(server: InspectorServer) -> None:
    compacted("alpha")
    bad = [{"Authorization": ""}, {"Origin": "http://evil.example"}, {"Host": "evil.example"}]
    assert [get(server, "/undo?session=alpha", "POST", **headers)[0] for headers in bad] == [401, 403, 421]
    assert get(server, "/undo?session=none", "POST")[0] == 404
    assert get(server, "/undo", "POST")[0] == 404
    assert not cut_of(server)["undone"]
    status, _, body = get(server, "/undo?session=alpha", "POST")
    assert status == 200
    assert json.loads(body)["result"]
    assert cut_of(server)["undone"]
    assert get(server, "/undo?session=alpha", "POST")[0] == 404  # there is none left


@pytest.fixture
def browser(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Browser]:
    yield from opened_browser(tmp_path / "profile", request.param)


@pytest.mark.slow
@pytest.mark.requirement("I1")
@pytest.mark.parametrize("browser", [1280], indirect=True)
def test_the_page_opens_a_session_and_grows_with_it(server: InspectorServer, browser: Browser) -> None:
    browser.tell("POST", "/url", {"url": server.address})
    browser.wait("return document.querySelectorAll('.now').length === 1")
    assert TOKEN not in browser.run("return location.href")
    browser.run("document.querySelector('.now button').click()")
    browser.wait("return document.querySelector('main h2')?.textContent === 'Request 1 of 1'")
    asked("alpha", "and the gate")
    browser.wait("return document.querySelector('main h2')?.textContent === 'Request 2 of 2'")
    assert "and the gate" in browser.run(
        "document.querySelector('[data-view=request]').click(); return document.querySelector('main').textContent"
    )
    compacted("alpha")
    browser.run("document.querySelector('[data-view=compactions]').click()")
    browser.wait("return document.querySelector('.undo') !== null")
    for _ in range(2):
        browser.run("document.querySelector('.undo').click()")
    browser.wait("return document.querySelector('main').textContent.includes('undone later')")
    assert cut_of(server)["undone"]
    assert [entry["message"] for entry in browser.tell("POST", "/se/log", {"type": "browser"})] == []
