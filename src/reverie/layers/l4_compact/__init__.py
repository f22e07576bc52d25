"""Layer 4, compact: the past becomes a summary that can be read back and undone.

Runs before a request: where the window is nearly full, or earlier where the provider's cache is gone and that pays.
Costs nothing from notes, or one forked call. The prefix moves, by a logged decision that carries the whole summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .asking import dropped_rounds, fitted_messages, plain_messages, plain_request
    from .loss import Loss, Lost, loss_between, loss_of, loss_text, shown_text
    from .plan import Room, Written, compacted, room_of, round_taking, taking_from, taking_tail, taking_up_to
    from .policy import CompactPolicy
    from .spans import plan_collapse, plan_snip
    from .summary import directive, notes_text, summary_of
    from .tail import Taking, standing
    from .words import Saying, Words

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
        "asking": ("dropped_rounds", "fitted_messages", "plain_messages", "plain_request"),
        "loss": ("Loss", "Lost", "loss_between", "loss_of", "loss_text", "shown_text"),
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
        "spans": ("plan_collapse", "plan_snip"),
        "summary": ("directive", "notes_text", "summary_of"),
        "tail": ("Taking", "standing"),
        "words": ("Saying", "Words"),
    },
)
