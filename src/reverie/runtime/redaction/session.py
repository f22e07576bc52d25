"""Redact a session: take a secret out of its log and everything kept of it, and prove it by a search.

With a database both its rows and the files of this machine's home are changed and searched. Each file is replaced
atomically, the log of the session last of all logs, so that a redaction which was interrupted is finished by the same
call.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...conversation.authorship import strings_of
from ...conversation.log import parse_log
from ...digests import hex_of
from ...errors import InputError, SessionNotFound
from ...memories.rules.secrets import secret_spans
from ...memories.store.journal import JournalEntry, encode, read_entries
from ...paths import TEMPORARY_PREFIX, replace_file
from ...ports import Storage
from ...values import field, record
from ..library import Library, agent_log
from ..memory.memory import Memory
from ..memory.shared_journal import StoredJournal, shared_folders
from ..places.home_search import home_files, search_home
from ..places.storage import database_of
from ..search.sessions import SessionSearch
from .redacted_log import RedactedLog, SecretForms

_INDEX: Final = "search.sqlite"
_LOG: Final = ".jsonl"
_JOURNAL: Final = ".journal"
_LINES: Final = f"{_JOURNAL}/journal.jsonl"
_USERS_OWN: Final = ("config.toml", "AGENTS.md", "skills")
"""Files that the user writes; they may hold a key that the program needs, so they are named and not changed."""


@record
class FoundSecret:
    """A secret that the rules found in a session: its kind and how often it occurs; ``value`` is never shown."""

    kind: str
    value: str
    count: int


@record
class RedactionReceipt:
    """The numbers and files of a redaction, without any content."""

    session: str
    occurrences: int = 0
    entries: int = 0
    """Entries of logs that were changed."""
    replies: int = 0
    """Replies whose thinking is not sent again."""
    files: dict[str, int] = field(default_factory=lambda: {})
    """Occurrences by file, relative to the home, or by key of the database."""
    memories: list[str] = field(default_factory=lambda: [])
    """The memories that were forgotten, by name."""
    log_sha256: str = ""
    """The first characters of the log's digest now."""
    left: list[str] = field(default_factory=lambda: [])
    """Files of the home, and keys of a database, that still hold the secret, such as logs of other sessions."""


def found_secrets(storage: Storage, key: str) -> list[FoundSecret]:
    """Return the secrets that the rules find in a session's log, results and notes, and in its agents' logs."""
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for log in _session_logs(storage, key):
        texts = [text for entry in parse_log(storage.load(log) or b"").entries for text in strings_of(entry.body)]
        files = storage.list(log.removesuffix(_LOG))
        texts += [(storage.load(file) or b"").decode(errors="replace") for file in files]
        for text in texts:
            for start, end, kind in secret_spans(text):
                kinds.setdefault(text[start:end], kind)
                counts[text[start:end]] += 1
    return [FoundSecret(kinds[value], value, count) for value, count in counts.items()]


def _session_logs(storage: Storage, key: str) -> list[str]:
    return [*map(agent_log, Library(storage).agents_of(key)), key]


