"""Context usage as plain values: tokens by category and tool, repeated reads, and distance to each threshold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...cache.ledger import MAIN
from ...cache.usage import usage_of
from ...conversation.decisions import CallRecorded, decision_of
from ...conversation.entries import ASSISTANT, DECISION, Entry, reply_id
from ...conversation.facts import Facts
from ...conversation.reads import cleared_results
from ...conversation.tokens.accounting import Accounting, account, added_texts, attachments_in, metrics
from ...conversation.tokens.estimate import estimate_block, estimate_request, measure_block
from ...conversation.tokens.window import Lookup, Thresholds, Window, WindowPolicy, thresholds, window_for
from ...conversation.view import View
from ...importers import ImportedSession
from ...model_facts import facts_of
from ...settings import Settings
from ...values import object_of

# Decisions that remove content from view: a log without them folds into a view of all messages.
REMOVALS: Final = frozenset(
    {"compacted", "collapsed", "snipped", "results_cleared", "result_offloaded", "images_dropped"}
)
SUMMED: Final = (
    *("messages", "entries", "compactions", "total_tokens", "duplicate_read_tokens", "count"),
    "beside_messages_tokens",
)


def input_tokens_of(entries: Sequence[Entry]) -> list[int]:
    """Return the billed input tokens of each request of the conversation, in order; empty without bills."""
    decided = (decision_of(entry.body) for entry in entries if entry.kind == DECISION)
    calls = [usage_of(one.usage) for one in decided if isinstance(one, CallRecorded) and one.source == MAIN]
    replies = {reply_id(entry): entry.reply.get("usage") for entry in entries if entry.kind == ASSISTANT}
    found = calls or [usage_of(object_of(usage)) for usage in replies.values()]
    return [usage.input for usage in found if usage.input]


def window_usage(
    recording: ImportedSession,
    *,
    settings: Settings,
    lookup: Lookup,
    model: str = "",
    window_tokens: int | None = None,
    reported: int | None = None,
    whole: bool = False,
) -> dict[str, Any]:
    """Return one session's context usage for JSON; ``whole`` counts removed content, ``reported`` is its window."""
    entries = [entry for entry in recording.entries if not whole or not removes(entry)]
    view = View().fold_all(entries)
    model = model or recording.model or view.token_count.model
    sent = None if whole else recording.window
    found = accounting_of(view) if sent is None else accounting_as_sent(view, sent, recording)
    facts = facts_of(model, settings.models)
    window = window_for(model, facts=facts, reported=reported, lookup=lookup, environment=os.environ)
    learned = view.facts.windows.get(model)
    limits = [limit for limit in (settings.window_tokens, window_tokens, learned) if limit is not None]
    policy = WindowPolicy(
        auto_compact=settings.switches.auto_compact,
        window_tokens=min(limits, default=None),
        compact_percent=settings.compact_percent,
    )
    # Billed usage describes the view that was sent, not the larger view without removals.
    known = view.token_count.known and not (whole and len(entries) < len(recording.entries))
    cleared = 0 if whole else view.token_count.cleared_tokens
    billed = view.token_count.raw_tokens if whole else view.token_count.tokens
    count = billed if known else max(billed, found.total)
    used = view.token_count.threshold_tokens if not whole else count
    return {
        "session": recording.session_id,
        "format": recording.format,
        "title": recording.title,
        "model": model,
        "whole": whole,
        "messages": len(view.groups) if sent is None else len(sent),
        "entries": len(recording.entries),
        "compactions": len(view.facts.compactions),
        "window_over_requests": input_tokens_of(recording.entries),
        "total_tokens": found.total,
        "by_category": found.by_category(),
        "tools": tools_of(found),
        "attachments": dict(found.attachments),
        "duplicate_reads": duplicates_of(found),
        "duplicate_read_tokens": found.duplicate_tokens,
        "count": count,
        "count_from_usage": known,
        "cleared_by_provider": {
            "tokens": cleared,
            "results": 0 if whole else len(cleared_results(view)),
            "handles": [] if whole else sorted(cleared_results(view)),
        },
        "deferred_tools": deferred_of(view.facts),
        "beside_messages_tokens": max(0, count + cleared - found.total) if known else 0,
        "metrics": metrics(found),
        "window": window_of(window, thresholds(window, policy=policy), used),
        "skipped": dict(recording.skipped),
        "damage": list(recording.damage),
    }


def removes(entry: Entry) -> bool:
    """Return whether an entry is a decision that removes content from view."""
    return entry.kind == DECISION and entry.body.get("decision") in REMOVALS


