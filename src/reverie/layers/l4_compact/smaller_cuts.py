"""Two smaller cuts, both off by default: snip removes whole rounds, collapse replaces finished spans by a stub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...conversation.authorship import utterances
from ...conversation.cuts import Item
from ...conversation.decisions import Cause, Collapsed, Snipped
from ...conversation.entries import ASSISTANT, USER, reply_id
from ...conversation.view import View
from ...values import record
from .tail import TailPolicy, kept_from, tokens_of
from .user_words import user_messages

_STUB_TOKENS = 120
_ANSWER_CHARS = 280


@record
class Span:
    """A range of items in the view by position, without ``end``, and its token count."""

    start: int
    end: int
    tokens: int


def plan_snip(view: View, tail: TailPolicy, *, free_tokens: int, handle: str) -> Snipped | None:
    """Plan to remove the oldest rounds until ``free_tokens`` are free; None if no round may go.

    Rounds with a user message or a pinned message, and the tail, stay.
    """
    items = view.items_in_view()
    gone: list[str] = []
    freed = 0
    for span in _rounds(view, items, kept_from(view, items, tail)):
        if freed >= free_tokens:
            break
        part = items[span.start : span.end]
        if any(one.uuid in view.facts.pinned for one in part) or user_messages(one.entry for one in part):
            continue
        gone += [one.uuid for one in part]
        freed += span.tokens
    if not gone:
        return None
    return Snipped(Cause("snip", f"{len(gone)} old messages made room", freed, moves_prefix=True), gone, handle)


def plan_collapse(view: View, tail: TailPolicy, *, free_tokens: int) -> list[Collapsed]:
    """Return decisions, maybe none, to replace the oldest finished spans by stubs until enough tokens are free."""
    items = view.items_in_view()
    out: list[Collapsed] = []
    freed = 0
    for span in finished_spans(view, items, kept_from(view, items, tail)):
        if freed >= free_tokens:
            break
        part = items[span.start : span.end]
        if span.tokens < 2 * _STUB_TOKENS or any(one.uuid in view.facts.pinned for one in part):
            continue
        freed += span.tokens - _STUB_TOKENS
        cause = Cause("collapse", "a finished part was folded", span.tokens - _STUB_TOKENS, moves_prefix=True)
        out.append(Collapsed(cause, part[0].uuid, part[-1].uuid, _stub(part)))
    return out


def finished_spans(view: View, items: Sequence[Item], end: int) -> list[Span]:
    """Return the agent's work between two user messages as spans before the position ``end``, oldest first."""
    out: list[Span] = []
    start: int | None = None
    for at in range(end):
        spoke = (items[at].kind == USER and bool(user_messages([items[at].entry]))) or items[at].entry.message is None
        if spoke:
            if start is not None:
                out.append(Span(start, at, sum(tokens_of(view, one) for one in items[start:at])))
            start = None
        elif start is None and items[at].kind == ASSISTANT:
            start = at
    return out


def _rounds(view: View, items: Sequence[Item], end: int) -> list[Span]:
    """Return the rounds before a position as spans, oldest first; each lasts until the next reply."""
    starts: list[int] = []
    seen: set[str] = set()
    for at, item in enumerate(items[:end]):
        if item.kind == ASSISTANT and reply_id(item.entry) not in seen:
            seen.add(reply_id(item.entry))
            starts.append(at)
    ends = [*starts[1:], end][: len(starts)]
    return [Span(a, b, sum(tokens_of(view, one) for one in items[a:b])) for a, b in zip(starts, ends, strict=True)]


def _stub(part: Sequence[Item]) -> str:
    tools: Counter[str] = Counter()
    told = ""
    for item in part:
        for one in utterances(item.entry):
            if one.kind == "call":
                tools[one.tool] += 1
            elif one.kind == "told":
                told = one.text
    used = ", ".join(f"{name} {count}x" for name, count in tools.most_common(6))
    answer = " ".join(told.split())
    answer = answer if len(answer) <= _ANSWER_CHARS else f"{answer[: _ANSWER_CHARS - 3]}..."
    lines = [f"[{len(part)} messages of finished work are folded here{f' ({used})' if used else ''}.]"]
    if answer:
        lines.append(f"It ended with: {answer}")
    lines.append(f"Any of them can be read back by its handle; the first is {part[0].uuid}, the last {part[-1].uuid}.")
    return "\n".join(lines)
