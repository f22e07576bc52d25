"""Choose memories without a model: the matches of local search that are certain enough."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from ...lazy import pattern
from ...values import record
from ..store.records import MemoryRecord
from .policy import RecallPolicy
from .search import Match
from .terms import tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Protocol

    class Searches(Protocol):
        """An object that searches all memories without a model."""

        def search(
            self, query: str, *, limit: int = 10, now: datetime | None = None, without: Collection[str] = ()
        ) -> Sequence[Match]:
            """Return at most ``limit`` memories that best match a question, best first, except ``without``."""
            ...


_WARNING: Final = pattern(
    r"\b(?:warn\w*|caution\w*|careful|beware|gotcha\w*|pitfall\w*|traps?|caveat\w*|danger\w*"
    r"|known (?:issue|problem|bug)s?|never|avoid\w*|do(?:es)? not|don't|doesn't|must not|mustn't"
    r"|cannot|can't|bugs?|broken|breaks?|fail\w*|unsafe"
    r"|deprecated|flaky|corrupt\w*|los(?:es|t|s)|hang\w*|crash\w*)\b",
    re.IGNORECASE,
)


@record
class RecallContext:
    """The files of memories that were shown already, the tools in use, and the time."""

    surfaced: Collection[str] = ()
    tools: Sequence[str] = ()
    now: datetime | None = None


def local_choice(
    query: str,
    memories: Sequence[MemoryRecord],
    search: Searches,
    *,
    context: RecallContext,
    policy: RecallPolicy,
) -> tuple[str, ...]:
    """Return the files that local search chooses for a query, as ``select`` does without a model."""
    kept = {memory.file: memory for memory in memories if may_show(memory, context)}
    return searched(query, memories, kept, search, context.now, policy) if kept and query.strip() else ()


def searched(
    query: str,
    memories: Sequence[MemoryRecord],
    kept: Mapping[str, MemoryRecord],
    search: Searches,
    now: datetime | None,
    policy: RecallPolicy,
) -> tuple[str, ...]:
    """Return the files of matches good enough to show unasked; ``kept`` are the memories that may be shown."""
    hidden = {memory.file for memory in memories} - kept.keys()
    found = search.search(query, limit=policy.most, now=now, without=hidden)
    return tuple(match.file for match in found if match.file in kept and is_certain(match, policy))


def is_certain(match: Match, policy: RecallPolicy) -> bool:
    """Say whether a match may be shown unasked: by its words, or by its meaning where that is known.

    A memory that has much of a sentence's words, or by far the most of a passage's, needs half of that certainty.
    """
    by_words = any(
        share >= policy.min_share and (words > 2 or strength >= policy.min_strength)
        for words, strength, share in match.sentences
    ) or any(own >= max(policy.min_passage_strength, 2 * rival) for own, rival in match.passages)
    if match.certainty is None:
        return by_words
    return match.certainty >= policy.min_certainty / (2 if by_words else 1)


def may_show(memory: MemoryRecord, context: RecallContext) -> bool:
    """Say whether a memory is in use, not yet shown, not expired, and no usage note about a tool in use."""
    if (
        not memory.is_in_use
        or memory.file in context.surfaced
        or (context.tools and is_suppressed(memory, context.tools))
    ):
        return False
    now = context.now
    return now is None or not memory.has_expired(now.date().isoformat())


def is_suppressed(memory: MemoryRecord, tools: Iterable[str]) -> bool:
    """Say whether a memory is a plain usage note about a tool in use; a warning is not."""
    if memory.type != "reference":
        return False
    head = f"{memory.name} {memory.description}"
    if _WARNING.search(head):
        return False
    words = set(tokens(head))
    return any(set(named) <= words for tool in tools if (named := _tool_words(tool)))


def _tool_words(tool: str) -> list[str]:
    """Return the stems of a tool's name, with its MCP server's, without "mcp", "server" and "tool"."""
    named = tokens(tool.removeprefix("mcp__").replace("__", " "))
    return [word for word in named if word not in ("mcp", "server", "tool")]
