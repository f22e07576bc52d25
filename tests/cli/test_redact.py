"""A redacted secret is nowhere in the home, in any form; the session goes on, and an interruption is finished later."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import reverie.runtime.redaction.redacted_log as redaction_rules
from log_script import Script, call, text
from reverie import FileStorage
from reverie.conversation.decisions import AgentSpawned, Cause, Redacted, ThinkingDropped, decision_of
from reverie.conversation.entries import decode_entry, encode_entry
from reverie.conversation.log import parse_log
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.redaction.redacted_log import SecretForms
from reverie.runtime.redaction.session import Redaction
from reverie.runtime.search.sessions import SessionSearch
from thinking_desk import CHECKED, Desk

from .conftest import Asked, Reverie

SECRET = 'Zq9"vT\\4 kW/é=7pLm'
"""No rule knows it, and every form of it differs."""


def encoded(secret: str) -> list[bytes]:
    """Return the forms in which a secret could be left; written without the program's own list."""
    raw = secret.encode()
    whole = [base64.b64encode(b"x" * skip + raw).strip(b"=")[4 * (skip > 0) : -2] for skip in range(3)]
    return [raw, json.dumps(secret)[1:-1].encode(), json.dumps(secret, ensure_ascii=False)[1:-1].encode(), *whole]


def written(script: Script) -> bytes:
    return b"".join(encode_entry(entry) + b"\n" for entry in script.entries)


def holding(home: Path, secret: str) -> list[str]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in encoded(secret))]


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a session that said the secret, and everything that is kept of it; return the key of its log."""
    script = Script()
    script.user(f"The password is {SECRET} for the box")
    script.reply(text("Noted."), call("t1", "Bash", command=f"login '{SECRET}'"))
    script.result("t1", "auth " + base64.b64encode(f"u:{SECRET}".encode()).decode())
    script.decide(AgentSpawned(Cause("relay", "asked"), "scout-1", f"use {SECRET}"))
    script.reply(text("Done."))
    key = log_key(project_slug(Path.cwd()), "pasted")
    storage = FileStorage(home)
    storage.write(key, written(script))
    agent = Script()
    agent.user(f"log in with {SECRET}")
    storage.write("agents/scout-1.jsonl", written(agent))
    storage.write("agents/scout-1/tool-results/a.txt", f"saw {SECRET}".encode())
    folder = key.removesuffix(".jsonl")
    storage.write(f"{folder}/tool-results/t9.txt", f"out: {SECRET}\n".encode())
    storage.write(f"{folder}/inbox/one.jsonl", json.dumps({"say": SECRET}).encode())
    storage.write(f"{folder}/session-memory/summary.md", f"# Notes\n{SECRET}\n".encode())
    storage.close()
    (home / "history").write_text(f"\n# 2026\n+use {SECRET}\n")
    memory = Memory(home / folder.rsplit("/", 1)[0] / "memory")
    memory.save(f"The box takes {SECRET}", type="reference", name="Box")
    memory.save("The box stands in the cellar", type="reference", name="Cellar")
    with SessionSearch(home) as search:
        search.refresh()
        assert search.search("password box")
    monkeypatch.setattr(sys, "stdin", io.StringIO(SECRET + "\n"))
    return key


@pytest.mark.requirement("K14")
def test_a_redacted_secret_is_nowhere_in_the_home(asked: Asked, place: str, home: Path) -> None:
    before = (home / place).read_bytes().splitlines()
    assert len(holding(home, SECRET)) >= 8
    receipt = asked("redact", "pasted", "--yes")
    assert holding(home, SECRET) == []
    assert receipt["left"] == []
    assert receipt["occurrences"] >= 8
    assert not any(form.decode() in json.dumps(receipt, ensure_ascii=False) for form in encoded(SECRET))
    after = (home / place).read_bytes().splitlines()
    assert parse_log((home / place).read_bytes()).damage == ()
    same = [one for one, other in zip(before, after, strict=False) if not any(form in one for form in encoded(SECRET))]
    assert all(line in after for line in same)
    assert b"[redacted]" in after[0]
    said = decision_of(decode_entry(after[-1]).body)
    assert isinstance(said, Redacted)
    assert said.occurrences >= 3
    with SessionSearch(home) as search:
        assert search.search("password box")
        assert not search.search("Zq9")
    assert [path.name for path in (home / place).parent.glob("memory/*.md")] != []
    assert not list((home / place).parent.glob("memory/*[Bb]ox*.md"))
    assert list((home / place).parent.glob("memory/*ellar*.md"))


@pytest.mark.requirement("K14")
def test_a_secret_in_a_damaged_line_of_a_memory_journal_is_gone_too(asked: Asked, place: str, home: Path) -> None:
    journal = (home / place).parent / "memory/.journal/journal.jsonl"
    journal.write_bytes(json.dumps(SECRET).encode() + b" {damaged}\n" + journal.read_bytes())
    assert asked("redact", "pasted", "--yes")["left"] == []
    assert holding(home, SECRET) == []


def test_a_dry_run_counts_and_changes_nothing(asked: Asked, place: str, home: Path) -> None:
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and ".sqlite" not in path.name}
    receipt = asked("redact", "pasted", "--dry-run")
    assert receipt["occurrences"] >= 8
    assert {path: path.read_bytes() for path in files} == files


def test_a_running_session_is_left_alone(reverie: Reverie, place: str, home: Path) -> None:
    storage = FileStorage(home)
    lease = storage.lease(place, holder="someone")
    code, _, err = reverie("redact", "pasted", "--yes")
    lease.release()
    storage.close()
    assert code != 0
    assert "someone" in err
    assert "close it there" in err
    assert len(holding(home, SECRET)) >= 8


CALLS = ("open", "mkdir", "write", "pwrite", "ftruncate", "fchmod", "fsync", "fdatasync", "rename", "replace", "unlink")


def killed_at(home: Path, key: str, limit: int) -> int:
    """Redact in a process that kills itself with SIGKILL before its call ``limit``; return 0 if it came to the end."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    done = 0

    def counted(call: Any) -> Any:
        def one(*given: Any, **named: Any) -> Any:
            nonlocal done
            if done == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
            return call(*given, **named)

        return one

    try:
        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        Redaction(FileStorage(home), home, key, [SECRET]).run()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.requirement("K14")
