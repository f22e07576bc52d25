"""Sessions in a database: every command finds them there, from any machine, and nothing is imported without one."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tarfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import psycopg
import pytest

from postgres_server import TENANT_ROLE, PostgresServer
from reverie import Session
from reverie.cache.ledger import LedgerCall
from reverie.cache.usage import Usage
from reverie.errors import InputError
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.mail.inbox_bridge import database_bridge
from reverie.runtime.mail.post_office import PostOffice
from reverie.runtime.memory.memory import Memory
from reverie.runtime.places.move import SHARED
from reverie.runtime.places.projects import project_slug
from reverie.runtime.places.storage import storage_of
from reverie.runtime.search import shared_words
from reverie.runtime.search.sessions import SessionSearch
from reverie.runtime.search.shared_words import index_logs, words_of
from reverie.runtime.session.ledger import open_ledger
from reverie.settings import Settings
from reverie.storage.postgres import connections
from reverie.storage.postgres.migrate import migrate, migrations, status
from reverie.storage.postgres.search import SharedWords
from reverie.storage.postgres.storage import PostgresStorage
from reverie.values import replace

from .conftest import Asked, Reverie
from .test_json_schemas import closed, schema_of

pytestmark = pytest.mark.slow

OLD_HOME = Path(__file__).parents[1] / "runtime" / "fixtures" / "home_c4e14bb.tar.gz"
SAID = "The fence of the north field is green since Tuesday."
_REQUEST: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 100, "system": "Be brief."}
_REPLY: dict[str, Any] = {
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "text", "text": "Noted."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 2},
}
_KILLED = """
import anyio, json, os, sys
from pathlib import Path
from reverie import Session
from reverie.settings import load_settings

async def main():
    asked, reply = json.loads(sys.argv[2]), json.loads(sys.argv[3])
    async with Session.open("moving", cwd=sys.argv[1], settings=load_settings()) as session:
        await session.say(sys.argv[4])
        request = await session.prepare(**asked)
        await session.observe(reply)
        print(json.dumps(request), flush=True)
        os.kill(os.getpid(), 9)

