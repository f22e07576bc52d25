"""Whose word a memory is: what the journal saw written, and not what a file says of itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reverie.memories.store.records import read_record
from reverie.memories.store.trust import TRUSTS, Trust, worst
from reverie.runtime.memory.memory import Memory

FILE = "user_role.md"
CLAIMS = ("user", "agent", "unconfirmed", "", "root")


class Clock:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 16, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def file_text(claim: str, body: str = "A nurse who writes Rust in Lyon.", source: str = "") -> str:
    trust = f"trust: {claim}\n" if claim else ""
    origin = f"source: {source}\n" if source else ""
    return f"---\nname: role\ndescription: a nurse who writes Rust in Lyon\ntype: user\n{origin}{trust}---\n{body}\n"


def put(root: Path, text: str, file: str = FILE) -> None:
    """Write a file as another program would."""
    root.mkdir(exist_ok=True)
    (root / file).write_text(text)


def seen(memory: Memory, file: str = FILE) -> Trust:
    """Return the trust of a memory by every door, which must say the same; the fresh ones have read nothing before."""
    fresh = Memory(memory.path)
    doors: dict[str, Trust] = {
        "get": memory.get(file).trust,
        "list": next(head.trust for head in memory.list() if head.file == file),
        "recall": next(one.trust for one in memory.recall("nurse Rust Lyon role") if one.file == file),
        "fresh get": fresh.get(file).trust,
        "fresh list": next(head.trust for head in fresh.list() if head.file == file),
    }
    assert len(set(doors.values())) == 1, doors
    return doors["get"]


@pytest.mark.requirement("S5", "D2")
@pytest.mark.parametrize(
    ("claim", "trust"),
    [("user", "agent"), ("agent", "agent"), ("unconfirmed", "unconfirmed"), ("", "agent"), ("root", "unconfirmed")],
)
def test_a_file_that_came_from_outside_is_an_agents_word_at_best(tmp_path: Path, claim: str, trust: str) -> None:
    memory = Memory(tmp_path / "memory")
    put(memory.path, file_text(claim, source="session-of-the-user m1"))
    assert seen(memory) == trust
    memory.log()  # now it is noticed
    assert seen(memory) == trust
    assert memory.get(FILE).source == ("session-of-the-user m1", "outside")


@pytest.mark.requirement("S5")
def test_an_edit_from_outside_never_raises_and_the_users_word_falls_to_an_agents(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", clock=Clock())
    born = memory.save(
        "The user is a nurse who writes Rust in Lyon", type="user", author="extract", trust="unconfirmed"
    )
    text = (memory.path / born.file).read_text()
    for claim in ("trust: user", "trust: agent", ""):
        put(memory.path, text.replace("trust: unconfirmed", claim), born.file)
        assert seen(memory, born.file) == "unconfirmed"
    assert memory.review()[0].file == born.file
    os.unlink(memory.path / born.file)
    memory.log()
    put(memory.path, text.replace("trust: unconfirmed", "trust: user"), born.file)
    assert seen(memory, born.file) == "unconfirmed", "taken away and put back"
    memory.update(born.file, "The user is a nurse who writes Rust in Lyons", author="user")
    assert seen(memory, born.file) == "unconfirmed", "a claim is not laundered by the store's own writing"
    memory.confirm(born.file)
    assert seen(memory, born.file) == "user"
    put(memory.path, (memory.path / born.file).read_text().replace("Lyons", "Nantes"), born.file)
    assert seen(memory, born.file) == "agent", "nobody can tell a person's editor from a program"
    memory.undo()
    assert seen(memory, born.file) == "user", "what comes back is what it was"


@pytest.mark.requirement("S5")
def test_what_claims_to_be_the_users_can_be_confirmed_and_taken_back(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", clock=Clock())
    put(memory.path, file_text("user"))
    assert seen(memory) == "agent"
    entry = memory.confirm(FILE)
    assert entry is not None
    assert seen(memory) == "user"
    assert memory.confirm(FILE) is None
    memory.undo(entry.id)
    assert seen(memory) == "agent"


@pytest.mark.requirement("S5", "M10")
def test_one_command_removes_what_others_wrote_and_brings_back_what_they_changed(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", team=tmp_path / "shared", clock=Clock())
    own = memory.save("The user is a nurse who writes Rust in Lyon", type="user")
    before = (memory.path / own.file).read_bytes()
    put(memory.path, file_text("user"), "user_dropped.md")
    put(memory.path, before.decode().replace("Lyon", "Paris"), own.file)
    put(tmp_path / "shared", file_text("user"), "feedback_theirs.md")
    memory.save("Tickets live in Linear under HARBOUR", type="reference", scope="team")
    assert memory.get("team/feedback_theirs.md").source == ("team",)
    memory.update("user_dropped.md", "A nurse who writes Go", author="agent")
    assert memory.get("user_dropped.md").source == ("outside",), "where it came from stays with it"
    gone = memory.forget_source("outside")
    assert (gone.files, gone.restored) == (["user_dropped.md"], [own.file])
    assert (memory.path / own.file).read_bytes() == before
    assert memory.get(own.file).trust == "user"
    assert memory.forget_source("team").files == ["team/feedback_theirs.md"]
    assert [head.type for head in memory.list()] == ["reference", "user"]


ACTS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(CLAIMS)),
    st.tuples(st.just("edit"), st.sampled_from(CLAIMS)),
    st.tuples(st.just("remove"), st.just("")),
    st.tuples(st.just("update"), st.sampled_from(["user", "agent"])),
    st.tuples(st.just("reindex"), st.just("")),
    st.tuples(st.just("notice"), st.just("")),
)


def rises(
    root: Path, first: Trust, acts: list[tuple[str, str]], trust_of: Callable[[Memory], Trust] = seen
) -> list[tuple[str, str, Trust, Trust]]:
    """Do all this from outside and through the store, none of which confirms anything; list where the trust rises.

    The bound is what the journal knows: a version that nobody noticed before it was overwritten binds nobody.
    """
    memory = Memory(root, clock=Clock())
    memory.save("The user is a nurse who writes Rust in Lyon", type="user", name="role", trust=first)
    noted, ceiling = (root / FILE).read_bytes(), first
    found: list[tuple[str, str, Trust, Trust]] = []
    for number, (act, how) in enumerate(acts):
        there = (root / FILE).exists()
        before = (root / FILE).read_bytes() if there else b""
        if act == "put":
            put(root, file_text(how, f"A nurse who writes Rust in Lyon, number {number}."))
        elif act == "edit" and there:
            old = (root / FILE).read_text()
            put(root, old.replace(f"trust: {read_record(FILE, old.encode()).trust}", f"trust: {how}"))
        elif act == "remove" and there:
            memory.log()
            ceiling = memory.get(FILE).trust
            os.unlink(root / FILE)
            memory.log()
        elif act == "update" and there:
            memory.update(FILE, f"A nurse who writes Rust in Lyon since {number} years", author=how)
        elif act == "reindex":
            memory.reindex()
        elif act == "notice":
            memory.log()
        if (root / FILE).exists():
            now, data = trust_of(memory), (root / FILE).read_bytes()
            built_on = before if act == "update" else data
            bound = ceiling if built_on == noted else worst((ceiling, "agent"))
            if TRUSTS.index(now) < TRUSTS.index(bound):
                found.append((act, how, bound, now))
            if act in {"update", "notice"}:
                noted, ceiling = data, now
    return found


@pytest.mark.requirement("S5")
@settings(max_examples=30)
@example(first="user", acts=[("put", "unconfirmed"), ("put", "user")])
@example(first="user", acts=[("put", "unconfirmed"), ("notice", ""), ("put", "user")])
@example(first="user", acts=[("edit", "agent"), ("edit", "user"), ("notice", "")])
@given(first=st.sampled_from(TRUSTS), acts=st.lists(ACTS, min_size=1, max_size=8))
@pytest.mark.slow
def test_whatever_is_written_from_outside_or_inside_trust_never_rises(
    tmp_path_factory: pytest.TempPathFactory, first: Trust, acts: list[tuple[str, str]]
) -> None:
    assert rises(tmp_path_factory.mktemp("memory") / "m", first, acts) == []


def test_a_store_that_believes_what_files_claim_is_caught(tmp_path: Path) -> None:
    def believing(memory: Memory) -> Trust:
        return read_record(FILE, (memory.path / FILE).read_bytes()).trust

    for number, acts in enumerate([[("put", "user")], [("put", "agent"), ("notice", ""), ("put", "user")]]):
        assert rises(tmp_path / str(number), "unconfirmed", acts, believing) != []
