"""Plan a compaction by the provider: the cut, the instructions, and the text to say again afterwards. Pure.

The provider's signed summary replaces exactly the messages of a request that was already sent, so that the thinking
of the messages after it stays valid. Nothing may come before the summary or between it and those messages:
all that the program adds comes with the next message of the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from ...conversation.amendments import tool_of_change
from ...conversation.cuts import BLOCK, SYSTEM, Item
from ...conversation.decisions import Cause, Compacted
from ...conversation.entries import ASSISTANT
from ...conversation.rules import Rule
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks, text_block
from ...errors import CompactionError
from ...values import record
from .plan import EARLIER, LAYER, CompactionCause, CompactionText, SummaryBudget, added_parts
from .summary import notes_text, prompt_text, reading_back
from .tail import CutRange, TailPolicy, legal_starts, open_from, tokens_of
from .user_words import QuotedWords, UserMessages

METHOD: Final = "provider"
MAX_INSTRUCTIONS: Final = 16_384
_AGAIN: Final = (
    "The earlier part of this session was replaced by the summary at the top. The following still holds and is said "
    "again, because it is no longer in view."
)


@record
class SignedSummary:
    """A provider's summary: its block as it came, its text, and the digests of the messages it replaces."""

    block: Mapping[str, Any]
    covers: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The readable text of the summary; empty if the provider gives none."""
        return str(self.block.get("content") or "")


def provider_cut_range(view: View, tail: TailPolicy, *, max_tokens: int) -> CutRange:
    """Return the range that a provider's summary replaces: everything before a reply, up to the kept tail.

    The range has at most ``max_tokens``, so that it fits a request; raise ``CompactionError`` if no range does.
    """
    items = view.items_in_view()
    sizes = [tokens_of(view, item) for item in items]
    before = [0]
    for size in sizes:
        before.append(before[-1] + size)
    starts = [at for at in _starts_of_replies(items) if before[at] <= max_tokens]
    if not starts:
        raise CompactionError("there is nothing to compact: no part before a reply fits a request for a summary")
    kept = {at: before[-1] - before[at] for at in starts}
    short = [at for at in starts if kept[at] <= tail.max_tokens]
    enough = [at for at in short if kept[at] >= tail.tokens]
    if enough:
        return CutRange(items, 0, enough[-1])
    if short:
        return CutRange(items, 0, short[0])
    ends_open = open_from(view, items) < len(items) or items[-1].kind == ASSISTANT
    if kept[starts[-1]] <= tail.unseen_tokens or ends_open or before[-1] > max_tokens:
        return CutRange(items, 0, starts[-1])
    return CutRange(items, 0, len(items))


def _starts_of_replies(items: Sequence[Item]) -> list[int]:
    """Return the positions of the replies that a request was sent for, without those that a cut would split.

    A kept message that removes a tool would be refused where the summary replaces the message that added it.
    """
    legal = legal_starts(items)
    apart = _tools_added_and_removed(items)
    return [
        at
        for at in range(1, len(items))
        if items[at].kind == ASSISTANT
        and items[at - 1].kind not in (ASSISTANT, BLOCK)
        and legal[at]
        and not any(added < at <= removed for added, removed in apart)
    ]


def parts_tool_changes(taking: CutRange) -> bool:
    """Return whether a cut would keep the removal of a tool without its addition, or a change right behind the summary.

    A provider refuses both.
    """
    first = takewhile(lambda item: item.kind == SYSTEM, taking.kept)
    if any(block["type"] in ("tool_addition", "tool_removal") for item in first for block in as_blocks(item.message)):
        return True
    return any(added < taking.end <= removed for added, removed in _tools_added_and_removed(taking.items))


def _tools_added_and_removed(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Return the positions of messages that add a tool and of those that remove it again."""
    added: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for at, item in enumerate(items):
        for change in as_blocks(item.message) if item.kind == SYSTEM else ():
            if change["type"] == "tool_addition":
                added[tool_of_change(change)] = at
            elif change["type"] == "tool_removal" and tool_of_change(change) in added:
                found.append((added[tool_of_change(change)], at))
    return found


def provider_instructions(
    notes: Mapping[str, str], instructions: str, *, budget: SummaryBudget, rules: Sequence[Rule] = ()
) -> str:
    """Return the instructions for a provider's summary: our sections, the user's wishes and rules, the notes."""
    parts = [prompt_text(METHOD)]
    if instructions.strip():
        parts.append(f"Instructions of the user for this summary, which take precedence:\n\n{instructions.strip()}")
    if rules:
        listed = "\n".join(f"- {rule.text}" for rule in rules)
        held = "Rules of the user; unless a later message of theirs took it back, repeat each word for word:"
        parts.append(f"{held}\n\n{listed}")
    taken = notes_text(notes, section_tokens=budget.section, total_tokens=budget.notes)
    if taken:
        parts.append(f"Notes taken during the session; everything in them that still holds must survive:\n\n{taken}")
    return "\n\n".join(parts)[:MAX_INSTRUCTIONS]


def provider_compaction(
    view: View,
    cut_range: CutRange,
    signed: SignedSummary,
    names: CompactionText,
    budget: SummaryBudget,
    cause: CompactionCause,
    *,
    spoken: UserMessages | None = None,
) -> tuple[Compacted, QuotedWords]:
    """Return the decision that puts a signed summary in place of a range, and the user messages said again.

    ``names`` has the summary's text and the exact names of the session. The user's messages and names that the
    summary lost come after the kept messages; standing context follows with the next request.
    """
    added = added_parts(view, cut_range, names, budget, spoken=spoken)
    earlier = [one for one in view.facts.compactions if one not in view.facts.undone][-EARLIER:]
    again = [_AGAIN, *added.texts, reading_back(cause.handle, earlier)]
    kept = cut_range.kept
    decision = Compacted(
        Cause(LAYER, cause.reason, moves_prefix=True),
        trigger=cause.trigger,
        method=METHOD,
        summary=signed.text or "[The provider's summary is not readable.]",
        tokens_before=view.token_count.raw_tokens,
        last_before=cut_range.cut[-1].uuid,
        first_kept=kept[0].uuid if kept else None,
        attachments=[text_block("\n\n".join(part for part in again if part))],
        discovered_tools=[*view.facts.found_tools],
        preserved={"head": kept[0].uuid, "anchor": cause.handle, "tail": kept[-1].uuid} if kept else {},
        handle=cause.handle,
        block=dict(signed.block),
        covers=dict(signed.covers),
    )
    return decision, added.words