@pytest.mark.slow
def test_a_redaction_killed_at_any_call_is_finished_by_the_next(
    place: str, home: Path, tmp_path: Path, torture: bool
) -> None:
    log, kills, limit = (home / place).read_bytes(), 0, 0
    for limit in range(0, 10_000, 1 if torture else 29):
        copy = tmp_path / f"copy-{limit}"
        shutil.copytree(home, copy)
        status = killed_at(copy, place, limit)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
        data = (copy / place).read_bytes()
        assert data == log or (SecretForms([SECRET]).count(data) == 0 and parse_log(data).damage == ())
        receipt = Redaction(FileStorage(copy), copy, place, [SECRET]).run()
        assert receipt.left == []
        assert holding(copy, SECRET) == []
        shutil.rmtree(copy)
    print(f"{kills} kills of a redaction by SIGKILL, within {limit} calls")
    assert kills >= 5


def test_the_rules_find_secrets_and_show_them_masked(reverie: Reverie, asked: Asked, home: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    script = Script()
    script.user(f"my token is {token}")
    key = log_key(project_slug(Path.cwd()), "scan")
    storage = FileStorage(home)
    storage.write(key, written(script))
    storage.close()
    row = {"kind": "GitHub token", "start": "ghp_", "chars": 44, "count": 1}
    listed = asked("redact", "scan", "--scan")  # without a terminal, which it need not ask
    assert (listed["found"], listed["occurrences"]) == ([row], 1)
    code, out, err = reverie("redact", "scan", "--scan")
    assert code == 0, err
    assert "GitHub token: ghp_… (44 characters), 1 time" in out
    assert "'reverie redact scan --scan --yes' takes them out" in out
    assert holding(home, token) == ["scan.jsonl"], "a list changes nothing"
    code, out, err = reverie("redact", "scan", "--scan", "--yes")
    assert code == 0, err
    assert "GitHub token: ghp_… (44 characters), 1 time" in out
    assert token not in out + err
    assert holding(home, token) == []
    assert "no secret" in reverie("redact", "scan", "--scan", "--yes")[1]
    receipt = asked("redact", "scan", "--scan")
    assert (receipt["occurrences"], receipt["files"], receipt["left"], receipt["found"]) == (0, {}, [], [])


@pytest.mark.parametrize("word", ["assistant", "uuid", "content", "abc"])
def test_a_word_of_the_log_itself_is_refused(
    reverie: Reverie, place: str, home: Path, word: str, monkeypatch: Any
) -> None:
    before = (home / place).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.StringIO(word))
    assert reverie("redact", "pasted", "--yes")[0] == 2
    assert (home / place).read_bytes() == before


