"""Delete removes sessions with everything derived from them, on confirmation; a search over the home proves it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import Stage, plays, task, use
from reverie import FileStorage, Library, Mailbox, Memory, Session
from reverie.cli.main import run
from reverie.hosts.hook import answer
from reverie.hosts.queue import OWN, Job, Queue
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.rewind import rewind, sent_prompts
from reverie.runtime.deletion.session import SessionDeletion
from reverie.runtime.places.home_search import search_home, written_forms
from reverie.runtime.places.projects import log_key, project_slug, session_key
from reverie.settings import Switches, load_settings
from reverie.values import replace

from .conftest import Asked, Reverie, on_a_screen


@pytest.fixture
def keys(stocked: str, home: Path) -> list[str]:
    """Give the stocked session results, notes and a memory, and return the keys of all of it."""
    storage = FileStorage(home)
    slug = next((home / "projects").iterdir()).name
    base = session_key(slug, stocked)
    storage.write(f"{base}/tool-results/t1.txt", b"big")
    storage.write(f"{base}/session-memory/summary.md", b"# notes")
    storage.write(f"projects/{slug}/memory/quoted.md", f"---\nname: x\nsource: {stocked} e4\n---\nhello".encode())
    storage.write(f"projects/{slug}/memory/other.md", f"---\nname: y\nsource: {stocked}0 e4\n---\nhello".encode())
    storage.close()
    return [f"{base}.jsonl", f"{base}/session-memory/summary.md", f"{base}/tool-results/t1.txt"]


def files(home: Path) -> set[str]:
    return {
        str(path.relative_to(home))
        for path in (home / "projects").rglob("*")
        if path.is_file() and ".journal" not in path.parts and path.name != "MEMORY.md"
    }


@pytest.mark.requirement("K14", "A5")
@pytest.mark.parametrize("name", ["delete", "purge"])
def test_a_session_goes_with_all_that_came_from_it_and_the_receipt_counts(
    reverie: Reverie, asked: Asked, keys: list[str], home: Path, name: str
) -> None:
    before = files(home)
    planned = asked(name, "fence-1", "--dry-run")
    assert files(home) == before
    report = asked(name, "fence-1", "--yes")
    assert planned["searched"] is None
    searched = report["searched"]
    assert (searched["left"], searched["files"] > 0, searched["texts"] > 0) == ([], True, True)
    assert {**planned, "dry_run": False, "searched": searched} == report
    (one,) = report["sessions"]
    assert (one["session"], one["key"], one["files"], one["memories"]) == ("fence-1", keys[0], 3, 1)
    slug = keys[0].split("/")[1]
    assert before - files(home) == {*keys, f"projects/{slug}/memory/quoted.md"}
    assert reverie(name, "fence-1", "--yes")[0] == 2


@pytest.mark.requirement("A5")
@pytest.mark.requirement("A5")
def test_memories_of_a_session_of_the_same_name_in_another_project_stay(
    home: Path, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(project: Path) -> None:
        async with Session.open("main", cwd=project, settings=load_settings()) as session:
            await session.say("hello")

    memories = dict[str, Memory]()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        anyio.run(talk, tmp_path / name)
        memories[name] = Memory.open(tmp_path / name)
        memories[name].save("Herons nest in March.", type="project", why="it was said", source=f"main {'0' * 8}")
    for number, name in enumerate(memories):
        monkeypatch.chdir(tmp_path / name)
        assert asked("delete", "main", "--yes")["total"]["memories"] == 1
        for one in memories.values():
            one.refresh()
        assert [len(one.list()) for one in memories.values()] == [[0, 1], [0, 0]][number]


def test_people_read_a_receipt_without_content(reverie: Reverie, keys: list[str]) -> None:
    code, out, _ = reverie("delete", "fence-1", "--yes")
    assert code == 0
    removed, searched = out.splitlines()
    assert removed == "removed fence-1: 3 files, 1 memory"
    assert re.fullmatch(r"searched \d+ files for \d+ texts?: nothing of it is left", searched)


@pytest.mark.requirement("K14")
def test_a_session_that_a_worker_reads_is_not_removed_under_it(
    reverie: Reverie, keys: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.cli.sessions.delete._WORKER_SECONDS", 0.0)
    before = files(home)
    queue, job = Queue(home), Job(OWN, "fence-1", "", str(home / keys[0]))
    queue.save_state(job, {"begun": 1})
    with queue.worker_lock() as mine:
        assert mine
        code, _, err = reverie("delete", "fence-1", "--yes")
        assert (code, "a background worker saves memories from it now" in err) == (2, True)
        assert files(home) == before
    assert reverie("delete", "fence-1", "--yes")[0] == 0  # a worker that died does not keep it


@pytest.mark.parametrize("arguments", [("fence-1",), ("--matching", "fence")])
def test_where_nobody_can_be_asked_nothing_is_removed(
    reverie: Reverie, keys: list[str], home: Path, arguments: tuple[str, ...]
) -> None:
    before = files(home)
    code, out, err = reverie("delete", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--yes" in err
    assert files(home) == before


@pytest.mark.slow
def test_a_person_is_asked_and_no_means_no(keys: list[str], home: Path) -> None:
    before = files(home)
    refused = on_a_screen("delete", "fence-1", typed=b"n\n", code=1)
    assert "Remove fence-1 (3 files, 1 memory) permanently?" in refused
    assert "removed nothing" in refused
    assert files(home) == before
    assert "removed fence-1" in on_a_screen("purge", "fence-1", typed=b"y\n")
    assert before - files(home) >= {*keys}


@pytest.mark.requirement("K13", "A5")
def test_an_open_session_is_not_removed_and_others_are(
    reverie: Reverie, keys: list[str], home: Path, stock: Callable[..., str]
) -> None:
    other = stock("other-1")
    storage = FileStorage(home)
    lease = storage.lease(keys[0], holder="a test")
    try:
        code, _, err = reverie("delete", "fence-1", "other-1", "--yes")
        again = reverie("delete", "fence-1", "--yes")
    finally:
        lease.release()
        storage.close()
    assert code == 2
    assert "a test" in err
    assert set(keys) <= files(home)
    assert other not in files(home)
    assert again[:2] == (2, "removed 0 sessions.\n")


@pytest.fixture
def stock(home: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that stores a log with one prompt, in a project, at a time."""

    def store(name: str, prompt: str = "hello", project: Path = tmp_path, at: str = "2026-11-10T09:00:00Z") -> str:
        key = log_key(project_slug(project), name)
        body = {"message": {"role": "user", "content": prompt}}
        rows = [
            {"uuid": "m", "parent": None, "time": at, "session": name, "kind": "meta", "body": {"cwd": str(project)}},
            {"uuid": "u", "parent": "m", "time": at, "session": name, "kind": "user", "body": body},
        ]
        path = home / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return key

    return store


