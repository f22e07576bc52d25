"""Settings of layer 7: the number of agents, their depth, and the limits of each."""

from __future__ import annotations

from ...values import record


@record
class RelayPolicy:
    """Settings of layer 7: how many agents may run and how deep, and the limits of each agent."""

    max_depth: int = 3
    """How deep agents may start agents; 1 allows only the main agent to start some."""
    max_alive: int = 8
    """The most agents of one main agent that run at once."""
    max_started: int = 100
    """The most agents that one main agent may start in total."""
    max_turns: int = 200
    """The most turns of one agent."""
    max_tokens: int = 2_000_000
    """The most tokens, cached or not, that one agent may use."""
    budget_usd: float = 5.0
    """The most dollars that all agents of one main agent may cost together."""
    timeout_seconds: float = 3_600.0
    """The time limit of one agent."""
    stop_seconds: float = 2.0
    """How long a stopped agent may take to finish before it is cancelled."""
    max_prompt_chars: int = 200_000
    max_result_chars: int = 50_000
    max_message_chars: int = 100_000
    progress: bool = False
    """Whether a model writes the progress line now and then; else it is made from the last call."""
    progress_seconds: float = 30.0
    team: str = "default"
    """The team whose mailboxes this user's agents share."""