def accounting_of(view: View) -> Accounting:
    """Return a view's tokens by category of messages, estimated with the correction learned from its replies."""
    correction = view.token_count.estimator.correction(view.token_count.model)

    def weigh(block: Any) -> float:
        return correction.tokens(measure_block(block))

    return account(view.messages(), attachments_in(view), weigh=weigh, context=added_texts(view))


def accounting_as_sent(view: View, sent: Sequence[Mapping[str, Any]], recording: ImportedSession) -> Accounting:
    """Return the tokens by category of messages as a program sent them: their shares of the billed tokens.

    The system prompt and the tools have the rest. Without a bill the tokens are estimates.
    """
    prefix = estimate_request([], system=recording.system, tools=recording.tools)
    all_tokens = prefix + estimate_request(sent)
    factor = view.token_count.tokens / all_tokens if view.token_count.known and all_tokens else 1.0
    return account(
        sent,
        attachments_in(view),
        weigh=lambda block: estimate_block(block) * factor,
        context=added_texts(view),
    )


def deferred_of(facts: Facts) -> dict[str, int]:
    """Return how many tools are deferred and found, and the tokens of the definitions that are not sent."""
    found = facts.deferred_tools.keys() & set(facts.found_tools)
    unsent = sum(tokens for name, tokens in facts.deferred_tools.items() if name not in found)
    return {"tools": len(facts.deferred_tools), "found": len(found), "saved_tokens": unsent}


def tools_of(found: Accounting) -> list[dict[str, Any]]:
    """Return one dict per tool with its request and result tokens, largest sum first."""
    names = {*found.tool_requests, *found.tool_results}
    rows = [(name, found.tool_requests.get(name, 0), found.tool_results.get(name, 0)) for name in names]
    rows.sort(key=lambda row: (-(row[1] + row[2]), row[0]))
    return [{"tool": name, "request_tokens": asked, "result_tokens": given} for name, asked, given in rows]


def duplicates_of(found: Accounting) -> list[dict[str, Any]]:
    """Return one dict per file that was read more than once: path, reads, tokens and wasted tokens."""
    return [
        {"path": read.path, "reads": read.reads, "tokens": read.tokens, "wasted_tokens": read.wasted_tokens}
        for read in found.duplicate_reads
    ]


def window_of(window: Window, lines: Thresholds, used: int) -> dict[str, Any]:
    """Return a dict of the window, its thresholds, the used tokens, and the tokens left to each threshold."""
    limits = {name: getattr(lines, name) for name in ("warning", "error", "auto_compact", "blocking", "effective")}
    return {
        "window_tokens": lines.window,
        "source": window.source,
        **limits,
        "auto_compact_on": lines.compacts,
        "used": used,
        "percent_left": lines.percent_left(used),
        "level": lines.level(used),
        "distance": {name: at - used for name, at in limits.items()},
    }


def combined_usage(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summed context usage of a file's sessions, the list of them, and the fullest session's window."""
    fullest = max(found, key=lambda one: one["window"]["used"] / max(1, one["window"]["effective"]))
    report = dict(fullest)
    if len(found) == 1:
        return {**report, "sessions": list(found)}
    for name in SUMMED:
        report[name] = sum(one[name] for one in found)
    for name in ("by_category", "attachments", "skipped", "deferred_tools"):
        report[name] = summed([one[name] for one in found])
    report["cleared_by_provider"] = {
        "tokens": sum(one["cleared_by_provider"]["tokens"] for one in found),
        "results": sum(one["cleared_by_provider"]["results"] for one in found),
        "handles": [handle for one in found for handle in one["cleared_by_provider"]["handles"]],
    }
    report["tools"] = summed_tools([one["tools"] for one in found])
    report["duplicate_reads"] = [
        {**read, "session": one["session"]} for one in found for read in one["duplicate_reads"]
    ]
    report["damage"] = [damage for one in found[:1] for damage in one["damage"]]
    report["metrics"] = None
    return {**report, "sessions": list(found)}


def summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the sum of the counts under each name over all dicts."""
    names = dict.fromkeys(name for one in counts for name in one)
    return {name: sum(one.get(name, 0) for one in counts) for name in names}


def summed_tools(lists: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one dict per tool with the sum of its tokens over all sessions, largest first."""
    rows: dict[str, dict[str, Any]] = {}
    for row in (row for rows_of_one in lists for row in rows_of_one):
        total = rows.setdefault(row["tool"], {"tool": row["tool"], "request_tokens": 0, "result_tokens": 0})
        total["request_tokens"] += row["request_tokens"]
        total["result_tokens"] += row["result_tokens"]
    return sorted(rows.values(), key=lambda row: (-(row["request_tokens"] + row["result_tokens"]), row["tool"]))
