"""Deliver waiting letters to a session between two requests: log each letter, then mark it as read.

An agent calls ``await drain(session, mailbox, queue=..., lead=...)`` after its tools have returned and before a prompt
is added (``Agent.attachments``). Each letter becomes a ``MessageQueued`` decision, fenced as data with its sender and
trust, at the end of the conversation, so the cached prefix does not change. If the process is killed between the two
steps, the letter is polled again, and the log already contains its id.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anyio import to_thread

from ...conversation.decisions import Cause, MessageQueued
from ...errors import SessionBusy, StorageError
from ...events import FellBack, MessageArrived
from ...layers.l7_relay import Letter, control_explanation, control_of, counts, shown
from ..session.session import Session
from .local_queues import LetterQueue
from .mailbox import Mailbox

MAX_LETTERS: Final = 50
MAX_CHARS: Final = 100_000
SUMMARY_CHARS: Final = 200
"""The length of the beginning of a message, in place of a missing summary."""

ControlHandler = Callable[[Letter], None]


async def drain(
    session: Session,
    mailbox: Mailbox | None,
    *,
    queue: LetterQueue | None = None,
    lead: str | None = None,
    on_control: ControlHandler | None = None,
    can_answer: bool = True,
    max_letters: int = MAX_LETTERS,
    max_chars: int = MAX_CHARS,
) -> int:
    """Deliver waiting letters up to both limits, and return how many were shown; others wait for the next call.

    ``lead`` is the agent whose approval of a plan is valid; ``on_control`` is called with each letter whose
    control message is valid; ``can_answer`` says whether the reader has the tool SendMessage. A mailbox that fails is
    reported as an event.
    """
    reader = _Reader(session, lead, on_control, can_answer, max_letters, max_chars)
    try:
        while mailbox is not None and reader.left:
            letters = await to_thread.run_sync(mailbox.poll, reader.left)
            for letter in letters:
                if not reader.admits(letter):
                    break
                await reader.show(letter)
                await to_thread.run_sync(mailbox.mark_read, letter)
            if not letters:
                break
    except (StorageError, SessionBusy) as error:
        session.log.emit(FellBack(session.name, "mailbox", str(error)))
    if mailbox is not None:
        while mailbox.refused:
            refused = mailbox.refused.pop(0)
            why = f"a message was refused: {refused.why}; it is in {refused.path}"
            session.log.emit(FellBack(session.name, "mailbox", why))
    for letter in queue.poll(reader.left) if queue is not None else ():
        if queue is None or not reader.admits(letter):
            break
        await reader.show(letter)
        queue.mark_read(letter)
    return reader.shown


@dataclass(slots=True)
class _Reader:
    """The session that letters are shown in, the rules for their control messages, and the limits of one ``drain``."""

    session: Session
    lead: str | None
    on_control: ControlHandler | None
    can_answer: bool
    left: int
    chars: int
    shown: int = 0

    def admits(self, letter: Letter) -> bool:
        """Count a letter and return whether it fits the limits; the first one always fits."""
        fits = not self.shown or len(letter.text) <= self.chars
        self.left = self.left - 1 if fits else 0
        self.chars -= len(letter.text)
        return fits

    async def show(self, letter: Letter) -> None:
        """Log a letter, emit its arrival, and call ``on_control`` if its control is valid; skip one in the log."""
        session = self.session
        if letter.id in session.view.facts.queued:
            return
        control = control_of(letter)
        why = str(letter.control["type"]) if control is not None and letter.control is not None else "message"
        note = control_explanation(letter, self.lead, can_answer=self.can_answer)
        text = shown(letter, tag=secrets.token_hex(8), note=note)
        await session.log.decide(MessageQueued(Cause("relay", why), letter.id, text, letter.sender))
        self.shown += 1
        summary = letter.summary or " ".join(letter.text.split())[:SUMMARY_CHARS]
        session.log.emit(MessageArrived(session.name, letter.id, letter.sender, summary or why))
        if self.on_control is not None and counts(letter, self.lead):
            self.on_control(letter)
