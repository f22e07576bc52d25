"""The effect and price of a change in mid-session: an undone compaction, a reloaded system prompt, another model."""

from __future__ import annotations

from ...cache.prices import Prices
from ...conversation.entries import ASSISTANT
from ...conversation.thinking import replies_with_thinking, thinking_tokens
from ...conversation.view import View
from ...conversation.wire.blocks import has_thinking
from ...events import ModelChanged
from ...model_facts import ModelFacts, facts_of
from ...values import record
from .accounts import Accounts
from .thinking import ThinkingWatch


@record
class ChangePrice:
    """The effect of a change: the tokens of the next request, the thinking it loses and regains, and its cost."""

    tokens_before: int
    tokens_after: int
    thinking_lost: int
    """Replies whose thinking the model can no longer read."""
    thinking_lost_tokens: int
    thinking_valid_again: int
    """Replies whose thinking the model can read again."""
    rewrite_usd: float | None
    """The cost of writing the changed request to the cache; None if the price is unknown."""

    @property
    def text(self) -> str:
        """The effect in one line."""
        changes = self.tokens_before != self.tokens_after
        size = f"{self.tokens_before:,} tokens before, {self.tokens_after:,} after"
        parts = [size if changes else f"{self.tokens_after:,} tokens"]
        if self.rewrite_usd is not None:
            parts.append(f"writing them to the cache costs about ${self.rewrite_usd:.2f}")
        if self.thinking_valid_again:
            parts.append(f"the thinking of {_replies(self.thinking_valid_again)} is valid again")
        if self.thinking_lost:
            tokens = f"{self.thinking_lost_tokens:,} tokens"
            parts.append(f"the thinking of {_replies(self.thinking_lost)} is lost ({tokens})")
        return "; ".join(parts)


def price_of_change(before: View, after: View, thinking: ThinkingWatch, accounts: Accounts) -> ChangePrice:
    """Return the price of a change that turns one view into another."""
    return _price(before, after, thinking.lost_in(after), accounts)


def price_of_reload(view: View, thinking: ThinkingWatch, accounts: Accounts) -> ChangePrice:
    """Return the price of another system prompt or other tools before all messages of a view."""
    return _price(view, view, replies_with_thinking(view) if thinking.binds else [], accounts)


def model_change(
    view: View, session: str, *, before: str, after: str, facts: ModelFacts, prices: Prices | None
) -> ModelChanged:
    """Return the event of a change of model; ``facts`` and ``prices`` are those of the new one.

    Nothing is stripped: the provider leaves out thinking that its model cannot read, and reads it again after a
    change back.
    """
    shown = {piece.uuid for group in view.groups for piece in group.pieces} - view.overrides.thinking
    authors = [
        facts_of(str(item.entry.reply.get("model") or before)).name
        for item in view.items_in_view()
        if item.kind == ASSISTANT and item.uuid in shown and has_thinking(item.message)
    ]
    tokens = view.token_count.tokens
    cost = prices.cost(write_5m=tokens) if prices is not None else None
    return ModelChanged(session, before, after, len(authors), sum(map(facts.reads, authors)), tokens, cost)


def _price(before: View, after: View, lost: list[str], accounts: Accounts) -> ChangePrice:
    gone = set(lost)
    shown = set(replies_with_thinking(before))
    again = [uuid for uuid in replies_with_thinking(after) if uuid not in shown and uuid not in gone]
    prefix = after.facts.prefix
    prices = accounts.prices(prefix.model) if prefix is not None else None
    tokens = after.token_count.tokens
    write = prices.rates(tokens).cache_write_5m if prices is not None else None
    return ChangePrice(
        before.token_count.tokens,
        tokens,
        len(lost),
        thinking_tokens(after, lost),
        len(again),
        None if write is None else tokens * write / 1_000_000,
    )


def _replies(count: int) -> str:
    return f"{count:,} {'reply' if count == 1 else 'replies'}"
