"""Limits on the number of agents and on each agent's usage; checked before every start and at every turn. Pure."""

from __future__ import annotations

from ...values import record
from .policy import RelayPolicy


@record
class AgentCounts:
    """Counts and cost of all agents of one main agent; ``depth`` is that of the agent about to start another."""

    depth: int = 0
    alive: int = 0
    started: int = 0
    usd: float = 0.0


@record
class AgentSpending:
    """The turns, tokens and seconds that one agent used so far."""

    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0


def start_problem(policy: RelayPolicy, census: AgentCounts, *, prompt_chars: int) -> str:
    """Return why another agent may not start now, with an alternative; empty if it may."""
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
    """Return a text that names the limit an agent has reached; empty if none.

    ``family_usd`` is the cost of all agents of the main agent together.
    """
    if spent.turns >= policy.max_turns:
        return f"{spent.turns} turns were taken, and an agent has {policy.max_turns}"
    if spent.tokens >= policy.max_tokens:
        return f"{spent.tokens:,} tokens were used, and an agent has {policy.max_tokens:,}"
    if spent.seconds >= policy.timeout_seconds:
        return f"{spent.seconds:.0f} s have passed, and an agent has {policy.timeout_seconds:.0f}"
    if family_usd >= policy.budget_usd:
        return f"${family_usd:.2f} of ${policy.budget_usd:.2f} for all agents is spent"
    return ""
