"""``reverie search``: full-text search over the messages of all sessions."""

from __future__ import annotations

import sys

import click

from ...errors import InputError
from ...memories.recall.terms import tokens
from ...runtime.places.projects import log_key
from ...runtime.search.hits import SearchHit
from ...runtime.search.sessions import SessionSearch
from ...runtime.search.vectors import settings_embedder
from ...settings import load_settings
from ..options import number_option, query_of
from ..output import emit_json, folded, is_fitted, paint, say, warn_of_fallback
from .recordings import opened_library, opened_storage, slug_of
from .sessions import RANDOM_NAME


@click.command()
@click.argument("words", metavar="WORDS...", nargs=-1)
@click.option("--project", metavar="DIR", help="Only sessions of the project that contains this directory.")
@number_option("--limit", "Maximum number of messages.", 1, 1_000, default=10)
@click.option("--json", "as_json", is_flag=True, help="Print the messages as JSON.")
def command(words: tuple[str, ...], project: str | None, limit: int, as_json: bool) -> None:
    """Find messages in past sessions by their words and, with an embedder, by their meaning, best match first.

    'reverie read SESSION HANDLE' shows a message in full.
    """
    query = query_of(words)
    slug = slug_of(project)
    settings = load_settings()
    if not settings.switches.memory:
        raise InputError("search over past sessions is switched off: set switches.memory to true")
    embedder = settings_embedder(settings)
    with (
        opened_storage(settings) as storage,
        SessionSearch(settings.home, listener=warn_of_fallback, embedder=embedder, storage=storage) as search,
    ):
        found = search.search(query, project=slug, limit=limit)
    if as_json:
        emit_json({"query": query, "messages": found})
    elif found:
        draw(found, query)
    elif _is_empty():
        say("No sessions yet: 'reverie keep' and 'reverie import' add those of other agents.")
    elif settings.encryption_key is not None:
        say("No matches: encrypted sessions are not indexed. 'reverie show' reads one.")
    elif embedder is not None:
        say("No matches. Try other words: names, identifiers, parts of a path.")
    else:
        say("No matches: a message must contain a word of the query. Try names, identifiers, parts of a path.")


def _is_empty() -> bool:
    with opened_library() as library:
        return not list(library.keys())


def draw(found: list[SearchHit], query: str) -> None:
    """Print the messages below the title of their session, the session with the best match first.

    A message without a word of the query was found by its neighbours, or by its meaning, and says so.
    """
    wanted = set(tokens(query))
    by_session: dict[tuple[str, str], list[SearchHit]] = {}
    for one in found:
        by_session.setdefault((one.project, one.session), []).append(one)
    short = is_fitted()
    with opened_library() as library:
        for number, ((project, session), hits) in enumerate(by_session.items()):
            title = library.describe(log_key(project, session)).title or session
            name = f"{project}/{session}" if not short else session[:8] if RANDOM_NAME.match(session) else session
            gap = "\n" if number else ""
            paint([(f"{gap}{' '.join(title.split())}", "bold"), (f"  {name}\n", "dim")])
            for one in hits:
                handle = one.handle[:8] if short and RANDOM_NAME.match(one.handle) else one.handle
                when = one.time[:16].replace("T", " ")
                near = "" if wanted.intersection(tokens(one.snippet)) else "  near a match"
                who = "result" if one.speaker == "tool" else one.speaker or one.kind
                paint([(f"  {when}  {who}  {handle}{near}\n", "dim")])
                say(folded(one.snippet, "    "))
    if sys.stdout.isatty():
        first = found[0]
        name, handle = (one[:8] if RANDOM_NAME.match(one) else one for one in (first.session, first.handle))
        say(f"\n'reverie read {name} {handle}' shows the first message in full.")
