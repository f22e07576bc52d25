"""Copy sessions, memories and mail from one storage to another, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Final

from ...errors import SessionBusy, StorageConflict, StorageError
from ...ports import Storage
from ...values import field, record

SHARED: Final = ("projects", "agents", "agent-memory", "teams", "skills", "agent-types")
"""The folders of a home that belong to its user or team; all others are caches or belong to the machine."""


@record
class MoveReport:
    """The keys that one copy wrote, found there already, or left alone."""

    copied: list[str] = field(default_factory=lambda: [])
    same: list[str] = field(default_factory=lambda: [])
    different: list[str] = field(default_factory=lambda: [])
    """The keys whose target has other content, which stays."""
    busy: list[str] = field(default_factory=lambda: [])
    """The logs of sessions that are open."""
    released: list[str] = field(default_factory=lambda: [])
    """The memory directories of this home that are no working copies any more."""
    bytes: int = 0


def copy_stored(
    source: Storage,
    target: Storage,
    *,
    replace: bool = False,
    dry_run: bool = False,
    track: Callable[[list[str]], Iterable[str]] = iter,
    skips: Callable[[str], bool] = lambda key: False,
) -> MoveReport:
    """Copy every document and log of the shared folders, the oldest first, and read each again to compare it.

    A log that only grew is brought up to date. Other content in the target stays, unless ``replace``. A second call
    finishes an interrupted one. Keys that it ``skips`` are left out.
    """
    report, total = MoveReport(), 0
    target.holder("move")  # raises if the target cannot be used, also if there is nothing to copy
    stamps = sorted((one for top in SHARED for one in source.stamps(top)), key=lambda one: (one.changed_ns, one.key))
    for key in track([one.key for one in stamps if not skips(one.key)]):
        try:
            total += _copied(source, target, key, replace=replace, dry_run=dry_run, report=report)
        except SessionBusy:
            report.busy.append(key)
    object.__setattr__(report, "bytes", total)
    return report


def _copied(source: Storage, target: Storage, key: str, *, replace: bool, dry_run: bool, report: MoveReport) -> int:
    """Copy one key while no process writes it, note the outcome, and return the bytes written."""
    with ExitStack() as leases:
        if key.endswith(".jsonl") and not dry_run:
            for storage in (source, target):
                leases.callback(storage.lease(key, holder="move").release)
        data, there = source.load(key), target.read(key)
        if data is None:
            return 0  # deleted meanwhile
        if there is not None and there.data == data:
            report.same.append(key)
            return 0
        grew = there is not None and key.endswith(".jsonl") and data.startswith(there.data)
        if there is not None and not grew and not replace:
            report.different.append(key)
            return 0
        if not dry_run:
            try:
                target.write(key, data, expect=there.version if there else None, create=there is None)
            except StorageConflict:
                report.different.append(key)
                return 0
            if target.load(key) != data:
                raise StorageError(f"{key} was not stored as it was read; check the target", path=key)
        report.copied.append(key)
        return len(data)