anyio.run(main)
"""


@pytest.fixture
def database(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenant: str) -> Settings:
    """Let every command and session use the database, with a tenant of this test."""
    monkeypatch.setenv("REVERIE_DATABASE", postgres_url)
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    monkeypatch.chdir(tmp_path)
    return Settings(home=tmp_path / "home", database=postgres_url, tenant=tenant)


def said(settings: Settings, name: str, text: str, cwd: Path) -> None:
    async def run() -> None:
        async with Session.open(name, cwd=cwd, settings=settings) as session:
            await session.say(text)
            await session.prepare(**_REQUEST)
            await session.observe(_REPLY)

    anyio.run(run)


@pytest.mark.requirement("X2")
def test_a_session_killed_on_one_machine_goes_on_at_another_with_the_same_bytes(
    database: Settings, tmp_path: Path, home: Path
) -> None:
    work = [str(tmp_path), json.dumps(_REQUEST), json.dumps(_REPLY), SAID]
    done = subprocess.run([sys.executable, "-c", _KILLED, *work], capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    first = json.loads(done.stdout)
    elsewhere = Settings(home=tmp_path / "another machine", database=database.database, tenant=database.tenant)

    async def go_on() -> dict[str, Any]:
        async with Session.open("moving", cwd=tmp_path, settings=elsewhere) as session:
            await session.say("Which colour?")
            return await session.prepare(**_REQUEST)

    then = anyio.run(go_on)
    assert [then[part] for part in ("model", "system")] == [first[part] for part in ("model", "system")]
    assert text_of(then["messages"]).startswith(text_of(first["messages"])[:-1])
    assert SAID in text_of(then["messages"])
    assert not (home / "projects").exists(), "nothing of the session is in the first machine's home"


def text_of(messages: list[dict[str, Any]]) -> str:
    """Return messages as text, without the marks of the cache, which move to the end."""
    return json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', "")


@pytest.mark.requirement("X2")
def test_the_commands_for_sessions_work_on_a_database(
    database: Settings, tmp_path: Path, reverie: Reverie, asked: Asked
) -> None:
    said(database, "fences", SAID, tmp_path)
    said(database, "kept", "Something about cattle.", tmp_path)
    assert {one["session"] for one in asked("sessions")["sessions"]} == {"fences", "kept"}
    assert SAID in reverie("show", "fences")[1]
    assert [one["session"] for one in asked("search", "north", "fence")["messages"]][:1] == ["fences"]
    assert SAID in reverie("export", "fences")[1]
    assert asked("stats", "--days", "36500")
    assert reverie("delete", "fences", "--yes")[::2] == (0, "")
    assert [one["session"] for one in asked("sessions")["sessions"]] == ["kept"]
    assert asked("search", "north", "fence")["messages"] == []


@pytest.mark.requirement("X2")
def test_a_dream_in_its_own_process_is_one_of_the_database(
    database: Settings, tmp_path: Path, reverie: Reverie, home: Path
) -> None:
    Memory.open(tmp_path, settings=replace(database, home=home)).save(SAID, type="project", why="it was said")
    assert reverie("dream", "--now", "--local")[0] == 0
    elsewhere = replace(database, home=tmp_path / "elsewhere")
    dreams = Dreams(Memory.open(tmp_path, settings=elsewhere), elsewhere, project=tmp_path)
    assert [report.files_before for report in dreams.reports()] == [1]


@pytest.mark.requirement("X3")
def test_another_tenant_sees_no_session(database: Settings, tmp_path: Path, asked: Asked, monkeypatch: Any) -> None:
    said(database, "fences", SAID, tmp_path)
    monkeypatch.setenv("REVERIE_TENANT", "somebody else")
    assert asked("sessions")["sessions"] == []


@pytest.mark.usefixtures("database")
def test_a_database_without_a_tenant_is_refused_with_the_remedy(reverie: Reverie, monkeypatch: Any) -> None:
    monkeypatch.delenv("REVERIE_TENANT")
    code, _, err = reverie("sessions")
    assert code != 0
    assert "set REVERIE_TENANT" in err


@pytest.mark.requirement("X6")
def test_without_the_extra_the_error_says_how_to_install_it(
    database: Settings, reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "reverie.storage.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for command in (["sessions"], ["db", "status"]):
        code, _, err = reverie(*command)
        assert code != 0
        assert "reverie[postgres]" in err


@pytest.mark.usefixtures("database")
def test_a_database_that_cannot_be_used_is_an_error_that_names_what_to_check(
    reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", "postgresql://user:hidden@127.0.0.1:1/none")
    code, _, err = reverie("sessions")
    assert (code, "check that the server runs, and the URL with its user and password" in err) == (2, True)
    assert "hidden" not in err


@pytest.mark.requirement("X6")
@pytest.mark.parametrize(
    "code",
    [
        "from reverie.cli.main import run; run(['--help'])",
        "from reverie.cli.main import run; run(['sessions'])",
        "import reverie; reverie.Session.open('s')",
    ],
)
def test_without_a_url_nothing_of_it_is_imported(code: str) -> None:
    check = "\nimport sys; print([name for name in sys.modules if 'psycopg' in name or 'postgres' in name])"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.usefixtures("database")
def test_db_status_fits_its_schema_and_warns_of_a_role_that_no_policy_binds(
    postgres_server: PostgresServer, asked: Asked, reverie: Reverie
) -> None:
    found = asked("db", "status")
    jsonschema.Draft202012Validator(closed(schema_of("db-status"))).validate(found)
    assert (found["pending"], found["bypasses_tenants"]) == ([], False)
    code, _, err = reverie("db", "status", "--database", postgres_server.url)
    assert (code, "not bound by row-level security" in err) == (0, True)


def test_many_processes_may_migrate_at_once(postgres_server: PostgresServer, asked: Asked) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fresh")
        connection.execute("CREATE DATABASE fresh")
    url = postgres_server.url.replace("/postgres?", "/fresh?")
    names = [one.name for one in migrations()]
    assert asked("db", "migrate", "--dry-run", "--database", url)["applied"] == names
    assert status(url).pending == tuple(names), "a dry run changes nothing"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: migrate(url).pending, range(8)))
    assert sorted(made) == [()] * 7 + [tuple(names)]
    assert status(url).applied == tuple(names)


@pytest.mark.parametrize("option", ["--grant", "--worker"])
def test_a_dry_run_of_migrate_refuses_the_roles_that_the_real_run_refuses(
    postgres_server: PostgresServer, reverie: Reverie, option: str
) -> None:
    name = option.replace("--", "with_")
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        for text in ("DROP DATABASE IF EXISTS", "DROP ROLE IF EXISTS", "CREATE DATABASE", "CREATE ROLE"):
            connection.execute(f"{text} {name}".encode())
    url, app_url = (one.replace("/postgres?", f"/{name}?") for one in (postgres_server.url, postgres_server.app_url))

    def migrated(url: str, role: str, *more: str) -> tuple[int, str]:
        code, _, err = reverie("db", "migrate", "--database", url, option, role, *more)
        return code, err

    for _ in range(2):  # without tables and with them
        for role, code in (("nobody", 2), (TENANT_ROLE, 0)):
            tried = migrated(url, role, "--dry-run")
            assert tried == migrated(url, role)
            assert tried[0] == code
        assert 'role "nobody" does not exist' in migrated(url, "nobody", "--dry-run")[1]
    tried = migrated(app_url, name, "--dry-run")
    assert tried == migrated(app_url, name)
    assert "run it as the owner of the tables" in tried[1]


def test_a_database_of_an_older_version_keeps_its_rows_when_it_is_migrated(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.storage.postgres import migrate as module

    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS older")
        connection.execute("CREATE DATABASE older")
    url = postgres_server.url.replace("/postgres?", "/older?")

    def migrate_up_to(number: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, "migrations", lambda: tuple(one for one in migrations() if one.number <= number))
            migrate(url)

    migrate_up_to(10)
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO reverie.calls VALUES ('t', 'c1', 's', 'p', '2026-11-17', 1.5)")
        connection.execute("INSERT INTO reverie.files (tenant, key, size, last, torn) VALUES ('t', 'log', 5, 0, false)")
        connection.execute("INSERT INTO reverie.entries (tenant, file, seq, data) VALUES ('t', 1, 0, 'said\n')")
    migrate_up_to(14)
    with psycopg.connect(url) as connection:  # each entry was deflated by itself
        for line in (b"then " * 100 + b"\n", b"also " * 100 + b"\n"):
            deflated = (zlib.compress(line), len(line))
            connection.execute("SELECT reverie.append('t', 'log', %s, %s, NULL, NULL, NULL)", deflated)
    assert [name[:4] for name in migrate(url).pending] == ["0015"]
    with contextlib.closing(PostgresStorage(url, tenant="t")) as storage:
        storage.append("log", b"more " * 100, expect=5 + 2 * 501)
        storage.append("log", b"most " * 100, expect=5 + 3 * 501)
        lines = [b"said\n", *(word * 100 + b"\n" for word in (b"then ", b"also ", b"more ", b"most "))]
        assert storage.load("log") == b"".join(lines)
        assert storage.load("log", 5 + 501, 501) == lines[2]
        storage.records.enter_calls([{"id": "c1", "session": "s", "project": "p", "day": "2026-11-17", "usd": 9.0}])
        rows = storage.records.ledger("SELECT day, usd, read, model FROM calls WHERE day >= ?", ["2026-11-17"])
    assert rows == [("2026-11-17", 1.5, 0, "")]


def test_a_role_that_may_grant_nothing_is_told_so(
    postgres_server: PostgresServer, postgres_url: str, reverie: Reverie, tenant: str
) -> None:
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{tenant}"'.encode())
    code, out, err = reverie("db", "migrate", "--database", postgres_url, "--grant", tenant)
    assert (code, "can read and write" in out) == (2, False)
    assert f"reverie_app may not grant rights to {tenant}; run it as the owner of the tables" in err


@pytest.mark.parametrize("url", ["postgresql://\udcff@/postgres", "postgresql://somebody@/postgr%FFes"])
def test_a_url_that_is_no_text_is_an_error_that_says_how_to_write_one(url: str, reverie: Reverie) -> None:
    for command in (["db", "status"], ["db", "migrate"], ["worker", "--once"]):
        code, _, err = reverie(*command, "--database", url)
        assert (code, "the database's URL cannot be read; write postgresql://" in err) == (2, True)


def test_a_server_that_never_answers_is_waited_for_as_long_as_any_other(
    reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections._CUT_OFF, "connect_timeout", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody@127.0.0.1:{silent.getsockname()[1]}/reverie"
        for command in ("status", "migrate"):
            code, _, err = reverie("db", command, "--database", url)
            assert code != 0
            assert "timeout" in err


def test_an_unreachable_database_is_one_line_with_its_place(reverie: Reverie) -> None:
    url = "postgresql://somebody:hidden-word@/postgres?host=/nowhere"
    empty_home = ["move", "--to", url, "--tenant", "t"]
    for command in (["db", "status", "--database", url], ["db", "migrate", "--database", url], empty_home):
        code, out, err = reverie(*command)
        assert (code != 0, out) == (True, "")
        assert "/nowhere" in err
        assert "hidden-word" not in err


def files_of(home: Path) -> dict[str, bytes]:
    """Return the files of a home that are shared, without lock files of the store itself."""
    paths = [path for top in SHARED for path in (home / top).rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.read_bytes() for path in paths if not path.name.startswith(".reverie-")}


@pytest.mark.requirement("X2")
def test_a_home_moves_to_a_database_and_back_byte_for_byte(
    postgres_url: str, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    with tarfile.open(OLD_HOME) as archive:
        archive.extractall(tmp_path, filter="data")
    first, second = tmp_path / "home", tmp_path / "second"
    long = b"".join(b'{"line": %d, "filler": "%s"}\n' % (number, b"x" * 400) for number in range(2_000))
    odd = {"long.jsonl": long, "torn.jsonl": long[:-7], "one line.jsonl": b"y" * 700_000, "empty.jsonl": b""}
    for name, data in odd.items():
        (first / "projects" / "work-e42930b6" / name).write_bytes(data)
    monkeypatch.setenv("REVERIE_HOME", str(first))
    before = files_of(first)
    assert asked("move", "--to", postgres_url, "--dry-run")["copied"] == len(before)
    assert asked("move", "--to", postgres_url) | {"bytes": 0} == {
        "dry_run": False,
        "folders": list(SHARED),
        "copied": len(before),
        "bytes": 0,
        "same": 0,
        "different": [],
        "busy": [],
        "released": [],
    }
    assert asked("move", "--to", postgres_url)["same"] == len(before)
    assert files_of(first) == before
    monkeypatch.setenv("REVERIE_HOME", str(second))
    assert asked("move", "--from", postgres_url)["copied"] == len(before)
    assert files_of(second) == before
    with contextlib.closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        assert storage.load("projects/work-e42930b6/long.jsonl", 500_000, 90_000) == long[500_000:590_000]


@pytest.mark.requirement("X2")
def test_a_move_takes_the_costs_along_once_in_both_directions(
    postgres_url: str, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    monkeypatch.setenv("REVERIE_HOME", str(first))
    alone = Settings(home=first)
    said(alone, "fences", SAID, tmp_path)
    outside = LedgerCall(
        "", "p", 1_795_000_000.0, "claude-sonnet-5", "dream", "L6", "dream", Usage(), Usage(), usd=0.25
    )
    with open_ledger(alone) as ledger:
        ledger.enter(outside)

    def paid(home: Path, database: str | None = None) -> tuple[int, float]:
        with open_ledger(Settings(home=home, database=database, tenant=tenant)) as ledger:
            calls = ledger.calls()
        return len(calls), round(sum(call.usd or 0 for call in calls), 6)

    wanted = paid(first)
    assert wanted[0] == 2
    for _ in range(2):
        asked("move", "--to", postgres_url)
        assert paid(first, postgres_url) == wanted
    monkeypatch.setenv("REVERIE_DATABASE", postgres_url)
    assert asked("stats", "--days", "36500")["total"]["calls"] == 2
    monkeypatch.delenv("REVERIE_DATABASE")
    for home in (first, second):
        monkeypatch.setenv("REVERIE_HOME", str(home))
        for _ in range(2):
            asked("move", "--from", postgres_url)
            assert paid(home) == wanted


@pytest.mark.requirement("X2")
@pytest.mark.parametrize("way", ["--from", "--release"])
def test_a_home_is_used_again_without_its_database(
    way: str,
    postgres_url: str,
    tmp_path: Path,
    home: Path,
    reverie: Reverie,
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
    tenant: str,
) -> None:
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    monkeypatch.chdir(tmp_path)
    shared = Settings(home=home, database=postgres_url, tenant=tenant)
    Memory.open(tmp_path, settings=Settings(home=home)).save("Answer in German.", type="user")
    assert asked("move", "--to", postgres_url)["copied"]
    Memory.open(tmp_path, settings=shared).save("The dam holds.", type="project", why="it was said")
    elsewhere = Memory.open(tmp_path, settings=replace(shared, home=tmp_path / "elsewhere"))
    elsewhere.save("Herons nest in March.", type="project", why="it was said")
    new = tmp_path / "project 2"
    new.mkdir()
    Memory.open(new, settings=replace(shared, home=tmp_path / "elsewhere")).save("Beds are blue.", type="user")

    for words in (["memory", "list"], ["memory", "log"], ["dream", "--dry-run"], ["stats"]):
        assert reverie(*words)[0] == 0, words
    code, _, error = reverie("memory", "add", "It rains.", "--type", "user")
    assert (code, "reverie move --release" in error) == (2, True)
    url = [postgres_url] if way == "--from" else []
    folder = f"projects/{project_slug(tmp_path)}/memory"
    asked("move", way, *url, "--dry-run")
    assert reverie("memory", "add", "It rains.", "--type", "user")[0] == 2
    done = asked("move", way, *url)
    assert folder in done["released"]
    assert done.get("different", []) == []
    assert reverie("memory", "add", "It rains.", "--type", "user")[0] == 0
    there = memories(tmp_path, home)
    saved = {there.get(head.file).body for head in there.list()}
    news = {"Herons nest in March."} if way == "--from" else set()
    assert {text.strip().partition("\n")[0] for text in saved} == {
        "Answer in German.",
        "The dam holds.",
        "It rains.",
        *news,
    }
    assert len(memories(new, home).list()) == len(news)
    assert there.journal_problems() == []


def memories(project: Path, home: Path) -> Memory:
    return Memory.open(project, settings=Settings(home=home))


def test_a_move_keeps_what_differs_and_extends_logs_that_grew(
    postgres_url: str, tmp_path: Path, home: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    place = home / "projects" / "p"
    place.mkdir(parents=True)
    log, note = place / "s.jsonl", place / "note.md"
    log.write_bytes(b"one\n")
    note.write_bytes(b"first")
    assert asked("move", "--to", postgres_url)["copied"] == 2
    log.write_bytes(b"one\ntwo\n")
    note.write_bytes(b"changed")
    made = asked("move", "--to", postgres_url, code=1)
    assert (made["copied"], made["different"]) == (1, ["projects/p/note.md"])
    log.write_bytes(b"rewritten\n")
    assert len(asked("move", "--to", postgres_url, code=1)["different"]) == 2
    assert asked("move", "--to", postgres_url, "--replace")["copied"] == 2
    with contextlib.closing(PostgresStorage(postgres_url, tenant=tenant)) as storage:
        assert storage.load("projects/p/s.jsonl") == b"rewritten\n"
        lease = storage.lease("projects/p/s.jsonl", holder="an agent")
        assert asked("move", "--from", postgres_url, code=2)["busy"] == ["projects/p/s.jsonl"]
        lease.release()


@pytest.mark.requirement("X2")
def test_a_search_reads_only_logs_with_words_of_the_query_and_ranks_as_on_files(
    database: Settings, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Session {number} is about {'herons' if number % 4 == 0 else 'egrets'} and ponds." for number in range(9)]
    files = Settings(home=tmp_path / "files")
    for number, text in enumerate(texts):
        for settings in (database, files):
            said(settings, f"s{number}", text, tmp_path)
    found = asked("search", "heron", "sesion")["messages"]
    assert {one["session"] for one in found} >= {"s0", "s4", "s8"}
    monkeypatch.delenv("REVERIE_DATABASE")
    monkeypatch.setenv("REVERIE_HOME", str(files.home))
    on_files = asked("search", "heron", "sesion")["messages"]
    assert [(one["session"], one["score"]) for one in found] == [(one["session"], one["score"]) for one in on_files]


@pytest.mark.parametrize("counted", [True, False], ids=["by all logs", "known-bad"])
def test_a_machine_that_read_few_logs_ranks_by_how_rare_words_are_in_all_of_them(
    database: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    monkeypatch.setattr(shared_words, "MAX_LOGS", 3)
    # Each of the three logs that are read has the rare word, and one of them the common one.
    texts = {"often": "heron heron heron walks", "once": "heron pond grass walks", "other": "heron sleeps at night"}
    texts |= {f"s{number}": f"Frog {number} lives in a pond." for number in range(8)}
    files = Settings(home=tmp_path / "files")
    for name, text in texts.items():
        for settings in (database, files):
            said(settings, name, text, tmp_path)
    if not counted:
        monkeypatch.setattr(SharedWords, "counts", lambda *_: (0, {}))
    orders: list[list[str]] = []
    for settings in (files, database):
        with (
            contextlib.closing(storage_of(settings)) as storage,
            SessionSearch(settings.home, storage=storage) as search,
        ):
            orders.append([hit.session for hit in search.search("heron pond")][:2])
    assert (orders[0] == orders[1]) is counted, orders


def test_only_candidates_are_read_and_a_deleted_log_leaves_no_words(database: Settings, tmp_path: Path) -> None:
    for number in range(4):
        said(database, f"s{number}", f"Session {number} is about {'herons' if number == 2 else 'egrets'}.", tmp_path)
    with contextlib.closing(storage_of(database)) as storage:
        with SessionSearch(database.home, storage=storage) as search:
            assert [hit.session for hit in search.search("herons")][:1] == ["s2"]
            assert [key.rsplit("/", 1)[-1] for key in search.keys().values()] == ["s2.jsonl"]
            assert search.search("egrets")
            key = next(key for key in storage.list() if key.endswith("s2.jsonl"))
            storage.delete(key)
            assert search.search("herons") == []
            assert "s2.jsonl" not in {key.rsplit("/", 1)[-1] for key in search.keys().values()}
        assert words_of(storage) is not None
        assert [one.key for one in words_of(storage).candidates(["heron"], project=None, most=9)] == []


@pytest.mark.requirement("X2", "A5")
def test_words_that_were_read_before_a_log_was_replaced_or_deleted_are_not_added(
    database: Settings, tmp_path: Path
) -> None:
    """As another machine does that indexes a session while it is redacted or erased here."""
    said(database, "one", "The patient takes quinine.", tmp_path)
    with contextlib.closing(storage_of(database)) as storage:
        words, key = words_of(storage), f"projects/{project_slug(tmp_path)}/one.jsonl"
        assert words is not None
        (log,) = words.behind()
        storage.write(key, (storage.load(key) or b"").replace(b"quinine", b"aspirin"))
        words.add(log, log.size, {"quinine"})
        assert words.counts(["quinine"]) == (0, {})
        (log,) = words.behind()
        words.add(log, log.size, {"aspirin"})
        assert words.counts(["aspirin"]) == (1, {"aspirin": 1})
        storage.delete(key)
        words.add(log, log.size, {"aspirin"})
        assert words.counts(["aspirin"]) == (0, {})


def test_a_search_looks_for_new_lines_only_in_logs_that_were_opened_since_the_last(
    database: Settings, tmp_path: Path
) -> None:
    for number in range(3):
        said(database, f"s{number}", f"Session {number} is about egrets.", tmp_path)
    with contextlib.closing(storage_of(database)) as storage:
        words = words_of(storage)
        assert words is not None

        def behind(**given: bool) -> list[str]:
            return [one.key.rsplit("/", 1)[-1] for one in words.behind(**given)]

        with SessionSearch(database.home, storage=storage) as search:
            assert sorted(behind()) == ["s0.jsonl", "s1.jsonl", "s2.jsonl"]
            assert search.search("egrets")
            assert behind() == []
            said(database, "s1", "The herons are back.", tmp_path)
            assert behind() == ["s1.jsonl"]
            lease = storage.lease(f"projects/{project_slug(tmp_path)}/s1.jsonl", holder="an agent")
            assert search.search("herons")[0].session == "s1"
            assert behind() == ["s1.jsonl"], "its holder may append more"
            lease.release()
            search.search("herons")
            assert behind() == []
        line = (storage.load(f"projects/{project_slug(tmp_path)}/s0.jsonl") or b"").rstrip(b"\n").rpartition(b"\n")[2]
        storage.append(f"projects/{project_slug(tmp_path)}/raw.jsonl", line)  # without a lease
        assert (behind(), behind(at_all=True)) == ([], ["raw.jsonl"])
        assert index_logs(storage, words, at_all=True) == 1
        assert behind(at_all=True) == []


@pytest.mark.requirement("X2")
def test_an_agent_writes_to_a_session_on_another_machine(database: Settings, tmp_path: Path) -> None:
    said(database, "reader", "I wait for news.", tmp_path)
    sender = replace(database, home=tmp_path / "another machine")

    async def run() -> None:
        office = PostOffice("writer", bridge=database_bridge(sender, project_slug(tmp_path)))
        with pytest.raises(InputError, match="no session"):
            await office.send("bridge:nobody", "hello")
        assert "any machine" in await office.send("bridge:reader", "The dam holds.", summary="dam")
        async with Session.open("reader", cwd=tmp_path, settings=database) as session:
            request = await session.prepare(**_REQUEST)
            assert "The dam holds." in text_of(request["messages"])
            again = await session.prepare(**_REQUEST)
            assert text_of(again["messages"]).count("The dam holds.") == 1

    anyio.run(run)
    assert database_bridge(Settings(home=tmp_path), "p") is None


@pytest.mark.requirement("X2")
def test_a_person_writes_to_a_session_from_any_machine(
    database: Settings, tmp_path: Path, reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(database, "reader", "I wait for news.", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, _ = reverie("send", "bridge:reader", "The dam holds.")
    assert (code, "any machine" in out) == (0, True)

    async def run() -> None:
        async with Session.open("reader", cwd=tmp_path, settings=database) as session:
            assert "The dam holds." in text_of((await session.prepare(**_REQUEST))["messages"])

    anyio.run(run)
    assert reverie("send", "bridge:nobody", "The dam holds.")[0] == 2


@pytest.mark.usefixtures("database")
def test_doctor_checks_the_database_and_names_a_role_that_sees_every_tenant(
    postgres_server: PostgresServer, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding(code: int) -> tuple[str, str]:
        (found,) = [one for one in asked("doctor", code=code)["findings"] if one["name"] == "database"]
        return found["status"], found["detail"]

    assert finding(0)[0] == "ok"
    monkeypatch.setenv("REVERIE_DATABASE", postgres_server.url)
    assert finding(1)[0] == "failed"
    assert "every tenant" in finding(1)[1]
    monkeypatch.setenv("REVERIE_DATABASE", "postgresql://somebody@/postgres?host=/nowhere")
    assert "/nowhere" in finding(1)[1]


@pytest.mark.requirement("X2")
def test_the_corpus_moves_there_and_back_byte_for_byte(
    corpus: Path,
    torture: bool,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: Asked,
    tenant: str,
) -> None:
    if not torture:
        pytest.skip("only with --torture: it reads the whole corpus")
    monkeypatch.setenv("REVERIE_TENANT", tenant)
    first, second = tmp_path / "first", tmp_path / "second"
    for number, path in enumerate(sorted(path for path in corpus.rglob("*") if path.is_file())):
        target = first / "projects" / "corpus" / f"{number}.jsonl" / path.name
        target.parent.mkdir(parents=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setenv("REVERIE_HOME", str(first))
    asked("import", str(corpus))
    before = files_of(first)
    assert len([name for name in before if name.endswith(".jsonl")]) > 20
    assert asked("move", "--to", postgres_url)["copied"] == len(before)
    monkeypatch.setenv("REVERIE_HOME", str(second))
    assert asked("move", "--from", postgres_url)["copied"] == len(before)
    assert files_of(second) == before
