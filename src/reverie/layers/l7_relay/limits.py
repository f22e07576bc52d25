"""Limits on the number of agents and on each agent's usage; checked before every start and at every turn. Pure."""

from __future__ import annotations

from ...text.counts import dollars
from .policy import RelayPolicy


def start_problem(policy: RelayPolicy, *, depth: int, alive: int, started: int, usd: float, prompt_chars: int) -> str:
    """Return why another agent may not start now, with an alternative; empty if it may.

    ``depth`` is that of the agent about to start another; the counts and the cost are of all agents of one main agent.
    """
    if depth >= policy.max_depth:
        return f"agents may start agents {policy.max_depth} deep, and this one is that deep: do the work here"
    if alive >= policy.max_alive:
        return f"{alive} agents are at work, and no more may be at once: wait for one, or stop one"
    if started >= policy.max_started:
        return f"{started} agents were started, and no more may be in this session: do the work here"
    if usd >= policy.budget_usd:
        return f"{dollars(usd)} of {dollars(policy.budget_usd)} for agents is spent: do the work here"
    if prompt_chars > policy.max_prompt_chars:
        return (
            f"the prompt has {prompt_chars:,} characters, and an agent takes {policy.max_prompt_chars:,}: "
            "write the rest to a file and name it"
        )
    return ""


def over_limit(policy: RelayPolicy, *, turns: int, tokens: int, seconds: float, family_usd: float) -> str:
    """Return a text that names the limit an agent has reached; empty if none.

    ``family_usd`` is the cost of all agents of the main agent together.
    """
    if turns >= policy.max_turns:
        return f"the limit of {policy.max_turns} turns is reached"
    if tokens >= policy.max_tokens:
        return f"the limit of {policy.max_tokens:,} tokens is reached"
    if seconds >= policy.timeout_seconds:
        return f"the time limit of {policy.timeout_seconds:g} s is reached"
    if family_usd >= policy.budget_usd:
        return f"{dollars(family_usd)} of {dollars(policy.budget_usd)} for all agents is spent"
    return ""
