"""Prove a deletion: take a sample of the texts of sessions before it, and search the home for them after it.

A text that a session which stays, a memory of another source or a file of the user holds too proves nothing, and is
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Final

from ...conversation.authorship import strings_of, utterances
from ...conversation.log import parse_log
from ...ports import Storage
from ...values import record
from ..library import Library, agent_log
from ..places.home_search import search_home, written_forms
from ..places.storage import database_of
from .session import DeletionReceipt

_MIN_CHARS: Final = 24
_MAX_CHARS: Final = 160
_MIN_WORDS: Final = 3
_MAX_TEXTS: Final = 30
_MAX_TEXTS_OF_ALL: Final = 300
_USERS_OWN: Final = ("config.toml", "AGENTS.md", "skills", "agent-types", "trust.toml", "permissions.toml")


@record
class HomeSearched:
    """The result of a search over the home after a deletion, without content."""

    files: int
    """The files that were searched."""
    texts: int
    """The texts of the deleted sessions that were searched for."""
    left: list[str]
    """The files that still hold one of the texts, relative to the home."""


def sampled_texts(storage: Storage, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the longest lines of the messages, calls and results of each session and its agents; this may block."""
    library = Library(storage)
    count = max(1, min(_MAX_TEXTS, _MAX_TEXTS_OF_ALL // max(1, len(keys))))
    return {key: _longest(storage, [key, *map(agent_log, library.agents_of(key))][:count], count) for key in keys}


def _longest(storage: Storage, logs: Sequence[str], count: int) -> list[str]:
    """Return the longest lines of logs, of each log and kind of utterance in turn, so that none goes without one."""
    ranked = [lines for log in logs for lines in _ranked_lines(storage.load(log) or b"", count)]
    in_turn = chain.from_iterable(zip_longest(*ranked))
    return list(islice(dict.fromkeys(line for line in in_turn if line is not None), count))


def _ranked_lines(log: bytes, count: int) -> list[list[str]]:
    """Return the longest lines of prompts, replies, calls and results, each kind in a list of its own."""
    kinds: dict[str, set[str]] = {"said": set(), "told": set(), "call": set(), "result": set(), "refused": set()}
    for entry in parse_log(log).entries:
        for one in utterances(entry):
            for text in (one.text, *strings_of(one.input)):
                lines = [line.strip() for line in text.splitlines()]
                kinds[one.kind] |= {line[:_MAX_CHARS] for line in lines if _is_distinct(line)}
    return [nlargest(count, sorted(lines), key=len) for lines in kinds.values()]


def _is_distinct(line: str) -> bool:
    """Return whether a line is long enough and more than one word, such as a path that many files name."""
    return len(line) >= _MIN_CHARS and not (line.isascii() and len(line.split()) < _MIN_WORDS)


def search_for_remains(
    home: Path, storage: Storage, texts: Mapping[str, Sequence[str]], receipts: Sequence[DeletionReceipt]
) -> HomeSearched:
    """Search all files of the home, and the database, for the sampled texts of deleted sessions; this may block."""
    forms = {form: text for one in receipts for text in texts.get(one.key, ()) for form in written_forms(text)}
    logs = [log for one in receipts for log in (one.key, *map(agent_log, one.agents))]
    files, shared = 0, set[str]()
    holders: dict[str, set[str]] = {}
    for name, found in search_home(home, [*forms, *logs]):
        files += 1
        # The search index has single words, not texts, and the names of the logs that they are from.
        held = {forms.get(form, form) for form in found if form in forms or ".sqlite" in name}
        if held:
            holders[name] = held
            if _is_of_others(home, name, logs):
                shared |= holders[name]
    for key, held in _search_database(storage, forms):
        files += 1
        if held:
            holders[f"database: {key}"] = held
            if _is_of_a_session(*_top(key)):
                shared |= held
    left = [name for name, held in holders.items() if held - shared]
    return HomeSearched(files, len({*forms.values()} - shared), left)


def _search_database(storage: Storage, forms: Mapping[str, str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each key of a database with the texts that it holds."""
    if database_of(storage) is None:
        return
    wanted = [(form.encode(), text) for form, text in forms.items()]
    for key in storage.list():
        data = storage.load(key) or b""
        yield key, {text for form, text in wanted if form in data}


def _top(key: str) -> tuple[str, list[str]]:
    top, *rest = key.split("/")
    return top, rest


def _is_of_others(home: Path, name: str, deleted: Sequence[str]) -> bool:
    """Return whether a file belongs to the user, to a session that stays, or to a memory of another source."""
    top, *rest = name.split("/")
    if top in _USERS_OWN:
        return True
    if _is_of_a_session(top, rest):
        return not name.startswith(tuple(place for log in deleted for place in (log, f"{log.removesuffix('.jsonl')}/")))
    folder = (home / name).parent
    if not name.endswith(".md") or not (folder / ".journal").is_dir():
        return False
    sessions = [log.rsplit("/", 1)[-1].removesuffix(".jsonl").encode() for log in deleted]
    document = (home / name).read_bytes()
    return not any(session in document for session in sessions)


def _is_of_a_session(top: str, rest: Sequence[str]) -> bool:
    """Return whether a file is the log of a session or an agent, or in the folder beside it."""
    if top not in ("agents", "projects"):
        return False
    inside = rest if top == "agents" else rest[1:]
    return (len(inside) > 1 and inside[0] != "memory") or (len(inside) == 1 and inside[0].endswith(".jsonl"))
