"""The inspector on loopback: only its own page with the token reads anything, and it follows a running session."""

from __future__ import annotations

import base64
import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from browser import Browser
from inspected_home import LEAD, UNTRUSTED, inspected_home, worked
from inspected_server import LOOK, TOKEN, done, get, served, values
from reverie import Session, load_settings
from reverie.cli.sessions.recordings import with_agents
from reverie.conversation.decisions import AgentSpawned, Cause, Compacted, MessageQueued
from reverie.events import Event, InboxDrained
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import project_slug
from reverie.servers.inspector.live import LiveHome, SessionWatch
from reverie.servers.inspector.memories import source_sentence
from reverie.servers.inspector.server import InspectorServer


@pytest.fixture
def server(home: Path) -> Iterator[InspectorServer]:
    """Return a running server over the sessions of this test's home, with one session in it."""
    asked("alpha", "look at the harbour")
    yield from served(load_settings())


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


@pytest.mark.requirement("S8")
def test_only_an_answer_with_the_token_names_the_session_to_open(home: Path) -> None:
    live = LiveHome(load_settings(), with_agents, {}, target="/home/ada/secret.jsonl", version="1")
    with InspectorServer(live.reads, live.acts, version="1", token=TOKEN) as server:
        shown = re.search(rb"<script[^>]*application/json[^>]*>([^<]*)<", server.shell)
        assert shown is not None
        assert b"secret" not in server.shell + gzip.decompress(base64.b64decode(shown[1].strip()))
    assert live.now()["target"] == "/home/ada/secret.jsonl"


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
    for path in ("/now", "/film?session=alpha", "/agents", "/search?words=harbour"):
        got, said, body = get(server, path, **headers)
        assert got == status
        assert said["content-security-policy"].startswith("default-src 'none'")
        assert said["cache-control"] == "no-store"
        assert (b"alpha" in body) == (status == 200 and path != "/agents")


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
        ("OPTIONS", "/do/undo", 501),
        ("POST", "/now", 405),
        ("GET", "/do/undo", 405),
    ):
        status, said, _ = get(server, path, method)
        assert status == refused
        assert said["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.requirement("S8")
def test_a_client_that_sends_nonsense_or_goes_away_prints_nothing(
    server: InspectorServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException | None] = []
    handle = server.handle_error

    def counted(request: Any, client_address: Any) -> None:
        handle(request, client_address)
        errors.append(sys.exception())

    monkeypatch.setattr(server, "handle_error", counted)
    assert get(server, "http://[/now")[0] == 421
    assert get(server, "/now?session=[")[0] == 200
    until = time.monotonic() + 60
    while not errors and time.monotonic() < until:  # the end of the connection must come before that of the answer
        with socket.create_connection(("127.0.0.1", server.server_port)) as wire:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
    assert errors
    assert all(isinstance(one, OSError) for one in errors)
    assert capsys.readouterr().err == ""


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
    assert [get(server, "/do/undo?session=alpha", "POST", **headers)[0] for headers in bad] == [401, 403, 421]
    assert get(server, "/do/undo?session=none", "POST")[0] == 404
    assert get(server, "/do/undo", "POST")[0] == 404
    assert not cut_of(server)["undone"]
    status, _, body = get(server, "/do/undo?session=alpha", "POST")
    assert status == 200
    assert json.loads(body)["result"]
    assert cut_of(server)["undone"]
    assert get(server, "/do/undo?session=alpha", "POST")[0] == 404  # there is none left


@pytest.mark.slow
@pytest.mark.requirement("I1")
def test_the_page_opens_a_session_and_grows_with_it(server: InspectorServer, browser: Browser) -> None:
    browser.tell("POST", "/url", {"url": server.address})
    browser.wait("return document.querySelectorAll('main tbody tr').length === 1")
    assert TOKEN not in browser.run("return location.href")
    browser.run("document.querySelector('main tbody button').click()")
    browser.wait("return document.querySelector('main h2')?.textContent === 'Request 1 of 1'")
    asked("alpha", "and the gate")
    browser.wait(f"{LOOK} return document.querySelector('main h2')?.textContent === 'Request 2 of 2'")
    assert "and the gate" in browser.run(
        "document.querySelector('[data-view=request]').click(); return document.querySelector('main').textContent"
    )
    compacted("alpha")
    browser.run("document.querySelector('[data-view=compactions]').click()")
    browser.wait(f"{LOOK} return document.querySelector('.undo') !== null")
    for _ in range(2):
        browser.run("document.querySelector('.undo').click()")
    browser.wait(f"{LOOK} return document.querySelector('main').textContent.includes('undone later')")
    assert cut_of(server)["undone"]
    assert browser.said() == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InspectorServer]:
    """Yield a server over a home with running sessions, agents, memories and a dream."""
    place = tmp_path_factory.mktemp("filled")
    (place / "home").mkdir()
    (place / "home" / "config.toml").write_text("[agent]\nbudget_day_usd = 5.0\nbudget_usd = 2.0\n")
    cwd = place / "harbour"
    cwd.mkdir()
    with pytest.MonkeyPatch.context() as patch, start_blocking_portal() as portal:
        patch.setenv("REVERIE_HOME", str(place / "home"))
        with portal.wrap_async_context_manager(inspected_home(cwd)) as settings:
            yield from served(settings)


