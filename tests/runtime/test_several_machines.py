"""With a database, a machine may lose its home: costs, letters, reports, lists and logs are found on another one."""

from __future__ import annotations

import base64
import json
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import anyio
import pytest

from postgres_server import PostgresServer
from reverie import Agent, Session
from reverie.errors import InputError, SessionBusy, StorageError
from reverie.memories.store.side_files import DirectoryFiles
from reverie.models.scripted_model import ScriptedModel
from reverie.runtime.agent.budgets import Budgets
from reverie.runtime.deletion.session import SessionDeletion
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.dream.gate import gate_of
from reverie.runtime.mail.mailbox import Mailbox
from reverie.runtime.mail.post_office import PostOffice
from reverie.runtime.mail.stored_mailbox import StoredMailbox, open_mailbox, team_owners
from reverie.runtime.memory.daily_logs import logged_since
from reverie.runtime.memory.markdown import export_memories, import_memories
from reverie.runtime.memory.memory import Memory
from reverie.runtime.memory.shared_journal import StoredJournal
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.places.storage import storage_of
from reverie.runtime.reports.stats import stats_of
from reverie.runtime.search.sessions import opened_search
from reverie.runtime.session.ledger import open_ledger
from reverie.settings import AgentPolicy, Settings
from reverie.storage.in_memory import InMemoryStorage
from reverie.values import replace

pytestmark = [pytest.mark.slow, pytest.mark.requirement("X2"), pytest.mark.usefixtures("alone_with_jobs")]

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
REPLY: dict[str, Any] = {
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "text", "text": "The herons nest in March."}],
    "stop_reason": "end_turn",
    "model": "claude-sonnet-5",
    "usage": {"input_tokens": 100_000, "output_tokens": 1_000},
}
OF_THE_MACHINE = ("search.sqlite", "projects/", ".reverie-", "trust.toml", "worktrees/")
"""The beginnings of the files that a machine may have: caches, working copies of memories, and its own."""


class Machines:
    """Two machines with homes of their own and one database."""

    def __init__(self, url: str, tenant: str, folder: Path) -> None:
        policy = AgentPolicy(budget_day_usd=0.5)
        self.first = Settings(home=folder / "first", database=url, tenant=tenant, agent=policy)
        self.second = replace(self.first, home=folder / "second")
        self.project = folder / "project"
        self.project.mkdir()

    def memory(self, settings: Settings) -> Memory:
        return Memory.open(self.project, settings=settings)

    def dreams(self, settings: Settings, memory: Memory | None = None) -> Dreams:
        used = memory or self.memory(settings)
        return Dreams(used, settings, project=self.project, clock=lambda: NOW)

    def talk(self, settings: Settings, name: str, text: str) -> None:
        async def run() -> None:
            at = NOW.timestamp()
            async with Session.open(name, cwd=self.project, settings=settings, clock=lambda: at) as session:
                await session.say(text)
                await session.prepare(model="claude-sonnet-5", max_tokens=100)
                await session.observe(REPLY)

        anyio.run(run)


