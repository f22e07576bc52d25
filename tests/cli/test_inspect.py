"""``reverie inspect`` writes a page of a session, a recording or an agent's log, and refuses to overwrite one."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions" / "sample.jsonl"

TOKEN = re.compile(r"^http://127\.0\.0\.1:\d+/#token=[\w-]{43}$")

Reverie = Callable[..., tuple[int, str, str]]
Asked = Callable[..., Any]


def film_in(page: Path) -> Any:
    """Return the data inside a page."""
    packed = re.search(r'id="film">([^<]*)<', page.read_text("utf-8"))
    assert packed is not None
    return json.loads(gzip.decompress(b64decode(packed.group(1))))


def test_a_recording_opens_without_an_import(asked: Asked, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = asked("inspect", SAMPLE, "--html", page)
    film = film_in(page)
    assert said["requests"] == sum(len(one["requests"]) for one in film["sessions"]) > 0
    assert said["bytes"] == page.stat().st_size
    assert page.stat().st_mode & 0o777 == 0o600
    assert all(act["command"] == "" for act in film["sessions"][0]["acts"])


def test_a_session_of_the_library_names_lines_and_commands(stocked: str, reverie: Reverie, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = reverie("inspect", stocked, "--html", page)
    assert (code, err) == (0, "")
    assert "--redact writes one that can be shared" in out
    session = film_in(page)["sessions"][0]
    assert [act["line"] for act in session["acts"]] == sorted(act["line"] for act in session["acts"])
    cuts = [act for act in session["acts"] if act["name"] == "compacted"]
    assert cuts[-1]["command"] == f"reverie compact --undo {session['id']}"


@pytest.mark.parametrize("name", ["none.jsonl", "no-such-session"])
def test_a_name_that_is_nothing_is_an_error(reverie: Reverie, tmp_path: Path, name: str) -> None:
    code, _, err = reverie("inspect", name, "--html", tmp_path / "page.html")
    assert code == 2
    assert name in err
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_overwritten_only_on_request(reverie: Reverie, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert reverie("inspect", SAMPLE, "--html", page)[0] == 2
    assert page.read_text() == "mine"
    assert reverie("inspect", SAMPLE, "--html", page, "--force")[0] == 0


def test_a_redacted_page_has_no_word_of_the_session(reverie: Reverie, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, _ = reverie("inspect", SAMPLE, "--html", page, "--redact")
    assert code == 0
    assert "holds the whole session" not in out
    film = film_in(page)
    assert film["redacted"]
    assert set(film["sessions"][0]["title"]) <= {"x", "\n"}


def test_without_a_file_it_serves_on_loopback_until_it_is_interrupted(stocked: str) -> None:
    program = [sys.executable, "-m", "reverie", "inspect", stocked, "--json"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        said = b""
        while not said.rstrip().endswith(b"}"):
            line = server.stdout.readline()
            assert line, "it ended"
            said += line
        address = json.loads(said)["address"]
        assert TOKEN.match(address)
        place, token = address.split("#token=")
        asking = urllib.request.Request(f"{place}film?session={stocked}", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asking, timeout=60) as answer:
            film = json.loads(gzip.decompress(answer.read()))
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
    assert film["sessions"][0]["id"] == stocked


def test_the_address_for_a_file_says_that_it_has_the_sessions_too(stocked: str) -> None:
    program = [sys.executable, "-m", "reverie", "inspect", str(SAMPLE)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        said = server.stdout.readline()
        place, token = address.split("#token=")
        asking = urllib.request.Request(f"{place}now", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asking, timeout=60) as answer:
            data = answer.read()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
    assert "all your sessions and memories too; --html" in said
    assert stocked.encode() in (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)


@pytest.mark.parametrize("options", [("--redact",), ("--force",), ("nothing", "--port", "0"), ("--html", "page.html")])
def test_options_that_do_not_fit_are_refused(reverie: Reverie, options: tuple[str, ...]) -> None:
    code, _, err = reverie("inspect", *options)
    assert code == 2
    assert err.count("\n") == 1
