"""Plan a compaction. Pure: sizes, prices, notes and the model's summary come in as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...conversation.cuts import Item, is_user_context, position_of
from ...conversation.decisions import Cause, Compacted
from ...conversation.entries import ASSISTANT
from ...conversation.identifiers import Identifier
from ...conversation.rules import ended_rules
from ...conversation.view import View
from ...errors import CompactionError, InputError
from ...values import field, record, replace
from .anchors import anchor_list, anchors_text
from .policy import CompactPolicy
from .summary import summary_text
from .tail import CutRange, TailPolicy, is_summary, kept_from, legal_starts, open_from, tokens_of
from .user_words import (
    HANDLE_TOKENS,
    QuotedWords,
    UserMessage,
    UserMessages,
    quoted_words,
    tokens_spoken,
    user_messages,
    words_text,
)

LAYER = "compact"
_FRAME = 300  # tokens of headings and sentences around the parts of a summary
_NOTES_SHARE = 0.4  # of the room beside user messages and names; the accounts of the requests get the rest
_UNSEEN = 0.4  # share of the window for results that the model has not seen yet
EARLIER = 8  # handles of earlier cuts that a summary lists


@record
class SummaryBudget:
    """Token budgets of the parts of a compaction in this window: tail, user messages, handles, names, notes."""

    tail: TailPolicy
    words: int
    handles: int
    anchors: int
    section: int
    notes: int
    text: int
    accounts: int = 0

    def beside(self, said: Sequence[UserMessage]) -> SummaryBudget:
        """Return budgets with notes and accounts in the room that user messages, handles and names leave."""
        words = tokens_spoken(said, self.words)
        left = max(0, self.text - words - self.handles - self.anchors - _FRAME)
        notes = min(self.notes, int(left * _NOTES_SHARE))
        return replace(self, notes=notes, accounts=left - notes)

    def scaled(self, share: float) -> SummaryBudget:
        """Return budgets with the tail scaled by ``share``; 0 keeps no tail and halves user messages and names."""
        if share <= 0:
            none = TailPolicy(0, 0, 0, keeps_open=False)
            words, anchors, accounts = self.words // 2, self.anchors // 2, self.accounts // 2
            return replace(self, tail=none, words=words, anchors=anchors, accounts=accounts)
        least, most = int(self.tail.tokens * share), int(self.tail.max_tokens * share)
        texts = self.tail.texts if share >= 1 else 0
        return replace(self, tail=replace(self.tail, tokens=least, texts=texts, max_tokens=most))


def summary_budget(policy: CompactPolicy, effective: int) -> SummaryBudget:
    """Return the policy's token budgets, each at most its share of ``effective``, the window's tokens (T8)."""

    def fit(tokens: int, share: float) -> int:
        return max(0, min(tokens, int(effective * share)))

    least, most = fit(policy.tail_tokens, 0.06), fit(policy.tail_max_tokens, 0.25)
    tail = TailPolicy(least, policy.tail_messages, most, int(effective * _UNSEEN))
    return SummaryBudget(
        tail,
        words=fit(policy.verbatim_tokens, 0.12),
        handles=fit(policy.handle_tokens, 0.0125),
        anchors=fit(policy.anchor_tokens, 0.0125),
        section=fit(policy.notes_section_tokens, 0.0125),
        notes=fit(policy.notes_tokens, 0.08),
        text=fit(policy.text_tokens, 0.25),
    )


@record
class CompactionText:
    """The text of a summary: its method, its body, and the exact names of the session.

    ``names`` has the number of uses of each name, and the uuid of the last message that has it.

    ``accounts`` has the work after each user message, by its handle.
    """

    method: str
    body: str
    names: Mapping[Identifier, tuple[int, str]]
    accounts: Mapping[str, str] = field(default_factory=lambda: {})


@record
class CompactionCause:
    """The trigger of a compaction, its reason in words, and the handle that reads the removed part back."""

    trigger: str
    reason: str
    handle: str


def cut_range_before_tail(view: View, tail: TailPolicy, *, cursor: str | None = None) -> CutRange:
    """Return the items before the kept tail as the range to cut; raise ``CompactionError`` if none need a summary.

    ``cursor`` is the uuid of the last message that the notes cover; raise also if it is no longer in view.
    """
    items = view.items_in_view()
    at = None if cursor is None else position_of(items, cursor)
    if cursor is not None and at is None:
        raise CompactionError("the message up to which notes were taken is no longer in view")
    return _checked(
        CutRange(items, _context(items), kept_from(view, items, tail, cursor=None if at is None else at + 1))
    )


def round_cut_range(view: View, max_tokens: int) -> CutRange:
    """Return the range to cut: all items before open calls, also before the last round if it fits ``max_tokens``.

    Raise ``CompactionError`` if there is nothing to summarise.
    """
    items = view.items_in_view()
    legal = legal_starts(items)
    last = next((at for at in range(len(items) - 1, -1, -1) if items[at].kind == ASSISTANT), len(items))
    start = next((at for at in range(last, -1, -1) if legal[at]), 0)
    must = next((at for at in range(open_from(view, items), -1, -1) if legal[at]), len(items))
    small = sum(tokens_of(view, item) for item in items[start:]) <= max_tokens
    end = min(must, start if small and start > _context(items) else len(items))
    return _checked(CutRange(items, _context(items), end))


def cut_range_up_to(view: View, message: str) -> CutRange:
    """Return the items before a message, given by uuid or its start, as the range to cut; no round is split.

    Raise ``InputError`` if no message matches, ``CompactionError`` if there is nothing to summarise.
    """
    items = view.items_in_view()
    at = _found(items, message)
    legal = legal_starts(items)
    end = next((place for place in range(at, -1, -1) if legal[place]), 0)
    return _checked(CutRange(items, _context(items), end))


def cut_range_from(view: View, message: str) -> CutRange:
    """Return the items from a message's round to the end, given by uuid or its start, as the range to cut.

    Raise ``InputError`` if no message matches, ``CompactionError`` if calls are open or nothing can be summarised.
    """
    items = view.items_in_view()
    at = _found(items, message)
    legal = legal_starts(items)
    start = next((place for place in range(at, -1, -1) if legal[place]), 0)
    if open_from(view, items) < len(items):
        raise CompactionError("tool calls wait for their results: compact once they are in")
    return _checked(CutRange(items, max(start, _context(items)), len(items)))


def compaction(
    view: View,
    cut_range: CutRange,
    summary: CompactionText,
    budget: SummaryBudget,
    cause: CompactionCause,
    *,
    spoken: UserMessages | None = None,
) -> tuple[Compacted, QuotedWords]:
    """Return the decision of a compaction, with the summary's whole text, and the user messages quoted in it.

    ``spoken`` has the user messages if the caller follows them; else the view is read for them.
    """
    added = added_parts(view, cut_range, summary, budget, spoken=spoken)
    named = max(1, min(EARLIER, budget.handles // HANDLE_TOKENS))
    earlier = [one for one in view.facts.compactions if one not in view.facts.undone][-named:]
    go_on = cause.trigger != "manual" or summary.method == "notes"
    text = summary_text(summary.body, added.repeated, added.anchors, handle=cause.handle, earlier=earlier, go_on=go_on)
    kept = cut_range.kept
    decision = Compacted(
        Cause(LAYER, cause.reason, moves_prefix=True),
        trigger=cause.trigger,
        method=summary.method,
        summary=text,
        tokens_before=view.token_count.raw_tokens,
        last_before=cut_range.cut[-1].uuid,
        first_kept=kept[0].uuid if kept else None,
        discovered_tools=[*view.facts.found_tools],
        from_message=cut_range.items[cut_range.start].uuid if summary.method == "from" else None,
        preserved={"head": kept[0].uuid, "anchor": cause.handle, "tail": kept[-1].uuid} if kept else {},
        handle=cause.handle,
    )
    return decision, added.words


@record
class AddedParts:
    """The parts that the program adds to a summary: the user's messages and exact names."""

    words: QuotedWords
    repeated: str
    anchors: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all parts; a part without content is empty."""
        return self.repeated, self.anchors


def added_parts(
    view: View,
    cut_range: CutRange,
    summary: CompactionText,
    budget: SummaryBudget,
    *,
    spoken: UserMessages | None = None,
) -> AddedParts:
    """Return the parts that the program adds to a summary of a range, because a summary may lose them.

    ``spoken`` has the user messages if the caller follows them; else the view is read for them.
    """
    kept_uuids = {item.uuid for item in cut_range.kept} | {item.uuid for item in cut_range.items[: cut_range.start]}
    if summary.method == "from":
        said, unheld = user_messages(item.entry for item in cut_range.cut), 0
    else:
        spoken = spoken or UserMessages()
        said = [one for one in spoken.follow(view) if one.handle not in kept_uuids]
        unheld = spoken.unheld
    words = quoted_words(
        said,
        tokens=budget.words,
        handle_tokens=budget.handles,
        pinned=view.facts.pinned,
        ended=[rule.opening.removesuffix("…") for rule in ended_rules(view.facts.standing)],
        unheld=unheld,
    )
    repeated = words_text(words, summary.accounts)
    around = "\n".join((summary.body, repeated, *_texts(cut_range)))
    anchors = anchors_text(anchor_list(_worth_naming(summary.names, cut_range), around, tokens=budget.anchors))
    return AddedParts(words, repeated, anchors)


def _worth_naming(names: Mapping[Identifier, tuple[int, str]], cut_range: CutRange) -> dict[Identifier, int]:
    """Return the names without those used once in an earlier cut, which would go from summary to summary."""
    cut = {item.uuid for item in cut_range.cut if item.entry.message is not None}
    return {one: count for one, (count, last) in names.items() if count > 1 or last in cut}


def _checked(cut_range: CutRange) -> CutRange:
    """Return the range; raise ``CompactionError`` if it holds nothing to summarise."""
    if not any(item.kind == ASSISTANT or not is_summary(item) for item in cut_range.cut):
        raise CompactionError("there is nothing to compact: all that is in view is the end of the conversation")
    return cut_range


def _context(items: Sequence[Item]) -> int:
    """Return the position after the user context that opens a session, which always stays; 0 if there is none."""
    at = 0
    while at < len(items) and is_user_context(items[at]):
        at += 1
    return at


def _found(items: Sequence[Item], message: str) -> int:
    at = position_of(items, message)
    if at is None:
        matches = [place for place, item in enumerate(items) if len(message) >= 4 and item.uuid.startswith(message)]
        if len(matches) != 1:
            raise InputError(f"no message {message!r} is in the view: pass the uuid of a message that is")
        at = matches[0]
    return at


def _texts(cut_range: CutRange) -> list[str]:
    """Return the contents of the items that stay, as texts, to search for names."""
    out: list[str] = []
    for item in (*cut_range.items[: cut_range.start], *cut_range.kept):
        content = item.message.get("content")
        out.append(content if isinstance(content, str) else str(content))
    return out
