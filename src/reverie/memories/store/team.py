"""The shared folder of a team: rules for git, and the memories that may not be in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ...errors import InputError, StorageError
from ...paths import replace_file
from .journal_files import JOURNAL
from .records import read_record
from .side_files import read_plain

GIT_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    ".gitignore": (f"{JOURNAL}/", ".consolidate-lock"),
    ".gitattributes": ("*.md merge=union",),
}
"""Lines of git's own files: ignore the files of one user, and keep the lines of both sides without markers."""


def refuse_private(file: str, data: bytes | None) -> None:
    """Raise ``InputError`` for a memory about the user, which is never shared, or one that cannot be read."""
    memory = read_record(file, data or b"", scope="team")
    if memory.problem:
        raise InputError(f"{file} cannot be read, so it may be about a person; repair it by hand: {memory.problem}")
    if memory.is_about_user:
        raise InputError(f"{file} is a memory about the user, and those are always private; save it without a scope")


def write_git_rules(root: str) -> None:
    """Write the lines that a shared folder needs to survive git, unless they are there; other lines stay."""
    for name, wanted in GIT_RULES.items():
        with suppress(StorageError):  # a link or a folder of that name is the user's own matter
            there = (read_plain(root, name) or b"").decode("utf-8", "surrogateescape")
            missing = [line for line in wanted if line not in there.splitlines()]
            if missing:
                start = there + ("" if not there or there.endswith("\n") else "\n")
                text = start + "".join(f"{line}\n" for line in missing)
                replace_file(root, name, text.encode("utf-8", "surrogateescape"))
