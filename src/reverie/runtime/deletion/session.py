"""Delete a session and everything that came from it in a home, and return a receipt without content.

The log goes last, so a deletion that was interrupted is found and finished by the next one. A session's agents, and
the agents that those started, go before it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Self

from ...conversation.authorship import strings_of, utterances
from ...conversation.decisions import MessageQueued, decision_of
from ...conversation.entries import DECISION, Entry
from ...conversation.log import parse_log
from ...errors import SettingsError
from ...paths import opened_folder, replace_file
from ...ports import Storage
from ...settings import Settings
from ...storage.encryption import EncryptedStorage
from ...values import record
from ..library import Library, RemovedSession, agent_log, erase_sources
from ..mail.erasure import SessionMail, erase_letters, erase_stored_letters
from ..places.storage import database_of
from ..search.sessions import SessionSearch
from ..session.ledger import open_ledger

HISTORY: Final = "history"
SEND: Final = "SendMessage"
_AROUND_SECONDS: Final = 3_600.0
"""A prompt is typed at most this long before the log's first entry or after its last one."""


@record
class DeletionReceipt:
    """The numbers of things that deleting a session removed, or would remove: no content, title or memory's name."""

    session: str
    key: str
    agents: list[str]
    """The agents that it started, and those that they started."""
    files: int
    """The logs of the session and its agents, stored results, notes, plans and inboxes."""
    memories: int
    calls: int
    """The rows of the ledger."""
    typed: int
    """The entries in the history of typed lines."""
    letters: int
    others: int
    """The files that other parts of the program keep for it, such as queued jobs."""


class SessionDeletion:
    """Deletes sessions of a home.

    ``also`` are functions that remove, or in a dry run count, other files of the sessions with these logs. At the end
    of a ``with`` block, large contents that no session has any more go from the object store, which is listed once.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        also: Sequence[Callable[[Sequence[str], bool], int]] = (),
        *,
        why: str = "command",
    ) -> None:
        self._settings = settings
        self._home = settings.home
        self._storage = storage
        self._library = Library(storage)
        self._also = also
        self._why = why
        self._database = database_of(storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._database is not None:
            self._database.sweep_blobs()

    def run(self, key: str, *, dry_run: bool = False) -> DeletionReceipt:
        """Delete a session by its log's key, or only count; raise ``SessionBusy`` if it or its agents are open."""
        with self._library.removing(key, dry_run=dry_run) as planned:
            logs = [*map(agent_log, planned.agents), key]
            receipt = self._erase(key, logs, planned, dry_run=dry_run)
        if not dry_run:
            self._forget_keys(logs)
        return receipt

    def _erase(self, key: str, logs: Sequence[str], planned: RemovedSession, *, dry_run: bool) -> DeletionReceipt:
        """Erase all that is not in the session's documents, while its leases are held, or only count."""
        namesakes = self._library.namesakes(logs)
        entries = [entry for log in logs for entry in parse_log(self._storage.load(log) or b"").entries]
        mail = _mail(namesakes, entries)
        letters = erase_letters(self._home, mail, dry_run=dry_run)
        if self._database is not None:
            letters += erase_stored_letters(self._storage, mail, dry_run=dry_run)
        shared = self._erase_shared_memories(logs, dry_run=True)
        if not dry_run and self._database is not None:
            counts = {"keys": len(planned.keys), "memories": len(planned.memories) + shared, "agents": len(logs) - 1}
            self._database.records.enter_audit("delete", {"session": planned.session, "why": self._why, **counts})
        typed = self._forget_typed(self._storage.load(key) or b"", dry_run=dry_run)
        calls = self._forget_calls(namesakes, dry_run=dry_run)
        others = sum(act(logs, dry_run) for act in self._also)
        if not dry_run:
            self._forget_index(logs)
            if self._settings.memory_dir is not None:
                erase_sources(self._settings.memory_dir, [_session(log) for log in logs if not namesakes[log]])
            self._erase_shared_memories(logs)
            for log in logs:
                self._remove_folder(log.removesuffix(".jsonl"))
        found = len(planned.keys), len(planned.memories) + shared, calls, typed, letters, others
        return DeletionReceipt(planned.session, key, planned.agents, *found)

    def _remove_folder(self, folder: str) -> None:
        """Remove a session's folder with everything in it, also unfinished files that the storage does not list."""
        *above, name = folder.split("/")
        with suppress(FileNotFoundError), opened_folder(str(self._home), above) as parent:
            shutil.rmtree(name, dir_fd=parent)

    def _erase_shared_memories(self, logs: Sequence[str], *, dry_run: bool = False) -> int:
        """Erase the memories of a database that came from these sessions, or count them."""
        if self._database is None:
            return 0
        from ..memory.memory import Memory  # only a database needs it here
        from ..memory.shared_journal import StoredJournal, shared_folders

        count = 0
        for folder in shared_folders(self._storage):
            memory = Memory(self._home / folder, shared=StoredJournal(self._storage, folder, self._database.tenant))
            for name in self._library.sources_in(folder, logs):
                count += len(memory.forget_source(name, erase=True, dry_run=dry_run).files)
        return count

    def _forget_keys(self, logs: Sequence[str]) -> None:
        """Remove the keys of encrypted sessions."""
        if isinstance(self._storage, EncryptedStorage):
            for log in logs:
                self._storage.forget_key(log)

    def _forget_calls(self, namesakes: Mapping[str, Sequence[str]], *, dry_run: bool) -> int:
        with open_ledger(self._settings, self._storage) as ledger:
            found = [ledger.forget(_session(log), others=others, dry_run=dry_run) for log, others in namesakes.items()]
        return sum(found)

    def _forget_index(self, logs: Sequence[str]) -> None:
        if (self._home / "search.sqlite").exists():
            with SessionSearch(self._home) as search:
                for log in logs:
                    search.forget(log)

    def _forget_typed(self, log: bytes, *, dry_run: bool) -> int:
        """Remove the lines that were typed in this session from the history of the terminal."""
        path = self._home / HISTORY
        if not path.is_file() or path.is_symlink():
            return 0
        raw = log.decode("utf-8", "replace")
        times = [entry.at for entry in parse_log(log).entries if entry.at]
        first, last = (min(times), max(times)) if times else (0.0, 0.0)
        kept: list[str] = []
        gone = 0
        for piece, at, text in _typed(path.read_text("utf-8", "replace")):
            near = not at or first - _AROUND_SECONDS <= at <= last + _AROUND_SECONDS
            words = text.split(" ", 1)[-1] if text.startswith(("/", "!")) else text
            is_command = words is not text and first <= at <= last
            is_said = bool(words.strip()) and json.dumps(words.strip(), ensure_ascii=False)[1:-1] in raw
            if near and (is_command or is_said):
                gone += 1
            else:
                kept.append(piece)
        if gone and not dry_run:
            replace_file(str(self._home), HISTORY, "".join(kept).encode())
        return gone


