"""``reverie demo``: run a long session through all layers, show each step live, and print the bill."""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

import click

from ..output import CLEARING_REASONS, bar, console, counted, emit_json, folded, paint, say, sparkline, table

if TYPE_CHECKING:
    from ...runtime.session.session import Session

_SESSION = "demo_session.jsonl.gz"  # written by tests/support/coding_session
_TOKENS = 350_000
_BYTES_PER_TOKEN = 4
_PACE_SECONDS = 0.03
_INDENT = " " * 11  # the width of "  layer 1  "
_LINE = 60  # columns of the line of the window over time
_STYLES = {"offload": "cyan", "trim": "yellow", "notes": "dim", "compact": "magenta"}
_OURS = "session"
_ROWS = {"reverie": "reverie, summaries by a model", _OURS: "reverie, the session above"}
_LEGEND = "Layer 1 moves big results to disk, 2 clears old ones, 3 keeps notes, 4 replaces old messages with a summary."


@click.command()
@click.option(
    "--tokens",
    metavar="N",
    default=_TOKENS,
    show_default=True,
    help="Approximate size of the session; at most the default.",
)
@click.option("--fast", is_flag=True, help="Run at full speed.")
@click.option("--chat", is_flag=True, help="Try the chat instead: a script answers, and asks before it edits a file.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(tokens: int, fast: bool, chat: bool, as_json: bool) -> None:
    """Run a generated week of coding work through a real session, with a simulated provider.

    It needs no account, key or network. It writes only to a temporary directory, which is removed at the end.
    """
    import anyio

    from ...errors import InputError

    if chat:
        from ..terminal.demo import run_demo

        run_demo()
        return
    if not 20_000 <= tokens <= _TOKENS:
        raise InputError(f"--tokens must be between 20000 and {_TOKENS}")
    with tempfile.TemporaryDirectory(prefix="reverie-demo-") as home:
        stage = _Stage(quiet=as_json, pace=0.0 if fast or as_json or not sys.stdout.isatty() else _PACE_SECONDS)
        stage.line(_LEGEND, "", style="dim")
        found = anyio.run(_perform, Path(home), tokens, stage)
    if as_json:
        emit_json(found)
    else:
        _show_bill(found)


class _Stage:
    """The demo's output, unless quiet, and its counts: a line per step and, on a terminal, a bar of the window."""

    def __init__(self, *, quiet: bool, pace: float) -> None:
        self.quiet = quiet
        self.pace = pace
        self.acts = {"offload": 0, "trim": 0, "notes": 0, "compact": 0}
        self.freed = {"offload": 0, "trim": 0, "notes": 0, "compact": 0}
        self.peak = 0
        self._noted = 0
        self._full = 0
        self._live = sys.stdout.isatty() and not quiet

    def on_event(self, event: Any) -> None:
        """Print and count one action of a layer, or print a fallback; ignore any other event."""
        from ...conversation.decisions import ResultOffloaded
        from ...events import (
            CompactionEnded,
            DecisionMade,
            FellBack,
            NotesWritten,
            RequestPrepared,
            ResultsTrimmed,
        )

        if isinstance(event, ResultsTrimmed):
            freed = event.tokens_before - event.tokens_after
            said = f"layer 2  cleared old results of {', '.join(event.tools)}: {freed:,} tokens"
            self._count("trim", freed, said, CLEARING_REASONS.get(event.trigger, event.trigger))
        elif isinstance(event, DecisionMade) and isinstance(event.decision, ResultOffloaded):
            said = f"layer 1  moved a result of {event.decision.size:,} characters to disk"
            self._count("offload", event.decision.cause.frees, said, "a preview stays in view")
        elif isinstance(event, NotesWritten):
            self.acts["notes"] += 1
            self._noted += 1
        elif isinstance(event, CompactionEnded):
            sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
            said = f"layer 4  replaced old messages with a summary: {sizes}"
            freed = event.tokens_before - event.tokens_after
            self._count(
                "compact",
                freed,
                said,
                "no model call" if not event.model_calls else counted(event.model_calls, "model call"),
            )
        elif isinstance(event, RequestPrepared):
            self._full = event.window
        elif isinstance(event, FellBack):
            self.line(f"  {event.what}: {event.why}", "")

    def _count(self, layer: str, freed: int, said: str, why: str) -> None:
        self.acts[layer] += 1
        self.freed[layer] += freed
        self.line(f"  {said}", why, style=_STYLES[layer])

    def show_prompt(self, words: str) -> None:
        """Print how often the notes were updated for the last prompt, then the user's prompt."""
        if self._noted:
            updated = f"  layer 3  updated the notes {counted(self._noted, 'time')}"
            self.line(updated, "no model call", style=_STYLES["notes"])
            self._noted = 0
        self.line(f"> {shorten(words, min(100, console().width - 3), placeholder=' …')}", "", style="bold")

    def turn(self, number: int, window: int, spent: float) -> None:
        """Redraw the bar of context usage and cost so far, note the peak, and wait for the pace of the demo."""
        self.peak = max(self.peak, window)
        if self._live:
            room = console().width - 1  # a line that breaks cannot be replaced
            cells = max(4, min(24, room - 50))
            filled = bar(window, self._full, width=cells).ljust(cells, "·")
            shown = f"  request {number:>3}  {filled} {window:>7,} of {self._full:,} tokens  ${spent:.2f} "
            sys.stdout.write(f"\r{shown[:room]}")
            sys.stdout.flush()
        if self.pace:
            time.sleep(self.pace)

    def end(self) -> None:
        """Remove the bar."""
        if self._live:
            sys.stdout.write("\r\x1b[2K")

    def line(self, text: str, why: str, *, style: str = "") -> None:
        """Print one line with its reason, replacing the bar if there is one; print nothing if quiet."""
        if self.quiet:
            return
        if self._live:
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()
        room = console().width - 1
        indent = _INDENT if text.startswith(" ") else ""
        reason = f"  ({why})" if why else ""
        if len(text) + len(reason) > room:
            reason = f"\n{indent}({why})" if why else ""
            text = fill(text, room, subsequent_indent=indent, break_on_hyphens=False)
        paint([(text, style), (f"{reason}\n", "dim")])


def _recorded(tokens: int) -> bytes:
    whole = gzip.decompress(files("reverie.cli.costs").joinpath(_SESSION).read_bytes())
    end = whole.find(b"\n", tokens * _BYTES_PER_TOKEN)
    return whole if end < 0 else whole[: end + 1]


async def _perform(home: Path, tokens: int, stage: _Stage) -> dict[str, Any]:
    from ...cache.prices import prices_for
    from ...cache.usage import Usage
    from ...importers import read_session
    from ...replay.compare import compare
    from ...replay.outcome import totals
    from ...replay.play import PlayedClock, play_session
    from ...replay.recording import recording_of
    from ...runtime.session.ledger import LedgerStore
    from ...runtime.session.session import Session
    from ...settings import load_settings

    file = home / "session.jsonl"
    file.write_bytes(_recorded(tokens))
    (recorded,) = read_session(file)
    about = recorded.entries[0].body
    settings = load_settings(home=home / "home", environ={})
    clock = PlayedClock()
    session = Session.open("demo", cwd=home, settings=settings, clock=clock)
    session.listen(stage.on_event)
    spent = 0.0
    async with session:
        turns = play_session(
            recorded.entries,
            session,
            clock,
            model=about["model"],
            system=about["system"],
            tools=about["tools"],
            on_said=stage.show_prompt,
        )
        async for turn in turns:
            last = session.view.facts.last_call
            spent += (last.cost_usd or 0.0) if last is not None else 0.0
            stage.turn(turn.number, turn.window, spent)
        kept = await _compact_and_undo(session, stage)
    stage.end()
    prices = prices_for(about["model"])
    assert prices is not None
    with LedgerStore(settings.home) as store:
        (sums,) = store.by("session").values()
    report = compare(
        [recording_of(recorded, file.name)], policies=("uncached", "append-only", "reverie"), settings=settings
    )
    return {
        "requests": sums.calls,
        "peak_window": stage.peak,
        "layers": {name: {"acts": stage.acts[name], "tokens": stage.freed[name]} for name in stage.acts},
        "ledger": {
            "read": sums.actual.read,
            "written": sums.actual.write,
            "uncached": sums.actual.uncached,
            "output": sums.actual.output,
            "usd": sums.usd,
            "output_usd": prices.cost_of(Usage(output=sums.actual.output)),
            "hit_rate": sums.hit_rate,
            "lost_usd": sums.lost_usd,
        },
        "compaction": {"share_of_names_kept": kept, "undone": True},
        "policies": {name: totals(report.of(policy=name)) for name in report.policies},
        "windows": {
            name: [point.window for one in report.of(policy=name) for point in one.points] for name in report.policies
        },
    }


async def _compact_and_undo(session: Session, stage: _Stage) -> float:
    """Compact the session, undo the compaction, print both results, and return the share of exact names kept."""
    before = session.view.messages()
    stage.line("> /compact", "", style="bold")
    report = await session.compact()
    names = f"{report.loss.share_kept:.0%} of the uses of exact names (paths, ids, errors, numbers) are still in view"
    stage.line(
        f"           your own messages stay, byte for byte; {names}", f"read the rest with handle {report.handle}"
    )
    stage.line("> /uncompact", "", style="bold")
    await session.undo()
    same = session.view.messages()[: len(before)] == before
    stage.line(f"           all earlier messages are back, byte for byte: {'yes' if same else 'NO'}", "")
    return report.loss.share_kept


def _show_bill(found: dict[str, Any]) -> None:
    """Print the ledger and the cost of the same work under other policies."""
    ledger, policies = found["ledger"], found["policies"]
    say("")
    kinds = {
        "read": "read from the cache",
        "written": "written to the cache",
        "uncached": "uncached",
        "output": "output",
    }
    table(["ledger", "tokens"], [[name, f"{ledger[kind]:,}"] for kind, name in kinds.items()], right=(1,))
    paid = ledger["usd"] - ledger["output_usd"]
    rate = f"{ledger['hit_rate']:.1%} of input from the cache"
    say(
        folded(
            f"{found['requests']} requests, {rate}; ${paid:.2f} for input and ${ledger['output_usd']:.2f} for output"
        )
    )
    say("")
    whole, alone = policies["uncached"]["input_usd"] or 1.0, policies["append-only"]["input_usd"]
    costs = {name: (one["input_usd"], one["peak_window"]) for name, one in policies.items()}
    costs = {**costs, _OURS: (paid, found["peak_window"])}
    rows = [
        [_ROWS.get(name, name), f"${usd:.2f}", bar(usd, whole, width=24), f"{peak:,}"]
        for name, (usd, peak) in costs.items()
    ]
    table(["input cost of the same work", "", "", "fullest window"], rows, right=(1, 3))
    ours = policies["reverie"]
    say(
        folded(
            f"Reverie costs {1 - ours['input_usd'] / alone:.0%} less than caching alone (append-only) if a model "
            f"writes its summaries (${ours['summary_usd']:.2f} of its ${ours['input_usd']:.2f}), and "
            f"{1 - paid / alone:.0%} less if they are made of its notes, as in the session above."
        )
    )
    _show_windows({name: found["windows"][name] for name in ("append-only", "reverie")})
    say("Try it on your own sessions: reverie replay")


def _show_windows(windows: dict[str, list[int]]) -> None:
    """Print the size of the window over the session, one line per policy, all on one scale."""
    highest = max(size for sizes in windows.values() for size in sizes)
    say("")
    say(folded(f"window over the session, up to {highest:,} tokens (append-only falls where its window was full)"))
    for name, sizes in windows.items():
        step = -(-len(sizes) // _LINE)
        highs = [max(sizes[at : at + step]) for at in range(0, len(sizes), step)]
        line = sparkline([*highs, highest])[:-1]
        paint([(f"{name:<12}", ""), (f"{line}\n", "magenta" if name == "reverie" else "")])
    say("")
