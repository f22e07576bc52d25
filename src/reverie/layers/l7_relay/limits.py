"""How many agents there may be and how far each goes: pure checks, asked before every start and at every turn."""

from __future__ import annotations

from ...values import record
from .policy import RelayPolicy

__all__ = ["AgentCounts", "AgentSpending", "over_limit", "start_problem"]


@record
class AgentCounts:
    """How things stand with all agents of one main agent; ``depth`` is that of the one who wants to start another."""

    depth: int = 0
    alive: int = 0
    started: int = 0
    usd: float = 0.0


@record
class AgentSpending:
    """What one agent has used so far."""

    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0


def start_problem(policy: RelayPolicy, census: AgentCounts, *, prompt_chars: int) -> str:
    """Say why another agent may not be started now, and what to do instead; nothing where it may."""
    if census.depth >= policy.max_depth:
        return f"agents may start agents {policy.max_depth} deep, and this one is that deep: do the work here"
    if census.alive >= policy.max_alive:
        return f"{census.alive} agents are at work, and no more may be at once: wait for one, or stop one"
    if census.started >= policy.max_started:
        return f"{census.started} agents were started, and no more may be in this session: do the work here"
    if census.usd >= policy.budget_usd:
        return f"${census.usd:.2f} of ${policy.budget_usd:.2f} for agents is spent: do the work here"
    if prompt_chars > policy.max_prompt_chars:
        return (
            f"the prompt has {prompt_chars:,} characters, and an agent takes {policy.max_prompt_chars:,}: "
            "write the rest to a file and name it"
        )
    return ""


def over_limit(policy: RelayPolicy, spent: AgentSpending, *, family_usd: float) -> str:
    """Say which limit an agent has reached; nothing while none is. ``family_usd`` is what all agents cost together."""
    if spent.turns >= policy.max_turns:
        return f"{spent.turns} turns were taken, and an agent has {policy.max_turns}"
    if spent.tokens >= policy.max_tokens:
        return f"{spent.tokens:,} tokens were used, and an agent has {policy.max_tokens:,}"
    if spent.seconds >= policy.timeout_seconds:
        return f"{spent.seconds:.0f} s have passed, and an agent has {policy.timeout_seconds:.0f}"
    if family_usd >= policy.budget_usd:
        return f"${family_usd:.2f} of ${policy.budget_usd:.2f} for all agents is spent"
    return ""
