"""A recorded session as its requests: their time, their content, and the billed usage.

The bill determines the sizes. The difference between the inputs of two requests is the size of the content between
them, so estimates are scaled to it; content that the recording does not hold (reminders, restored files) becomes an
attachment of the billed size. Recordings without usage keep the estimates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, cast

from ..cache.breakpoints import LIFETIMES
from ..cache.simulator import SimBlock
from ..cache.usage import Usage, reply_tokens, reported_usage, usage_of
from ..conversation.authorship import Utterance
from ..conversation.entries import ASSISTANT, ATTACHMENT, DECISION, USER, Entry, Message, iso, reply_id
from ..conversation.identifiers import Identifier
from ..conversation.tokens.estimate import estimate_block, estimate_request, estimate_text
from ..conversation.view import View
from ..conversation.wire.blocks import Block, accepted_message, as_blocks
from ..importers import ImportedSession
from ..importers.import_result import RecordedBill
from ..layers.l3_notes import mined_utterances
from ..layers.l4_compact import CompactionText, SummaryBudget
from ..values import field, record, replace
from .needs import BlockLines

_SECONDS_BETWEEN: Final = 10.0  # for a recording without times
_LEAST, _MOST = 0.75, 1.35  # bounds for scaling an estimate to the bill; the rest counts as unrecorded or removed
UNRECORDED: Final = "unrecorded"
_MESSAGES: Final = (USER, ASSISTANT, ATTACHMENT)
_SPACES: Final = 1_000
_REMOVED: Final = 2_000  # fewer missing tokens do not count as removed
USUAL_PREFIX: Final = 20_000
"""The tokens of a system prompt and its tools in a recording that begins late and does not show them."""


class SharedWork:
    """Views that policies have in common; messages by identity, with blocks and checks; names in entries; summaries."""

    def __init__(self) -> None:
        self._known: dict[int, Message] = {}
        self._first: dict[tuple[int | str, ...], Message] = {}
        self._alive: list[Message] = []
        self.start = View()
        """The view before the first entry."""
        self._common = {id(self.start): self.start}
        self._folded: dict[tuple[int, str, int | str], View] = {}
        self._names: dict[str, list[tuple[Utterance, Counter[Identifier]]]] = {}
        self.summaries: dict[tuple[str, SummaryBudget, tuple[str, ...]], CompactionText] = {}
        """Summaries by the last message, their budget, and the messages that stay in view."""
        self.blocks: dict[int, tuple[Message, list[SimBlock]]] = {}
        """The blocks of each message, by the identity of the message, which is kept alive."""
        self.accepted: set[tuple[int, int]] = set()
        """The pairs of messages, by identity, that a request may have one after the other."""

    def __reduce__(self) -> tuple[type[SharedWork], tuple[()]]:
        """Leave all of it out of a copy in another process, where the messages are other objects."""
        return SharedWork, ()

    def fold(self, view: View, entry: Entry, about: int | str) -> View:
        """Return a view after an entry; policies that decided the same so far get the same object.

        ``about`` tells entries of one uuid apart: the billed tokens, which is all that a view takes from the simulated
        usage of a reply, or the text of a decision.
        """
        if id(view) not in self._common:
            return view.fold(entry)
        key = (id(view), entry.uuid, about)
        if key not in self._folded:
            after = self._folded[key] = view.fold(entry)
            self._common[id(after)] = after
        return self._folded[key]

    def messages(self, messages: list[Message]) -> list[Message]:
        """Return these messages; one with the same blocks as an earlier one is that earlier object."""
        known = self._known
        for message in messages:
            if id(message) not in known:
                self._alive.append(message)
                content = message["content"]
                blocks = cast("list[object]", content) if isinstance(content, list) else [message]
                key = (message["role"], *map(id, blocks))
                known[id(message)] = self._first.setdefault(key, message)
        return [known[id(message)] for message in messages]

    def utterances(self, entry: Entry) -> list[tuple[Utterance, Counter[Identifier]]]:
        """Return the utterances of an entry with the names in each."""
        if entry.kind == DECISION:  # each policy has its own
            return mined_utterances(entry)
        if entry.uuid not in self._names:
            self._names[entry.uuid] = mined_utterances(entry)
        return self._names[entry.uuid]


@record
class RecordedRequest:
    """One request of a recording: the entries since the request before, the reply, and the billed usage.

    ``removed`` means that the client left out earlier content without a recorded reason.
    """

    number: int
    at: float
    entries: tuple[Entry, ...]
    reply: tuple[Entry, ...]
    model: str
    output_tokens: int
    billed: Usage | None = None
    removed: bool = False


class BlockSizes:
    """Tokens of blocks: as billed where the recording has a bill, else as estimated."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, int]] = {}
        self.factor = 1.0

    def __getstate__(self) -> tuple[list[tuple[Block, int]], float]:
        """Return the sizes by block: in a copy in another process the blocks are other objects."""
        return list(self._known.values()), self.factor

    def __setstate__(self, state: tuple[list[tuple[Block, int]], float]) -> None:
        known, self.factor = state
        self._known = {id(block): (block, tokens) for block, tokens in known}

    def set(self, block: Block, tokens: int) -> None:
        """Set the size of a block in tokens; a block is recognised as an object, not by its content."""
        self._known[id(block)] = (block, tokens)

    def of(self, block: Block) -> int:
        """Return the size of a block in tokens: the one that was set, else an estimate times ``factor``."""
        found = self._known.get(id(block))
        return found[1] if found is not None else round(estimate_block(block) * self.factor)


