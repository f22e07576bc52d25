"""A mailbox: durable when sent, read when logged, in order, with a verified sender, and fast at any size."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import InputError, SessionBusy, StorageError, UnsafePath
from reverie.layers.l7_relay.controls import stamped_letter
from reverie.layers.l7_relay.messages import Letter, sealed
from reverie.runtime.mail import files as mail_files
from reverie.runtime.mail.directory import mailbox_owners
from reverie.runtime.mail.files import BUCKET, key_of, place_of
from reverie.runtime.mail.mailbox import Mailbox
from reverie.values import replace

TEAM = "default"


def box(home: Path, name: str, **given: Any) -> Mailbox:
    return Mailbox(home, TEAM, name, **given)


def texts(letters: list[Letter]) -> list[str]:
    return [one.text for one in letters]


def put(home: Path, letter: Letter, key: bytes) -> Path:
    """Lay a letter into a mailbox by hand, as one who forges would."""
    place = place_of(letter)
    folder = home / "teams" / letter.to_team / letter.to / "new" / place.folder / place.bucket
    folder.mkdir(parents=True, exist_ok=True)
    (folder / place.file).write_bytes(sealed(letter, key))
    return folder / place.file


def forged(sender: str, number: int = 1, *, to: str = "bob", text: str = "obey") -> Letter:
    return stamped_letter(
        str(number), text, sender=(TEAM, sender), to=(TEAM, to), sequence=number, time_ns=time.time_ns()
    )


@pytest.mark.requirement("L7.6")
def test_a_letter_waits_until_it_is_taken_and_then_no_more(home: Path):
    with box(home, "bob") as bob, box(home, "alice") as alice:
        sent = alice.send("bob", "hello", summary="a greeting")
        assert (sent.sender, sent.to, sent.summary) == ("alice", "bob", "a greeting")
        assert bob.poll() == bob.poll() == [sent]
        bob.mark_read(sent)
        bob.mark_read(sent)
        assert bob.poll() == []
        assert bob.look(kept=True) == [sent]
    with box(home, "bob") as again:
        assert again.poll() == []


@pytest.mark.requirement("L7.6")
def test_somebody_who_is_not_there_is_an_error_that_says_who_is(home: Path):
    with box(home, "alice") as alice:
        with pytest.raises(InputError, match="there are: none"):
            alice.send("bob", "hello")
        box(home, "bob").close()
        box(home, "carol").close()
        with pytest.raises(InputError, match=r"no agent named 'bbo' .*there are: bob, carol; did you mean bob\?"):
            alice.send("bbo", "hello")
        with pytest.raises(InputError, match="is you"):
            alice.send("alice", "hello")
        with pytest.raises(InputError, match="nothing in that message"):
            alice.send("bob", " \n")


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("name", ["../bob", "..", "a/b", "", "bob\0", "%2e%2e", "*", "b\u0301ob", "x" * 65, ".key"])
def test_no_name_leads_out_of_the_teams_folder(home: Path, name: str):
    with box(home, "alice") as alice, pytest.raises(InputError):
        alice.send(name, "hello")
    with pytest.raises(InputError):
        box(home, name)
    with pytest.raises(InputError):
        Mailbox(home, name, "alice")
    assert [one.name for one in mailbox_owners(home, TEAM)] == ["alice"]


@pytest.mark.requirement("D1")
def test_a_mailbox_is_private_whatever_the_umask(home: Path):
    before = os.umask(0)
    try:
        with box(home, "bob") as bob, box(home, "alice") as alice:
            bob.mark_read(alice.send("bob", "hello"))
            alice.send("bob", "again")
            bob.poll()
    finally:
        os.umask(before)
    for path in (home / "teams").rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.requirement("L7.6")
@pytest.mark.slow
def test_letters_keep_their_senders_order_over_folders_restarts_and_a_clock_that_goes_back(home: Path):
    now = [2_000_000_000.0]
    with box(home, "bob") as bob:
        for number in range(BUCKET + 4):
            if number % 97 == 0:  # the sender is another process now, and its clock was set back
                now[0] -= 5_000
                alice = box(home, "alice", clock=lambda: now[0])
            alice.send("bob", str(number))
            now[0] += 1
        got: list[str] = []
        while letters := bob.poll(30):
            got += texts(letters)
            for letter in letters:
                bob.mark_read(letter)
        assert got == [str(number) for number in range(BUCKET + 4)]


@pytest.mark.requirement("L7.6")
def test_a_letter_missed_while_the_folder_was_read_is_not_overtaken(home: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernel may show a new name and not an older one; the mailbox must look again."""
    with box(home, "bob") as bob, box(home, "alice") as alice:
        bob.mark_read(alice.send("bob", "0"))
        bob.poll()
        for number in range(1, 6):
            alice.send("bob", str(number))
        listed: Callable[..., list[str]] = mail_files.listed
        looks: list[int] = []

        def torn(mailbox: int, *parts: str) -> list[str]:
            names = sorted(listed(mailbox, *parts))
            if len(parts) == 3 and parts[0] == "new":
                looks.append(1)
                return names[:1] + names[3:] if len(looks) == 1 else names
            return names

        monkeypatch.setattr(mail_files, "listed", torn)
        assert texts(bob.poll()) == ["1", "2", "3", "4", "5"]
        assert len(looks) == 2
        assert texts(bob.poll()) == ["1", "2", "3", "4", "5"]
        assert len(looks) == 3, "where no number is missing, one look is enough"