@pytest.mark.slow
@pytest.mark.requirement("I2")
def test_now_has_agents_thresholds_budgets_and_the_memories_that_wait(filled: InspectorServer) -> None:
    now = values(filled, "/now")
    rows = {row["name"].rsplit("/", 1)[-1]: row for row in now["sessions"]}
    assert [rows[name]["open"] for name in (LEAD, "release-notes", "scout-1")] == [True, True, False]
    assert [rows[name]["kind"] for name in (LEAD, "scout-1")] == ["session", "agent"]
    lead = rows[LEAD]
    assert 0 < lead["tokens"] < lead["warn_at"] < lead["compact_at"] < lead["block_at"] <= lead["window_tokens"]
    assert lead["doing"] == "runs Bash"
    assert lead["budget_usd"] == 2.0
    assert [(one["per"], one["of_usd"]) for one in now["budgets"]] == [("day", 5.0)]
    assert now["budgets"][0]["usd"] == pytest.approx(sum(row["usd"] for row in rows.values() if row["at"] > 1.79e9))
    assert [one["count"] for one in now["waiting"]] == [1]
    assert now["dreams"] == []


@pytest.mark.slow
@pytest.mark.requirement("I5")
def test_a_memory_has_the_sentence_it_came_from_its_history_and_the_author_of_each_line(
    filled: InspectorServer,
) -> None:
    [project] = values(filled, "/memories")["projects"]
    heads = {one["name"]: one for one in project["memories"]}
    assert UNTRUSTED in heads["Staging is reset"]["diff"]
    assert not heads["Real database in tests"]["diff"]
    found = values(filled, f"/memory?project={project['project']}&file={heads['Real database in tests']['file']}")
    assert [one["act"] for one in found["log"]] == ["saved"]
    assert {line["who"] for line in found["blame"]} == {"user"}
    [origin] = found["origins"]
    assert origin["session"] == LEAD
    assert origin["said"][1].strip() == "Please use the real database in tests of the repository layer."
    for bad in ("/memory?project=none&file=x.md", f"/memory?project={project['project']}&file=../../config.toml"):
        assert get(filled, bad)[0] == 404


def test_the_sentence_most_like_the_memory_is_chosen() -> None:
    text = "Look at the gate first. Use tabs, not spaces, in Makefiles! Then go on."
    assert source_sentence(text, "Makefiles use tabs")[1].strip() == "Use tabs, not spaces, in Makefiles!"
    assert source_sentence(text, "zebra") == ("", "", text)


@pytest.mark.slow
@pytest.mark.requirement("I5")
def test_agents_dreams_and_costs_of_a_home_are_told(filled: InspectorServer) -> None:
    agents = values(filled, "/agents")
    assert {one["agent"]: (one["state"], one["parent"], one["depth"]) for one in agents["agents"]} == {
        "scout-1": ("completed", "", 1),
        "tester-1": ("running", "", 1),
        "tester-1-a": ("running", "tester-1", 2),
    }
    assert {(one["from"], one["to"]) for one in agents["messages"]} == {("scout-1", "tester-1"), ("scout-1", LEAD)}
    [report] = values(filled, "/dreams")["projects"][0]["reports"]
    assert report["can_undo"]
    assert "-Deploys happen on Thursdays after 14:00." in report["changes"][0]["diff"]
    costs = values(filled, "/costs?days=30")
    assert all(
        sum(row["usd"] for row in costs["by"][axis]) == pytest.approx(costs["total"]["usd"])
        for axis in ("day", "project", "layer", "session")
    )
    assert {one["what"] for one in costs["budgets"]} >= {"all sessions"}
    found = values(filled, "/search?words=real+database")
    assert found["messages"][0]["session"] == LEAD
    assert found["memories"][0]["name"] == "Real database in tests"


