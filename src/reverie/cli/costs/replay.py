"""``reverie replay``: price recorded sessions under other caching policies and list their cache breaks."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import click

from ...errors import InputError
from ..options import date_option
from ..output import counted, emit_json, progressing, say
from ..sessions.export import write


@click.command()
@click.argument("paths", nargs=-1, metavar="[FILE|DIRECTORY|SESSION]...")
@click.option("--policy", "chosen", multiple=True, metavar="NAME|FILE.toml", help="Only these policies (repeatable).")
@click.option(
    "--model", metavar="NAME", help="Prices, window and cache rules of this model; default: the recorded one."
)
@click.option(
    "--ttl", type=click.Choice(("5m", "1h")), default="5m", show_default=True, help="Lifetime of cache entries."
)
@click.option(
    "--html", "html", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the report as an HTML page."
)
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
@date_option("--since", "Compare the bills since DATE with the prediction from before it.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    paths: tuple[str, ...],
    chosen: tuple[str, ...],
    model: str | None,
    ttl: str,
    html: str | None,
    force: bool,
    since: datetime | None,
    as_json: bool,
) -> None:
    """Replay recorded sessions of Claude Code, Codex and other agents in a simulator of the provider's cache.

    Without a file, it replays all sessions that it finds on this machine, of other agents and of Reverie, under the
    recorded bill, append-only and the three presets. A policy FILE.toml replays with those settings. Content that a
    policy removed and the agent needed again is charged.
    """
    from ...cache.prices import prices_for
    from ...model_facts import near_model
    from ...replay.compare import BRIEF, SHOWN, compare, recordings_in, settings_named
    from ...replay.report import SINCE_POLICIES, report_json, since_line

    if model is not None and prices_for(model) is None:
        near = near_model(model)
        raise InputError(f"no price is known for {model!r}" + (f"; did you mean {near}?" if near else ""))
    target = None if html is None else Path(html)
    if target is not None:
        write(target, b"", force=force, dry_run=True)  # refuse a bad path before the work
    names = [name for name in chosen if not name.endswith(".toml")]
    extra = settings_named(Path(name) for name in chosen if name.endswith(".toml"))
    files = [_readable(path) for path in paths] if paths else _all_sessions()
    recordings, skipped = recordings_in(files, lenient=not paths)
    if not recordings:
        raise InputError(f"no requests to replay in {counted(len(files), 'session file')}")
    policies = names or (list(SHOWN if paths else BRIEF) if not chosen or extra else [])
    if since is not None:
        policies = list(dict.fromkeys((*policies, *SINCE_POLICIES)))
    acts = len(recordings) * (len(policies) + len(extra))
    with progressing("Replaying", acts) as step:
        report = compare(
            recordings,
            policies=policies,
            extra=extra,
            model=model,
            ttl=ttl,
            skipped=skipped,
            progress=lambda _: step(),
            cores=os.cpu_count() or 1,
        )
    if target is not None:
        from ...servers.inspector.page import page
        from ...servers.inspector.replay_view import replay_data

        data = {"version": version("reverie"), "replay": replay_data(report)}
        write(target, page(data).encode(), force=force, dry_run=False)
    if as_json:
        emit_json({**report_json(report), **({"since": since_line(report, since.timestamp())} if since else {})})
        return
    from .replay_table import show

    show(report, since.timestamp() if since else None)
    if target is not None:
        say(f"\nThe page is at {target}")


def _readable(path: str) -> Path:
    """Return a path that exists, or the log of the session of this name."""
    from ...errors import SessionNotFound
    from ...settings import load_settings
    from ..sessions.recordings import opened_library

    if Path(path).exists():
        return Path(path)
    with opened_library() as library, suppress(SessionNotFound):
        log = load_settings().home / library.find(path)
        if log.exists():
            return log
    raise InputError(f"{path!r} is neither a file, nor a directory, nor a session; 'reverie sessions' lists sessions")


def _all_sessions() -> list[Path]:
    """Return the session files of all agents of this user, and of Reverie's library."""
    from ...importers import usual_places
    from ...settings import load_settings

    found = [session for place in usual_places(Path.home(), os.environ) for session in place.sessions()]
    found += sorted(load_settings().home.glob("projects/*/*.jsonl"))
    if not found:
        raise InputError(
            "found no sessions of agents on this machine; pass a recorded session or a directory, or see 'reverie demo'"
        )
    return found
