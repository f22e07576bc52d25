"""Select sessions to delete or export: by age, project, text, or the person that they are about."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...conversation.entries import META, REWOUND
from ...conversation.log import parse_log
from ...ports import Storage
from ...settings import Settings
from ...values import object_of, record
from ..library import Library, agent_log
from ..memory.memory import Memory
from ..memory.shared_journal import StoredJournal
from ..places.projects import project_slug
from ..places.storage import database_of


@record
class SessionFilter:
    """The sessions that all given conditions hold for."""

    before: float | None = None
    """Seconds since 1970; the last entry of the session is older."""
    project: str | None = None
    """The slug of a project."""
    matching: str = ""
    """A text that the session contains, in any case of letters."""
    subject: str = ""
    """The person that the session is about, as given to ``Session.open(subject=...)``."""

    @property
    def is_set(self) -> bool:
        """Whether any condition is given."""
        return self != SessionFilter()

    def keys(self, library: Library, storage: Storage) -> list[str]:
        """Return the logs of the selected sessions, and of agents whose session is gone; this may block."""
        started = {key: [agent_log(agent) for agent in library.agents_of(key)] for key in library.all_keys()}
        inner = {log for logs in started.values() for log in logs}
        found: list[str] = []
        for key in [key for key in started if key not in inner]:
            logs = [key, *started[key]]
            if (
                self._is_of_project(library, key)
                and self._is_old(storage, key)
                and self._is_about(storage, key)
                and self._contains(storage, logs)
            ):
                found.append(key)
        return found

    def _is_of_project(self, library: Library, key: str) -> bool:
        if self.project is None or key.startswith("projects/"):
            return self.project is None or key.split("/")[1] == self.project
        cwd = library.describe(key).cwd
        return bool(cwd) and project_slug(cwd) == self.project

    def _is_old(self, storage: Storage, key: str) -> bool:
        if self.before is None:
            return True
        times = [entry.at for entry in parse_log(storage.load(key) or b"").entries if entry.at]
        if not times:
            folder = key.removesuffix(".jsonl")
            stamps = storage.stamps(key.rpartition("/")[0])
            times = [one.changed_ns / 1e9 for one in stamps if one.key == key or one.key.startswith(f"{folder}/")]
        return bool(times) and max(times) < self.before

    def _is_about(self, storage: Storage, key: str) -> bool:
        if not self.subject:
            return True
        data = storage.load(key) or b""
        if b'"subject"' not in data:
            return False
        entries = parse_log(data).entries
        return any(entry.kind == META and entry.body.get("subject") == self.subject for entry in entries)

    def _contains(self, storage: Storage, logs: Sequence[str]) -> bool:
        if not self.matching:
            return True
        texts = {form.casefold() for form in (self.matching, json.dumps(self.matching, ensure_ascii=False)[1:-1])}
        keys = [name for log in logs for name in (log, *storage.list(log.removesuffix(".jsonl")))]
        return any(
            text in said
            for said in ((storage.load(key) or b"").decode("utf-8", "replace").casefold() for key in keys)
            for text in texts
        )


def sessions_by_rewind(library: Library, storage: Storage, keys: Sequence[str]) -> list[str]:
    """Return the other sessions that hold messages of these too, because a rewind made one from the other."""
    logs, links = library.keys(), list[tuple[str, str]]()
    for key in logs:
        data = storage.load(key) or b""
        if f'"{REWOUND}"'.encode() not in data:
            continue
        folder, _, name = key.removesuffix(".jsonl").rpartition("/")
        for entry in parse_log(data).entries:
            if entry.kind == META and (origin := object_of(entry.body.get(REWOUND)).get("from")):
                links.append((f"{folder}/{origin}", f"{folder}/{name}"))
    given = {key.removesuffix(".jsonl") for key in keys}
    found, size = set(given), 0
    while len(found) > size:
        size = len(found)
        found |= {one for link in links if found & {*link} for one in link}
    return sorted(
        key.rpartition("/")[2].removesuffix(".jsonl") for key in logs if key.removesuffix(".jsonl") in found - given
    )


def documents_about(settings: Settings, storage: Storage, logs: Sequence[str]) -> dict[str, bytes]:
    """Return all that belongs to sessions by key: logs, agents, stored results, notes, and memories from them."""
    library = Library(storage)
    all_logs = [log for key in logs for log in (*map(agent_log, library.agents_of(key)), key)]
    found = {key: storage.load(key) or b"" for key in library.documents_of(all_logs)}
    for project in {key.split("/")[1] for key in logs if key.startswith("projects/")}:
        folder = f"projects/{project}/memory"
        database = database_of(storage)
        shared = None if database is None else StoredJournal(storage, folder, database.tenant)
        memory = Memory(settings.home / folder, shared=shared)
        names = library.sources_in(folder, all_logs)
        for head in memory.list() if memory.path.is_dir() else ():
            if any(source.split(" ")[0] in names for source in head.source):
                found[f"{folder}/{head.file}"] = (memory.path / head.file).read_bytes()
    return found