def test_other_sessions_and_files_of_the_user_are_named_and_not_changed(
    reverie: Reverie, place: str, home: Path
) -> None:
    other = (home / place).with_name("other.jsonl")
    script = Script()
    script.user(f"I have it too: {SECRET}")
    other.write_bytes(written(script))
    (home / "config.toml").write_text(f"# {SECRET}\n")
    code, out, err = reverie("redact", "pasted", "--yes")
    assert code == 1
    assert holding(home, SECRET) == ["config.toml", "other.jsonl"]
    assert "other.jsonl" in err
    assert "config.toml" in err
    assert SECRET not in out + err


@pytest.mark.requirement("V8")
@pytest.mark.parametrize("drops", [True, False])
def test_the_provider_accepts_the_next_request_after_a_redaction(
    tmp_path: Path, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin is a log of an older version, without digests, in which no thinking is dropped: it is refused."""
    desk = Desk()
    desk.storage = FileStorage(tmp_path)  # type: ignore[assignment]

    async def talk(*said: str) -> None:
        async with desk.session() as session:
            for words in said:
                await desk.ask(session, words)

    anyio.run(talk, "Hello", f"It is {SECRET}", "Go on")
    key = next(key for key in desk.storage.list("") if key.endswith("desk.jsonl"))
    if not drops:
        kept = redaction_rules._decisions
        monkeypatch.setattr(redaction_rules, "_decisions", lambda *given: kept(*given)[:1])
        lines = [json.loads(line) for line in (desk.storage.load(key) or b"").splitlines()]
        for line in lines:
            line["body"].pop("bound", None)
        desk.storage.write(key, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    desk.storage = FileStorage(tmp_path)  # type: ignore[assignment]
    receipt = Redaction(FileStorage(tmp_path), tmp_path, key, [SECRET]).run()
    assert receipt.left == []
    anyio.run(talk, "And now?")
    assert bool(desk.refusals) is not drops
    if drops:
        dropped = desk.decisions(ThinkingDropped)
        assert len(dropped) == 1
        assert len(dropped[0].messages) == receipt.replies >= 2
        assert SECRET not in json.dumps(desk.requests(CHECKED)[-1], ensure_ascii=False)


@pytest.mark.requirement("K14")
@pytest.mark.parametrize(
    "given",
    ["pasted ghp_abc def --yes", "ghp_abc", "ghp_abc --scan --json", "--ghp_abc", "pasted --ghp_abc", "-- -ghp_abc"],
)
def test_a_secret_that_is_given_as_an_argument_is_not_repeated(
    reverie: Reverie, place: str, home: Path, given: str
) -> None:
    code, out, err = reverie("redact", *given.split())
    assert code == 2
    assert "the secret is never an argument" in err
    assert "stdin" in err
    assert "ghp_abc" not in out + err
    assert len(holding(home, SECRET)) >= 8


def test_redact_takes_a_session_and_says_how_a_recording_becomes_one(reverie: Reverie, sample: Path) -> None:
    assert "Usage: reverie redact [OPTIONS] SESSION\n" in reverie("redact", "--help")[1]
    assert f"'reverie import {sample}'" in reverie("redact", sample)[2]
