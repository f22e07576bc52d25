"""Search over past sessions: every message can be found, only new content is read, and damage costs only time."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_script import Script, call, text
from reverie import FileStorage, Library
from reverie.conversation.entries import USER, Entry, encode_entry, iso
from reverie.errors import StorageError
from reverie.events import Event, FellBack
from reverie.runtime.search.hits import Exchanges
from reverie.runtime.search.index import SearchRows, index_in_memory
from reverie.runtime.search.message_scores import Weights
from reverie.runtime.search.sessions import FILE_NAME, SessionSearch
from reverie.runtime.session.offload.read_back import ReadBack

TALKS = {
    "alpha": ["Where is the staging server?", "It stands in Reykjavik.", "Who restarts it?", "Gudrun does, every May."],
    "beta": ["Let us write the parser in Rust.", "The tokenizer comes first.", "Agreed, tokenizer on Friday."],
    "gamma": ["My dog ate the deployment notes.", "Which dog?", "The brown one called Biscuit."],
}
WORDS = st.sampled_from("staging server parser rust dog biscuit friday deploy queue tea lamp river".split(" "))  # noqa: SIM905
MESSAGES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def line(uuid: str, said: Any, *, at: float = 1.7e9, name: str | None = None, kind: str = USER) -> bytes:
    message = {"role": kind, "content": said} | ({"name": name} if name else {})
    return encode_entry(Entry(uuid, None, iso(at), "s", kind, {"message": message})) + b"\n"


def write(
    home: Path, session: str, said: list[Any], *, project: str = "p", at: float = 1.7e9, mode: str = "wb"
) -> Path:
    path = home / "projects" / project / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    start = len(path.read_bytes().splitlines()) if mode == "ab" and path.exists() else 0
    with open(path, mode) as file:
        file.writelines(line(f"{session}-{start + number}", one, at=at + number) for number, one in enumerate(said))
    return path


@pytest.fixture
def past(tmp_path: Path) -> Path:
    for session, said in TALKS.items():
        write(tmp_path, session, said)
    return tmp_path


def handles(search: SessionSearch, query: str, **given: Any) -> list[str]:
    return [found.handle for found in search.search(query, **given)]


# -- finding


@pytest.mark.requirement("R8", "B5")
def test_a_message_is_found_with_session_time_snippet_and_a_handle_that_opens_it(past: Path) -> None:
    with SessionSearch(past) as search:
        first = search.search("where does the staging server stand?")[0]
    assert (first.project, first.session, first.kind) == ("p", "alpha", "user")
    assert first.time.startswith("2023-11-14T")
    assert first.snippet in TALKS["alpha"]
    storage = FileStorage(past)
    library = Library(storage)
    key = library.find(first.session)
    opened = ReadBack(storage, key.removesuffix(".jsonl"), library.view(key)).find(first.handle)
    storage.close()
    assert opened.data.decode() == first.snippet


def test_an_answer_is_found_by_the_question_before_it(past: Path) -> None:
    with SessionSearch(past) as search:
        assert "alpha-1" in handles(search, "staging server", limit=2)


def test_calls_and_results_of_tools_are_found_and_thinking_is_not(tmp_path: Path) -> None:
    script = Script()
    script.user("Mend the fence")
    thinking = {"type": "thinking", "thinking": "zebra", "signature": "s"}
    script.reply(thinking, text("Looking."), call("t", "Read", path="quagga.py"))
    script.result("t", [{"type": "text", "text": "okapi inside"}])
    storage = FileStorage(tmp_path)
    Library(storage).store("projects/p/s.jsonl", script.entries)
    storage.close()
    with SessionSearch(tmp_path) as search:
        assert handles(search, "quagga", limit=1) == ["e1"]
        assert handles(search, "okapi", limit=1) == ["e2"]
        assert handles(search, "zebra") == []


def test_a_call_and_its_result_are_one_hit_that_shows_both(tmp_path: Path) -> None:
    script = Script()
    script.user("Run the checks")
    script.reply(call("t", "Bash", command="make quagga"), call("u", "Edit", path="a.py", text="x " * 400 + "okapi"))
    script.result("t", "filler line\n" * 200 + "FAIL: zebra crossing\n" + "filler line\n" * 200)
    script.result("u", "done")
    storage = FileStorage(tmp_path)
    Library(storage).store("projects/p/s.jsonl", script.entries)
    storage.close()
    with SessionSearch(tmp_path) as search:
        found = search.search("what did quagga say about zebra?")
        (edited,) = [hit for hit in search.search("okapi") if "okapi" in hit.snippet]
    assert found[0].snippet.startswith("Bash make quagga -> ")
    assert "FAIL: zebra crossing" in found[0].snippet
    assert len(found[0].snippet) <= 300
    assert sum("quagga" in hit.snippet for hit in found) == 1
    assert edited.snippet.startswith("Edit a.py")  # a call names its file, however long it is
    alone = Exchanges([]).excerpt(script.entries[2], {"zebra": 1.0, "quagga": 1.0}, 300)
    assert "quagga" not in alone  # a result by itself does not say what was run


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(
    "quoted", ["`make test 2>&1 | head -5`", '"make  test 2>&1 | HEAD -5"', "“make test 2>&1 | head -5”"]
)
def test_a_quoted_phrase_is_found_word_for_word_before_messages_with_its_words(tmp_path: Path, quoted: str) -> None:
    script = Script()
    script.user("The head of make says that test 5 fails: make test, make test, 2 of them, 1 head, 5 heads")
    for at, command in enumerate(("make test 2>&1 | head -50", "make test 2>&1 | head -5", "make test | tail -5")):
        script.reply(call(f"t{at}", "Bash", command=command))
        script.result(f"t{at}", f"outcome {at}")
    storage = FileStorage(tmp_path)
    Library(storage).store("projects/p/s.jsonl", script.entries)
    storage.close()
    with SessionSearch(tmp_path) as search:
        found = search.search(f"What did {quoted} print?")
        by_words = search.search("What did make test 2>&1 | head -5 print?")
    assert found[0].snippet == "Bash make test 2>&1 | head -5 -> outcome 1"
    assert "outcome" not in by_words[0].snippet


def test_a_speaker_in_the_question_says_whose_message_is_meant(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "p"
    folder.mkdir(parents=True)
    said = [("Ann", "We went camping by the lake"), ("Bob", "I went camping too")]
    (folder / "trip.jsonl").write_bytes(b"".join(line(who, text, name=who) for who, text in said))
    with SessionSearch(tmp_path) as search:
        assert handles(search, "When did Bob go camping?")[0] == "Bob"
        assert handles(search, "What camping did Ann do?")[0] == "Ann"


@pytest.mark.requirement("R9")
@pytest.mark.parametrize(("agent", "first"), [(0.5, "person"), (1.0, "agent")])
def test_a_person_is_found_before_an_agent_that_says_the_same_and_a_twin_is_not(
    tmp_path: Path, agent: float, first: str
) -> None:
    path = tmp_path / "projects" / "p" / "s.jsonl"
    path.parent.mkdir(parents=True)
    said = "The tracker has two new columns."
    others = [line(f"o{at}", f"Something else about topic {at}.") for at in range(5)]
    path.write_bytes(line("agent", said, kind="assistant") + b"".join(others) + line("person", said))
    with SessionSearch(tmp_path, weights=Weights(agent=agent)) as search:
        assert handles(search, "which columns did the tracker get?", limit=1) == [first]


@pytest.mark.requirement("R9")
def test_a_huge_output_wins_by_one_piece_and_not_by_all_together(tmp_path: Path) -> None:
    words = ["budget", "kitchen", "garden", "tracker", "window", "column"]
    huge = "\n".join(f"{word} {'x' * 480}" for _ in range(60) for word in words)
    write(tmp_path, "s", [huge, "The tracker has a new column."])
    with SessionSearch(tmp_path) as search:
        assert handles(search, "a column of the tracker", limit=1) == ["s-1"]


@pytest.mark.requirement("R9")
def test_a_month_in_the_question_says_when_a_message_was_written(tmp_path: Path) -> None:
    for month, session in enumerate(("alpha", "beta", "gamma")):
        write(tmp_path, session, ["We painted the boat again."], at=1_704_067_200 + month * 2_678_400)
    with SessionSearch(tmp_path) as search:
        assert handles(search, "what did we do with the boat in February 2024?", limit=1) == ["beta-0"]


@pytest.mark.requirement("R8")
def test_the_log_of_an_ended_session_is_indexed_alone_and_not_read_again(past: Path) -> None:
    with SessionSearch(past) as search:
        assert search.refresh_log("projects/p/beta.jsonl").messages == len(TALKS["beta"])
        assert set(handles(search, "tokenizer", refresh=False)) == {"beta-0", "beta-1", "beta-2"}
        assert handles(search, "Biscuit", refresh=False) == []
        assert search.refresh().logs == 2


def test_a_word_with_one_letter_amiss_is_found(past: Path) -> None:
    with SessionSearch(past) as search:
        assert handles(search, "Gudrin")[0] == "alpha-3"


def test_a_project_is_searched_alone_where_that_is_asked(past: Path) -> None:
    write(past, "alpha", ["Another staging server"], project="q")
    with SessionSearch(past) as search:
        assert {found.project for found in search.search("staging server")} == {"p", "q"}
        assert {found.project for found in search.search("staging server", project="q")} == {"q"}
        assert search.search("staging server", project="nowhere") == []


# -- following the logs


@pytest.mark.requirement("R8")
def test_only_what_is_new_in_a_log_is_read(past: Path) -> None:
    with SessionSearch(past) as search:
        assert search.refresh().messages == 10
        assert search.refresh() == type(search.refresh())()
        before = (past / "projects/p/beta.jsonl").stat().st_size
        path = write(past, "beta", ["Marmalade was ordered"], mode="ab")
        done = search.refresh()
        assert (done.logs, done.messages, done.bytes) == (1, 1, path.stat().st_size - before)
        assert handles(search, "marmalade")[0] == "beta-3"


def test_a_line_still_being_written_is_read_when_it_is_whole(past: Path) -> None:
    path = past / "projects/p/alpha.jsonl"
    whole = line("late", "The kumquat has landed")
    with SessionSearch(past) as search, open(path, "ab", buffering=0) as file:
        file.write(whole[:40])
        assert handles(search, "kumquat") == []
        file.write(whole[40:])
        assert handles(search, "kumquat")[0] == "late"


@pytest.mark.parametrize("change", ["shorter", "other", "same size"])
def test_a_log_that_is_not_what_it_was_is_read_from_the_start(past: Path, change: str) -> None:
    path = past / "projects/p/beta.jsonl"
    with SessionSearch(past) as search:
        search.refresh()
        data = path.read_bytes()
        other = line("x", "xylophone")
        new = {"shorter": other, "other": other * 9, "same size": data.replace(b"Rust", b"Ruby")}
        path.write_bytes(new[change])
        os.utime(path, ns=(1, 1))
        assert search.refresh().restarted == 1
        word = "ruby" if change == "same size" else "xylophone"
        assert handles(search, word)
        assert handles(search, "rust") == []


@pytest.mark.requirement("K14")
def test_what_is_deleted_or_purged_leaves_no_row_and_no_byte_behind(past: Path) -> None:
    write(past, "secret", ["The passphrase is rhododendron"])
    with SessionSearch(past) as search:
        assert handles(search, "rhododendron")
        (past / "projects/p/secret.jsonl").unlink()
        assert search.forget("projects/p/secret.jsonl")
        assert not search.forget("projects/p/secret.jsonl")
        assert handles(search, "rhododendron") == []
        for file in past.glob(f"{FILE_NAME}*"):
            assert b"rhododendr" not in file.read_bytes()
        (past / "projects/p/gamma.jsonl").unlink()
        assert search.refresh().removed == 1
        assert handles(search, "biscuit") == []
        assert set(search.keys().values()) == {"projects/p/alpha.jsonl", "projects/p/beta.jsonl"}


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "rewrite", "delete", "refresh"]), st.sampled_from("abc"),
              st.lists(MESSAGES, min_size=1, max_size=3)),
    max_size=10,
)  # fmt: skip


def rebuild(search: SessionSearch) -> None:
    """Remove the index and read every log again."""
    search.close()
    for ending in ("", "-wal", "-shm"):
        Path(f"{search.path}{ending}").unlink(missing_ok=True)
    search.refresh()


def dump(search: SessionSearch) -> list[Any]:
    """Return all that an index knows, by names that do not depend on how it came about."""
    search.refresh()
    with sqlite3.connect(search.path) as connection:
        keys = dict(connection.execute("SELECT id, key FROM logs").fetchall())
        out: list[Any] = sorted(connection.execute("SELECT key, offset, pieces, words, people FROM logs"))
        out += sorted(connection.execute("SELECT word, logs, pieces FROM words"))
        out += sorted((word, keys[log], posts) for word, log, posts in connection.execute("SELECT * FROM postings"))
        out += sorted((keys[row[0]], *row[1:]) for row in connection.execute("SELECT * FROM messages"))
    connection.close()
    return out


def play(home: Path, operations: list[tuple[str, str, list[str]]], search: SessionSearch) -> None:
    for act, session, said in operations:
        path = home / "projects" / "p" / f"{session}.jsonl"
        if act == "delete":
            path.unlink(missing_ok=True)
        elif act == "refresh":
            search.refresh()
        else:
            write(home, session, said, mode="ab" if act == "append" else "wb")


@settings(max_examples=40, deadline=None)
@given(OPERATIONS, MESSAGES)
@pytest.mark.slow
def test_an_index_that_followed_the_logs_is_the_same_as_a_fresh_one(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, list[str]]], query: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    with SessionSearch(home) as search:
        play(home, operations, search)
        followed, found = dump(search), search.search(query)
        rebuild(search)
        assert dump(search) == followed
        assert search.search(query) == found == search.search(query)


def test_the_check_above_catches_an_index_that_forgets_to_remove(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchRows, "remove", lambda *_: None)
    with SessionSearch(past) as search:
        search.refresh()
        (past / "projects/p/gamma.jsonl").unlink()
        followed = dump(search)
        rebuild(search)
        assert dump(search) != followed


@settings(max_examples=30, deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=6), MESSAGES, MESSAGES)
@pytest.mark.slow
def test_adding_a_message_never_hides_what_a_question_found(
    tmp_path_factory: pytest.TempPathFactory, said: list[str], added: str, query: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    write(home, "a", said)
    with SessionSearch(home) as search:
        before = set(handles(search, query, limit=100))
        write(home, "b", [added])
        assert before <= set(handles(search, query, limit=100))


# -- damage, strangers, company


def broken(data: bytes) -> bytes:
    return b"not a database at all" * 500


def torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


def scribbled(data: bytes) -> bytes:
    return data[:200] + os.urandom(len(data) - 200)


def emptied(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [broken, torn, scribbled, emptied])
def test_a_damaged_index_is_made_anew_from_the_logs(past: Path, damage: Callable[[bytes], bytes]) -> None:
    with SessionSearch(past) as search:
        wanted = search.search("staging server")
        path = search.path
    path.write_bytes(damage(path.read_bytes()))
    heard: list[Event] = []
    with SessionSearch(past, listener=heard.append) as search:
        assert search.search("staging server") == wanted
    assert damage is emptied or [type(event) for event in heard] == [FellBack]
    assert path.stat().st_mode & 0o777 == 0o600


def test_missing_tables_count_as_damage(past: Path) -> None:
    with SessionSearch(past) as search:
        wanted = search.search("biscuit")
    connection = sqlite3.connect(past / FILE_NAME)
    connection.execute("DROP TABLE postings")
    connection.commit()
    connection.close()
    with SessionSearch(past) as search:
        assert search.search("biscuit") == wanted


def test_lines_that_cannot_be_read_hide_no_others(past: Path) -> None:
    path = past / "projects/p/alpha.jsonl"
    path.write_bytes(b"{broken\n\xff\xfe\n[]\n" + path.read_bytes() + b'{"kind": "user", "uuid": 5, "body": {}}\n')
    with SessionSearch(past) as search:
        assert "alpha-0" in handles(search, "staging server")


def test_links_out_of_the_home_are_not_followed(past: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "x.jsonl"
    outside.write_bytes(line("x", "pomegranate"))
    (past / "projects/p/link.jsonl").symlink_to(outside)
    os.link(outside, past / "projects/p/hard.jsonl")
    with SessionSearch(past) as search:
        assert handles(search, "pomegranate") == []


@pytest.mark.requirement("D1")
def test_the_index_is_private_whatever_the_umask(past: Path) -> None:
    before = os.umask(0)
    try:
        with SessionSearch(past) as search:
            search.refresh()
            modes = {file.name: file.stat().st_mode & 0o777 for file in past.glob(f"*{FILE_NAME}*")}
    finally:
        os.umask(before)
    assert FILE_NAME in modes
    assert set(modes.values()) == {0o600}


WORKER = """
import sys
from pathlib import Path
from reverie.runtime.search.sessions import SessionSearch
past, number = Path(sys.argv[1]), int(sys.argv[2])
with SessionSearch(past) as search:
    for turn in range(12):
        if number == 0 and turn in (4, 8):
            search._discard(search.path.stat().st_ino)
            search.refresh()
        with open(past / "projects" / "p" / f"w{number}.jsonl", "ab") as file:
            file.write(sys.argv[3].replace("@", f"{number}-{turn}").encode() + b"\\n")
        found = search.search("marmalade", limit=1000)
        assert f"w{number}-{turn}" in {one.handle for one in found}, (number, turn)