@pytest.mark.slow
def test_a_read_back_returns_what_left_the_view(filled: InspectorServer) -> None:
    [film] = values(filled, "/film?session=checkout-refactor")["sessions"]
    lost = film["compactions"][0]["lost"][0]
    found = values(filled, f"/read?session=checkout-refactor&handle={lost['handle']}")
    assert lost["text"] in found["text"]
    assert get(filled, "/read?session=checkout-refactor&handle=none")[0] == 404
    assert values(filled, "/replay?session=checkout-refactor")["policies"].keys() >= {"recorded", "balanced"}


@pytest.mark.slow
@pytest.mark.requirement("I2", "S8")
@pytest.mark.parametrize("browser", [1280, 400], indirect=True)
def test_a_person_sees_the_home_approves_a_memory_and_undoes_a_dream(filled: InspectorServer, browser: Browser) -> None:
    is_first = browser.run("return innerWidth") == 1280
    browser.tell("POST", "/url", {"url": filled.address})
    browser.wait("return document.querySelectorAll('.now').length === 2")
    assert browser.run("return document.querySelectorAll('.now [role=meter]').length") == 2
    for view in ("memories", "dreams", "agents", "costs", "search", "now"):
        browser.run(f"document.querySelector('[data-view={view}]').click()")
        browser.wait("return !document.querySelector('main').textContent.includes('Loading')")
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), view
    browser.run("document.querySelector('[data-view=memories]').click()")
    if is_first:
        browser.wait("return document.querySelector('.act-approve') !== null")
        browser.run("document.querySelector('.act-approve').click()")
    browser.wait("return document.querySelector('main').textContent.includes('Nothing waits')")
    assert values(filled, "/now")["waiting"] == []
    browser.run("document.querySelector('[data-view=dreams]').click()")
    if is_first:
        for _ in range(2):
            browser.wait("return document.querySelector('.act-undo-dream') !== null")
            browser.run("document.querySelector('.act-undo-dream').click()")
    browser.wait("return document.querySelector('.dream')?.textContent.includes('undone')")
    [report] = values(filled, "/dreams")["projects"][0]["reports"]
    assert report["undone"]
    assert browser.said() == []


@pytest.mark.requirement("I2", "S8")
def test_a_stop_from_the_page_reaches_the_inbox_of_a_running_session_only(server: InspectorServer) -> None:
    assert get(server, "/do/stop?session=alpha", "POST")[0] == 404  # it does not run
    assert get(server, "/do/stop?session=alpha", "POST", Origin="http://evil.example")[0] == 403
    seen: list[Event] = []

    async def run() -> None:
        async with Session.open("alpha", settings=load_settings()) as session:
            session.listen(seen.append)
            await anyio.to_thread.run_sync(lambda: done(server, "/do/stop?session=alpha"))
            await session.prepare(model="claude-sonnet-4-5", max_tokens=100)

    anyio.run(run)
    assert [event.stop for event in seen if isinstance(event, InboxDrained)] == [True]


@pytest.mark.slow
def test_a_compaction_from_the_page_is_one_of_the_command(server: InspectorServer, tmp_path: Path) -> None:
    anyio.run(partial(worked, "long", tmp_path, tokens=40_000, compact_at=None))
    assert get(server, "/do/compact?session=alpha", "POST")[0] == 404  # it would free too little
    assert done(server, "/do/compact?session=long").startswith("compacted: ")
    assert values(server, "/film?session=long")["sessions"][0]["compactions"][0]["undone"] is False
    assert done(server, "/do/undo?session=long")
    assert values(server, "/film?session=long")["sessions"][0]["compactions"][0]["undone"] is True