class Redaction:
    """The redaction of one session in a storage and a home; nothing of it is open elsewhere while ``run`` works."""

    def __init__(self, storage: Storage, home: Path, key: str, secrets: Iterable[str]) -> None:
        self._storage = storage
        self._database = database_of(storage)
        self._home = home
        self._key = key
        self._forms = SecretForms(secrets)
        if storage.load(key) is None:
            raise SessionNotFound(f"no log at {key}")

    def plan(self) -> RedactionReceipt:
        """Return the receipt that ``run`` would give, and change nothing."""
        return self._work(dry_run=True)

    def run(self) -> RedactionReceipt:
        """Take the secrets out and return the receipt; raise ``SessionBusy`` if the session or an agent is running."""
        with Library(self._storage).reserved(self._key, "redact"):
            self._forget_lines()
            receipt = self._work(dry_run=False)
        if self._database is not None:
            counts = {"entries": receipt.entries, "files": len(receipt.files), "memories": len(receipt.memories)}
            self._database.records.enter_audit("redact", {"session": receipt.session, **counts})
            self._database.sweep_blobs()
        return receipt

    def _work(self, *, dry_run: bool) -> RedactionReceipt:
        files: dict[str, int] = {}
        logs = _session_logs(self._storage, self._key)
        redacted = {key: self._redacted(key) for key in logs}  # a secret that cannot be taken out stops it here
        memories = self._forget_memories(files, dry_run=dry_run)
        for name in [*self._side_files()]:
            self._replace(name, files, dry_run=dry_run)
        for name in [*self._side_keys()]:
            self._replace_stored(name, files, dry_run=dry_run)
        for key, log in redacted.items():
            if log.occurrences:
                files[key] = log.occurrences
                if not dry_run:
                    self._storage.write(key, log.data)
        if not dry_run:
            self._forget_lines()
        now = self._storage.load(self._key) or b""
        return RedactionReceipt(
            session=self._key.rsplit("/", 1)[-1].removesuffix(_LOG),
            occurrences=sum(files.values()),
            entries=sum(log.entries for log in redacted.values()),
            replies=sum(log.replies for log in redacted.values()),
            files=files,
            memories=memories,
            log_sha256=hex_of(now)[:12],
            left=[one for one in self._holding() if not dry_run or one not in files],
        )

    def _redacted(self, key: str) -> RedactedLog:
        session = key.rsplit("/", 1)[-1].removesuffix(_LOG)
        return RedactedLog.of(self._storage.load(key) or b"", self._forms, session, time.time())

    def _holding(self) -> list[str]:
        """Return the files of the home, and the keys of a database, that hold a secret in any form."""
        forms = [form for form, _ in self._forms.texts]
        stored = self._storage.list() if self._database is not None else ()
        keys = [key for key in stored if self._forms.count(self._storage.load(key) or b"")]
        return [*(name for name, found in search_home(self._home, forms) if found), *keys]

    def _read(self, name: str) -> bytes:
        path = self._home / name
        with suppress(OSError):
            return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        return b""

    def _side_files(self) -> Iterator[str]:
        """Yield the files that are changed in place: all but logs, journals of memories, databases and a user's own."""
        for name in home_files(self._home):
            parts = name.split("/")
            if not (_is_log(name) or parts[0] in _USERS_OWN or _JOURNAL in parts or ".sqlite" in name):
                yield name

    def _side_keys(self) -> Iterator[str]:
        """Yield the documents of a database that are changed in place: all but logs and the lines of memories."""
        for key in self._storage.list() if self._database is not None else ():
            if not (_is_log(key) or key.endswith(_LINES) or key.split("/")[0] in _USERS_OWN):
                yield key

    def _replace_stored(self, key: str, files: dict[str, int], *, dry_run: bool) -> None:
        data, count = self._forms.replaced(self._storage.load(key) or b"")
        if count:
            files[key] = count
            if not dry_run:
                self._storage.write(key, data)

    def _replace(self, name: str, files: dict[str, int], *, dry_run: bool) -> None:
        data, count = self._forms.replaced(self._read(name))
        if not count:
            return
        files[name] = count
        if dry_run:
            return
        if os.path.basename(name).startswith(TEMPORARY_PREFIX):
            os.unlink(self._home / name)  # a write that never ended
        else:
            replace_file(str(self._home), name, data)

    def _forget_memories(self, files: dict[str, int], *, dry_run: bool) -> list[str]:
        """Forget the memories that hold a secret, now or in a former version, and return their files."""
        forgotten: list[str] = []
        shared = shared_folders(self._storage) if self._database is not None else []
        for place in shared:
            self._memory(place, shared)  # the files of this machine are those of the database now
        held = list(dict.fromkeys(self._holding()))
        for place in sorted({place for one in held if (place := self._memory_folder(one))}):
            inside = [one.removeprefix(f"{place}/") for one in held if one.startswith(f"{place}/")]
            current = [one for one in inside if one.endswith(".md") and "/" not in one and one != "MEMORY.md"]
            counted = [one for one in inside if dry_run or one in current or one.startswith(_JOURNAL)]
            files.update({f"{place}/{one}": self._forms.count(self._read(f"{place}/{one}")) for one in counted})
            forgotten += [f"{place}/{one}" for one in current]
            for one in [] if dry_run else current:
                with suppress(InputError):
                    self._memory(place, shared).forget(one, why="it held a redacted secret", erase=True)
            if not dry_run:
                self._memory(place, shared).store.erase(self._former_versions(place))
        return forgotten

    def _memory(self, place: str, shared: Iterable[str]) -> Memory:
        """Return the memories of a directory, which is a working copy if its journal is in the database."""
        journal = None
        if self._database is not None and place in shared:
            journal = StoredJournal(self._storage, place, self._database.tenant)
        return Memory(self._home / place, shared=journal)

    def _memory_folder(self, name: str) -> str:
        folders = list(Path(name).parents)[:-1]
        return next((str(one) for one in folders if (self._home / one / _JOURNAL).is_dir()), "")

    def _former_versions(self, place: str) -> set[str]:
        data = self._read(f"{place}/{_LINES}")
        entries = [entry for entry, _ in read_entries(data) if isinstance(entry, JournalEntry)]
        return {file for entry in entries if self._forms.count(encode(entry)) for file in entry.files}

    def _forget_lines(self) -> None:
        """Remove the session's words from the search index; the next search reads the log anew."""
        if (self._home / _INDEX).exists():
            with SessionSearch(self._home) as search:
                search.forget(self._key)


def _is_log(name: str) -> bool:
    parts = name.split("/")
    return name.endswith(_LOG) and len(parts) == {"projects": 3, "agents": 2}.get(parts[0], 0)
