"""Erase the letters of deleted sessions from all mailboxes of a home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import InputError
from ...layers.l7_relay import read
from ...values import field, record
from .directory import mailbox_owner, remove_mailbox


@record
class SessionMail:
    """How the letters of some sessions are recognised: by owner of a mailbox, by id, and by the text that was sent."""

    sessions: set[str] = field(default_factory=lambda: set[str]())
    ids: set[str] = field(default_factory=lambda: set[str]())
    texts: set[str] = field(default_factory=lambda: set[str]())


def erase_letters(home: Path, mail: SessionMail, *, dry_run: bool = False) -> int:
    """Remove the mailboxes of sessions, and their letters in other mailboxes; return the number of letters."""
    count = 0
    for mailbox in sorted(home.glob("teams/*/*")):
        owner = mailbox_owner(str(home), mailbox.parent.name, mailbox.name)
        if owner is not None and owner.session in mail.sessions:
            count += sum(1 for _ in _letters(mailbox))
            if not dry_run:
                remove_mailbox(str(home), owner)
            continue
        for path in _letters(mailbox):
            if _is_of(path, mail):
                count += 1
                if not dry_run:
                    path.unlink(missing_ok=True)
    return count


def _letters(mailbox: Path) -> Iterator[Path]:
    for part in ("new", "cur", "bad", "tmp"):
        for folder, _, names in os.walk(mailbox / part):
            yield from (Path(folder, name) for name in sorted(names))


def _is_of(path: Path, mail: SessionMail) -> bool:
    with suppress(InputError, OSError):
        letter = read(path.read_bytes())
        return letter.id in mail.ids or letter.text in mail.texts
    return False
