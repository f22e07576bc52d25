"""Memories as a folder of Markdown files: export, and import into another project, home, database or tenant."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import InputError, StorageError
from ...memories.store import drafts
from ...memories.store.drafts import Draft
from ...memories.store.head_files import memory_files
from ...memories.store.index import INDEX
from ...memories.store.records import read_record, revised_text
from ...memories.store.side_files import read_plain
from ...memories.store.store import Transaction
from ...paths import replace_file
from ...values import field, record, replace
from .memory import Memory
from .scopes import refuse_unsafe


@record
class MemoryImport:
    """The files of a folder that an import saved, or would save in a dry run, and those that it left out."""

    imported: list[str] = field(default_factory=lambda: [])
    same: list[str] = field(default_factory=lambda: [])
    """The files that were there already."""
    different: list[str] = field(default_factory=lambda: [])
    """The files whose memory here has another content, which stays."""
    refused: dict[str, str] = field(default_factory=lambda: {})
    """The reason for each file that cannot be a memory."""
    id: str = ""
    """The id of the change in the journal, for ``undo``; empty if nothing changed."""


def export_memories(memory: Memory, folder: str | os.PathLike[str], *, dry_run: bool = False) -> list[str]:
    """Write the private memories and their index into a new folder, and return the files.

    They are written byte for byte, but a source gets its project: elsewhere a session of its name is another one.
    """
    target = Path(os.path.abspath(folder))
    if target.exists():
        raise InputError(f"{target} exists; name a new folder")
    root = memory.store.root
    read = {
        file: read_plain(root, file, is_memory=True)
        for file in (*(one.file for one in memory.store.scan().memories), INDEX)
    }
    found = {file: _with_project(memory, file, data) for file, data in read.items() if data is not None}
    if not dry_run:
        for file, data in found.items():
            replace_file(str(target), file, data)
    return sorted(found)


def import_memories(
    memory: Memory, folder: str | os.PathLike[str], *, replaces: bool = False, dry_run: bool = False
) -> MemoryImport:
    """Save the Markdown files of a folder as private memories, byte for byte, in one change that ``undo`` reverts.

    Index lines are made from the files. The trust is at most that of an agent, as after an edit by hand. A memory with
    another content stays, unless ``replaces``; a file with a secret is refused.
    """
    root = os.path.abspath(folder)
    if not os.path.isdir(root):
        raise InputError(f"{root} is no directory; name a folder with Markdown files")
    if os.path.realpath(root) == os.path.realpath(memory.store.root):
        raise InputError(f"{root} holds the memories of this project already; 'reverie memory reindex' lists new files")
    report, given = MemoryImport(), dict[str, bytes]()
    for file, _, _ in memory_files(root):
        try:
            data = read_plain(root, file, is_memory=True) or b""
            refuse_unsafe("private", data.decode("utf-8", "replace"), {}, "")
            given[file] = data
        except (InputError, StorageError) as error:
            report.refused[file] = str(error)

    def plan(change: Transaction) -> Draft | None:
        for file, data in given.items():
            there = change.read(file)
            is_same = there is not None and data in (there, _with_project(memory, file, there))
            is_new = there is None or (replaces and not is_same)
            (report.imported if is_new else report.same if is_same else report.different).append(file)
        return drafts.bring(change, {file: given[file] for file in report.imported})

    entry = memory.store.commit(plan, dry_run=dry_run)
    return report if entry is None or dry_run else replace(report, id=entry.id)


def _with_project(memory: Memory, file: str, data: bytes) -> bytes:
    """Return a memory of this project with ``PROJECT/SESSION`` in place of the name of each session it came from."""
    *_, above, project, _ = memory.path.parts
    found = read_record(file, data)
    if above != "projects" or found.problem:
        return data
    named = [
        one if "/" in one.split(" ")[0] or one in ("outside", "team") else f"{project}/{one}" for one in found.source
    ]
    if named == [*found.source]:
        return data
    source = named[0] if len(named) == 1 else named
    return revised_text(data.decode("utf-8", "surrogateescape"), {"source": source}).encode("utf-8", "surrogateescape")
