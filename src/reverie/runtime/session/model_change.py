"""A change of model in mid-session: which thinking the new model reads, and the cost of its empty cache."""

from __future__ import annotations

from ...cache.prices import Prices
from ...conversation.entries import ASSISTANT
from ...conversation.view import View
from ...conversation.wire.blocks import has_thinking
from ...events import ModelChanged
from ...model_facts import ModelFacts, facts_of

__all__ = ["model_change"]


def model_change(
    view: View, session: str, *, before: str, after: str, facts: ModelFacts, prices: Prices | None
) -> ModelChanged:
    """Return the event of a change of model; ``facts`` and ``prices`` are those of the new one.

    Nothing is stripped: the provider leaves out thinking that its model cannot read, and reads it again after a
    change back.
    """
    shown = {piece.uuid for group in view.groups for piece in group.pieces} - view.overrides.thinking
    authors = [
        facts_of(str(entry.reply.get("model") or before)).name
        for entry in view.history
        if entry.kind == ASSISTANT and entry.uuid in shown and entry.message is not None and has_thinking(entry.message)
    ]
    tokens = view.token_count.tokens
    cost = prices.cost(write_5m=tokens) if prices is not None else None
    return ModelChanged(session, before, after, len(authors), sum(map(facts.reads, authors)), tokens, cost)