@pytest.mark.requirement("A5")
def test_sessions_are_selected_by_date_project_and_text(
    asked: Asked, reverie: Reverie, home: Path, tmp_path: Path, stock: Callable[..., str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    stock("old-here", "the Budget\nof March", here, "2026-01-10T09:00:00Z")
    stock("new-here", "other words", here, "2026-11-10T09:00:00Z")
    stock("old-there", 'the "budget" of March', there, "2026-01-10T09:00:00Z")

    def selected(*options: object) -> set[str]:
        return {one["session"] for one in asked("delete", *options, "--dry-run")["sessions"]}

    assert selected("--before", "2026-06-01") == {"old-here", "old-there"}
    assert selected("--before", "2026-01-10T08:00:00+00:00") == set()
    assert selected("--project", here) == {"old-here", "new-here"}
    assert selected("--matching", "budget") == {"old-here", "old-there"}
    assert selected("--matching", '"budget"') == {"old-there"}
    assert selected("--matching", "budget\nof") == {"old-here"}
    assert selected("--matching", "budget", "--project", here, "--before", "2026-06-01") == {"old-here"}
    assert selected("old-here", "new-here") == {"old-here", "new-here"}
    for wrong in ([], ["old-here", "--before", "2026-06-01"], ["--before", "soon"], ["--project", "/nowhere"]):
        assert reverie("delete", *wrong, "--yes")[0] == 2
    code, out, _ = reverie("delete", "--project", here, "--yes")
    assert (code, out.splitlines()[-2]) == (0, "removed 2 sessions.")
    assert {path.name for path in home.rglob("*.jsonl")} == {"old-there.jsonl"}


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("option", ["--yes", "--dry-run", None])
def test_a_selection_without_a_session_is_told_in_plain_words(
    asked: Asked, reverie: Reverie, keys: list[str], home: Path, option: str | None
) -> None:
    words = ["delete", "--before", "2001-01-01", *([option] if option else [])]
    before = files(home)
    assert reverie(*words)[:2] == (0, "removed nothing: no session matches\n")
    report = asked(*words)
    assert (report["sessions"], report["dry_run"]) == ([], option == "--dry-run")
    assert files(home) == before


@pytest.mark.requirement("A5")
def test_lines_typed_in_a_session_leave_the_history_and_others_stay(
    asked: Asked, home: Path, stock: Callable[..., str]
) -> None:
    stock("typed-1", 'Say "hello"\nto the crew', at="2026-11-10T09:00:00Z")
    during, before = datetime(2026, 11, 10, 9, 0, tzinfo=UTC), datetime(2026, 10, 1, 9, 0, tzinfo=UTC)

    def entry(at: datetime, *lines: str) -> str:
        return f"\n# {at.astimezone().replace(tzinfo=None)}\n" + "".join(f"+{line}\n" for line in lines)

    mine = [entry(during, 'Say "hello"', "to the crew"), entry(during, "/rules add never deploy")]
    others = [entry(before, 'Say "hello"', "to the crew"), entry(during, "words of another session")]
    (home / "history").write_text(others[0] + mine[0] + others[1] + mine[1])
    assert asked("delete", "typed-1", "--yes")["total"]["typed"] == 2
    assert (home / "history").read_text() == "".join(others)


# -- a search over the home

GONE, KEPT = "zuckerhut", "kirschbaum"


def holders(home: Path, canary: str) -> set[str]:
    """Return the files of a home whose bytes or name contain a word."""
    found = {str(path.relative_to(home)) for path in home.rglob("*") if canary in path.name.lower()}
    for path in home.rglob("*"):
        if path.is_file() and canary.encode() in path.read_bytes().lower():
            found.add(str(path.relative_to(home)))
    return found


def live(tmp_path: Path, session: str, word: str) -> Path:
    """Run a session that leaves its word in every place that a session can write to, and return the home."""
    inner = plays(f"The {word} of the inner agent.")
    outer = plays([task("inner", f"Look for the {word} again.")], f"Found the {word}.")
    main = plays(
        [use("Bash", command=f"seq -f '{word} %.0f' 1 6000")],
        [use("Memory", action="log", text=f"The {word} is deployed on Fridays by hand.")],
        [use("Memory", action="log", text=f"We moved the {word}.")],
        [use("TodoWrite", todos=[{"content": f"water the {word}", "status": "pending"}])],
        [task("outer", f"Look for the {word}.")],
        [use("SendMessage", to="friend", message=f"the {word} blooms in the garden", summary=f"on the {word}")],
        f"The {word} is watered.",
    )
    stage = Stage(
        tmp_path,
        {"main": main, "outer": outer, "inner": inner, "fork": plays("nothing")},
        switches=Switches(extraction=False, dream=False),
        storage=None,
        session=session,
    )
    for kind in ("outer", "inner"):
        place = stage.home / "agent-types"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{kind}.md").write_text(f"---\nname: {kind}\ndescription: looks\n---\nROLE {kind} looks.")
    stage.settings = replace(stage.settings, daily_logs=True)
    with Mailbox(stage.home, stage.settings.relay.team, "friend", session="friends-session"):
        stage.ask(f"Water the {word}, please.")
    return stage.home


@pytest.fixture(scope="module")
def old_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home in which two sessions lived, after typing, hooks, updates of memories, a search and a dream."""
    folder = tmp_path_factory.mktemp("lived")
    for session, word in (("kept-session", KEPT), ("gone-session", GONE)):
        home = live(folder, session, word)
    work = folder / "work"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVERIE_HOME", str(home))
        patch.setenv("REVERIE_WORKER", "off")
        patch.chdir(work)
        memory = Memory.open(work)
        shared = memory.save("The harbour opens at six.", type="project")
        typed = ""
        for session, word in (("kept-session", KEPT), ("gone-session", GONE)):
            memory.update(shared.file, f"The harbour opens at six, says the {word}.", source=f"{session} m9")
            forgotten = memory.save(f"The {word} is forgotten.", type="project", source=f"{session} m3", author="agent")
            memory.forget(forgotten.file)
            text = f"The {word} is deployed on Fridays."
            memory.save(text, type="project", source=f"{session} m2", author="agent")
            typed += f"\n# {datetime.now()}\n+Water the {word}, please.\n"
            sent = {"session_id": session, "cwd": str(work), "hook_event_name": "beforeSubmitPrompt"}
            sent |= {"conversation_id": session, "workspace_roots": [str(work)], "prompt": f"hear of the {word}"}
            answer(["--host", "cursor", "beforeSubmitPrompt"], json.dumps(sent).encode())
        (home / "history").write_text(typed)
        base = home / session_key(project_slug(work), "gone-session")
        (base / ".reverie-tmp-1").write_text(f"unfinished {GONE}")
        run(["search", GONE, "--json"])
        run(["dream", "--now", "--json"])
    return home


@pytest.fixture
def lived(old_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of that home."""
    home = tmp_path / "copy"
    shutil.copytree(old_home, home)
    monkeypatch.setenv("REVERIE_HOME", str(home))
    monkeypatch.chdir(old_home.parent / "work")
    return home


@pytest.mark.requirement("A5", "K14")
@pytest.mark.slow
def test_nothing_in_the_home_contains_a_word_of_a_deleted_session(asked: Asked, lived: Path) -> None:
    """The other session, which did the same, keeps every file."""
    before, kept = holders(lived, GONE), holders(lived, KEPT)
    for place in ("agents/", "tool-results", "history", "queue/", "search", "teams/", "memory/logs", "journal.js"):
        assert [name for name in before if place in name], place
    report = asked("delete", "gone-session", "--yes")
    assert holders(lived, GONE) == set()
    assert GONE not in json.dumps(report)
    assert (report["searched"]["left"], report["searched"]["texts"] > 5) == ([], True)
    total = report["total"]
    assert len(report["sessions"][0]["agents"]) == 2
    assert all(total[name] for name in ("files", "memories", "calls", "typed", "letters", "others")), total
    lost = kept - holders(lived, KEPT)
    assert {name for name in lost if not any(one in name for one in ("gone-session", "/dreams/", "words-"))} == set()
    (harbour,) = [one.file for one in Memory.open(Path.cwd()).list() if "harbour" in one.file]
    assert Memory.open(Path.cwd()).get(harbour).body.strip() == f"The harbour opens at six, says the {KEPT}."


@pytest.mark.requirement("A5")
@pytest.mark.slow
def test_an_interrupted_deletion_is_finished_by_the_next_one(
    asked: Asked, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop at the n-th removal of a file, for growing n."""
    unlink, count, limit = os.unlink, 0, 0

    def dies(*given: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count > limit:
            raise KeyboardInterrupt
        unlink(*given, **more)

    storage = FileStorage(lived)
    deletion = SessionDeletion(load_settings(), storage)
    key = Library(storage).find("gone-session")
    stopped = 0
    while True:
        count = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", dies)
            try:
                deletion.run(key)
                break
            except KeyboardInterrupt:
                stopped += 1
                limit += 1
        assert Library(storage).find("gone-session") == key, "it can still be named"
        assert stopped < 200
    storage.close()
    assert stopped > 3
    assert asked("delete", "kept-session", "--dry-run")["sessions"]
    left = holders(lived, GONE)
    assert {name for name in left if not name.startswith("queue/")} == set()


@pytest.mark.requirement("A5")
def test_the_search_notices_a_deletion_that_forgets_a_place(lived: Path) -> None:
    """The known-bad twin: the storage alone, without typed lines, letters and the index."""
    storage = FileStorage(lived)
    Library(storage).remove(Library(storage).find("gone-session"))
    storage.close()
    left = {name.split("/")[0] for name in holders(lived, GONE)}
    assert {"history", "teams", "search.sqlite"} <= left


@pytest.mark.requirement("A5")
@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("session.SessionDeletion._forget_typed", "history"),
        ("session.SessionDeletion._forget_index", "search.sqlite"),
        ("session.erase_letters", "teams/"),
    ],
)
def test_the_receipt_names_a_place_that_the_deletion_forgot(
    reverie: Reverie, lived: Path, monkeypatch: pytest.MonkeyPatch, place: str, named: str
) -> None:
    monkeypatch.setattr(f"reverie.runtime.deletion.{place}", lambda *_, **__: 0)
    code, out, err = reverie("delete", "gone-session", "--yes", "--json")
    left = json.loads(out)["searched"]["left"]
    assert (code, bool(left)) == (1, True)
    assert all(name.startswith(named) and f"still holds text of it: {name}\n" in err for name in left), left
    assert GONE not in out + err


@pytest.mark.requirement("A5")
def test_words_that_others_hold_too_prove_nothing(asked: Asked, home: Path, stock: Callable[..., str]) -> None:
    stock("gone-1", "Where do the reindeer sleep at night?")
    stock("kept-1", "Where do the reindeer sleep at night?")
    (home / "history").write_text("\n# 2020-01-01 00:00:00\n+Where do the reindeer sleep at night?\n")
    searched = asked("delete", "gone-1", "--yes")["searched"]
    assert (searched["texts"], searched["left"]) == (0, [])


@pytest.mark.requirement("A5")
@pytest.mark.parametrize("before", [0, (1 << 20) - 10])
def test_a_large_file_is_searched_across_its_parts_in_escaped_form(tmp_path: Path, before: int) -> None:
    words = 'She said "no"\tand left the Größe.'
    (tmp_path / "file").write_bytes(b"x" * before + json.dumps([json.dumps(words)]).encode())
    (tmp_path / "other").write_bytes(b"x" * (1 << 20))
    found = {name for name, forms in search_home(tmp_path, written_forms(words)) if forms}
    assert found == {"file"}


# -- agents are sessions like others


@pytest.mark.requirement("A5")
@pytest.mark.slow
def test_agents_are_shown_found_and_deleted_by_their_names(reverie: Reverie, asked: Asked, lived: Path) -> None:
    agents = [one["agent"] for one in asked("agents", "--session", "gone-session")["agents"]]
    assert len(agents) == 1
    code, out, _ = reverie("show", agents[0])
    assert (code, GONE in out) == (0, True)
    assert asked("show", agents[0][:10])["session"] == agents[0]
    receipt = asked("delete", agents[0], "--yes")["sessions"][0]
    assert (receipt["session"], len(receipt["agents"])) == (agents[0], 1)
    assert reverie("show", agents[0])[0] == 2
    log = next((lived / "projects").rglob("gone-session.jsonl"))
    log.unlink()
    assert {one["session"] for one in asked("delete", "--matching", GONE, "--dry-run")["sessions"]} == {"gone-session"}


@pytest.mark.requirement("A5")
def test_sessions_that_share_messages_by_a_rewind_stay_and_are_named(
    reverie: Reverie, asked: Asked, home: Path, tmp_path: Path
) -> None:
    async def rewound(session: str, prompt: str) -> str:
        async with Agent(model=ScriptedModel(lambda _: "Done."), cwd=tmp_path, session=session, mode="bypass") as agent:
            _ = [event async for event in agent.ask(prompt)]
            return (await rewind(agent, (await sent_prompts(agent))[0].uuid)).session

    second = anyio.run(rewound, "first", "Paint the whole fence in green, please.")
    third = anyio.run(rewound, second, "Paint the whole fence in blue, please.")
    anyio.run(rewound, "other", "Count the swallows on the roof.")
    assert asked("delete", "first", "--dry-run")["copies"] == sorted([second, third])
    assert asked("delete", third, "--dry-run")["copies"] == sorted(["first", second])
    assert asked("delete", "first", second, "--dry-run")["copies"] == [third]
    code, _, complaint = reverie("delete", "first", "--yes")
    assert code == 0
    assert f"these sessions stay with them: {', '.join(sorted([second, third]))}" in complaint
    assert reverie("delete", second, third, "--yes")[2] == ""
