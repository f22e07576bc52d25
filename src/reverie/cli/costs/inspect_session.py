"""``reverie inspect``: show a session or a recording as a page, on loopback or as one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from ...errors import InputError
from ...settings import Settings, load_settings
from ..output import counted, dollars, emit_json, say, size, warn
from ..sessions.export import write
from ..sessions.recordings import SESSION, with_agents


@click.command()
@click.argument("session", metavar="[SESSION|FILE]", type=SESSION, required=False)
@click.option("--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write the page here, without a server.")
@click.option("--redact", is_flag=True, help="With --html: replace all texts by filler, so that it can be shared.")
@click.option("--force", is_flag=True, help="With --html: overwrite an existing page.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The port on loopback; default: a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures, or the address, as JSON.")
def command(session: str | None, html: str | None, redact: bool, force: bool, port: int, as_json: bool) -> None:
    """Serve a session as a page on 127.0.0.1 until Ctrl-C, or write the page to a file with --html.

    The page shows the window of every request, each decision, and each cache break with its price. The served page also
    has all running sessions, memories, dreams, agents and costs; its address with a token is printed. The file of
    --html needs no server and no network; without --redact it holds the whole session. FILE may be a recording of any
    agent that 'reverie import' knows.
    """
    if html is None:
        if redact or force:
            raise InputError("--redact and --force need --html")
        _serve(session or "", port, as_json)
    elif session is None:
        raise InputError("name the session or file that --html shall show; 'reverie sessions' lists all sessions")
    else:
        _write(session, Path(html), redact, force, as_json)


def _serve(session: str, port: int, as_json: bool) -> None:
    import secrets

    from ...servers.inspector.live import LiveHome
    from ...servers.inspector.server import InspectorServer

    if session:
        with_agents(session)  # refuse an unknown name before the server starts
    settings, known = load_settings(), version("reverie")
    home = LiveHome(
        settings, partial(with_agents, settings=settings), session_doors(settings), target=session, version=known
    )
    try:
        token = secrets.token_urlsafe(32)
        server = InspectorServer(home.reads, home.acts, version=known, token=token, port=port)
    except OSError as error:
        raise InputError(f"port {port} cannot be used ({error}); choose another, or 0 for a free one") from None
    with server, closing(home):
        if as_json:
            emit_json({"address": server.address, "pid": os.getpid()})
        else:
            say(f"The inspector is at {server.address}")
            if os.path.isfile(session):
                say("It shows the file, and all your sessions and memories too; --html shows the file alone.")
            say("This address lets its reader see and change your sessions and memories. Ctrl-C ends it.")
        server.serve_forever()


def session_doors(settings: Settings) -> dict[str, Callable[[str], str]]:
    """Return the acts of the page on a session, by name: those of the commands undo, compact and stop."""
    import anyio

    from ..agents.stop import stop_session
    from ..compaction.compact import compact_now
    from ..compaction.undo import undo_last

    def undo(name: str) -> str:
        def refuse(whose: str) -> None:
            raise InputError(f"the last compaction is {whose}: 'reverie compact --undo {name}' asks, and undoes it")

        result = anyio.run(undo_last, name, settings, refuse)
        return result.get("text") or "the process that has the session open undoes it at its next turn"

    def compact(name: str) -> str:
        result = anyio.run(compact_now, name, settings)
        if "queued" in result:
            return "the process that has the session open compacts it at its next turn"
        return f"compacted: {result['tokens_before']:,} tokens before, {result['tokens_after']:,} after"

    return {
        "undo": undo,
        "compact": compact,
        "stop": lambda name: str(stop_session(name, settings, sender="reverie inspect")["text"]),
    }


def _write(session: str, target: Path, redact: bool, force: bool, as_json: bool) -> None:
    from ...servers.inspector.film import films_of, page_data
    from ...servers.inspector.page import page
    from ...servers.inspector.redaction import redacted

    write(target, b"", force=force, dry_run=True)  # refuse a bad path before the work
    sessions = with_agents(session)
    films = films_of(sessions, is_file=Path(session).is_file())
    if redact:
        films = [redacted(one, number) for number, one in enumerate(films, 1)]
    data = page(page_data(films, version=version("reverie"), redacted=redact)).encode()
    write(target, data, force=force, dry_run=False)
    requests = sum(len(one["requests"]) for one in films)
    usd, lost = (sum(one["bill"][name] for one in films) for name in ("usd", "lost_usd"))
    if as_json:
        emit_json(
            {"page": str(target), "bytes": len(data), "sessions": len(films), "requests": requests}
            | {"usd": usd, "lost_usd": lost, "redacted": redact}
        )
        return
    if damaged := sum(len(one.damage) for one, _ in sessions):
        warn(f"left out {counted(damaged, 'damaged line')}; 'reverie show' lists them")
    cost = f"{counted(requests, 'request')}, {dollars(usd)}, {dollars(lost)} lost to cache breaks"
    say(f"wrote {size(len(data))} to {target}: {cost}")
    if not redact:
        say("The page holds the whole session; --redact writes one that can be shared.")
