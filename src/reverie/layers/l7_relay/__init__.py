"""Layer 7, relay: agents start agents and send each other messages, and share one prompt cache if possible.

A fork reads the parent's prefix from the cache. A sub-agent starts with its own context. Messages enter a conversation
at round boundaries, as attachments, and never change sent messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazily_from

# pyright: reportUnusedImport=false
if TYPE_CHECKING:
    from .agent_types import AgentKind, KindSource, allowed_tools, parse_kind
    from .controls import (
        CONTROLS,
        PlanApprovalRequest,
        PlanApprovalResponse,
        ShutdownResponse,
        control_explanation,
        control_of,
        counts,
        read_control,
        stamped_letter,
    )
    from .messages import (
        EVERYBODY,
        KEY_BYTES,
        MAX_LETTER_BYTES,
        MAX_SEQUENCE,
        MAX_SUMMARY_CHARS,
        USER,
        Letter,
        agent_name,
        check_agent_name,
        check_name,
        read,
        sealed,
        shown,
        signed,
    )
    from .plan import (
        AgentResult,
        answer_text,
        kinds_listing,
        narrower,
        notification_text,
        over_limit,
        start_problem,
        summary_of,
    )
    from .policy import RelayPolicy
    from .progress import fork_is_cheaper, line_for, line_problem, names_in


__getattr__ = lazily_from(__name__, "policy", "messages", "plan", "controls", "agent_types", "progress")
