"""Validate the changes of a dream, from a model or from the local dreamer. Pure.

Each change is checked alone and together with the others. One that breaks a rule is left out, with every change that
depends on it, until the rest is valid. A removal whose facts another file holds is a merge. Any other removal, and a
rewrite that drops statements, counts as a deletion, and the number of deletions is limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from ...errors import UnsafePath
from ...memories.rules.secrets import find_secrets
from ...memories.rules.taxonomy import TYPES, refusal, vagueness
from ...memories.store.names import check_file, is_memory
from ...memories.store.records import MemoryRecord, read_record
from ...memories.store.trust import TRUSTS, Trust, worst
from ...values import record
from .changes import DreamProposal, FileChange, SkippedChange
from .links import links_in
from .plan import missing, records_of, whole_text
from .policy import DreamPolicy
from .working_copy import claims_team


@record
class Validation:
    """The valid changes of a dream, and the refused ones."""

    kept: tuple[FileChange, ...] = ()
    refused: tuple[SkippedChange, ...] = ()
    deletions: tuple[str, ...] = ()
    """The files among the valid changes whose text, or a part of it, no other file holds."""


def validation(
    before: Mapping[str, bytes],
    dreams: Sequence[DreamProposal],
    policy: DreamPolicy,
    *,
    trusts: Mapping[str, Trust] | None = None,
    restored: Collection[str] = (),
    confirmed: bool = False,
) -> Validation:
    """Return the valid and the refused ones of the changes that these dreams propose to the files ``before``.

    ``trusts`` may lower the trust that a file claims; ``restored`` are files that a person restored by undoing a dream;
    ``confirmed`` says that a person allows any number of deletions.
    """
    by = {change.file: dreamed.by for dreamed in dreams for change in dreamed.changes}
    kept = {change.file: change for dreamed in dreams for change in dreamed.changes}
    refused: list[SkippedChange] = []
    days = {file: day for dreamed in dreams for file, day in dreamed.written_on.items()}
    check = _Check(before, policy, trusts or {}, days)
    undone = {file: "a person undid a dream's change of it" for file in restored if file in kept}
    while True:
        wrong = {file: why for file, why in undone.items() if file in kept} or check.wrong(kept)
        if not wrong:
            losses = check.losses(kept)
            least = int(all(check.is_whole(kept[file]) for file in losses))
            wrong = {} if confirmed else _over_limit(losses, by, len(before), policy, least=least)
        wrong = wrong or check.too_many_added(kept, by)
        if not wrong:
            return Validation(tuple(kept.values()), tuple(refused), tuple(check.losses(kept)))
        refused += [SkippedChange(file, kept.pop(file).act, why, by[file]) for file, why in wrong.items()]


def _over_limit(
    losses: Mapping[str, str], by: Mapping[str, str], files: int, policy: DreamPolicy, *, least: int
) -> dict[str, str]:
    """Return the reason by file for deletions over the limit: surplus local ones, and all or none of a model's.

    ``least`` is 1 if no text is lost: one memory may be superseded in a directory of any size.
    """
    allowed = min(policy.max_deleted_files, max(least, int(policy.max_deleted_share * files)))
    own = [file for file in losses if by.get(file) == "local"]
    others = [file for file in losses if by.get(file) != "local"]
    over = own[allowed:]
    if len(others) > allowed - len(own) + len(over):
        over += others
    said = f"{len(losses)} of {files} memories would lose content, and {allowed} may without being confirmed"
    return {file: f"{said}: {losses[file]}" for file in over}


class _Check:
    """The rules that a dream's changes to the files ``before`` must follow, with cached checks."""

    def __init__(
        self,
        before: Mapping[str, bytes],
        policy: DreamPolicy,
        trusts: Mapping[str, Trust],
        days: Mapping[str, date],
    ) -> None:
        self._before = before
        self._policy = policy
        self._old = records_of(before, trusts)
        self._days = days
        self._links = {file: _memory_links(memory) for file, memory in self._old.items()}
        self._new: dict[tuple[str, bytes], MemoryRecord] = {}
        self._alone: dict[tuple[str, bytes | None], str] = {}
        self._missing: dict[tuple[bytes, bytes], list[str]] = {}

    # -- one change by itself

    def wrong(self, kept: Mapping[str, FileChange]) -> dict[str, str]:
        """Return the first broken rule of each invalid change, by file."""
        found: dict[str, str] = {}
        there, pointing = self._files_after(kept), self._pointing(kept)
        for file, change in kept.items():
            key = (file, change.after)
            if key not in self._alone:
                self._alone[key] = self._wrong_alone(change)
            why = self._alone[key]
            if not why and change.after is None:
                why = self._wrong_removal(change, kept, there, pointing)
            elif not why:
                why = self._wrong_together(change, kept, there)
            if why:
                found[file] = why
        return found

    def _wrong_alone(self, change: FileChange) -> str:
        try:
            check_file(change.file)
        except UnsafePath as error:
            return str(error)
        if change.before != self._before.get(change.file):
            return "it changed since the dream began"
        if change.after is None:
            return "" if change.before is not None else "there is nothing to remove"
        old = self._old.get(change.file)
        limit = max(self._policy.max_file_bytes, len(change.before or b""))
        if len(change.after) > limit:
            return f"it would have {len(change.after):,} bytes, and {limit:,} are the most"
        return self._wrong_text(old, self._read(change.file, change.after), change.after)

    def _wrong_text(self, old: MemoryRecord | None, new: MemoryRecord, data: bytes) -> str:
        if new.problem:
            return f"its front matter could not be read: {new.problem}"
        if not new.body.strip() and not (old is not None and not old.body.strip()):
            return "it would say nothing"
        if new.type not in TYPES and (old is None or new.type != old.type):
            return f"{new.type!r} is no type of memory"
        if (vague := vagueness(new.description, new.name)) and (
            old is None or not vagueness(old.description, old.name)
        ):
            return f"it {vague}"
        if claims_team(data) and not claims_team(self._before.get(new.file, b"")):
            return "a private memory is never made the team's by a dream"
        known = Counter(finding.rule for finding in find_secrets(self._text(old)))
        for found in find_secrets(data.decode("utf-8", "replace")):
            known[found.rule] -= 1
            if known[found.rule] < 0:
                return f"line {found.line} looks like a secret ({found.rule})"
        if old is None:
            return refusal(new.body, new.type)
        return self._wrong_history(old, new)

    def _text(self, old: MemoryRecord | None) -> str:
        return self._before[old.file].decode("utf-8", "replace") if old is not None else ""

    def _wrong_history(self, old: MemoryRecord, new: MemoryRecord) -> str:
        if TRUSTS.index(new.trust) < TRUSTS.index(old.trust):
            return f"its trust would rise from {old.trust} to {new.trust}"
        if lost := [one for one in old.source if one not in new.source]:
            return f"it would no longer say that it came from {lost[0]}"
        if old.created and (not new.created or new.created > old.created):
            return "it would no longer say when it was made"
        if old.expires != new.expires and (not old.expires or new.expires < old.expires) and new.expires:
            return "its time would be cut short"
        if lost := [key for key in old.extra if key not in new.extra]:
            return f"its field {lost[0]!r} would be lost"
        return ""

    # -- one change among the others

    def _wrong_together(self, change: FileChange, kept: Mapping[str, FileChange], there: set[str]) -> str:
        assert change.after is not None
        old, new = self._old.get(change.file), self._read(change.file, change.after)
        if old is None and any(file.casefold() == change.file.casefold() for file in self._before):
            return "a memory with nearly that name is there already"
        had = self._links.get(change.file, set[str]())
        dead = [one for one in _memory_links(new) if one not in there and (one in self._before or one not in had)]
        if dead:
            return f"it would point to {dead[0]!r}, which is not there"
        if new.superseded_by and (old is None or not old.superseded_by):
            by = self._after(new.superseded_by, kept)
            if by is None or by.file == new.file or by.superseded_by:
                return f"it would be superseded by {new.superseded_by}, which does not hold"
            if TRUSTS.index(by.trust) > TRUSTS.index(new.trust):
                return f"it would be superseded by {by.file}, which is less trusted"
        merged = [self._old[one.file] for one in kept.values() if one.into == change.file and one.after is None]
        if merged and TRUSTS.index(new.trust) < TRUSTS.index(worst(one.trust for one in merged)):
            return f"its trust would be {new.trust}, better than that of {merged[0].file}, which goes into it"
        return ""

    def _wrong_removal(
        self, change: FileChange, kept: Mapping[str, FileChange], there: set[str], pointing: Mapping[str, str]
    ) -> str:
        if change.file in pointing:
            return f"{pointing[change.file]} points to it"
        if not change.into:
            return ""
        target = self._after(change.into, kept)
        if target is None or change.into == change.file:
            return f"it was to go into {change.into}, which would not be there"
        if lost := [one for one in self._old[change.file].source if one not in target.source]:
            return f"{change.into} would not say that it came from {lost[0]}"
        if TRUSTS.index(target.trust) < TRUSTS.index(self._old[change.file].trust):
            return f"{change.into} is more trusted than the memory merged into it"
        return ""

    def too_many_added(self, kept: Mapping[str, FileChange], by: Mapping[str, str]) -> dict[str, str]:
        """Return the new memories beyond the limit, by file, with the reason."""
        added = [file for file, change in kept.items() if change.before is None]
        most = self._policy.max_added_files
        return {file: f"one dream adds {most} memories at most" for file in added[most:]}

    # -- losses

    def losses(self, kept: Mapping[str, FileChange]) -> dict[str, str]:
        """Return a text with the first lost sentences by file, for each file whose content would be lost."""
        found: dict[str, str] = {}
        for file, change in kept.items():
            if change.before is None:
                continue
            lost = self._lost(change, kept)
            if lost:
                found[file] = "nothing would say " + "; ".join(repr(one) for one in lost[:2])
        return found

    def is_whole(self, change: FileChange) -> bool:
        """Say whether a change leaves the text of its file as it was, for example if it only supersedes it."""
        return change.after is not None and self._read(change.file, change.after).body == self._old[change.file].body

    def _lost(self, change: FileChange, kept: Mapping[str, FileChange]) -> list[str]:
        old = self._old[change.file]
        if change.after is None and not change.into:
            return [old.description or old.name]
        target = self._after(change.into or change.file, kept)
        assert target is not None  # otherwise the change would have been refused
        if target.superseded_by and not old.superseded_by:
            return [old.description or old.name]  # nothing shows it any more
        lost = self._gone(old, target)
        if not lost or change.after is None:
            return lost
        elsewhere = [self._after(one.file, kept) for one in kept.values() if one.after is not None]
        everywhere = "\n\n".join(whole_text(one) for one in elsewhere if one is not None)
        return missing(old.body, everywhere, written_on=self._days.get(old.file))

    def _gone(self, old: MemoryRecord, new: MemoryRecord) -> list[str]:
        key = (self._before[old.file], new.version.encode() + new.file.encode())
        if key not in self._missing:
            self._missing[key] = missing(old.body, whole_text(new), written_on=self._days.get(old.file))
        return self._missing[key]

    # -- the resulting directory

    def _read(self, file: str, data: bytes) -> MemoryRecord:
        if (file, data) not in self._new:
            self._new[file, data] = read_record(file, data)
        return self._new[file, data]

    def _after(self, file: str, kept: Mapping[str, FileChange]) -> MemoryRecord | None:
        if file not in kept:
            return self._old.get(file)
        data = kept[file].after
        return None if data is None else self._read(file, data)

    def _pointing(self, kept: Mapping[str, FileChange]) -> dict[str, str]:
        """Return, for each linked name, one remaining file that links to it."""
        found = {one: file for file, links in self._links.items() if file not in kept for one in links}
        for file, change in kept.items():
            if change.after is not None:
                found.update((one, file) for one in _memory_links(self._read(file, change.after)))
        return found

    def _files_after(self, kept: Mapping[str, FileChange]) -> set[str]:
        gone = {file for file, change in kept.items() if change.after is None}
        return {*self._before, *kept} - gone


def _memory_links(memory: MemoryRecord) -> set[str]:
    """Return the files of other memories that a memory links to."""
    return {one for one in links_in(memory.file, memory.body) if is_memory(one)}
