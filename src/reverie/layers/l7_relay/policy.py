"""How many agents there may be, how deep, and how far each goes."""

from __future__ import annotations

from ...values import record

__all__ = ["RelayPolicy"]


@record
class RelayPolicy:
    """Settings of layer 7."""

    max_depth: int = 3
    """How deep agents may start agents; 1 lets only the main agent do it."""
    max_alive: int = 8
    """Agents of one main agent that are alive at once."""
    max_started: int = 100
    """Agents one main agent may start in all."""
    max_turns: int = 200
    """Turns of one agent."""
    max_tokens: int = 2_000_000
    """Tokens, read from the cache or not, that one agent may use."""
    budget_usd: float = 5.0
    """Money that all agents of one main agent may cost together."""
    timeout_seconds: float = 3_600.0
    """How long one agent may run."""
    stop_seconds: float = 2.0
    """How long a stopped agent has to come to its end before it is cut off."""
    max_prompt_chars: int = 200_000
    max_result_chars: int = 50_000
    max_message_chars: int = 100_000
    progress: bool = False
    """Whether a model says now and then what an agent does; else the line is made from its last call."""
    progress_seconds: float = 30.0
    team: str = "default"
    """The team whose mailboxes agents of this user share."""
