"""Layer 4, compact: the past becomes a summary that can be read back and undone.

Runs before a request: where the window is nearly full, or earlier where the provider's cache is gone and that pays.
Costs nothing from notes, or one forked call. The prefix moves, by a logged decision that carries the whole summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .loss import Loss, Lost, loss_between, loss_of, loss_text, shown_text
    from .plan import Room, Written, compacted, room_of, round_taking, taking_from, taking_tail, taking_up_to
    from .policy import CompactPolicy
    from .smaller_cuts import plan_collapse, plan_snip
    from .summary import directive, notes_text, summary_of
    from .summary_request import dropped_rounds, fitted_messages, plain_messages, plain_request
    from .tail import Taking, standing
    from .user_words import Saying, Words

__all__ = [
    "CompactPolicy",
    "Loss",
    "Lost",
    "Room",
    "Saying",
    "Taking",
    "Words",
    "Written",
    "compacted",
    "directive",
    "dropped_rounds",
    "fitted_messages",
    "loss_between",
    "loss_of",
    "loss_text",
    "notes_text",
    "plain_messages",
    "plain_request",
    "plan_collapse",
    "plan_snip",
    "room_of",
    "round_taking",
    "shown_text",
    "standing",
    "summary_of",
    "taking_from",
    "taking_tail",
    "taking_up_to",
]

__getattr__ = lazily(
    __name__,
    {
        "loss": (
            "Loss",
            "Lost",
            "loss_between",
            "loss_of",
            "loss_text",
            "shown_text",
        ),
        "plan": (
            "Room",
            "Written",
            "compacted",
            "room_of",
            "round_taking",
            "taking_from",
            "taking_tail",
            "taking_up_to",
        ),
        "policy": ("CompactPolicy",),
        "smaller_cuts": (
            "plan_collapse",
            "plan_snip",
        ),
        "summary": (
            "directive",
            "notes_text",
            "summary_of",
        ),
        "summary_request": (
            "dropped_rounds",
            "fitted_messages",
            "plain_messages",
            "plain_request",
        ),
        "tail": (
            "Taking",
            "standing",
        ),
        "user_words": (
            "Saying",
            "Words",
        ),
    },
)
