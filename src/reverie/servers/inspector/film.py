"""A session as the data of the page: its requests as differences, and everything that happened between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from ...cache.prices import listed_window, prices_for
from ...cache.watch import REMOVED
from ...conversation.decisions import AgentFinished, AgentSpawned, MemoriesExtracted, MemoriesSurfaced
from ...conversation.view import View
from ...conversation.wire.blocks import as_blocks
from ...importers import ImportedSession
from ...runtime.reports.measures import CompactionLoss, loss_report, losses
from ...text.counts import counted
from .acts import Act, acts_of, command_of
from .bill import BilledCall, PricedBreak, bill_data, billed
from .requests import LoggedRequest, logged_requests
from .tables import CATEGORIES, Tables, joined, marks_data, shared_start, spliced

SCHEMA: Final = 1
_LOST_NAMES: Final = 200


class _Line(msgspec.Struct):
    uuid: str = ""


def line_numbers(log: bytes) -> dict[str, int]:
    """Return the number of the line of each entry of a log of ours, by the entry's uuid."""
    found: dict[str, int] = {}
    for number, line in enumerate(log.split(b"\n"), 1):
        try:
            found.setdefault(msgspec.json.decode(line, type=_Line).uuid, number)
        except msgspec.DecodeError:
            continue
    return found


def session_data(
    session: ImportedSession, *, lines: Mapping[str, int] | None = None, name: str = "", parent: str = ""
) -> dict[str, Any]:
    """Return everything that the page shows of a session, as values of JSON.

    ``name`` is its name in the library, by which commands reach it; ``parent`` the session that started it.
    """
    tables, requests = Tables(), list(logged_requests(session))
    acts = acts_of(session.entries, tables, lines or {})
    heads, ids = list[int](), list[list[int]]()
    seen, before = _SeenContext(), list[Any]()
    for one in requests:
        tables.context |= seen.new_texts(one.view)
        heads.append(tables.head(_known_fields(one, session)))
        messages: list[Any] = one.request["messages"]
        same = shared_start(before, messages)
        known = ids[-1][:same] if ids else []
        ids.append([*known, *map(tables.message, messages[same:])])
        before = messages
    calls, breaks = billed(session, requests)
    final = View().fold_all(session.entries)
    tokens = tables.tokens(final.token_count.estimator.correction(final.token_count.model))
    windows = _windows(tables, tokens, ids, requests, calls)
    own = any(one.call is not None for one in requests)
    rates = _Rates()
    rows = _rows(requests, heads, ids, windows, calls, tables, rates)
    return {
        "id": session.session_id,
        "parent": parent,
        "title": session.title,
        "format": session.format,
        "model": session.model or final.token_count.model,
        "cwd": session.cwd,
        "window_tokens": listed_window(session.model or final.token_count.model),
        "notes": _notes(session, requests, breaks, own=own),
        "blocks": tables.blocks,
        "categories": tables.categories,
        "tools": tables.tools,
        "tokens": tokens,
        "messages": tables.messages,
        "heads": tables.heads,
        "requests": rows,
        "rates": rates.rows,
        "acts": [
            {**act.data(command_of(act, acts, name) if name else ""), **_price(act, rows, rates, tokens)}
            for act in acts
        ],
        "breaks": [{**one.data(), "again_usd": _again_usd(one, rows, rates)} for one in breaks],
        "bill": bill_data(calls, breaks),
        "compactions": [_compaction(one, acts, name) for one in losses(session.entries)],
        "agents": _agents(acts),
        "memories": _memories(acts),
    }


def films_of(logs: Sequence[tuple[ImportedSession, bytes]], *, is_file: bool) -> list[dict[str, Any]]:
    """Return the data of a session and its agents, the main one first; commands cannot reach those of a file.

    A file may hold several sessions that no other one started.
    """
    main = logs[0][0].session_id
    return [
        session_data(
            one,
            lines=line_numbers(log),
            name="" if is_file else one.session_id,
            parent=main if one.session_id != main and (one.agent or not is_file) else "",
        )
        for one, log in logs
    ]


def page_data(sessions: Sequence[dict[str, Any]], *, version: str, redacted: bool = False) -> dict[str, Any]:
    """Return the data of a page with these sessions, the main one first."""
    return {
        "schema": SCHEMA,
        "version": version,
        "redacted": redacted,
        "categories": CATEGORIES,
        "sessions": sessions,
    }


