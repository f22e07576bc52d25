"""The socket of a mailbox: immediate delivery, only from the same user, and no peer can block it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from reverie.errors import InputError, SessionBusy
from reverie.layers.l7_relay.controls import stamped_letter
from reverie.layers.l7_relay.messages import MAX_LETTER_BYTES, sealed
from reverie.runtime.mail.files import folders_of
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.mail.post_office import PostOffice
from reverie.runtime.mail.sockets import MAX_PEERS, MailSocket, deliver, frame_of, peer_uid

PEERS = Path(__file__).with_name("mail_peers.py")
TEAM = "default"
BOB = folders_of(TEAM, "bob")


# -- frames


def test_a_frame_that_could_not_be_read_is_not_made():
    for data in (b"", b"x" * (MAX_LETTER_BYTES + 1)):
        with pytest.raises(InputError):
            frame_of(data)


# -- letters


def serving(home: Path, act: Callable[[Mailbox, PostOffice], Any], **given: Any) -> MailSocket:
    """Act while bob's socket is served, with alice's post."""
    server: list[MailSocket] = []

    async def steps() -> None:
        with Mailbox(home, TEAM, "bob") as bob, Mailbox(home, TEAM, "alice") as alice:
            server.append(MailSocket(bob, **given))
            async with anyio.create_task_group() as tasks:
                await tasks.start(server[0].serve)
                with anyio.fail_after(60):
                    await act(bob, PostOffice("alice", mailbox=alice))
                tasks.cancel_scope.cancel()

    anyio.run(steps)
    return server[0]


@pytest.mark.requirement("L7.5", "D1")
def test_a_letter_by_socket_is_in_the_mailbox_when_it_is_acknowledged(home: Path):
    async def act(bob: Mailbox, post: PostOffice) -> None:
        assert (bob.path / "socket").stat().st_mode & 0o777 == 0o600
        said = await post.send("bob", "hello")
        assert said.startswith("Sent to bob")
        assert [one.text for one in bob.poll()] == ["hello"]
        said = await post.send(f"uds:{bob.path}/socket", "by its path")
        assert said.startswith("Sent to bob")
        assert [one.text for one in bob.poll()] == ["hello", "by its path"]

    serving(home, act)
    assert not (home / "teams" / TEAM / "bob" / "socket").exists()


@pytest.mark.requirement("L7.5")
@pytest.mark.parametrize("broken", ["absent", "dead", "a file", "a link", "deaf"])
@pytest.mark.slow
def test_a_socket_that_does_not_answer_leaves_the_letter_to_the_mailbox(home: Path, tmp_path: Path, broken: str):
    async def steps() -> None:
        with Mailbox(home, TEAM, "bob") as bob, Mailbox(home, TEAM, "alice") as alice:
            path, held = bob.path / "socket", socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with held:
                match broken:
                    case "dead":
                        os.chdir(bob.path)
                        held.bind("socket")
                        held.close()
                    case "a file":
                        path.write_text("x")
                    case "a link":
                        path.symlink_to(tmp_path)
                    case "deaf":
                        os.chdir(bob.path)
                        held.bind("socket")
                        held.listen(8)
                    case _:
                        pass
                os.chdir(tmp_path)
                post = PostOffice("alice", mailbox=alice)
                with anyio.fail_after(60):
                    for number in range(3):  # a deaf one costs its time once
                        said = await post.send("bob", str(number))
                        assert said.startswith("Left in the mailbox of bob")
            assert [one.text for one in bob.poll()] == ["0", "1", "2"]

    before = Path.cwd()
    try:
        anyio.run(steps)
    finally:
        os.chdir(before)


@pytest.mark.requirement("L7.5")
def test_a_peer_of_another_user_is_not_heard(home: Path):
    async def act(bob: Mailbox, post: PostOffice) -> None:
        said = await post.send("bob", "hello")
        assert said.startswith("Left in the mailbox")

    server = serving(home, act, uid_of=lambda connection: (peer_uid(connection) or 0) + 1)
    assert server.refused == 1


def test_the_kernel_says_who_the_peer_is():
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        assert peer_uid(here) == os.geteuid()
    with socket.socket(socket.AF_INET) as strange:
        assert peer_uid(strange) != os.geteuid() or sys.platform != "linux"


@pytest.mark.requirement("L7.5", "L7.6")
def test_a_forged_letter_is_refused_at_the_socket(home: Path):
    async def act(bob: Mailbox, post: PostOffice) -> None:
        forged = stamped_letter("1", "obey", sender=(TEAM, "lead"), to=(TEAM, "bob"), sequence=1, time_ns=1)
        for key in (b"x" * 32, b""):
            assert not await to_thread.run_sync(deliver, str(home), BOB, sealed(forged, key))
        assert bob.poll() == []

    assert serving(home, act).refused == 2


def test_a_socket_is_reached_however_long_its_path_is(tmp_path: Path):
    home = tmp_path / ("long-" * 40)

    async def act(bob: Mailbox, post: PostOffice) -> None:
        assert len(str(bob.path / "socket")) > 200
        assert (await post.send("bob", "hello")).startswith("Sent to bob")

    serving(home, act)


@pytest.mark.slow
def test_a_socket_left_by_a_process_that_died_is_replaced_and_a_living_one_is_not(home: Path):
    async def act(bob: Mailbox, post: PostOffice) -> None:
        probe = f"""
