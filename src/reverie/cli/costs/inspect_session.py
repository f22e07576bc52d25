"""``reverie inspect``: write a session or a recording as one page, from its first request to its last."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import click

from ..output import counted, dollars, emit_json, say, size, tracked
from ..sessions.export import write
from ..sessions.recordings import SESSION, with_agents


@click.command()
@click.argument("session", metavar="SESSION|FILE", type=SESSION)
@click.option("--html", metavar="FILE", required=True, type=click.Path(dir_okay=False), help="Write the page here.")
@click.option("--redact", is_flag=True, help="Replace all texts by filler, so that the page can be shared.")
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(session: str, html: str, redact: bool, force: bool, as_json: bool) -> None:
    """Write a session as one HTML page that needs no server and no network.

    It shows the window of every request by category, the exact request at any turn and its difference to the one
    before, each act of a layer, each cache break with its cause and price, compactions with the names they removed,
    the bill, and a search. FILE may be a recording of any agent that 'reverie import' knows. Without --redact the page
    holds the whole session.
    """
    from ...servers.inspector.film import film_data, line_numbers, session_data
    from ...servers.inspector.page import page
    from ...servers.inspector.redaction import redacted

    target = Path(html)
    write(target, b"", force=force, dry_run=True)  # refuse a bad path before the work
    is_file = Path(session).is_file()
    logs = with_agents(session)
    main = logs[0][0].session_id
    films = [
        session_data(
            one,
            lines=line_numbers(log),
            name="" if is_file else one.session_id,
            parent=main if one.session_id != main else "",
        )
        for one, log in tracked(logs, "reading")
    ]
    if redact:
        films = [redacted(one, number) for number, one in enumerate(films, 1)]
    data = page(film_data(films, version=version("reverie"), redacted=redact)).encode()
    write(target, data, force=force, dry_run=False)
    requests = sum(len(one["requests"]) for one in films)
    usd, lost = (sum(one["bill"][name] for one in films) for name in ("usd", "lost_usd"))
    if as_json:
        emit_json(
            {"page": html, "bytes": len(data), "sessions": len(films), "requests": requests}
            | {"usd": usd, "lost_usd": lost, "redacted": redact}
        )
        return
    cost = f"{counted(requests, 'request')}, {dollars(usd)}, {dollars(lost)} lost to cache breaks"
    say(f"wrote {size(len(data))} to {html}: {cost}")
    if not redact:
        say("The page holds the whole session; --redact writes one that can be shared.")
