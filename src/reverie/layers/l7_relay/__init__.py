"""Layer 7, relay: agents start agents and write to each other, sharing one prompt cache where they can.

A fork reads the parent's prefix from the cache; a sub-agent begins with a context of its own; messages enter a
conversation at round boundaries, as attachments, and never change what was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily

if TYPE_CHECKING:
    from .kinds import AgentKind, allowed_tools, parse_kind
    from .limits import Census, Spent, over_limit, start_problem
    from .plan import Outcome, answer_text, kinds_listing, narrower, notification_text, summary_of
    from .policy import RelayPolicy
    from .progress import fork_is_cheaper, line_for, line_problem, names_in

__all__ = [
    "AgentKind",
    "Census",
    "Outcome",
    "RelayPolicy",
    "Spent",
    "allowed_tools",
    "answer_text",
    "fork_is_cheaper",
    "kinds_listing",
    "line_for",
    "line_problem",
    "names_in",
    "narrower",
    "notification_text",
    "over_limit",
    "parse_kind",
    "start_problem",
    "summary_of",
]

__getattr__ = lazily(
    __name__,
    {
        "kinds": ("AgentKind", "allowed_tools", "parse_kind"),
        "limits": ("Census", "Spent", "over_limit", "start_problem"),
        "plan": ("Outcome", "answer_text", "kinds_listing", "narrower", "notification_text", "summary_of"),
        "policy": ("RelayPolicy",),
        "progress": ("fork_is_cheaper", "line_for", "line_problem", "names_in"),
    },
)