class _Rates:
    """The prices of all calls, each list once: dollars per million tokens in the order of a usage."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []

    def index(self, call: BilledCall) -> int | None:
        """Return the index of the prices of a call; None if its model has none."""
        prices = prices_for(call.model) if call.model and call.usage is not None else None
        if prices is None or call.usage is None:
            return None
        found = prices.rates(call.usage.input)
        row = [found.cache_read, found.cache_write_5m, found.cache_write_1h, found.input, found.output]
        if row not in self.rows:
            self.rows.append(row)
        return self.rows.index(row)

    def read_and_new(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """Return the prices of cached and of new content in a request; new content is written to the cache if any is.

        Without a write it has the full price.
        """
        index: int = row["rates"]
        _, short, long, _, _ = row["usage"]
        found = self.rows[index]
        return found[0], found[1 if short else 2 if long else 3]


def _price(act: Act, rows: Sequence[dict[str, Any]], rates: _Rates, tokens: Sequence[int]) -> dict[str, float | None]:
    """Return the approximate cost of the blocks that an act added, and its effect on each later request."""
    row = rows[min(act.number, len(rows) - 1)] if rows else None
    if row is None or row["rates"] is None or not (act.went or act.stands):
        return {"once_usd": None, "each_usd": None}
    read, new = rates.read_and_new(row)
    came, left = (sum(tokens[ref] for ref in refs) for refs in (act.stands, act.went))
    return {"once_usd": came * new / 1e6, "each_usd": (came - left) * read / 1e6}


def _again_usd(one: PricedBreak, rows: Sequence[dict[str, Any]], rates: _Rates) -> float | None:
    """Return the cost of the tokens of a break beyond the cost of reading them from the cache."""
    if rows[one.number]["rates"] is None:
        return None
    read, new = rates.read_and_new(rows[one.number])
    return one.tokens * (new - read) / 1e6


class _SeenContext:
    """Collects the texts that a program added to views that grow, and looks at each message once."""

    def __init__(self) -> None:
        self._cuts = self._from = 0

    def new_texts(self, view: View) -> set[str]:
        """Return the added texts of the messages of a view that the view before lacked."""
        start = self._from if view.cuts == self._cuts else 0
        self._cuts, self._from = view.cuts, view.finished
        pieces = (piece for at in range(start, view.length) for piece in view.group(at).pieces if piece.attachment)
        blocks = (block for piece in pieces for block in as_blocks(piece.message))
        return {str(block["text"]).strip() for block in blocks if "text" in block}


def _known_fields(one: LoggedRequest, session: ImportedSession) -> dict[str, Any]:
    """Return a request without the fields that a recording of another program does not hold."""
    if one.view.facts.prefix is not None:
        return one.request
    absent = {name for name, known in (("system", session.system), ("tools", session.tools)) if not known}
    return {key: value for key, value in one.request.items() if key not in absent | {"max_tokens"}}


def _notes(
    session: ImportedSession, requests: Sequence[LoggedRequest], breaks: Sequence[PricedBreak], *, own: bool
) -> list[str]:
    notes: list[str] = []
    if not own:
        notes.append(
            "Another program recorded this session. Requests are rebuilt from the recorded messages; content that "
            "the program added and did not record (often system prompt, tools, reminders) counts as system and tools."
        )
    unmarked = sum(one.marks is None for one in requests) if own else 0
    if unmarked:
        notes.append(f"{unmarked:,} of {len(requests):,} requests are shown without their cache breakpoints.")
    removed = sum(one.reason == REMOVED for one in breaks)
    if removed:
        notes.append(
            f"At {counted(removed, 'request')} the program left earlier content out and did not record which; "
            "the blocks shown from there on may be more than it sent."
        )
    if session.skipped:
        most = sorted(session.skipped.items(), key=lambda one: -one[1])[:3]
        reasons = ", ".join(f"{count:,} x {why}" for why, count in most)
        notes.append(f"Left out {counted(sum(session.skipped.values()), 'record')} of the file: {reasons}.")
    if session.damage:
        notes.append(f"Left out {counted(len(session.damage), 'damaged line')}.")
    return notes


def _rows(
    requests: Sequence[LoggedRequest],
    heads: Sequence[int],
    ids: Sequence[list[int]],
    windows: Sequence[list[int]],
    calls: Sequence[BilledCall],
    tables: Tables,
    rates: _Rates,
) -> list[dict[str, Any]]:
    by_number = {call.number: call for call in calls if call.number is not None}
    rows: list[dict[str, Any]] = []
    before: list[int] = []
    for one, head, now, window in zip(requests, heads, ids, windows, strict=True):
        call = by_number[one.number]
        reply = [block for entry in one.reply if entry.message for block in as_blocks(entry.message)]
        rows.append(
            {
                "at": one.at,
                "head": head,
                "splice": spliced(before, now),
                "marks": marks_data(one.marks) if one.marks is not None else None,
                "window": window,
                "usage": call.tokens,
                "usd": call.usd,
                "model": call.model,
                "rates": rates.index(call),
                "reply": [tables.block(block, "assistant") for block in reply],
            }
        )
        before = now
    return rows


def _windows(
    tables: Tables,
    tokens: Sequence[int],
    ids: Sequence[list[int]],
    requests: Sequence[LoggedRequest],
    calls: Sequence[BilledCall],
) -> list[list[int]]:
    """Return the tokens of each request by category; their sum is the billed input where there is a bill."""
    sizes = [_sizes(message["content"], tables, tokens) for message in tables.messages]
    used = {call.number: call.usage for call in calls if call.number is not None}
    out: list[list[int]] = []
    before, sums = list[int](), [0] * len(CATEGORIES)
    for one, now in zip(requests, ids, strict=True):
        first, last, between = spliced(before, now)
        for sign, changed in ((-1, before[first : len(before) - last]), (1, between)):
            for id in changed:
                sums = [total + sign * size for total, size in zip(sums, sizes[id], strict=True)]
        before = joined(before, (first, last, between))
        usage = used.get(one.number)
        out.append(_fitted(sums, usage.input if usage is not None else None))
    return out


def _sizes(content: Any, tables: Tables, tokens: Sequence[int]) -> list[int]:
    sums = [0] * len(CATEGORIES)
    refs = cast("list[int]", content if isinstance(content, list) else [content])
    for block in refs:
        sums[tables.categories[block]] += tokens[block]
    return sums


def _fitted(sums: Sequence[int], billed_input: int | None) -> list[int]:
    """Return sums whose total is the bill: tokens beyond the messages count as beside them, an excess is scaled."""
    total = sum(sums)
    if billed_input is None:
        return list(sums)
    if total <= billed_input:
        return [sums[0] + billed_input - total, *sums[1:]]
    scaled = [size * billed_input // total for size in sums]
    return [scaled[0] + billed_input - sum(scaled), *scaled[1:]]


def _compaction(one: CompactionLoss, acts: Sequence[Act], name: str) -> dict[str, Any]:
    act = next(act for act in acts if act.uuid == one.uuid)
    report = loss_report(one.loss)
    lost = [{"kind": each.kind, "text": each.text, "uses": each.count, "handle": each.handle} for each in one.loss.lost]
    return {
        "act": acts.index(act),
        "n": act.number,
        "trigger": one.decision.trigger,
        "method": one.decision.method,
        "before": one.tokens_before,
        "after": one.tokens_after,
        "undone": one.undone,
        "summary": one.decision.summary,
        "kept": report["share_kept"],
        "kinds": report["by_kind"],
        "lost": lost[:_LOST_NAMES],
        "lost_count": len(lost),
        "read": f"reverie read {name} " if name else "",
    }


def _agents(acts: Sequence[Act]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for at, act in enumerate(acts):
        match act.decision:
            case AgentSpawned():
                row = {"agent": act.decision.agent, "directive": act.decision.directive, "n": act.number, "act": at}
                found[act.decision.agent] = {**row, "status": "started", "text": ""}
            case AgentFinished():
                row = found.setdefault(
                    act.decision.agent,
                    {"agent": act.decision.agent, "directive": "", "n": act.number, "act": at},
                )
                row.update(status=act.decision.status, text=act.decision.text)
            case _:
                pass
    return list(found.values())


def _memories(acts: Sequence[Act]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for at, act in enumerate(acts):
        if isinstance(act.decision, MemoriesSurfaced | MemoriesExtracted):
            shown = isinstance(act.decision, MemoriesSurfaced)
            found.append({"act": at, "n": act.number, "shown": shown, "names": list(act.decision.names)})
    return found