@record
class Recording:
    """A recorded session, ready to be replayed under any policy."""

    name: str
    session: str
    format: str
    title: str
    model: str
    steps: tuple[RecordedRequest, ...]
    sizes: BlockSizes
    prefix: tuple[int, ...]
    """Tokens before the messages, in the pieces that the recording shows to be cached separately."""
    timed: bool
    billed: bool
    lines: BlockLines = field(default_factory=BlockLines)
    shared: SharedWork = field(default_factory=SharedWork)
    bill: RecordedBill | None = None
    """The program's own total, and the usage of calls that the recording does not hold."""
    lost: int | None = None
    """The tokens of the conversation before the recording, if it begins late and has a bill."""


def recording_of(imported: ImportedSession, name: str) -> Recording:
    """Return an imported session as a recording, with sizes scaled to its bill if it has one."""
    entries = [_normal(entry) for entry in imported.entries]
    steps = _steps(entries)
    timed = any(entry.at > 0 for entry in entries)
    if not timed:
        steps = [replace(step, at=step.number * _SECONDS_BETWEEN) for step in steps]
    billed = bool(steps) and all(step.billed is not None for step in steps)
    sizes = BlockSizes()
    prefix = (estimate_request([], system=imported.system, tools=imported.tools),)
    lost = None
    if billed:
        usual = prefix[0] if imported.system else USUAL_PREFIX
        steps, prefix, past = _sized(steps, sizes, usual if imported.begins_late else None)
        lost = past if imported.begins_late else None
    model = next((step.model for step in steps if step.model), imported.model)
    return Recording(
        name,
        imported.session_id,
        imported.format,
        imported.title,
        model,
        tuple(steps),
        sizes,
        prefix,
        timed,
        billed,
        bill=imported.bill,
        lost=lost,
    )


def joined(recording: Recording) -> Recording:
    """Return a recording without its client's compactions, so that a policy meets the whole conversation.

    The content that came with a compaction and is not recorded, such as files that were read again, is left out too.
    """
    steps: list[RecordedRequest] = []
    for step in recording.steps:
        if any(_is_cut(entry) for entry in step.entries):
            entries = tuple(one for one in step.entries if not _is_cut(one) and one.body.get("type") != UNRECORDED)
            step = replace(step, entries=entries)
        steps.append(replace(step, removed=False))
    return replace(recording, steps=tuple(steps))


def _is_cut(entry: Entry) -> bool:
    return entry.kind == DECISION and entry.body.get("decision") == "compacted"


def _normal(entry: Entry) -> Entry:
    """Return a message's entry with its content as valid blocks; any other entry as it is."""
    if entry.kind not in _MESSAGES or entry.message is None:
        return entry
    role = ASSISTANT if entry.kind == ASSISTANT else USER
    message = accepted_message(entry.message, role)
    content = as_blocks(message) if message is not None else []
    return replace(entry, body={**entry.body, "message": {"role": role, "content": content}})


def _steps(entries: list[Entry]) -> list[RecordedRequest]:
    """Return the requests of a log: one before the first piece of each reply."""
    pieces: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind == ASSISTANT:
            pieces.setdefault(reply_id(entry), []).append(entry)
    steps: list[RecordedRequest] = []
    waiting: list[Entry] = []
    seen: set[str] = set()
    at = 0.0
    for entry in entries:
        if entry.kind == ASSISTANT and reply_id(entry) not in seen:
            seen.add(reply_id(entry))
            reply = pieces[reply_id(entry)]
            at = max(at, waiting[-1].at if waiting and waiting[-1].at else entry.at)
            steps.append(_step(len(steps), at, waiting, reply))
            waiting = []
        waiting.append(entry)
    return steps


def _step(number: int, at: float, entries: list[Entry], reply: list[Entry]) -> RecordedRequest:
    reported = reported_usage(reply)
    billed = usage_of(reported) if reported is not None else None
    output = billed.output if billed is not None else reply_tokens(reply)
    model = str(reply[0].reply.get("model") or "")
    return RecordedRequest(number, at, tuple(entries), tuple(reply), model, output, billed)


def _blocks(entry: Entry) -> list[Block]:
    return as_blocks(entry.message) if entry.message is not None and entry.kind in _MESSAGES else []