"""


@pytest.mark.slow
def test_processes_side_by_side_find_what_they_wrote_though_one_throws_the_index_away(past: Path) -> None:
    template = line("w@", "marmalade @").decode().strip()
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(past), str(number), template], stderr=subprocess.PIPE)
        for number in range(4)
    ]
    said = [worker.communicate(timeout=120)[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0], said
    with SessionSearch(past) as search:
        followed = dump(search)
        assert len(search.search("marmalade", limit=1_000)) >= 48
        rebuild(search)
        assert dump(search) == followed


def test_a_full_disk_is_named_with_advice(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if sql.startswith("CREATE"):
                super().execute("ROLLBACK")  # SQLite rolls back by itself where the disk is full
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *given)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **more, factory=FullDisk))
    with SessionSearch(past) as search, pytest.raises(StorageError, match=r"disk is full; free some space there"):
        search.search("anything")


def test_the_places_of_more_messages_than_a_query_may_have_variables_are_found(tmp_path: Path) -> None:
    connection = index_in_memory(tmp_path / "none")
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 1_000)
    connection.executemany("INSERT INTO messages VALUES (1, ?, ?, 9, 'u')", [(at, 9 * at) for at in range(2_000)])
    assert len(SearchRows(connection).places(1, range(2_000))) == 2_000