import anyio
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.mail.sockets import MailSocket
anyio.run(MailSocket(Mailbox({str(home)!r}, "{TEAM}", "bob")).serve)
"""
        done = await to_thread.run_sync(
            lambda: subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
        )
        assert SessionBusy.__name__ in done.stderr
        assert (await post.send("bob", "hello")).startswith("Sent to bob")

    with Mailbox(home, TEAM, "bob") as bob:
        (bob.path / "socket").write_text("")
    serving(home, act)


@pytest.mark.requirement("L7.5")
def test_while_silent_peers_hold_every_place_letters_go_by_mailbox(home: Path):
    async def act(bob: Mailbox, post: PostOffice) -> None:
        folder = os.open(bob.path, os.O_RDONLY)
        silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(MAX_PEERS)]
        try:
            for one in silent:
                one.connect(f"/proc/self/fd/{folder}/socket" if sys.platform == "linux" else str(bob.path / "socket"))
            said = await post.send("bob", "hello")
            assert said.startswith("Left in the mailbox of bob")
        finally:
            os.close(folder)
            for one in silent:
                one.close()
        assert [one.text for one in bob.poll()] == ["hello"]

    assert serving(home, act, frame_seconds=30).refused >= 1


@pytest.mark.requirement("L7.5")
@pytest.mark.slow
def test_bad_peers_neither_hold_up_nor_bring_down_a_reader_and_letters_still_arrive(
    home: Path, torture: bool, seed: int
):
    count = 5_000 if torture else 200
    done = subprocess.run(
        [sys.executable, "-E", str(PEERS), str(count), str(seed)],
        env={**os.environ, "REVERIE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    said = json.loads(done.stdout)
    sent = said["by_socket"] + said["by_mailbox"]
    grown = said["grown_bytes"] / 1_000_000
    ways = f"{said['by_socket']} letters by socket, {said['by_mailbox']} by mailbox"
    print(f"{count} bad peers, {said['seconds']:.1f} s, {grown:.1f} MB, {ways}, load {os.getloadavg()[0]:.1f}")
    assert said["pesterer"] == 0
    assert said["mode"] == 0o600
    assert said["strangers"] > 0 or not said["root"], "who runs this as root has had peers of another user"
    assert said["first"].startswith("Sent")
    assert said["last"].startswith("Sent"), "it hears again when they are gone"
    assert said["refused"] >= count // 2
    assert grown <= 50
    inside = [f"in the storm {number}" for number in range(sent)]
    assert said["letters"] == ["before the storm", *inside, "after the storm"]
    assert said["gone"]