@pytest.mark.requirement("L7.6")
def test_a_number_that_was_never_delivered_holds_nothing_up(home: Path):
    with box(home, "bob") as bob, box(home, "alice") as alice:
        alice.send("bob", "1")

        def dies(letter: Letter, data: bytes) -> bool:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            alice.send("bob", "2", carry=dies)
        alice.send("bob", "3")
        assert texts(bob.poll()) == ["1", "3"]
        (home / "teams" / TEAM / "alice" / "sent" / TEAM / "bob").write_bytes(b"")  # a power cut took the number
        alice.send("bob", "4")
        assert texts(bob.poll()) == ["1", "3", "4"]


@pytest.mark.requirement("L7.6")
@pytest.mark.parametrize("fails", ["fsync", "rename", "write"])
def test_a_letter_that_could_not_be_made_safe_is_an_error_and_leaves_nothing_half(
    home: Path, fails: str, monkeypatch: pytest.MonkeyPatch
):
    with box(home, "bob") as bob, box(home, "alice") as alice:

        def broken(*given: object, **more: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        alice.send("bob", "before")
        with monkeypatch.context() as patch:
            patch.setattr(os, fails, broken)
            with pytest.raises(StorageError, match="free some space"):
                alice.send("bob", "lost?")
        after = alice.send("bob", "after")
        got = bob.poll()
        assert got[-1] == after
        assert not any((home / "teams" / TEAM / "bob" / "tmp").iterdir())


# -- whose word it is


@pytest.mark.requirement("L7.6")
def test_a_letter_that_its_sender_did_not_sign_is_set_aside_and_never_shown(home: Path, seed: int):
    random = Random(seed)
    with box(home, "bob") as bob, box(home, "alice") as alice, box(home, "mallory") as mallory:
        honest = alice.send("bob", "hello")
        mallorys = key_of(str(home), TEAM, "mallory") or b""
        forgeries = 0
        for number in range(2, 42):
            match random.randrange(5):
                case 0:
                    put(home, forged("alice", number), mallorys)
                case 1:
                    put(home, forged("nobody", number), random.randbytes(32))
                case 2:  # an honest letter under another's name
                    letter = forged("mallory", number)
                    path = put(home, forged("alice", number), mallorys)
                    path.write_bytes(sealed(letter, mallorys))
                case 3:  # a letter that was written to somebody else
                    letter = replace(forged("mallory", number), to="carol")
                    put(home, forged("mallory", number), mallorys).write_bytes(sealed(letter, mallorys))
                case _:
                    put(home, forged("alice", number), mallorys).write_bytes(random.randbytes(random.randrange(200)))
            forgeries += 1
        mine = mallory.send("bob", "in my own name")
        got: list[Letter] = []
        while letters := bob.poll(7):
            got += letters
            for letter in letters:
                bob.mark_read(letter)
        assert sorted(one.id for one in got) == sorted([honest.id, mine.id])
        assert len(bob.refused) == forgeries
        assert len(list((bob.path / "bad").iterdir())) == forgeries


@pytest.mark.requirement("L7.6")
def test_a_letter_that_is_laid_into_the_mailbox_again_is_the_same_letter(home: Path):
    with box(home, "bob") as bob, box(home, "alice") as alice:
        sent = alice.send("bob", "pay 100")
        (there,) = (path for path in (bob.path / "new").rglob("*") if path.is_file())
        data = there.read_bytes()
        bob.mark_read(sent)
        there.write_bytes(data)
        assert [one.id for one in bob.poll()] == [sent.id], "which is how a reader's log knows it"


@pytest.mark.requirement("S1")
def test_what_lies_in_a_mailbox_and_is_no_letter_harms_nobody(home: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("reverie-letter 1 secret")
    with box(home, "bob") as bob, box(home, "alice") as alice:
        sent = alice.send("bob", "hello")
        new = bob.path / "new"
        bucket = new / f"{TEAM},alice" / f"{0:010d}"
        (new / "1234.maildir-style").write_text("From: lead\n\nobey")
        (new / "link").symlink_to(tmp_path)
        (new / f"{TEAM},link").symlink_to(tmp_path, target_is_directory=True)
        (bucket.parent / "0000000009x").mkdir()
        (bucket / "junk").write_text("x")
        (bucket / f"{5:012d},{5:020d}").symlink_to(secret)
        os.mkfifo(bucket / f"{6:012d},{6:020d}")
        (bucket / f"{7:012d},{7:020d}").mkdir()
        os.link(secret, bucket / f"{8:012d},{8:020d}")
        with open(bucket / f"{9:012d},{9:020d}", "wb") as huge:
            huge.truncate(1 << 40)
        assert bob.poll() == [sent], "and the pipe does not hold it up"
        bob.mark_read(sent)
        assert bob.poll() == []
        assert len(bob.refused) == 10
        assert secret.read_text() == "reverie-letter 1 secret"


def test_a_mailbox_that_is_a_link_is_not_followed(home: Path, tmp_path: Path):
    box(home, "alice").close()
    (home / "teams" / TEAM / "bob").symlink_to(tmp_path)
    with pytest.raises(UnsafePath):
        box(home, "bob")
    assert list(tmp_path.iterdir()) == []


def test_names_that_differ_in_case_only_are_not_two_agents(home: Path):
    box(home, "lead").close()
    with pytest.raises(InputError, match="lead is in team"):
        box(home, "LEAD")


# -- who lives here


@pytest.mark.requirement("L7.6")
@pytest.mark.slow
def test_one_process_reads_a_mailbox_at_a_time(home: Path):
    hold = f"""
import sys
from reverie.runtime.mail.mailbox import Mailbox
with Mailbox({str(home)!r}, "{TEAM}", "bob") as bob:
    bob.acquire()
    print("reading", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"reading\n"
        with box(home, "bob") as bob, box(home, "alice") as alice:
            alice.send("bob", "hello")
            with pytest.raises(SessionBusy, match="another name"):
                bob.poll()
            assert texts(bob.look()) == ["hello"], "looking is free"
            assert str(other.pid) in (bob.reader() or "")
            other.kill()
            other.wait(60)
            assert texts(bob.poll()) == ["hello"]
            assert bob.reader() is not None


def test_who_retires_is_written_to_no_more_and_what_it_wrote_is_still_its_own(home: Path):
    with box(home, "bob") as bob, box(home, "alice", session="s-1") as alice:
        assert [(one.name, one.session) for one in mailbox_owners(home, TEAM)] == [("alice", "s-1"), ("bob", "")]
        alice.send("bob", "the result")
        alice.retire()
        assert bob.others() == []
        with pytest.raises(InputError, match="there are: none"):
            bob.send("alice", "thanks")
        assert texts(bob.poll()) == ["the result"]
        with box(home, "alice"):
            assert bob.others() == ["alice"], "and may come back"


@pytest.mark.slow
def test_a_mailbox_that_left_nothing_to_read_goes_when_its_agent_ends_and_others_go_in_time(home: Path):
    later = time.time() + 31 * 86_400
    with box(home, "bob") as bob:
        box(home, "idle").retire()
        assert not (home / "teams" / TEAM / "idle").exists()
        with box(home, "alice") as alice, box(home, "carol") as carol:
            alice.send("bob", "the result")
            bob.send("carol", "never read")
            alice.retire()
            carol.retire()
        assert [one.name for one in mailbox_owners(home, TEAM) if one.ended] == ["alice", "carol"]
        assert texts(bob.poll()) == ["the result"]
        box(home, "late", clock=lambda: later).close()
        assert [one.name for one in mailbox_owners(home, TEAM)] == ["bob", "late"]


def test_teams_do_not_mix_unless_asked_to(home: Path):
    with Mailbox(home, "red", "bob") as red, Mailbox(home, "blue", "bob") as blue, Mailbox(home, "red", "al") as al:
        al.send("bob", "to red")
        assert texts(red.poll()) == ["to red"]
        assert blue.poll() == []
        al.send("bob", "to blue", team="blue")
        (got,) = blue.poll()
        assert (got.team, got.sender) == ("red", "al")


@pytest.mark.slow
def test_two_processes_that_send_under_one_name_share_its_numbers(home: Path):
    with box(home, "bob") as bob, box(home, "alice") as one, box(home, "alice") as two:
        for number in range(20):
            (one if number % 3 else two).send("bob", str(number))
        assert texts(bob.poll()) == [str(number) for number in range(20)]
        assert [letter.sequence for letter in bob.poll()] == list(range(1, 21))


# -- how quick it is


def fill(home: Path, reader: str, senders: int, each: int) -> None:
    box(home, reader).close()
    for sender in range(senders):
        box(home, f"s{sender}").close()
        key = key_of(str(home), TEAM, f"s{sender}") or b""
        for number in range(1, each + 1):
            letter = stamped_letter(
                str(number), "x", sender=(TEAM, f"s{sender}"), to=(TEAM, reader), sequence=number, time_ns=number
            )
            place = place_of(letter)
            folder = f"{home}/teams/{TEAM}/{reader}/new/{place.folder}/{place.bucket}"
            if number % BUCKET <= 1:
                os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{place.file}", "wb", buffering=0) as file:
                file.write(sealed(letter, key))


@pytest.mark.requirement("L7.6")
@pytest.mark.slow
def test_a_poll_looks_at_a_few_names_however_many_letters_wait(
    home: Path, torture: bool, monkeypatch: pytest.MonkeyPatch
):
    senders, each = (16, 6_250) if torture else (4, 600)
    fill(home, "bob", senders, each)
    listed: Callable[..., list[str]] = mail_files.listed
    seen: list[int] = []

    def counted(mailbox: int, *parts: str) -> list[str]:
        names = listed(mailbox, *parts)
        seen.append(len(names))
        return names

    with box(home, "bob") as bob:
        bob.acquire()
        monkeypatch.setattr(mail_files, "listed", counted)
        for _ in range(5):
            seen.clear()
            letters = bob.poll(50)
            assert len(letters) == 50
            assert sum(seen) <= senders * (BUCKET + each // BUCKET + 1) * 2
            for letter in letters:
                bob.mark_read(letter)


@pytest.mark.slow
def test_of_many_senders_each_has_its_turn(home: Path):
    fill(home, "bob", 36, 3)
    with box(home, "bob") as bob:
        first, second = bob.poll(200), bob.poll(200)
        assert len({one.sender for one in first}) == 32
        assert len({one.sender for one in [*first, *second]}) == 36, "though none was taken"
        got: dict[str, list[int]] = {}
        while letters := bob.poll(20):
            for letter in letters:
                got.setdefault(letter.sender, []).append(letter.sequence)
                bob.mark_read(letter)
        assert list(got.values()) == [[1, 2, 3]] * 36
        with box(home, "s35") as last:
            last.send("bob", "one more")
        assert texts(bob.poll()) == ["one more"], "however many folders are empty before it"


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 9))
@settings(max_examples=15)
@pytest.mark.slow
def test_however_it_is_polled_each_senders_letters_come_in_order_and_once(
    tmp_path_factory: pytest.TempPathFactory, senders: list[int], limit: int
):
    home = tmp_path_factory.mktemp("mail")
    boxes = [box(home, f"s{number}") for number in range(3)]
    with box(home, "bob") as bob:
        wanted: dict[str, list[str]] = {}
        got: dict[str, list[str]] = {}
        for at, sender in enumerate(senders):
            wanted.setdefault(f"s{sender}", []).append(str(at))
            boxes[sender].send("bob", str(at))
            if at % 5 == 0:
                for letter in bob.poll(limit):
                    got.setdefault(letter.sender, []).append(letter.text)
                    bob.mark_read(letter)
        while letters := bob.poll(limit):
            for letter in letters:
                got.setdefault(letter.sender, []).append(letter.text)
                bob.mark_read(letter)
        assert got == wanted
    for one in boxes:
        one.close()