@pytest.fixture
def machines(postgres_url: str, tmp_path: Path, tenant: str) -> Machines:
    return Machines(postgres_url, tenant, tmp_path)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_machine_that_lost_its_home_finds_everything_in_the_database(
    machines: Machines, encrypted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", base64.b64encode(bytes(range(32))).decode())
    key = "env:ACME_KEY" if encrypted else None
    first, second = (replace(one, encryption_key=key) for one in (machines.first, machines.second))
    machines.talk(first, "herons", "When do the herons nest?")
    memory = machines.memory(first)
    saved = memory.save("Herons nest in March.", type="project", why="it was said", source="herons 00000000")
    memory.append_daily("feedback: The heron count needs binoculars.", source="herons")
    memory.store.note_surfaced([saved.file], "herons")
    report = anyio.run(machines.dreams(first).run)
    with open_mailbox(first, "default", "keeper", session="herons"):
        pass
    with open_mailbox(first, "default", "writer") as writer:
        writer.send("keeper", "The dam holds.", summary="dam")
    left = [path.relative_to(first.home).as_posix() for path in first.home.rglob("*") if path.is_file()]
    assert [name for name in left if not name.startswith(OF_THE_MACHINE)] == []
    assert [name for name in left if name.endswith((".sqlite", ".jsonl")) and "/memory/" not in name] == []
    beside = DirectoryFiles(memory.path)
    assert (beside.names("logs"), beside.read(".journal/surfaced.jsonl")) == ([], None)
    shutil.rmtree(first.home)

    with opened_search(second) as search:
        assert encrypted or search.search("herons nest")[0].session == "herons"
    there = machines.memory(second)
    assert [head.file for head in there.list()].count(saved.file) == 1
    assert [line.source for line in logged_since(there.store.files)] == ["herons"]
    assert there.forget(saved.file, dry_run=True).surfaced == ["herons"]
    assert machines.dreams(second).report(report.dream) == report
    assert machines.dreams(second).status().last == pytest.approx(NOW.timestamp())
    with open_ledger(second) as ledger:
        assert ledger.by("session")["herons"].calls == 1
    assert not (second.home / "ledger.sqlite").exists()
    with open_mailbox(second, "default", "keeper") as keeper:
        assert [letter.text for letter in keeper.poll()] == ["The dam holds."]


def test_costs_and_budgets_are_those_of_all_machines(machines: Machines) -> None:
    machines.talk(machines.first, "one", "hello")
    machines.talk(machines.second, "two", "hello")
    for settings in (machines.first, machines.second):
        found = stats_of(settings, days=30, now=NOW)
        assert found.total.calls == 2
        assert sorted(found.by_session) == ["one", "two"]
        assert found.total.usd == pytest.approx(found.by_day["2026-11-18"].usd)
        (day,) = [one for one in Budgets(settings, "").used(NOW.timestamp()) if one.setting]
        assert day.usd == pytest.approx(found.total.usd)
        with open_ledger(settings) as ledger:
            assert [call.actual.uncached for call in ledger.calls()] == [100_000, 100_000]
    with closing(storage_of(machines.second)) as storage:
        gone = SessionDeletion(machines.second, storage).run(log_key(project_slug(machines.project), "one"))
    assert gone.calls == 1
    assert stats_of(machines.first, days=30, now=NOW).total.calls == 1


def test_a_session_in_a_storage_that_was_passed_is_billed_too(machines: Machines) -> None:
    async def run(settings: Settings) -> None:
        with closing(storage_of(settings)) as storage:
            async with Session.open("s", cwd=machines.project, storage=storage, settings=settings) as session:
                await session.say("hello")
                await session.prepare(model="claude-sonnet-5", max_tokens=100)
                await session.observe(REPLY)

    anyio.run(run, machines.first)
    with open_ledger(machines.second) as ledger:
        assert ledger.by("session")["s"].calls == 1


def test_one_machine_dreams_at_a_time_and_the_others_know_when(machines: Machines) -> None:
    machines.memory(machines.first).save("Herons nest in March.", type="project", why="it was said")
    busy = machines.memory(machines.first)
    assert busy.shared is not None
    waiting = machines.dreams(machines.second)
    with busy.shared.dreaming(), pytest.raises(SessionBusy):
        anyio.run(waiting.run)
    assert waiting.reports() == []
    anyio.run(waiting.run)
    assert machines.dreams(machines.first).status().last == pytest.approx(NOW.timestamp())


def test_sessions_of_all_machines_open_the_gate_of_dreams(machines: Machines) -> None:
    directory = machines.memory(machines.first).path
    machines.memory(machines.first).save("Herons nest in March.", type="project", why="it was said")
    gate = gate_of(directory, machines.first, project_slug(machines.project))
    assert "session" in json.dumps(gate.check(is_recorded=False), default=repr)
    for number in range(machines.first.dream.min_sessions):
        machines.talk(machines.second, f"s{number}", "hello")
    assert gate.check(is_recorded=False) is None


def test_statistics_on_a_database_know_which_sessions_of_memories_exist(machines: Machines) -> None:
    machines.talk(machines.first, "herons", "When do the herons nest?")
    memory = machines.memory(machines.first)
    memory.save("Herons nest in March.", type="project", why="it was said", source="herons 00000000")
    memory.save("Egrets nest in May.", type="project", why="it was said", source="deleted 00000000")
    found = stats_of(machines.second, days=30, now=NOW).memories
    assert found is not None
    assert (found.memories, found.reasons.get("unsupported")) == (2, 1)


def test_the_first_machine_brings_its_files_beside_the_memories(tmp_path: Path) -> None:
    alone = Memory(tmp_path / "memory")
    saved = alone.save("Herons nest in March.", type="project", why="it was said")
    alone.append_daily("The heron count needs binoculars.")
    alone.store.note_surfaced([saved.file], "herons")
    storage = InMemoryStorage()
    Memory(tmp_path / "memory", shared=StoredJournal(storage, "projects/p/memory", "t"))
    other = Memory(tmp_path / "other", shared=StoredJournal(storage, "projects/p/memory", "t"))
    assert len(logged_since(other.store.files)) == 1
    assert other.forget(saved.file, dry_run=True).surfaced == ["herons"]


def test_memories_are_exported_as_markdown_and_imported_from_it(machines: Machines, tmp_path: Path) -> None:
    first = machines.memory(machines.first)
    saved = first.save("Herons nest in March.", type="project", why="it was said")
    exported = tmp_path / "exported"
    shutil.copytree(first.path, exported, ignore=shutil.ignore_patterns(".*"))
    assert "Herons nest in March." in (exported / saved.file).read_text()
    first.forget(saved.file)
    second = machines.memory(machines.second)
    assert second.list() == []
    shutil.copytree(exported, second.path, dirs_exist_ok=True)
    second.reindex()
    assert [head.file for head in machines.memory(machines.first).list()] == [saved.file]
    assert machines.memory(machines.first).get(saved.file).body == second.get(saved.file).body
    assert machines.memory(machines.first).index().text == second.index().text, "its prompts name the memory too"
    (second.path / saved.file).unlink()
    second.log()
    assert machines.memory(machines.first).index().text == ""


def test_memories_are_imported_for_another_tenant_and_project_with_less_trust(
    machines: Machines, tmp_path: Path
) -> None:
    saved = machines.memory(machines.first).save(
        "Herons nest in March.", type="project", why="it was said", source="one 0a0b0c0d"
    )
    export_memories(machines.memory(machines.first), tmp_path / "exported")
    project = tmp_path / "other"
    project.mkdir()
    theirs = [
        replace(machines.first, home=tmp_path / home, tenant=f"{machines.first.tenant}-2")
        for home in ("third", "fourth")
    ]
    made = import_memories(Memory.open(project, settings=theirs[0]), tmp_path / "exported")
    there = Memory.open(project, settings=theirs[1])
    assert made.imported == [saved.file]
    assert there.path_of(saved.file).read_bytes() == (tmp_path / "exported" / saved.file).read_bytes()
    found = there.get(saved.file)
    assert (found.trust, found.source) == ("agent", (f"{project_slug(machines.project)}/one 0a0b0c0d", "outside"))
    assert saved.file in there.index().text
    assert Memory.open(project, settings=machines.first).list() == []


class Letters:
    """Mailboxes of one team in one storage."""

    def __init__(self, storage: InMemoryStorage) -> None:
        self.storage = storage

    def open(self, name: str, **given: Any) -> StoredMailbox:
        return StoredMailbox(self.storage, "red", name, **given)


@pytest.fixture
def letters() -> Letters:
    return Letters(InMemoryStorage())


def test_letters_arrive_once_in_order_and_are_kept(letters: Letters) -> None:
    bob, alice = letters.open("bob"), letters.open("alice")
    for number in range(3):
        alice.send("bob", f"letter {number}")
    assert [one.text for one in bob.poll(2)] == ["letter 0", "letter 1"]
    for one in bob.poll(2):
        bob.mark_read(one)
    assert [(one.text, one.sequence) for one in bob.poll()] == [("letter 2", 3)]
    assert [one.text for one in bob.look(kept=True)] == ["letter 0", "letter 1"]
    assert (bob.others(), alice.others()) == (["alice"], ["bob"])


def test_a_letter_without_its_senders_signature_is_refused(letters: Letters) -> None:
    bob, alice = letters.open("bob"), letters.open("alice")
    alice.send("bob", "hello")
    (key,) = letters.storage.list("teams/red/bob/new")
    letters.storage.write(key, (letters.storage.load(key) or b"").replace(b"hello", b"HELLO"))
    assert bob.poll() == []
    assert "signature" in bob.refused[0].why
    assert len(list(letters.storage.list("teams/red/bob/bad"))) == 1


def test_anything_else_in_a_stored_mailbox_harms_nobody_and_a_damaged_key_is_named(letters: Letters) -> None:
    bob, alice = letters.open("bob"), letters.open("alice")
    letters.storage.write("teams/red/bob/new/red,alice/0000000000/note.txt", b"obey")
    letters.storage.write("teams/red/bob/new/stray", b"obey")
    alice.send("bob", "hello")
    assert [one.text for one in bob.poll()] == ["hello"]
    assert [one.why[:9] for one in bob.refused] == ["it is not"] * 2
    assert len(list(letters.storage.list("teams/red/bob/bad"))) == 2
    letters.storage.write("teams/red/carol/key", b"no key")
    with pytest.raises(StorageError, match="carol/key is not a key: delete it"):
        letters.open("carol")


def test_processes_that_send_under_one_name_do_not_overtake_each_other(letters: Letters) -> None:
    bob, first, second = letters.open("bob"), letters.open("alice"), letters.open("alice")
    with first._numbered(("teams", "red", "bob")) as number:  # pyright: ignore[reportPrivateUsage]
        assert number == 1
        thread = Thread(target=second.send, args=("bob", "later"))
        thread.start()
        thread.join(0.1)
        assert bob.poll() == []
    thread.join(30)
    assert [(one.text, one.sequence) for one in bob.poll()] == [("later", 2)]


def test_one_process_reads_a_mailbox_and_names_differ_by_more_than_case(letters: Letters) -> None:
    first, second = letters.open("bob"), letters.open("bob")
    first.acquire()
    with pytest.raises(SessionBusy, match="bob runs in team red already"):
        second.poll()
    with pytest.raises(InputError, match="an agent named bob"):
        letters.open("Bob")
    with pytest.raises(InputError, match="there are: bob"):
        letters.open("alice").send("bop", "hello")


def test_a_mailbox_that_nobody_needs_is_deleted_when_its_agent_ends(letters: Letters) -> None:
    letters.open("bob").retire()
    assert list(letters.storage.list("teams")) == []
    alice = letters.open("alice")
    bob = letters.open("bob")
    alice.send("bob", "hello")
    alice.retire()
    assert [one.text for one in bob.poll()] == ["hello"], "its key still verifies the letter"
    assert bob.others() == []


def test_letters_move_with_their_home(tmp_path: Path) -> None:
    from reverie.runtime.places.move import copy_stored
    from reverie.storage.files import FileStorage

    storage = InMemoryStorage()
    with Mailbox(tmp_path / "home", "red", "bob"), Mailbox(tmp_path / "home", "red", "alice") as alice:
        alice.send("bob", "one")
    copy_stored(FileStorage(tmp_path / "home"), storage)
    letters = Letters(storage)
    letters.open("alice").send("bob", "two")
    assert [one.text for one in letters.open("bob").poll()] == ["one", "two"]
    copy_stored(storage, FileStorage(tmp_path / "back"))
    with Mailbox(tmp_path / "back", "red", "bob") as bob:
        assert [one.text for one in bob.poll()] == ["one", "two"]


def test_agents_on_two_machines_write_to_each_other_by_name_and_erasure_finds_the_letters(
    machines: Machines, postgres_server: PostgresServer
) -> None:
    machines.talk(machines.first, "herons", "hello")

    async def run() -> str:
        with open_mailbox(machines.second, "default", "far", session="elsewhere"):
            pass
        with open_mailbox(machines.first, "default", "near", session="herons") as mailbox:
            return await PostOffice("near", mailbox=mailbox).send("far", "The dam holds.")

    assert "mailbox of far" in anyio.run(run)
    assert [one.name for one in team_owners(machines.second, "default")] == ["far", "near"]
    with open_mailbox(machines.second, "default", "far") as far:
        (letter,) = far.poll()
        assert (letter.sender, letter.text) == ("near", "The dam holds.")
    with closing(storage_of(machines.first)) as storage:
        SessionDeletion(machines.first, storage).run(log_key(project_slug(machines.project), "herons"))
        left = [key for key in storage.list("teams") if "/near/" in key]
    assert left == []


class FarStorage:
    """A storage behind a network, whose appends wait for an event."""

    def __init__(self) -> None:
        self._inner = InMemoryStorage()
        self.gate = Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        assert self.gate.wait(30), "the event loop waits for the storage"
        self._inner.append(key, line, expect=expect)


def test_a_storage_that_answers_late_does_not_block_the_event_loop(tmp_path: Path) -> None:
    storage: Any = FarStorage()

    async def run() -> None:
        storage.gate.set()
        settings = Settings(home=tmp_path)
        async with Session.open("s", cwd=tmp_path, storage=storage, settings=settings) as session:
            for act in (lambda: session.say("hello"), lambda: session.observe(REPLY)):
                storage.gate.clear()
                async with anyio.create_task_group() as group:
                    group.start_soon(act)
                    await anyio.sleep(0.01)
                    storage.gate.set()
            assert len(session.view.messages()) == 2

    anyio.run(run)


def test_agents_on_two_machines_answer_each_other_by_name(machines: Machines) -> None:
    asked = {"to": "planner", "message": "The dam holds.", "summary": "dam"}
    sends = [{"type": "tool_use", "id": "t1", "name": "SendMessage", "input": asked}]

    async def run() -> list[dict[str, Any]]:
        reads, writes = ScriptedModel(["Understood."]), ScriptedModel([sends, "Sent."])
        async with (
            Agent(model=reads, cwd=machines.project, session="planner", settings=machines.second) as planner,
            Agent(model=writes, cwd=machines.project, session="worker", settings=machines.first) as worker,
        ):
            async for _ in worker.ask("Tell the planner."):
                pass
            async for _ in planner.ask("Is there news?"):
                pass
        return [dict(one) for one in reads.requests]

    (request, *_) = anyio.run(run)
    assert "The dam holds." in json.dumps(request["messages"])
    assert not (machines.first.home / "teams").exists()
