"""``reverie inspect``: show a session or a recording as a page, on loopback or as one file."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import click

from ...errors import InputError
from ...settings import load_settings
from ..output import counted, dollars, emit_json, say, size, warn
from ..sessions.export import write
from ..sessions.recordings import SESSION, with_agents


@click.command()
@click.argument("session", metavar="[SESSION|FILE]", type=SESSION, required=False)
@click.option("--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write the page here, without a server.")
@click.option("--redact", is_flag=True, help="With --html: replace all texts by filler, so that it can be shared.")
@click.option("--force", is_flag=True, help="With --html: overwrite an existing page.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port on loopback; default: a free one.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures, or the address, as JSON.")
def command(session: str | None, html: str | None, redact: bool, force: bool, port: int, as_json: bool) -> None:
    """Show a session as a page: the window of every request, each decision, each cache break with its price.

    Without --html it serves the page on 127.0.0.1 until Ctrl-C, with all running sessions, and prints an address with a
    token. With --html it writes one file that needs no server and no network. FILE may be a recording of any agent
    that 'reverie import' knows. Without --redact the file holds the whole session.
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

    import anyio

    from ...servers.inspector.live import InspectorServer, LiveSessions
    from ..compaction.undo import undo_last

    if session:
        with_agents(session)  # refuse an unknown name before the server starts
    settings = load_settings()

    def undo(name: str) -> str:
        result = anyio.run(undo_last, name, settings)
        return result.get("text") or "the process that has the session open undoes it at its next turn"

    sessions = LiveSessions(settings, with_agents, undo, target=session, version=version("reverie"))
    try:
        server = InspectorServer(sessions, token=secrets.token_urlsafe(32), port=port)
    except OSError as error:
        raise InputError(f"port {port} cannot be used ({error}); choose another, or 0 for a free one") from None
    with server:
        if as_json:
            emit_json({"address": server.address, "pid": os.getpid()})
        else:
            say(f"The inspector is at {server.address}")
            say("This address lets its reader see your sessions. Ctrl-C ends it.")
        server.serve_forever()


def _write(session: str, target: Path, redact: bool, force: bool, as_json: bool) -> None:
    from ...servers.inspector.film import film_data, films_of
    from ...servers.inspector.page import page
    from ...servers.inspector.redaction import redacted

    write(target, b"", force=force, dry_run=True)  # refuse a bad path before the work
    sessions = with_agents(session)
    films = films_of(sessions, is_file=Path(session).is_file())
    if redact:
        films = [redacted(one, number) for number, one in enumerate(films, 1)]
    data = page(film_data(films, version=version("reverie"), redacted=redact)).encode()
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