def retained_since(settings: Settings, storage: Storage) -> float:
    """Return the time before which sessions are no longer kept; raise ``SettingsError`` if nothing sets it.

    With a database it is by its clock: one machine whose clock is wrong must not delete the sessions of all.
    """
    if settings.retention_days is None:
        raise SettingsError("nothing says how long sessions are kept: set retention_days in config.toml")
    database = database_of(storage)
    return (time.time() if database is None else database.now()) - settings.retention_days * 86_400


def _typed(history: str) -> Iterator[tuple[str, float, str]]:
    """Yield the entries of a history file, each with its time in seconds (0 if unknown) and its text."""
    piece: list[str] = []
    for line in [*history.splitlines(keepends=True), ""]:
        if piece and (not line or (not line.startswith("+") and piece[-1].startswith("+"))):
            at = 0.0
            for head in piece:
                with suppress(ValueError):
                    at = datetime.fromisoformat(head.removeprefix("#").strip()).timestamp() if head[:1] == "#" else at
            yield "".join(piece), at, "".join(one[1:] for one in piece if one.startswith("+")).removesuffix("\n")
            piece = []
        piece.append(line)


def _session(log: str) -> str:
    return log.rpartition("/")[2].removesuffix(".jsonl")


def _mail(namesakes: Mapping[str, Sequence[str]], entries: Sequence[Entry]) -> SessionMail:
    """Return how the letters of these sessions are recognised: by owner, by received id and by sent text.

    A mailbox of an older version names a session without its project, so no session of that name may stay.
    """
    mail = SessionMail({log.removesuffix(".jsonl") for log in namesakes})
    mail.sessions.update(_session(log) for log, others in namesakes.items() if not others)
    for entry in entries:
        decision = decision_of(entry.body) if entry.kind == DECISION else None
        if isinstance(decision, MessageQueued):
            mail.ids.add(decision.id)
        for one in utterances(entry):
            if one.kind == "call" and one.tool == SEND:
                mail.texts.update(strings_of(one.input))
    return mail
