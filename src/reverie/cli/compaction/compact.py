"""``reverie compact``: preview and apply a compaction, which replaces old messages with a summary."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import click

from ...cache.prices import Prices, prices_for
from ...conversation.entries import ASSISTANT
from ...errors import InputError, SessionBusy
from ...events import CompactionProgressed, Event, FellBack
from ...layers.l4_compact import QuotedWords, loss_text
from ...ports import Model
from ...runtime.reports.measures import loss_report
from ...runtime.session.compact.draft import CompactionReport
from ...runtime.session.session import Session
from ...settings import Settings, load_settings
from ...values import picked
from ..output import confirmed, console, counted, dollars, emit_json, is_terminal, printable, say, warn
from ..sessions.recordings import session_argument
from .target_session import opened_session, queue_command
from .undo import undo_and_print

_LISTED, _LISTED_ON_SCREEN = 40, 4  # lost names
REFUSAL = "compacted nothing: confirmation needs a terminal; --yes compacts without asking, --dry-run shows an estimate"


@click.command()
@session_argument()
@click.option(
    "--from", "from_message", metavar="MESSAGE", help="Compact only from this message on; everything before it stays."
)
@click.option("--up-to", "up_to", metavar="MESSAGE", help="Compact only up to this message; everything after it stays.")
@click.option("--instructions", default="", metavar="TEXT", help="Instructions for the summary; needs --model.")
@click.option("--model", "model_name", metavar="NAME", help="Let this model write the summary; default: no model.")
@click.option("--undo", is_flag=True, help="Undo the last compaction: restore every removed message, byte for byte.")
@click.option("--dry-run", is_flag=True, help="Show an estimate, call no model and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    session: str,
    from_message: str | None,
    up_to: str | None,
    instructions: str,
    model_name: str | None,
    undo: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Replace old messages of a session, all or a part of them, with a summary.

    A preview comes first: tokens before and after, cost and savings, kept messages, and lost names. --undo
    restores everything and keeps the messages added since; the session then does not compact automatically until its
    window is full. MESSAGE is a message's uuid or the start of one. If another process has the session open, that
    process compacts it at its next turn.
    """
    if from_message and up_to:
        raise InputError("--from and --up-to exclude each other: use one of them")
    if undo and (from_message or up_to or instructions or model_name):
        raise InputError("--undo takes no other option but --dry-run, --yes and --json")
    settings = load_settings()
    if undo:
        anyio.run(undo_and_print, session, settings, dry_run, yes, as_json)
        return 0
    if instructions and not (model_name or settings.model):
        raise InputError("--instructions needs a model: name one with --model")
    asked: dict[str, Any] = {"instructions": instructions, "from_message": from_message, "up_to": up_to}
    model = None
    if model_name or instructions:
        from ...models import open_model

        model = open_model(model_name or settings.model or "")
    return anyio.run(_compact, session, settings, asked, model, dry_run, yes, as_json)


async def _compact(
    name: str, settings: Settings, asked: dict[str, Any], model: Model | None, dry_run: bool, yes: bool, as_json: bool
) -> int:
    try:
        async with opened_session(name, settings, model, dry_run=dry_run) as session:
            if not (dry_run or yes or is_terminal()):
                raise InputError(REFUSAL)  # before a model writes a summary that nobody can agree to
            session.listen(_on_event)
            plan = session.parts.compact
            report = await (plan.compact(**asked, dry_run=True) if dry_run else plan.plan(**asked))
            prices = _prices(session)
            if not as_json:
                _show(report, prices)
            if not (dry_run or yes) and not confirmed("Compact?", REFUSAL):
                warn("nothing was changed")
                return 1
            entry = None if dry_run else await plan.apply(report)
            if as_json:
                emit_json(
                    {**as_json_report(report, prices), "applied": entry is not None, "uuid": entry and entry.uuid}
                )
            elif entry is not None:
                say(f"compacted; 'reverie compact --undo {session.name}' restores the messages")
            return 0
    except SessionBusy as busy:
        return _queue_compaction(name, settings, asked, busy, as_json)
    finally:
        if model is not None:
            await model.aclose()


def _queue_compaction(name: str, settings: Settings, asked: dict[str, Any], busy: SessionBusy, as_json: bool) -> int:
    """Queue a compaction for the process that has the session open, print that, and return 0."""
    body = {"instructions": asked["instructions"], "from": asked["from_message"], "up_to": asked["up_to"]}
    session, queued = queue_command(name, settings, "compact", lambda _: body, sender="reverie compact")
    if as_json:
        emit_json({"session": session, "applied": False, "queued": queued, "holder": busy.holder})
    else:
        say(
            f"{session} is open in another process ({printable(busy.holder or '')}), which compacts it at its next turn"
        )
    return 0


