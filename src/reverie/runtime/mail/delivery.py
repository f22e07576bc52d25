"""Taking letters in at a round boundary: logged first, then taken out of the mailbox, each shown once.

An agent calls ``await drain(session, mailbox, queue=..., lead=...)`` where its tools have been answered and before a
prompt is said (``Agent.attachments``). What comes becomes ``MessageQueued`` decisions, fenced as data with sender and
trust, which stand at the end of what was said and move no prefix. Killed between logging and taking, the session meets
the letter again and knows its id from its log.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anyio import to_thread

from ...conversation.decisions import Cause, MessageQueued
from ...errors import SessionBusy, StorageError
from ...events import FellBack, MessageArrived
from ...layers.l7_relay import Letter, control_explanation, control_of, counts, shown
from .local_queues import LetterQueue
from .mailbox import Mailbox

if TYPE_CHECKING:
    from ..session.session import Session

__all__ = ["drain"]

MAX_LETTERS: Final = 50
MAX_CHARS: Final = 100_000

Heed = Callable[[Letter], None]


async def drain(
    session: Session,
    mailbox: Mailbox | None,
    *,
    queue: LetterQueue | None = None,
    lead: str | None = None,
    heed: Heed | None = None,
    max_letters: int = MAX_LETTERS,
    max_chars: int = MAX_CHARS,
) -> int:
    """Take in what waits, up to so many letters and characters, and return how many were shown.

    ``lead`` is the agent whose approval of a plan counts; ``heed`` is called with every letter whose control message
    does. What else waits comes at the next boundary.
    """
    room = _Room(max_letters, max_chars)
    try:
        while mailbox is not None and room.left:
            letters = await to_thread.run_sync(mailbox.poll, room.left)
            for letter in letters:
                if not room.takes(letter):
                    break
                await _show(session, letter, lead, heed, room)
                await to_thread.run_sync(mailbox.taken, letter)
            if not letters:
                break
    except (StorageError, SessionBusy) as error:
        session.log.emit(FellBack(session.name, "mailbox", str(error)))
    if mailbox is not None:
        while mailbox.refused:
            refused = mailbox.refused.pop(0)
            why = f"a message was refused: {refused.why}; it is kept in {refused.path}"
            session.log.emit(FellBack(session.name, "mailbox", why))
    for letter in queue.poll(room.left) if queue is not None else ():
        if queue is None or not room.takes(letter):
            break
        await _show(session, letter, lead, heed, room)
        queue.taken(letter)
    return room.shown


class _Room:
    """How much may still come at this boundary; the first letter always may."""

    def __init__(self, letters: int, chars: int) -> None:
        self.left = letters
        self.shown = 0
        self._chars = chars

    def takes(self, letter: Letter) -> bool:
        fits = not self.shown or len(letter.text) <= self._chars
        self.left = self.left - 1 if fits else 0
        self._chars -= len(letter.text)
        return fits


async def _show(session: Session, letter: Letter, lead: str | None, heed: Heed | None, room: _Room) -> None:
    """Log a letter, unless its id is in the log already."""
    if letter.id in session.view.facts.queued:
        return
    control = control_of(letter)
    why = str(letter.control["type"]) if control is not None and letter.control is not None else "message"
    text = shown(letter, tag=secrets.token_hex(8), note=control_explanation(letter, lead))
    await session.log.decide(MessageQueued(Cause("relay", why), letter.id, text, letter.sender))
    room.shown += 1
    session.log.emit(MessageArrived(session.name, letter.id, letter.sender, letter.summary))
    if heed is not None and counts(letter, lead):
        heed(letter)
