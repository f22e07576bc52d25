"""The memory directory on disk: reads and transactions.

Reading takes no lock. A change is planned and made as one transaction under the directory's lock, so that the plan sees
the current files and no other process changes them through the store meanwhile. Changes by people or other programs are
detected by hash and journaled before the transaction.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from ...errors import StorageConflict, StorageError, UnsafePath
from ...paths import explain, explained, is_read_only, refuse_shared_link
from ...values import record, replace
from .drafts import Draft, Transaction
from .head_files import JOURNAL, Head, has_settled, memory_files, print_of, read_head, refuse_large
from .index import INDEX, LoadedIndex, hunk_between, load, rebuilt
from .journal import Act, Change, History, JournalEntry, Versions, change_to
from .journal_files import DREAMS, SURFACED, JournalFiles, SharedJournal
from .names import check_file
from .records import MemoryRecord, Scope, read_record, version_of
from .side_files import DirectoryFiles, SideFiles, read_plain
from .team import refuse_private, write_git_rules
from .trust import Trust, worst
from .trust_history import OUTSIDE_ACTS, FileTrust, TrustHistory

_REPORTED: Final = re.compile(rb'"(?!logs/)([^"\\]+\.md)"')
_RESTORING: Final = frozenset({"undone", "rewound", "rejected", "forgotten"})


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Return a time as UTC text in the journal's format, which sorts by time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@record
class Scan:
    """All memories without their bodies, and the reason by file for those with a problem."""

    memories: list[MemoryRecord]
    problems: dict[str, str]


def _head_trust(claim: Trust, version: str, known: FileTrust | None) -> Trust:
    """Return the trust of a memory whose file makes this claim; ``known`` is its last journaled version.

    ``version``, the file's hash, matters only if claim and journal both say ``user``.
    """
    if known is not None and claim == known.trust == "user":
        return "user" if version == known.version else "agent"
    return worst((claim, "agent", known.trust if known else "agent"))


class MemoryStore:
    """One memory directory on disk: reads without a lock, and changes as journaled transactions."""

    def __init__(
        self,
        root: str,
        *,
        scope: Scope = "private",
        clock: Callable[[], datetime] = utc_now,
        shared: SharedJournal | None = None,
    ) -> None:
        """Use a directory; with a ``shared`` journal it is the working copy of this machine."""
        self._root = os.path.abspath(root)
        self.scope: Scope = scope
        self._clock = clock
        self._journal_files = JournalFiles(self._root, shared)
        self.files: SideFiles = shared.files if shared is not None else DirectoryFiles(self._root)
        """The daily logs, the list of shown memories and the reports of dreams."""
        self._heads: Mapping[str, Head] = {}
        self._scanned = False

    @property
    def root(self) -> str:
        """The absolute path of this directory; raise ``UnsafePath`` if a link is in the place of a shared one."""
        if self.scope == "team":
            refuse_shared_link(self._root)
        return self._root

    @property
    def is_shared(self) -> bool:
        """Whether this directory is the working copy of one of several machines."""
        return self._journal_files.shared is not None

    @property
    def _journal(self) -> JournalFiles:
        _ = self.root  # raises if a link took its place
        return self._journal_files

    # -- reading

    def path(self, file: str = "") -> str:
        """Return the absolute path of a file in this directory, or of the directory itself."""
        return os.path.join(self.root, file) if file else self.root

    def get(self, file: str) -> MemoryRecord | None:
        """Return one memory with its body; None if it does not exist; raise ``UnsafePath`` for a bad name."""
        check_file(file)
        memory, trusts = self._read(file), self._journal.trusts()
        known = trusts.get(file)
        if (
            memory and known and known.version != memory.version
        ):  # a writer may be between file and journal: read both again
            memory, trusts = self._read(file), self._journal.trusts()
        return self.with_trust(memory, trusts) if memory else None

    def _read(self, file: str) -> MemoryRecord | None:
        self.finish_writes()
        data = read_plain(self.root, file, is_memory=True)
        if data is None:
            return None
        modified = 0.0
        with suppress(FileNotFoundError):
            modified = os.stat(self.path(file), follow_symlinks=False).st_mtime
        return read_record(file, data, modified=modified, scope=self.scope)

    @property
    def outside(self) -> str:
        """The source name for content that others wrote into this directory: ``outside``, or ``team`` if shared."""
        return "team" if self.scope == "team" else "outside"

    def with_trust(self, memory: MemoryRecord, trusts: TrustHistory) -> MemoryRecord:
        """Return a memory with its trust by the journal, and with ``outside`` as a source if others wrote it."""
        trust = trusts.trust(memory.file, memory.version, memory.trust)
        source = memory.source
        if trusts.is_outside(memory.file, memory.version) and self.outside not in source:
            source = (*source, self.outside)
        return (
            memory if (trust, source) == (memory.trust, memory.source) else replace(memory, trust=trust, source=source)
        )

    def read_index(self) -> str:
        """Return the text of the index on disk, empty if there is none; raise ``StorageError`` if it is too large."""
        self.finish_writes()
        return (read_plain(self.root, INDEX, is_memory=True) or b"").decode("utf-8", "replace")

    def load_index(self) -> LoadedIndex:
        """Return the part of the index that prompts show, with a warning if it was cut.

        That of a team, which git may have merged line by line, is as rebuilt from the files.
        """
        try:
            index = self.read_index()
            return load(rebuilt(index, self.scan().memories) if self.scope == "team" else index)
        except UnsafePath:
            raise
        except StorageError as error:
            return LoadedIndex("", warning=f"WARNING: {error}")

    def scan(self) -> Scan:
        """Return all memories without their bodies, and the files with problems; finish a killed write first."""
        self.finish_writes()
        return self.scan_files(self._journal.trusts())

    def scan_files(self, trusts: TrustHistory) -> Scan:
        """Return all memories without bodies, with trust by this history; unchanged files come from the cache."""
        memories: list[MemoryRecord] = []
        problems: dict[str, str] = {}
        kept, now = self._heads, dict[str, Head]()
        begun = time.time_ns() if self._scanned else 0  # caching pays only from the second scan on
        self._scanned = True
        trust_of = trusts.get
        with explained("read", self.root):
            for file, folder, name in memory_files(self.root):
                try:
                    one = kept.get(file)
                    if one and one.print == print_of(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                        memory = self._cached_with_trust(one, trust_of(file))
                        if memory is not None:
                            now[file] = one if memory is one.memory else one._replace(memory=memory)
                            memories.append(memory)
                            continue
                    head, found = read_head(folder, name, file)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError as error:
                    problems[file] = str(explain(error, "read", file))
                    continue
                except StorageError as error:
                    problems[file] = str(error)
                    continue
                memory = read_record(file, head, modified=found.st_mtime, scope=self.scope, head_only=True)
                claim, version = memory.trust, ""
                known = trust_of(file)
                if (
                    known or claim == "user"
                ):  # without a journal entry or a claim of user trust, agent trust is the result anyway
                    version = self._set_trust(memory, head, found.st_size, known)
                memories.append(memory)
                if begun and has_settled(found, begun):
                    now[file] = Head(print_of(found), version, claim, memory)
        self._heads = now
        problems.update((memory.file, memory.problem) for memory in memories if memory.problem)
        return Scan(memories, problems)

    def _set_trust(self, memory: MemoryRecord, head: bytes, size: int, known: FileTrust | None) -> str:
        """Set the trust of a memory in place; return the file's hash if it was needed for that, else ""."""
        claim, version = memory.trust, ""
        if known is not None and claim == known.trust == "user":
            whole = head if len(head) == size else read_plain(self.root, memory.file) or b""
            version = sha256(whole).hexdigest()
        trust = _head_trust(claim, version, known)
        if trust != claim:
            object.__setattr__(memory, "trust", trust)  # not shared yet, and copying thousands is slow
        return version

    def _cached_with_trust(self, one: Head, known: FileTrust | None) -> MemoryRecord | None:
        """Return a cached head with its current trust; None if its file must be read for that."""
        memory = one.memory
        if not one.version and known is not None and one.claim == known.trust == "user":
            return None
        trust = _head_trust(one.claim, one.version, known)
        return memory if trust == memory.trust else replace(memory, trust=trust)

    def refresh(self) -> None:
        """Apply the changes of other machines, if the journal is shared."""
        if not self._journal.is_current():
            with self._journal.locked():
                pass

    def finish_writes(self) -> None:
        """Finish a transaction whose writer was killed, if there is one and the directory can be written."""
        if not self._journal.is_settled():
            with suppress(StorageError), self._journal.locked():  # a directory that is not writable can still be read
                pass

    # -- changing

    def entries(self) -> list[JournalEntry]:
        """Return the journal entries, oldest first, after recording changes made outside in the journal."""
        return list(self.history().entries)

    def journal_problems(self) -> list[str]:
        """Return the problems of the journal: damaged, newer and missing lines."""
        return self._journal.problems()

    def history(self) -> History:
        """Return the journal with its derived state, after recording changes made outside in the journal."""
        if not os.path.isdir(self.root):
            return History()
        with self._state(notice=True, only_reads=True) as transaction:
            return transaction.history

    def commit(
        self, plan: Callable[[Transaction], Draft | None], *, notice: bool = False, dry_run: bool = False
    ) -> JournalEntry | None:
        """Call ``plan`` under the lock, make its draft as one transaction, and return the entry.

        Return None if nothing changes; raise ``StorageConflict`` if a file is not as the draft expects.

        With ``dry_run``, return the entry without making it. With ``notice``, record every outside change before
        planning; otherwise only changes to the files that the plan reads.
        """
        with self._state(notice=notice, only_reads=dry_run) as transaction:
            draft = plan(transaction)
            if draft is None:
                return None
            self._compare(transaction, draft)
            entry = self._entry(transaction, draft)
            if not (entry.changes or entry.index):
                return None
            if dry_run:
                return entry
            self._notice(transaction)
            contents = {change.file: draft.files[change.file] for change in entry.changes}
            if entry.index is not None and draft.index:
                contents[INDEX] = draft.index.encode("utf-8", "surrogateescape")
            entry = self._entry(transaction, draft)
            if self.scope == "team":
                write_git_rules(self.root)
            self._journal.carry_out(entry, {file: data for file, data in contents.items() if data is not None})
            return entry

    @contextmanager
    def _state(self, *, notice: bool, only_reads: bool) -> Generator[Transaction]:
        """Yield the state of the directory under the lock, after recording outside changes.

        With ``only_reads``, a directory that this user cannot write, or a working copy without its shared journal, is
        read as it is, without the lock.
        """
        if only_reads and self._journal.is_detached:
            yield self._transaction(self._journal.read_history()[0])
            return
        with ExitStack() as held:
            try:
                held.enter_context(self._journal.locked())
            except StorageError as error:
                if not (only_reads and is_read_only(error)):
                    raise
                yield self._transaction(self._journal.read_history()[0])
                return
            transaction = self._transaction(self._journal.history)
            if notice or not transaction.history.entries:
                self._notice(transaction, everything=True)
            yield transaction

    def _transaction(self, history: History) -> Transaction:
        entries, now = history.entries, stamp(self._clock())
        return Transaction(
            history,
            max(now, entries[-1].time) if entries else now,
            load=lambda file: read_plain(self.root, file, is_memory=True),
            parsed=lambda file, data: self.with_trust(read_record(file, data, scope=self.scope), history.trusts),
            heads=lambda: self.scan_files(history.trusts).memories,
        )

    def _compare(self, transaction: Transaction, draft: Draft) -> None:
        for file, expected in draft.expect.items():
            found = transaction.read(file)
            if (None if found is None else version_of(found)) != expected:
                raise StorageConflict(
                    f"{file} was changed meanwhile; read it again and repeat the change",
                    path=self.path(file),
                )

    def _entry(self, transaction: Transaction, draft: Draft) -> JournalEntry:
        changes: list[Change] = []
        for file, data in draft.files.items():
            found = transaction.read(file)
            refuse_large(len(data or b""), file)
            if self.scope == "team":
                refuse_private(file, data)
            trust = self._trust_after(transaction, draft, file, data)
            change = change_to(file, None if found is None else version_of(found), data, trust=trust)
            if change.before != change.after:
                changes.append(change)
        before = after = None if transaction.index_data is None else version_of(transaction.index_data)
        hunk = None
        if draft.index is not None and draft.index != transaction.index:
            hunk = hunk_between(transaction.index, draft.index)
            after = version_of(draft.index.encode("utf-8", "surrogateescape")) if draft.index else None
        return JournalEntry(
            transaction.history.next_id,
            transaction.now,
            draft.who,
            draft.why,
            draft.act,
            changes,
            hunk,
            before,
            after,
            list(draft.source),
            list(draft.undoes),
        )

    def _trust_after(self, transaction: Transaction, draft: Draft, file: str, data: bytes | None) -> Trust | None:
        """Return a file's trust after a change: restored content gets its earlier trust, else trust only falls.

        Only confirmation by the user raises it; a file from outside has that of an agent at most, a removed one none.
        """
        if data is None:
            return None
        claimed = read_record(file, data, scope=self.scope).trust
        if draft.act in OUTSIDE_ACTS:
            claimed = worst((claimed, "agent"))
        if draft.act in _RESTORING and (then := transaction.history.trust_of(file, version_of(data))):
            return then
        now = transaction.record(file) if draft.act != "confirmed" and draft.act not in _RESTORING else None
        return worst((claimed, now.trust)) if now else claimed

    def _notice(self, transaction: Transaction, *, everything: bool = False) -> None:
        """Append a journal entry for outside changes, if any: to the files that were read, or to all."""
        history = transaction.history
        names = set(transaction.seen)
        if everything:
            names |= {file for file, _, _ in memory_files(self.root)} | {
                file for file, known in history.known.items() if known
            }
        changes: list[Change] = []
        for file in sorted(names):
            try:
                data = transaction.read(file)
            except StorageError:
                continue  # not a plain file, so not a memory; lint reports it
            before = history.known.get(file)
            if before != (None if data is None else version_of(data)):
                memory = transaction.record(file)
                changes.append(change_to(file, before, data, trust=memory.trust if memory else None))
        index = history.index_version
        with suppress(StorageError):  # too large or no plain file: lint reports it
            index = None if transaction.index_data is None else version_of(transaction.index_data)
        if (changes or index != history.index_version) and not history.is_newer:
            act: Act = "outside" if history.entries else "found"
            known, source = history.index_version, [self.outside] if changes else []
            self._journal.note(
                JournalEntry(history.next_id, transaction.now, "outside", "", act, changes, None, known, index, source)
            )

    def erase(self, files: Iterable[str] = (), *, source: Callable[[str], bool] | None = None) -> None:
        """Erase contents and names of these files from the journal, its lists and reports; current files stay.

        ``source`` accepts sources whose contents are erased as well; a file keeps its name if it is still there.
        """
        with self._journal.locked():
            versions: Versions = self._journal.history.versions_from(source) if source is not None else {}
            gone = {*files, *(file for file in versions if read_plain(self.root, file) is None)}
            known = {*self._journal.history.known} - gone - {*versions}
            for place in (self.files, DirectoryFiles(self._root)):  # with a shared journal both may have some
                _remove_reports(place, known)
            if not gone and not versions:
                return
            self._journal.erase(gone, versions)
            self._heads = {}
            with suppress(FileNotFoundError):
                os.unlink(self._journal.path("heads"))  # an earlier Reverie repeated heads there
            kept = [line for line in self._surfaced_lines() if not gone & set(line["files"])]
            data = "".join(json.dumps(line) + "\n" for line in kept).encode()
            self.files.replace(f"{JOURNAL}/{SURFACED}", data)

    # -- files beside the memories

    def note_surfaced(self, files: Iterable[str], session: str) -> None:
        """Record on disk that a session was shown these memories, for ``surfaced``."""
        line = json.dumps({"session": session, "files": sorted(files), "time": stamp(self._clock())})
        self.files.append(f"{JOURNAL}/{SURFACED}", line.encode())

    def surfaced(self, files: Iterable[str]) -> list[str]:
        """Return the ids of the sessions that were shown at least one of these memories."""
        wanted = set(files)
        return list(dict.fromkeys(line["session"] for line in self._surfaced_lines() if wanted & set(line["files"])))

    def _surfaced_lines(self) -> Iterator[dict[str, Any]]:
        for line in (self.files.read(f"{JOURNAL}/{SURFACED}") or b"").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(line)
                yield {"session": str(said["session"]), "files": list(said["files"]), "time": str(said["time"])}


def _remove_reports(files: SideFiles, known: Collection[str]) -> None:
    """Remove the reports of dreams that name a memory other than the known ones, also one that was never saved."""
    for report in reversed(files.names(f"{JOURNAL}/{DREAMS}")):  # the .md before its .json
        whole = f"{report.removesuffix('.md')}.json" if report.endswith(".md") else report
        named = {found.decode("utf-8", "replace") for found in _REPORTED.findall(files.read(whole) or b"")}
        if named - {INDEX, *known}:
            files.delete(report)