async def compact_now(name: str, settings: Settings) -> dict[str, Any]:
    """Compact a session without a model and return the effect, for JSON.

    If another process has the session open, queue the compaction for it; the result then has the key ``queued``.
    """
    try:
        async with opened_session(name, settings, dry_run=False) as session:
            report = await session.parts.compact.plan()
            await session.parts.compact.apply(report)
            return {"session": session.name, **as_json_report(report, _prices(session)), "applied": True}
    except SessionBusy:
        session, queued = queue_command(name, settings, "compact", lambda _: {}, sender="reverie compact")
        return {"session": session, "applied": False, "queued": queued}


def _prices(session: Session) -> Prices | None:
    replied = (entry.reply.get("model") for entry in session.view.latest() if entry.kind == ASSISTANT)
    model = next((name for name in replied if isinstance(name, str) and name), "")
    return prices_for(model) if model else None


def as_json_report(report: CompactionReport, prices: Prices | None = None) -> dict[str, Any]:
    """Return a compaction report as a dict for JSON; amounts in dollars are None without prices."""
    return {
        "method": report.method,
        "trigger": report.decision.trigger,
        **picked(report, "tokens_before tokens_after kept_messages"),
        "user_messages": {
            "verbatim": len(report.words.whole),
            "shortened": int(report.words.short is not None),
            "sentences": len(report.words.sentences),
            "by_handle": report.words.by_handle,
        },
        **picked(report, "model_calls is_estimate refusal cost_usd"),
        "price": {
            "compacting_token_prices": round(report.price.cost),
            "carrying_token_prices": round(report.price.saves),
            "compacting_usd": _usd(report.price.cost, prices),
            "carrying_usd": _usd(report.price.saves, prices),
            "pays": report.price.act,
            "reason": report.price.reason,
        },
        "handle": report.handle,
        "summary": report.summary,
        "loss": loss_report(report.loss),
    }


def _usd(tokens: float, prices: Prices | None) -> float | None:
    """Return the cost of so many tokens at the input price of a short request, or None without prices."""
    return tokens * prices.input / 1_000_000 if prices is not None else None


def _show(report: CompactionReport, prices: Prices | None) -> None:
    """Print a compaction; sizes and prices come last, so that a question below them does not scroll them away."""
    if report.refusal:
        say(f"would compact nothing: {report.refusal}")
        return
    words, price = report.words, report.price
    say(f"method      {report.method}, {counted(report.model_calls, 'model call')}")
    if report.is_estimate:
        say("            an estimate: a dry run calls no model, whose summary will differ")
    if report.cost_usd is not None and report.model_calls:
        say(f"spent       {dollars(report.cost_usd)} on the summary")
    say(f"kept        {counted(report.kept_messages, 'message')} unchanged")
    say(f"            {counted(len(words.whole), 'user message')} word for word{_shortened(words)}")
    say(f"read back   with handle {report.handle}")
    say()
    listed = _LISTED_ON_SCREEN if sys.stdout.isatty() else _LISTED
    say(loss_text(report.loss, width=console().width, listed=listed))
    say()
    say(f"tokens      {report.tokens_before:,} before, {report.tokens_after:,} after")
    cost, carrying = _usd(price.cost, prices), _usd(price.saves, prices)
    if cost is not None and carrying is not None:
        net = f"saves {dollars(carrying - cost)}" if carrying > cost else "not worth it"
        say(f"price       compacting {dollars(cost)}, not compacting {dollars(carrying)}: {net}")
    head = "price " if cost is None else "      "
    say(f"{head}      {price.cost:,.0f} and {price.saves:,.0f} tokens at the input price")
    say(f"            {price.reason}")


def _shortened(words: QuotedWords) -> str:
    short = ", 1 shortened" if words.short is not None else ""
    if words.sentences:
        short += f", {counted(len(words.sentences), 'sentence')} of others"
    return f"{short}, {words.by_handle} by handle" if words.by_handle else short


def _on_event(event: Event) -> None:
    if isinstance(event, FellBack):
        warn(f"{event.what}: {event.why}")
    elif isinstance(event, CompactionProgressed) and event.phase.startswith("hooks"):
        warn(event.phase)