def _sized(
    steps: list[RecordedRequest], sizes: BlockSizes, usual: int | None
) -> tuple[list[RecordedRequest], tuple[int, ...], int]:
    """Set block sizes by the bill; return the requests, the pieces of the prefix, and the lost past in tokens.

    Content that was billed but not recorded is added to the requests as attachments. The first request
    sent a system prompt with tools before the recorded messages. In a recording that begins late most of that is a lost
    past, and ``usual`` is the size of the system prompt if the bill shows none.
    """
    first = steps[0].billed
    assert first is not None
    opening = sum(estimate_block(block) for entry in steps[0].entries for block in _blocks(entry))
    base = min(max(first.input - opening, min(first.read, first.input)), first.input)
    shown = [*_after_cuts(steps)]
    if usual is not None and not shown:
        shown = [*_cold_reads(steps, base)] or [usual]
    base = max(0, min([base, *shown]))
    view, total, out, lost = View(), base, list[RecordedRequest](), 0
    for step in steps:
        assert step.billed is not None
        before, cuts = view, view.facts.compactions
        view = view.fold_all(step.entries)
        cut = view.facts.compactions != cuts
        blocks = [block for entry in step.entries for block in _blocks(entry)]
        if cut:
            shown = [block for message in view.messages() for block in as_blocks(message)]
            total, blocks = base, shown
        grown = step.billed.input - total
        spread = _spread(blocks, grown, sizes)
        removed = grown - spread < -_REMOVED and before.last is not None and not cut
        total = step.billed.input
        unseen = max(0, grown - spread)
        past = 0 if out else min(unseen, max(0, step.billed.read - base))  # the cache had it before the recording
        before_it = (_unseen(step, past, sizes, "-past", is_long=True),) if past else ()
        is_lost = usual is not None and not out
        lost += unseen if is_lost else 0
        after_it = (_unseen(step, unseen - past, sizes, is_long=is_lost),) if unseen - past else ()
        view = view.fold_all(after_it)
        entries = (*before_it, *step.entries, *after_it)
        out.append(replace(step, entries=entries, removed=removed))
    factors = [block for step in out for entry in step.entries for block in _blocks(entry)]
    raw = sum(estimate_block(block) for block in factors) or 1
    sizes.factor = min(_MOST, max(_LEAST, sum(sizes.of(block) for block in factors) / raw))
    return out, _pieces(out, base), lost


def _after_cuts(steps: list[RecordedRequest]) -> Iterator[int]:
    """Yield the billed tokens besides the messages after each recorded compaction.

    A recording that begins in the middle of a conversation has more of them at first: that is its lost past, not a
    system prompt, and a compaction ends it.
    """
    view = View()
    for step in steps:
        cuts = view.facts.compactions
        view = view.fold_all(step.entries)
        if view.facts.compactions != cuts and step.billed is not None:
            shown = (block for message in view.messages() for block in as_blocks(message))
            yield step.billed.input - sum(estimate_block(block) for block in shown)


def _cold_reads(steps: list[RecordedRequest], most: int) -> Iterator[int]:
    """Yield the tokens that requests read after a pause, if fewer than ``most``: a prompt that other sessions share."""
    first = steps[0].billed
    if first is not None and 0 < first.read < first.input / 2:  # the pause was before it
        yield first.read
    is_long = any(step.billed is not None and step.billed.write_1h for step in steps)
    pause = LIFETIMES["1h" if is_long else "5m"]
    for before, step in pairwise(steps):
        if step.billed is not None and step.at - before.at >= pause and 0 < step.billed.read < most:
            yield step.billed.read


def _spread(blocks: Iterable[Block], grown: int, sizes: BlockSizes) -> int:
    """Set the size of each block to its share of the billed tokens, within bounds, and return the sum."""
    estimates = [(block, estimate_block(block)) for block in blocks]
    raw = sum(tokens for _, tokens in estimates)
    if not raw:
        return 0
    factor = min(_MOST, max(_LEAST, grown / raw))
    given = 0
    for block, tokens in estimates:
        share = round(tokens * factor)
        sizes.set(block, share)
        given += share
    return given


def _unseen(step: RecordedRequest, tokens: int, sizes: BlockSizes, end: str = "", *, is_long: bool = False) -> Entry:
    """Return an attachment of the given size for content that was sent and is not recorded."""
    text = f"[not recorded: {tokens} tokens, request {step.number}]"
    if is_long:  # as long as its size says, or policies would take it for a system prompt
        text += " " * (tokens * _SPACES // estimate_text(" " * _SPACES))
    block: Block = {"type": "text", "text": text}
    sizes.set(block, tokens)
    last = step.entries[-1] if step.entries else None
    body = {"type": UNRECORDED, "message": {"role": USER, "content": [block]}}
    return Entry(
        f"unrecorded-{step.number}{end}",
        last.uuid if last else None,
        last.time if last else iso(step.at),
        "replay",
        ATTACHMENT,
        body,
    )


def _pieces(steps: list[RecordedRequest], base: int) -> tuple[int, ...]:
    """Return the tokens before the messages, in pieces if the recording shows that a shorter prefix was read."""
    reads = {step.billed.read for step in steps if step.billed is not None and 0 < step.billed.read < base}
    cuts = sorted(reads)[:2]
    return tuple(later - earlier for earlier, later in zip([0, *cuts], [*cuts, base], strict=True))