@pytest.mark.requirement("I2")
def test_every_open_session_is_shown_and_some_of_the_closed_ones(
    server: InspectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[dict[str, Any]]:
        async with Session.open("oldest", settings=load_settings()) as session:
            await session.say("wait here")
            await session.log.sync()
            await anyio.to_thread.run_sync(lambda: [asked(name, "look") for name in ("b", "c", "d")])
            return await anyio.to_thread.run_sync(lambda: values(server, "/now")["sessions"])

    monkeypatch.setattr("reverie.servers.inspector.live._CLOSED_SHOWN", 2)
    found = [(row["name"].rsplit("/", 1)[-1], row["open"]) for row in anyio.run(run)]
    assert found == [("oldest", True), ("d", False), ("c", False)]


@pytest.fixture
def dreaming(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that holds the lock of a dream over the memories of this directory and tells its progress."""
    memory = Memory.open(".", settings=load_settings())
    memory.save("Deploys happen on Thursdays.", type="project", name="Deploys", why="the team agreed")
    code = """
import sys, time
from reverie.runtime.dream.lock import DreamLock
from reverie.runtime.dream.progress import ProgressWriter

held = DreamLock(sys.argv[1]).take(time.time())
ProgressWriter(sys.argv[1], "d1", began=time.time()).on_text("I merge two notes about deploys")
print("dreams", flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(memory.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "dreams\n"
    yield process
    process.kill()
    process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.requirement("I2")
def test_a_person_sees_a_dream_run_and_stops_it(
    server: InspectorServer, browser: Browser, dreaming: subprocess.Popen[str]
) -> None:
    browser.tell("POST", "/url", {"url": server.address})
    browser.wait("return document.querySelector('main')?.textContent.includes('I merge two notes about deploys')")
    browser.run("document.querySelector('.act-stop-dream').click()")
    assert browser.run("return document.querySelector('.act-stop-dream').textContent") == (
        "stop it? its changes are discarded"
    )
    assert dreaming.poll() is None, "the first click only asks"
    browser.run("document.querySelector('.act-stop-dream').click()")
    assert dreaming.wait(60) == -signal.SIGTERM
    browser.wait(f"{LOOK} return !document.querySelector('main').textContent.includes('A dream runs')")
    assert values(server, "/now")["dreams"] == []
    assert done(server, f"/do/stop-dream?project={project_slug(Path.cwd())}") == "no dream is running"
    assert browser.said() == []


@pytest.mark.slow
@pytest.mark.requirement("I6")
@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_nothing_moves_for_a_person_who_asked_for_that(
    filled: InspectorServer, browser: Browser, motion: str, moves: bool
) -> None:
    browser.renew(1280, prefers_reduced_motion=motion)
    browser.tell("POST", "/url", {"url": filled.address})
    browser.wait("return document.querySelectorAll('.now').length === 2")
    assert (browser.run("return document.getAnimations().length") > 0) == moves
    assert (browser.run("return getComputedStyle(document.documentElement).scrollBehavior") == "smooth") == moves
    browser.run("document.querySelector('.now h3 button').click()")
    browser.wait("return document.querySelector('main .cursor') !== null")
    taken = "return getComputedStyle(document.querySelector('main .cursor')).transitionDuration"
    assert (browser.run(taken) != "0s") == moves


@pytest.mark.slow
@pytest.mark.requirement("S8")
def test_hostile_memories_agents_and_messages_are_shown_as_text(server: InspectorServer, browser: Browser) -> None:
    bad = "<img src=x onerror=\"document.title='owned'\"></script> \u202egnp.exe"

    async def run() -> None:
        async with Session.open("beta", settings=load_settings()) as session:
            await session.say(bad)
            options = {"kind": bad, "description": bad}
            await session.log.decide(AgentSpawned(Cause("relay", bad), "worker-1", bad, options))
            await session.log.decide(MessageQueued(Cause("relay", bad), "m1", bad, "worker-1"))

    anyio.run(run)
    memory = Memory.open(".", settings=load_settings())
    memory.save(f"{bad}.", type="project", name="Bad", description=bad, why=bad, author="agent", trust="unconfirmed")
    browser.tell("POST", "/url", {"url": server.address})
    for view in ("now", "memories", "dreams", "agents", "costs", "search"):
        browser.wait(
            f"const found = document.querySelector('[data-view={view}]'); found?.click(); return found !== null"
        )
        browser.wait("return !document.querySelector('main').textContent.includes('Loading')")
        if view == "search":
            browser.run(
                "const b = document.querySelector('main input'); b.value = 'gnp'; b.dispatchEvent(new Event('input'))"
            )
            browser.wait("return document.querySelectorAll('main .block').length > 0")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
        text = browser.run("return document.querySelector('main').textContent")
        assert "\u202e" not in text
        assert "\\u202egnp.exe" in text or view in ("dreams", "costs")
    assert browser.run("return document.title") != "owned"
    assert browser.said() == []
