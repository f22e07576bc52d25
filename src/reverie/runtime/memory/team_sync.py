"""Share a team's folder through git: commit, pull, merge and push, without a conflict marker anywhere.

Files that both sides changed stay in both versions. The index is not merged but made from the files. Git runs with the
user's own settings, never the repository's: the address of the remote is one that the user has agreed to.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from typing import Final

from ...digests import hex_of
from ...errors import InputError, StorageError
from ...memories.rules.secrets import refuse_secrets
from ...memories.store.drafts import reindex
from ...memories.store.index import INDEX
from ...memories.store.journal import content_of
from ...memories.store.journal_files import JOURNAL
from ...memories.store.names import is_memory
from ...memories.store.records import MemoryRecord, has_conflict, read_record, revised_text
from ...memories.store.side_files import read_plain
from ...memories.store.store import MemoryStore
from ...memories.store.team import GIT_RULES, refuse_private, write_git_rules
from ...paths import replace_file
from ...storage.lock_files import locked
from ...tools.git import git_identity, run_git, run_remote_git
from ...values import record

_REMOTES: Final = "team-remotes.json"
_ROUNDS: Final = 5
_PULLED: Final = "refs/reverie/pulled"
_MEMORIES: Final = ":(glob)**/*.md"


@record
class SyncResult:
    """The outcome of a sync: shared files that came and went, and those that are there in two versions now."""

    remote: str
    branch: str
    received: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    """The new files that hold our version of a memory that others changed too."""


class TeamSync:
    """The shared folder of a team, in a git repository of which it may be a part."""

    def __init__(self, folder: Path, home: Path) -> None:
        """Work on a folder; raise ``InputError`` if it is in no git repository."""
        self.folder = folder
        self._store = MemoryStore(str(folder), scope="team")
        self._home = home
        if not folder.is_dir():
            raise InputError(f"{folder} does not exist; clone your team's repository there")
        found = run_git(folder, "rev-parse", "--show-toplevel", "--git-path", "objects")
        if found.returncode:
            raise InputError(f"{folder} is in no git repository; clone your team's there, or run 'git init' in it")
        top, objects = found.stdout.strip().split("\n")
        self._top, self._objects = Path(top), folder / objects
        self._scratch = home / "cache" / "team-git" / hex_of(os.fsencode(self._top))[:16]

    # -- the remote

    @property
    def agreed_remote(self) -> str:
        """The address that the user agreed to for this repository; empty if there is none."""
        return self._remotes().get(str(self._top), "")

    @property
    def named_remote(self) -> str:
        """The address that the repository's own settings name, which is only a proposal."""
        found = run_git(self.folder, "config", "--local", "--get", "remote.origin.url")
        return found.stdout.strip()

    def agree(self, remote: str) -> None:
        """Record that the user wants to share with this address; raise ``InputError`` if it could run a program."""
        _refuse_unsafe(remote)
        known = {**self._remotes(), str(self._top): remote}
        replace_file(str(self._home), _REMOTES, json.dumps(known, indent=1).encode())

    def _remotes(self) -> dict[str, str]:
        try:
            found = json.loads((self._home / _REMOTES).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    # -- the exchange

    def run(self, remote: str = "") -> SyncResult:
        """Commit, pull, merge and push until both sides are equal, and return the outcome.

        A ``remote`` that is given is agreed to once the exchange has succeeded. Raise ``InputError`` if a shared file
        must not be shared, if other files of the repository conflict, or if the remote cannot be reached.
        """
        if remote:
            _refuse_unsafe(remote)
        elif not self.agreed_remote:
            raise InputError("no remote is agreed to yet: 'reverie memory sync --remote ADDRESS' names one")
        self._scratch.mkdir(parents=True, exist_ok=True)
        with locked(str(self._scratch)):  # two at once would commit into each other's merge
            done = self._exchange(remote or self.agreed_remote)
        if remote:
            self.agree(remote)
        return done

    def _exchange(self, remote: str) -> SyncResult:
        branch = self._branch()
        received: dict[str, None] = {}
        both: list[str] = []
        sent: tuple[str, ...] = ()
        for _ in range(_ROUNDS):
            is_empty = not self._head()
            theirs = self._fetched(remote, branch)
            if theirs and is_empty:
                received |= dict.fromkeys(self._names_between("", theirs))
            base = run_git(self.folder, "merge-base", "HEAD", theirs).stdout.strip() if theirs else ""
            both += self._commit("Memories of the team", base=base)
            if theirs:
                came, kept = self._merged(theirs)
                received |= dict.fromkeys(came)
                both += kept
            head = self._git("rev-parse", "HEAD")
            if head == theirs:
                return SyncResult(remote, branch, tuple(received), sent, tuple(both))
            sent = self._names_between(theirs, head)
            pushed = self._remote_git("push", "--quiet", remote, f"{head}:refs/heads/{branch}")
            if pushed.returncode == 0:
                return SyncResult(remote, branch, tuple(received), sent, tuple(both))
            if "rejected" not in pushed.stderr and "fetch first" not in pushed.stderr:
                raise InputError(f"nothing was sent to {remote}: {_reason(pushed.stderr)}")
        raise InputError(f"others write to {remote} all the time; try again")

    def preview(self, remote: str) -> tuple[SyncResult, bool]:
        """Return the files that ``run`` would send, and whether the remote has commits that are not here.

        Nothing is written. Raise ``InputError`` where ``run`` would, if that is known without its merge.
        """
        self._check()
        branch = self._branch()
        with TemporaryDirectory() as scratch:
            listed = run_remote_git(
                self._objects, Path(scratch), "ls-remote", "--heads", remote, f"refs/heads/{branch}"
            )
        if listed.returncode:
            raise InputError(f"{remote} cannot be reached: {_reason(listed.stderr)}")
        theirs = listed.stdout.partition("\t")[0].strip()
        has_news = bool(theirs) and run_git(self.folder, "cat-file", "-e", theirs).returncode != 0
        base = self._head() if has_news else theirs
        changed = self._git("diff", "--name-only", "-z", "--no-renames", "--relative", base, "--", ".") if base else ""
        kinds = ("--others",) if base else ("--others", "--cached")
        changed += self._git("ls-files", "-z", "--exclude-standard", *kinds, "--", ".")
        sent = sorted({name for name in changed.split("\0") if name.endswith(".md") and name != INDEX})
        return SyncResult(remote, branch, sent=tuple(sent)), has_news

    def _fetched(self, remote: str, branch: str) -> str:
        """Fetch the branch of the remote and return its commit; empty if the remote has no such branch."""
        listed = self._remote_git("ls-remote", "--heads", remote, f"refs/heads/{branch}")
        theirs = listed.stdout.partition("\t")[0].strip()
        head, done = self._head(), listed
        if theirs and theirs != head:
            wanted = f"+refs/heads/{branch}:{_PULLED}"
            done = self._remote_git("fetch", "--quiet", "--no-tags", remote, wanted)
        if done.returncode:
            raise InputError(f"{remote} cannot be reached: {_reason(done.stderr)}")
        if theirs:
            self._refuse_journal(remote, theirs)
        if theirs and not head:  # an empty clone begins with the others' commits
            self._git("update-ref", "HEAD", theirs)
            self._git("read-tree", theirs)
            run_git(self.folder, "checkout-index", "--all", "--quiet")  # it keeps files that are there, and fails then
        return theirs

    def _refuse_journal(self, remote: str, commit: str) -> None:
        """Raise ``InputError`` for a commit that has files of a journal: git would write them over our own."""
        for name in self._git("ls-tree", "-z", "--name-only", commit, "--", "./").split("\0"):
            if name.casefold() == JOURNAL:
                raise InputError(
                    f"{remote} has {name}, the journal of one user; commit 'git rm -r --cached {name}' there"
                )

    def _branch(self) -> str:
        if not (found := run_git(self.folder, "symbolic-ref", "--short", "--quiet", "HEAD").stdout.strip()):
            raise InputError(f"{self._top} is on no branch; 'git switch BRANCH' there first")
        if run_git(self.folder, "rev-parse", "--verify", "--quiet", "MERGE_HEAD").returncode == 0:
            raise InputError(f"{self._top} is in a merge; 'git commit' ends it and 'git merge --abort' takes it back")
        return found

    def _head(self) -> str:
        return run_git(self.folder, "rev-parse", "--verify", "--quiet", "HEAD").stdout.strip()

    def _remote_git(self, *arguments: str) -> CompletedProcess[str]:
        return run_remote_git(self._objects, self._scratch, *arguments)

    # -- commits

    def _commit(self, why: str, *, merged: str = "", base: str = "") -> list[str]:
        """Commit the shared files as they are, with an index made from them, as a merge with a commit if one is given.

        Other files of the folder are the user's own matter. Return the new files of ``_parted``.
        """
        write_git_rules(str(self.folder))
        both = self._parted(merged)
        self._check(base)
        self._store.commit(lambda table: reindex(table, who="sync"), notice=True)
        names = self._shared()
        shared = [name for name in GIT_RULES if name in names]
        shared += [_MEMORIES] if any(name not in GIT_RULES for name in names) else []
        self._git("add", "--all", "--", *shared)
        if not merged and run_git(self.folder, "diff", "--cached", "--quiet", "--", *shared).returncode == 0:
            return both
        only = () if merged else ("--", *shared)
        self._git("commit", "--quiet", "--no-gpg-sign", "--no-verify", "-m", why, *only, identity=git_identity())
        return both

    def _shared(self) -> set[str]:
        """Return the files of the folder that git shares: memories, index, and its own rules."""
        known = ("--cached", "--others", "--exclude-standard")
        return set(self._git("ls-files", "-z", *known, "--", *GIT_RULES, _MEMORIES).split("\0")[:-1])

    def _check(self, base: str = "") -> None:
        """Raise ``InputError`` for a file that must not be shared: about a person, with a secret, or torn.

        A torn file that is as in the commit ``base`` passes: the others have it, and may send its repair.
        """
        since = self._git("diff", "--name-only", "-z", "--no-renames", "--relative", base, "--", ".") if base else ""
        changed = {*since.split("\0"), *self._git("ls-files", "-z", "--others", "--", ".").split("\0")}
        for name in sorted(self._shared()):
            try:
                data = self._bytes(name) or b""
            except StorageError:
                continue  # a link, of which git shares only the address
            text, path = data.decode("utf-8", "replace"), self.folder / name
            is_known = bool(base) and name not in changed
            if has_conflict(text) and name != INDEX:
                raise InputError(f"{path} has conflict markers of git; keep the right version first")
            if name.endswith(".md") and name != INDEX and not (is_known and read_record(name, data).problem):
                refuse_private(name, data)
            refuse_secrets(text, str(path))

    def _parted(self, merged: str) -> list[str]:
        """Put both versions in place of each memory that a merge by plain git made unreadable; return the new files."""
        both: list[str] = []
        for name in [one.file for one in self._store.scan().memories if one.problem]:
            heads = [commit for commit in (self._head(), merged) if commit]
            last = run_git(self.folder, "log", "-1", "--format=%H %P", *heads, "--", name).stdout.split()
            if len(last) not in (2, 3) or run_git(self.folder, "diff", "--quiet", last[0], "--", name).returncode:
                continue  # no merge made it so, or somebody changed it since
            now, versions = self._bytes(name) or b"", [self._taken(commit, name) for commit in last[1:]]
            if len(versions) == 1:  # a rebase writes our lines into their version, in a commit with one parent
                versions.insert(0, self._rebased(name, now, versions[0] or b""))
            if not any(versions) or any(read_record(name, one or b"").problem for one in versions):
                self._taken(last[0], name)
            elif kept := self._keep_both(name, *versions):
                both.append(kept)
        return both

    def _rebased(self, name: str, now: bytes, theirs: bytes) -> bytes:
        """Return our version of a file that has its lines and those of ``theirs``; the file if we wrote no such."""
        lines = set(now.splitlines())
        for _, change in reversed(self._store.history().of_file(name)):
            ours = content_of(change)
            if ours and ours not in (now, theirs) and lines == {*ours.splitlines(), *theirs.splitlines()}:
                return ours
        return now

    # -- merges

    def _merged(self, theirs: str) -> tuple[list[str], list[str]]:
        """Merge a commit; return the shared files that came with it, and the files for our versions of some."""
        ours = self._git("rev-parse", "HEAD")
        base = run_git(self.folder, "merge-base", ours, theirs).stdout.strip() if theirs != ours else ours
        if theirs == base:
            return [], []
        came = self._names_between(base, theirs)
        if base == ours:  # nothing of ours to merge, so no commit of ours either
            self._git("merge", "--ff-only", "--quiet", theirs)
            return list(came), self._commit("Memories of the team")
        mine = {name: self._bytes(name) for name in self._names_between(base, ours)}
        twice = [name for name in came if name in mine]
        how = ("-s", "recursive", "-X", "no-renames")  # a removed memory is not a similar new one; "ort" ignored it
        options = ("--no-commit", "--no-ff", "--allow-unrelated-histories", "--quiet")
        merged = run_git(self.folder, "merge", *how, *options, theirs)
        here = [os.path.relpath(self._top / name, self.folder) for name in self._unmerged()]
        others = [name for name in here if name.startswith("..") or not (name.endswith(".md") or name in GIT_RULES)]
        if merged.returncode and (not here or others):
            run_git(self.folder, "merge", "--abort")
            why = f"{others[0]} conflicts" if others else _reason(merged.stderr or merged.stdout)
            raise InputError(f"the repository cannot be merged: {why}; merge it by hand, then sync again")
        both: list[str] = []
        try:
            for name in dict.fromkeys((*twice, *here)):
                kept = self._keep_both(name, mine.get(name), self._taken(theirs, name))
                both += [kept] if kept else []
            both += self._commit("Merge memories of the team", merged=theirs)
        except BaseException:
            run_git(self.folder, "add", "--all", "--", _MEMORIES)  # else files that differ from the index would stay
            run_git(self.folder, "merge", "--abort")
            raise
        return list(came), both

    def _keep_both(self, name: str, ours: bytes | None, theirs: bytes | None) -> str:
        """Put the others' version of a file in its place and ours beside it; return the name of ours, '' if equal."""
        root = str(self.folder)
        kept = theirs if theirs is not None else ours
        if kept is not None:
            replace_file(root, name, kept)
        if ours is None or theirs is None or ours == theirs or not is_memory(name):
            return ""
        beside = f"{name.removesuffix('.md')}_conflict_{hex_of(ours)[:6]}.md"
        replace_file(root, beside, _renamed(read_record(name, ours), ours))
        return beside

    def _taken(self, commit: str, name: str) -> bytes | None:
        """Put a file of a commit in its place and return its bytes; None if the commit has no such file."""
        done = run_git(self.folder, "checkout", "--quiet", commit, "--", name)
        return self._bytes(name) if done.returncode == 0 else None

    def _bytes(self, name: str) -> bytes | None:
        return read_plain(str(self.folder), name)

    def _unmerged(self) -> list[str]:
        return self._git("diff", "--name-only", "-z", "--diff-filter=U").split("\0")[:-1]

    def _names_between(self, old: str, new: str) -> tuple[str, ...]:
        """Return the shared memories that differ between two commits; all of ``new`` without an old one."""
        if old:
            found = self._git("diff", "--name-only", "-z", "--no-renames", "--relative", old, new, "--", ".")
        else:
            found = self._git("ls-tree", "-r", "-z", "--name-only", new, "--", ".")
        return tuple(name for name in found.split("\0") if name.endswith(".md") and name != INDEX)

    def _git(self, *arguments: str, identity: str = "") -> str:
        done = run_git(self.folder, *arguments, identity=identity)
        if done.returncode:
            why = _reason(done.stderr or done.stdout)
            hint = "; set user.name and user.email with 'git config --global'" if "identity unknown" in why else ""
            raise InputError(f"'git {arguments[0]}' failed in {self.folder}: {why}{hint}")
        return done.stdout.strip("\n")


def _renamed(memory: MemoryRecord, data: bytes) -> bytes:
    """Return a memory's bytes with a name that says that it is one of two versions."""
    try:
        return revised_text(data.decode(), {"name": f"{memory.name} (conflict)"}).encode()
    except (InputError, UnicodeDecodeError):
        return data


def _refuse_unsafe(remote: str) -> None:
    """Raise ``InputError`` for an address of a remote that could run a program."""
    if not remote or remote.startswith("-") or "::" in remote or any(letter < " " for letter in remote):
        raise InputError(f"{remote[:200]!r} is not an address of a git repository")


def _reason(text: str) -> str:
    """Return the first paragraph of a message of git as one line; general advice follows it."""
    paragraph = text.strip().partition("\n\n")[0]
    return "; ".join(filter(None, map(str.strip, paragraph.splitlines()))) or "git gave no reason"
