"""Senders and readers of mailboxes, killed at random and restarted, until every message was sent and read.

    python -E mail_crowd.py KIND SENDERS MESSAGES READERS KILLS SEED

``KIND`` is ``maildir``, or ``json`` for the obvious first design: one file with an array in it.
``REVERIE_HOME`` names the store; readers log the messages they see into sessions there. Prints the result as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio

from reverie import Library, Session
from reverie.conversation.decisions import Cause, MessageQueued
from reverie.runtime.mail.delivery import drain
from reverie.runtime.mail.files import folders_of
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.mail.sockets import MailSocket, deliver
from reverie.storage.files import FileStorage

HOME = os.environ["REVERIE_HOME"]
TEAM = "default"
LIMIT_SECONDS = 1_500


def reader_of(sender: int, number: int, readers: int) -> int:
    return (sender + number) % readers


def acknowledged(sender: int) -> Path:
    return Path(HOME, f"acknowledged-{sender}")


def stop() -> Path:
    return Path(HOME, "stop")


# -- what is tested


def send_letters(sender: int, messages: int, readers: int) -> None:
    """Send what was not acknowledged yet; every other sender tries the reader's socket first."""
    with Mailbox(HOME, TEAM, f"sender-{sender}") as mailbox, open(acknowledged(sender), "ab", buffering=0) as acks:
        for number in range(acks.tell() // 2, messages):
            to = f"reader-{reader_of(sender, number, readers)}"
            parts = folders_of(TEAM, to)

            def carry(letter: Any, data: bytes, parts: Any = parts) -> bool:
                return sender % 2 == 1 and deliver(HOME, parts, data)

            mailbox.send(to, f"{sender} {number}", id=str(number), carry=carry)
            acks.write(b"y\n")


async def read_letters(reader: int) -> None:
    """Log what arrives, until it is said that no more will come and nothing waits."""
    name = f"reader-{reader}"
    async with Session.open(name, cwd=HOME) as session, anyio.create_task_group() as tasks:
        with Mailbox(HOME, TEAM, name, session=name) as mailbox:
            await tasks.start(MailSocket(mailbox).serve)
            while True:
                over = stop().exists()
                if not await drain(session, mailbox):
                    if over:
                        break
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()


# -- its known-bad twin


def array_of(reader: int) -> Path:
    return Path(HOME, f"inbox-{reader}.json")


def read_array(path: Path) -> list[dict[str, str]]:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return []


def send_into_array(sender: int, messages: int, readers: int) -> None:
    with open(acknowledged(sender), "ab", buffering=0) as acks:
        for number in range(acks.tell() // 2, messages):
            path = array_of(reader_of(sender, number, readers))
            letters = read_array(path)
            letters.append({"id": f"sender-{sender}:{number}", "text": f"{sender} {number}"})
            path.write_text(json.dumps(letters))
            acks.write(b"y\n")


async def read_from_array(reader: int) -> None:
    async with Session.open(f"reader-{reader}", cwd=HOME) as session:
        while True:
            over = stop().exists()
            letters = read_array(array_of(reader))
            array_of(reader).write_text("[]")
            for letter in letters:
                await session.log.decide(MessageQueued(Cause("relay", "message"), letter["id"], letter["text"]))
            if over and not letters:
                return
            await anyio.sleep(0.005)


# -- the crowd


class Crowd:
    """The workers, by name."""

    def __init__(self, work: dict[str, Callable[[], None]]) -> None:
        self.work = work
        self.alive: dict[int, str] = {}
        self.starts = 0
        for name in work:
            self.start(name)

    def start(self, name: str) -> None:
        self.starts += 1
        pid = os.fork()
        if pid:
            self.alive[pid] = name
            return
        code = 1
        try:
            self.work[name]()
            code = 0
        except BaseException as error:
            os.write(2, f"{name}: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)

    def reap(self) -> None:
        """Bury who has ended; whoever broke is an error."""
        while self.alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            name = self.alive.pop(pid)
            if os.waitstatus_to_exitcode(status) > 0:
                raise SystemExit(f"{name} broke")

    def kill_one(self, random: Random, kind: str) -> str:
        """Kill any of a kind; of whatever kind there is where none of that one is left."""
        kin = [pid for pid, name in self.alive.items() if name.startswith(kind)]
        pid = random.choice(sorted(kin or self.alive))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return self.alive.pop(pid)

    def end(self) -> None:
        for pid in self.alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def logged(reader: int) -> list[str]:
    """Return the ids a reader's log says were shown, in order."""
    storage = FileStorage(HOME)
    try:
        library = Library(storage)
        keys = [key for key in list(library.keys()) if key.endswith(f"/reader-{reader}.jsonl")]
        entries = library.load(keys[0]).entries if keys else []
        return [str(one.body["id"]) for one in entries if one.body.get("decision") == "message_queued"]
    finally:
        storage.close()


def read_unlogged(reader: int) -> int:
    """Count letters that were put away and are not in the log."""
    with Mailbox(HOME, TEAM, f"reader-{reader}") as mailbox:
        kept = mailbox.look(1_000, kept=True)
    known = set(logged(reader))
    return sum(one.id not in known for one in kept)


def main() -> None:
    kind = sys.argv[1]
    senders, messages, readers, kills, seed = map(int, sys.argv[2:])
    random = Random(seed)
    json_twin = kind == "json"
    sending, reading = (send_into_array, read_from_array) if json_twin else (send_letters, read_letters)
    if not json_twin:
        for reader in range(readers):
            Mailbox(HOME, TEAM, f"reader-{reader}").close()
    work: dict[str, Callable[[], None]] = {}
    for sender in range(senders):
        work[f"sender-{sender}"] = lambda sender=sender: sending(sender, messages, readers)
    for reader in range(readers):
        work[f"reader-{reader}"] = lambda reader=reader: anyio.run(reading, reader)
    began, killed, unlogged = time.monotonic(), {"sender": 0, "reader": 0}, 0
    crowd = Crowd(work)
    try:
        while any(name.startswith("sender") for name in crowd.alive.values()):
            if time.monotonic() - began > LIMIT_SECONDS:
                raise SystemExit("it takes too long")
            crowd.reap()
            if sum(killed.values()) < kills and crowd.alive:
                spared = [kind for kind, count in killed.items() if not count]
                name = crowd.kill_one(random, spared[0] if spared else random.choice(("sender", "reader")))
                killed[name.split("-")[0]] += 1
                if name.startswith("reader") and not json_twin:
                    unlogged += read_unlogged(int(name.split("-")[1]))
                crowd.start(name)
            if all(killed.values()):  # one of each is killed before any of them can be done
                time.sleep(random.uniform(0.01, 0.12))  # so that each kill comes at another moment
        stop().touch()
        while crowd.alive:
            if time.monotonic() - began > LIMIT_SECONDS:
                raise SystemExit("readers do not come to their end")
            time.sleep(0.01)
            crowd.reap()
    finally:
        crowd.end()
    shown = {f"reader-{reader}": logged(reader) for reader in range(readers)}
    seconds = time.monotonic() - began
    print(json.dumps({"shown": shown, "killed": killed, "unlogged": unlogged, "seconds": seconds}))


if __name__ == "__main__":
    main()
