"""``reverie send`` and ``reverie inbox``: a person sends messages to agents and reads the answers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reverie.runtime.mail.directory import mailbox_owners
from reverie.runtime.mail.mailbox import Mailbox

from .conftest import Asked, Reverie

TEAM = "default"


@pytest.mark.requirement("L7.5")
def test_a_message_is_sent_seen_and_taken(reverie: Reverie, asked: Asked, home: Path):
    Mailbox(home, TEAM, "worker").close()
    code, out, err = reverie("send", "worker", "the build\nis red", "--summary", "about the build")
    assert (code, err) == (0, "")
    assert "mailbox of worker" in out
    for _ in range(2):  # looking takes nothing
        (one,) = asked("inbox", "worker")["messages"]
        assert (one["from"], one["text"], one["summary"], one["read"]) == (
            "user",
            "the build\nis red",
            "about the build",
            False,
        )
    code, out, _ = reverie("inbox", "worker", "--take")
    assert code == 0
    assert "about the build" in out
    assert "  the build\n  is red\n" in out
    assert asked("inbox", "worker")["messages"] == []
    (kept,) = asked("inbox", "worker", "--all")["messages"]
    assert kept["read"]
    assert "No unread messages for worker" in reverie("inbox", "worker")[1]


def test_agents_answer_the_user(reverie: Reverie, asked: Asked, home: Path):
    assert "No messages for user in team default yet" in reverie("inbox")[1]
    assert asked("inbox")["messages"] == []
    assert mailbox_owners(home, TEAM) == [], "looking makes nothing"
    with Mailbox(home, TEAM, "worker") as worker:
        assert asked("send", "worker", "hello")["said"].startswith("Left")
        assert [one.text for one in worker.poll()] == ["hello"]
        worker.send("user", "done \x1b[31mnow", control={"type": "idle", "reason": "done"})
    code, out, _ = reverie("inbox")
    assert code == 0
    assert "worker" in out
    assert "[idle]" in out
    assert "\x1b" not in out


def test_everybody_of_a_team_is_written_to(reverie: Reverie, asked: Asked, home: Path):
    for name in ("a", "b"):
        Mailbox(home, "red", name).close()
    assert asked("send", "*", "hello", "--team", "red", "--from", "a")["said"] == "Sent to b."
    assert [one["from"] for one in asked("inbox", "b", "--team", "red")["messages"]] == ["a"]
    code, _, err = reverie("send", "*", "hello")
    assert code == 2
    assert "team default has no agents" in err


def test_text_can_come_from_a_pipe(asked: Asked, home: Path, monkeypatch: pytest.MonkeyPatch):
    Mailbox(home, TEAM, "worker").close()
    monkeypatch.setattr(sys, "stdin", io.StringIO("a long story"))
    asked("send", "worker", "-")
    assert [one["text"] for one in asked("inbox", "worker")["messages"]] == ["a long story"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "ghost", "hello"], "its agents: worker"),
        (["send", "../x", "hello"], "its agents: worker"),
        (["send", "bridge:x", "hello"], "no bridge"),
        (["send", "worker", ""], "nothing in that message"),
        (["send", "worker", "hello", "--from", "worker"], "worker is the sender"),
        (["send", "worker", "hello", "--from", "a/b"], "cannot name an agent"),
        (["send", "worker", "hello", "--team", ".."], "cannot name a team"),
        (["inbox", "ghost"], "its agents: worker"),
        (["inbox", "worker", "--team", "a/b"], "cannot name a team"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(reverie: Reverie, home: Path, arguments: list[str], said: str):
    Mailbox(home, TEAM, "worker").close()
    code, out, err = reverie(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_nobody_speaks_for_an_agent_that_is_running_or_takes_its_letters(reverie: Reverie, home: Path):
    Mailbox(home, TEAM, "worker").close()
    with Mailbox(home, TEAM, "lead") as lead:
        lead.acquire()
        code, _, err = reverie("send", "worker", "approved", "--from", "lead")
        assert code == 2
        assert "lead is a running agent" in err
        code, _, err = reverie("inbox", "lead", "--take")
        assert code == 2
        assert "runs in team default already" in err


def test_a_forged_message_is_not_shown(reverie: Reverie, asked: Asked, home: Path):
    with Mailbox(home, TEAM, "worker") as worker, Mailbox(home, TEAM, "lead") as lead:
        lead.send("worker", "honest")
        (there,) = (path for path in (worker.path / "new").rglob("*") if path.is_file())
        there.write_bytes(there.read_bytes().replace(b"honest", b"forged"))
    assert asked("inbox", "worker")["messages"] == []
    code, _, err = reverie("inbox", "worker", "--take")
    assert code == 0
    assert "without their signature" in err


def test_watching_shows_messages_as_they_come(home: Path):
    command = [str(Path(sys.executable).with_name("reverie")), "inbox", "worker", "--watch", "--json"]
    with Mailbox(home, TEAM, "worker"), Mailbox(home, TEAM, "lead") as lead:
        lead.send("worker", "one")
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["text"] == "one"
                lead.send("worker", "two")
                assert json.loads(process.stdout.readline())["text"] == "two"
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 130
            finally:
                process.kill()
