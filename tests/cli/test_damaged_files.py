"""Damaged files and files of a newer version: each is told, none ends in a traceback, and nothing else is lost."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from copy import copy
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import Mailbox, Memory, Session, load_settings
from reverie.errors import NewerVersion, ReverieError, StorageError
from reverie.hosts.queue import Job, Queue
from reverie.layers.l6_dream import DreamReport
from reverie.memories.store import journal
from reverie.runtime.dream.reports import ReportFiles
from reverie.runtime.search.sessions import SessionSearch
from reverie.runtime.session.ledger import LedgerStore

MODEL = "claude-sonnet-4-5"
DREAM = "d20260528T202647000-abcdef"
BASH: dict[str, Any] = {"name": "Bash", "description": "Run.", "input_schema": {"type": "object"}}
Reverie = Callable[..., tuple[int, str, str]]


def reply(number: int, text: str) -> dict[str, Any]:
    usage = {"input_tokens": 1_000, "output_tokens": 50}
    content = [{"type": "text", "text": text}]
    return {"id": f"m{number}", "role": "assistant", "model": MODEL, "content": content, "usage": usage}


class Place:
    """A home with a session, memories, a dream report, letters and a job."""

    def __init__(self, root: Path) -> None:
        self.home, self.work = root / "home", root / "work"
        self.work.mkdir()
        self.settings = load_settings(home=self.home, environ={})
        anyio.run(self._talk)
        self.memory = Memory.open(self.work, settings=self.settings)
        self.memory.save("Always use tabs here.", type="feedback", name="tabs", why="said")
        self.memory.save("The parser is slow.", type="project", name="parser", why="seen")
        self.memory.update("tabs", "Never use spaces here.", why="said again")
        ReportFiles(self.memory.store.files).save(DreamReport(DREAM, "completed", "2026-05-28T20:26:47Z"))
        with Mailbox(self.home, "default", "reader"), Mailbox(self.home, "default", "writer") as writer:
            writer.send("reader", "a letter")
        self.queue = Queue(self.home)
        self.queue.put(Job("claude-code", "s1", str(self.work), "/none"))
        (self.home / "config.toml").write_text('durability = "second"\n')
        (self.home / "windows.json").write_text('{"m": 9000}')
        (self.home / "installed.json").write_text('{"schema": 1}')
        (self.home / "permissions.toml").write_text("")

    async def _talk(self) -> None:
        async with Session.open("S", cwd=self.work, settings=self.settings) as session:
            await session.say("read the file")
            await session.prepare(model=MODEL, max_tokens=9, tools=[BASH])
            call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
            await session.observe({**reply(9, ""), "content": [call]})
            await session.result("t1", "line\n" * 40_000)
            await session.parts.notes.update(manual=True, local=True)
            for number in range(3):
                await session.say(f"question {number} about quokkas")
                await session.prepare(model=MODEL, max_tokens=9)
                await session.observe(reply(number, f"answer {number}"))

    @property
    def journal(self) -> Path:
        return self.memory.path / ".journal" / "journal.jsonl"

    def spend(self) -> float:
        with LedgerStore(self.home) as ledger:
            return sum(one.usd for one in ledger.by("session").values())

    def found(self, words: str) -> bool:
        with SessionSearch(self.home) as search:
            return bool(search.search(words))

    def copied(self, root: Path) -> Place:
        """Return the same place with a home of its own."""
        made = copy(self)
        made.home = root / "home"
        shutil.copytree(self.home, made.home)
        made.memory = Memory(made.home / self.memory.path.relative_to(self.home))
        made.queue = Queue(made.home)
        return made


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def place(sound: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = sound.copied(tmp_path)
    monkeypatch.setenv("REVERIE_HOME", str(made.home))
    monkeypatch.chdir(made.work)
    return made


def changed_line(path: Path, at: int, change: Callable[[bytes], bytes]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[at] = change(lines[at])
    path.write_bytes(b"".join(lines))


def reported(reverie: Reverie, path: str) -> list[str]:
    """Return the names of the commands that tell of a damaged journal."""
    told = [
        " ".join(words) for words in (["memory", "lint"], ["memory", "log"], ["doctor"]) if path in _all(reverie, words)
    ]
    return told


def _all(reverie: Reverie, words: list[str]) -> str:
    _, out, err = reverie(*words)
    assert "Traceback" not in err
    return "\n".join(line for line in (out + err).splitlines() if "journal.jsonl" in line)


# -- the journal


@pytest.mark.requirement("M7")
@pytest.mark.parametrize(
    "damage",
    [
        lambda line: b"X" + line[1:],
        lambda line: line[: len(line) // 2] + b"\n",
        lambda line: b"",
        lambda line: line.replace(b'"updated"', b'"holographed"'),
    ],
    ids=["bit", "half", "gone", "unknown act"],
)
def test_a_damaged_journal_is_told_by_three_commands_and_gives_no_id_twice(
    place: Place, reverie: Reverie, damage: Callable[[bytes], bytes]
) -> None:
    changed_line(place.journal, 2, damage)
    given = {"c1", "c2", "c3"}
    assert reported(reverie, "journal.jsonl") == ["memory lint", "memory log", "doctor"]
    memory = Memory(place.memory.path)
    if damage(b'"updated"') == b'"holographed"':
        with pytest.raises(NewerVersion, match="newer Reverie"):
            memory.save("A new fact about builds.", type="project", name="builds", why="seen")
    else:
        saved = memory.save("A new fact about builds.", type="project", name="builds", why="seen")
        assert saved.id not in given
    assert sorted(head.name for head in memory.list())[-2:] == ["parser", "tabs"]


@pytest.mark.requirement("M7")
def test_a_journal_that_lost_its_end_gives_no_id_twice(place: Place, reverie: Reverie) -> None:
    lines = place.journal.read_bytes().splitlines(keepends=True)
    place.journal.write_bytes(b"".join(lines[:1]))
    assert reported(reverie, "journal.jsonl") == ["memory lint", "memory log", "doctor"]
    memory = Memory(place.memory.path)
    assert memory.save("A new fact about builds.", type="project", name="builds", why="seen").id not in {
        "c1",
        "c2",
        "c3",
    }
    assert "c2" in "".join(one.problem for one in memory.lint())


@pytest.mark.requirement("M7")
@pytest.mark.parametrize("lock", ["gone", "old"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:2], b"X" + lines[2][1:]],
        lambda lines: [*lines[:2], b"\xff" * 9 + b"\n"],
        lambda lines: [lines[0], b"X" + lines[2][1:]],
    ],
    ids=["the id is legible", "the id is illegible", "a line before it is gone"],
)
def test_a_damaged_last_line_gives_no_id_twice_though_no_lock_file_knows_the_highest(
    place: Place, damage: Callable[[list[bytes]], list[bytes]], lock: str
) -> None:
    left = damage(place.journal.read_bytes().splitlines(keepends=True))
    place.journal.write_bytes(b"".join(left))
    path = place.journal.with_name("lock")
    if lock == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:20])  # lock files of older versions record only the applied bytes
    Memory(place.memory.path).save("A new fact about builds.", type="project", name="builds", why="seen")
    given = [json.loads(line)["id"] for line in place.journal.read_bytes().splitlines()[len(left) :]]
    assert given
    assert not {"c1", "c2", "c3"} & {*given}


@pytest.mark.requirement("M7")
def test_a_sound_journal_is_not_reported(place: Place, reverie: Reverie) -> None:
    assert reported(reverie, "journal.jsonl") == []


@pytest.mark.requirement("M7")
def test_the_checks_above_detect_a_reader_that_skips_lines_in_silence(
    place: Place, reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_line(place.journal, 2, lambda line: b"X" + line[1:])
    (place.journal.parent / "lock").unlink()
    monkeypatch.setattr(journal.History, "pass_over", lambda self, line: None)
    assert reported(reverie, "journal.jsonl") == []
    memory = Memory(place.memory.path)
    ids = [entry.id for entry in memory.log()]
    assert "c3" in ids


# -- the ledger and the search index


def flipped(path: Path, seed: int, count: int = 40, start: int = 100) -> None:
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(count):
        data[rng.randrange(start, len(data))] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("how", ["garbage", "half", "flips"])
def test_a_damaged_ledger_is_rebuilt_from_the_logs_and_the_costs_come_back(
    place: Place, reverie: Reverie, how: str
) -> None:
    spent = place.spend()
    assert spent > 0
    file = place.home / "ledger.sqlite"
    if how == "garbage":
        file.write_bytes(b"no database at all" * 400)
    elif how == "half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        flipped(file, 1, 4_000)
    assert "ledger" in reverie("doctor")[1]
    code, _, err = reverie("ledger")
    assert code == 0
    assert "rebuilt from the logs" in err
    assert place.spend() == pytest.approx(spent)


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_ledger_that_is_gone_is_made_from_the_logs_again(place: Place, reverie: Reverie, how: str) -> None:
    spent = place.spend()
    for file in place.home.glob("ledger.sqlite*"):
        file.unlink()
    if how == "emptied":
        (place.home / "ledger.sqlite").touch()
    assert reverie("stats")[0] == 0
    assert place.spend() == pytest.approx(spent)


@pytest.mark.slow
@pytest.mark.requirement("C7")
def test_a_ledger_with_flipped_bits_is_read_or_rebuilt(
    place: Place, reverie: Reverie, torture: bool, seed: int
) -> None:
    """A flipped figure may stay: a row has no checksum."""
    file = place.home / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sound = file.read_bytes()
    for number in range(1_000 if torture else 40):
        file.write_bytes(sound)
        flipped(file, seed + number, (1, 2, 40)[number % 3])
        words = ("stats", "doctor")[number % 8 == 7]
        code, _, err = reverie(words)
        assert (code == 0 or words == "doctor", "Traceback" in err) == (True, False), (seed + number, words, err)


@pytest.mark.requirement("C7")
def test_a_ledger_of_a_newer_version_is_read_and_not_written(place: Place) -> None:
    spent = place.spend()
    with sqlite3.connect(place.home / "ledger.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    events: list[Any] = []
    with LedgerStore(place.home, listener=events.append) as ledger:
        (call,) = ledger.calls(session="S")[:1]
        assert not ledger.enter(call)
    assert "newer Reverie" in events[0].why
    assert place.spend() == spent


@pytest.mark.requirement("M8")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE words SET word = 'x' || word WHERE word LIKE 'quokka%'",
        "UPDATE postings SET word = 'x' || word WHERE word LIKE 'quokka%'",
        "DELETE FROM messages",
        "UPDATE messages SET length = -length",
        "UPDATE messages SET offset = offset + 1",
        "UPDATE messages SET uuid = CAST(x'ff' AS TEXT)",
        "UPDATE words SET word = CAST(x'ff' AS TEXT) WHERE word LIKE 'quokka%'",
        "UPDATE logs SET key = x'70'",
        "UPDATE logs SET people = x''",
        "UPDATE postings SET posts = x'00000000000000ff' WHERE word LIKE 'quokka%'",
    ],
)
def test_a_damaged_search_index_that_finds_nothing_is_noticed_and_rebuilt(
    place: Place, reverie: Reverie, change: str
) -> None:
    assert place.found("quokkas")
    with sqlite3.connect(place.home / "search.sqlite") as connection:
        assert connection.execute(change).rowcount > 0
    code, out, _ = reverie("search", "quokkas")
    assert code == 0
    assert "question 2 about quokkas" in out


@pytest.mark.slow
@pytest.mark.requirement("M8")
def test_a_search_index_with_flipped_bits_finds_what_it_found(place: Place, torture: bool, seed: int) -> None:
    assert place.found("quokkas")
    file = place.home / "search.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sound = file.read_bytes()
    for number in range(2_000 if torture else 40):
        file.write_bytes(sound)
        flipped(file, seed + number, (1, 2, 40)[number % 3])
        assert place.found("quokkas"), seed + number


@pytest.mark.requirement("M8")
def test_the_check_above_detects_a_search_that_does_not_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.found("quokkas")
    with sqlite3.connect(place.home / "search.sqlite") as connection:
        connection.execute("UPDATE words SET word = 'x' || word WHERE word LIKE 'quokka%'")
    monkeypatch.setattr("reverie.runtime.search.index.SearchRows.check", lambda self: None)
    assert not place.found("quokkas")


# -- reports, letters, jobs, records


@pytest.mark.requirement("L6.8")
@pytest.mark.parametrize("word", ["damaged", "newer Reverie"])
def test_a_report_that_cannot_be_read_says_so(place: Place, reverie: Reverie, word: str) -> None:
    (file,) = place.memory.path.rglob(f"{DREAM}.json")
    newer = json.dumps({**json.loads(file.read_bytes()), "schema": 99})
    file.write_text("{half" if word == "damaged" else newer)
    code, _, err = reverie("dream", "--report")
    assert code == 2
    assert word in err


@pytest.mark.requirement("L7.6")
def test_letters_wait_for_a_reader_whose_record_is_damaged(place: Place) -> None:
    (place.home / "teams" / "default" / "reader" / "agent.json").write_bytes(b"\0\0")
    with Mailbox(place.home, "default", "writer") as writer:
        writer.send("reader", "another letter")
    with Mailbox(place.home, "default", "reader") as reader:
        assert [letter.text for letter in reader.poll()] == ["a letter", "another letter"]


@pytest.mark.requirement("L7.6")
def test_a_number_that_no_reader_accepts_is_refused_when_a_letter_is_sent(place: Place) -> None:
    (place.home / "teams" / "default" / "writer" / "sent" / "default" / "reader").write_bytes(b"9" * 20 + b"\n")
    with Mailbox(place.home, "default", "writer") as writer, pytest.raises(StorageError, match="damaged"):
        writer.send("reader", "never")
    with Mailbox(place.home, "default", "reader") as reader:
        assert [letter.text for letter in reader.poll()] == ["a letter"]
        assert reader.refused == []


@pytest.mark.requirement("L7.6")
def test_a_letter_of_a_newer_version_waits(place: Place) -> None:
    (file,) = [one for one in (place.home / "teams/default/reader/new").rglob("*") if one.is_file()]
    file.write_bytes(file.read_bytes().replace(b"reverie-letter 1 ", b"reverie-letter 9 "))
    with Mailbox(place.home, "default", "reader") as reader:
        assert reader.poll() == []
        assert reader.poll() == []
        assert len(reader.refused) == 1
        assert "newer Reverie" in reader.refused[0].why
    assert file.exists()


@pytest.mark.requirement("H1")
def test_a_job_of_a_newer_version_is_left_for_a_newer_worker(place: Place) -> None:
    (name,) = place.queue.waiting_names()
    path = place.home / "queue" / name
    body = json.loads(path.read_bytes())
    assert body["schema"] == 1
    path.write_text(json.dumps({**body, "schema": 99}))
    assert place.queue.read(name) is None
    place.queue.sweep(0.0)
    assert place.queue.waiting_names() == [name]
    path.write_bytes(b"{ damaged")
    place.queue.sweep(0.0)
    assert place.queue.waiting_names() == []


@pytest.mark.requirement("H1")
def test_a_record_of_installations_of_a_newer_version_is_not_written(reverie: Reverie, place: Place) -> None:
    (place.work / ".claude").mkdir()
    settings = place.work / ".claude" / "settings.local.json"
    settings.write_text('{"model": "opus"}')
    record = place.home / "installed.json"
    record.write_text(json.dumps({"schema": 99, "holograms": ["x"]}))
    before = record.read_bytes()
    options = ["--host", "claude-code", "--project", str(place.work)]
    for word in ("install", "uninstall"):
        code, out, err = reverie(word, *options, "--yes")
        assert code != 0, (word, out)
        assert "newer Reverie" in err
        assert "upgrade Reverie" in err
    assert record.read_bytes() == before
    assert settings.read_text() == '{"model": "opus"}'
    record.write_text('{"schema": 1}')
    assert reverie("install", *options, "--yes")[0] == 0
    assert "hooks" in settings.read_text()


# -- every kind of file, every kind of damage

COMMANDS = [
    ["sessions"],
    ["show", "S"],
    ["context", "S"],
    ["search", "quokkas"],
    ["stats"],
    ["ledger"],
    ["memory", "list"],
    ["memory", "lint"],
    ["memory", "log"],
    ["dream", "--status"],
    ["doctor"],
]


def mutations(data: bytes, rng: random.Random) -> dict[str, bytes]:
    lines = data.splitlines(keepends=True) or [b""]
    bits = bytearray(data or b"\0")
    for _ in range(3):
        bits[rng.randrange(len(bits))] ^= 1 << rng.randrange(8)
    return {
        "bits": bytes(bits),
        "half": data[: len(data) // 2],
        "empty": b"",
        "doubled": b"".join(line * 2 for line in lines),
        "reversed": b"".join(reversed(lines)),
        "garbage": rng.randbytes(len(data) or 40),
        "nuls": bytes(len(data) or 40),
    }


@pytest.mark.slow
@pytest.mark.requirement("K3")
def test_no_command_fails_with_a_traceback_on_damaged_files(
    place: Place, reverie: Reverie, torture: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage every file of the home in seven ways (with --torture: all; else six drawn cases); run every command."""
    place.found("quokkas")
    rng = random.Random(seed)
    files = sorted(path for path in place.home.rglob("*") if path.is_file() and path.suffix not in {".lock"})
    cases = [(path, kind) for path in files for kind in mutations(b"", rng)]
    hurt: list[Exception] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: hurt.append(error))
    for path, kind in cases if torture else rng.sample(cases, 6):
        before = {one: one.read_bytes() for one in place.home.rglob("*") if one.is_file()}
        path.write_bytes(mutations(path.read_bytes(), rng)[kind])
        for words in COMMANDS if torture else rng.sample(COMMANDS, 3):
            try:
                code, _, err = reverie(*words)
            except ReverieError as error:  # pragma: no cover - a command turns its errors into exit codes
                raise AssertionError((path, kind, words)) from error
            assert code in (0, 1, 2), (path, kind, words, err)
            assert "Traceback" not in err, (path, kind, words, err)
        for one in [one for one in place.home.rglob("*") if one.is_file()]:
            one.unlink()
        for one, data in before.items():
            one.write_bytes(data)
    assert hurt == []
    print(f"{len(files)} files x 7 kinds of damage, {len(cases) if torture else 6} cases run")
