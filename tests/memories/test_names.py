"""Whatever a model calls a memory, nothing outside the directory is read or written."""

from __future__ import annotations

import itertools
import os
from datetime import date, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError, ReverieError, UnsafePath
from reverie.hosts.memory_reader import MemoryReader
from reverie.memories.store.names import check_file, daily_log, file_for, is_memory
from reverie.runtime.memory.memory import Memory

UPS = [
    "..",
    "%2e%2e",
    "%252e%252e",
    "．．",
    "..%00",
    ".%2e",
    "\u2024\u2024",
    "..\u200b",
    "%c0%ae%c0%ae",
    "%u002e%u002e",
]
SLASHES = ["/", "\\", "%2f", "%5c", "％２ｆ", "∕", "／", "%252f", "//", "/./"]
ENDS = ["outside.md", "outside", "victim.md\0.md"]
OTHERS = [
    "/etc/passwd", "/tmp/outside.md", "~/outside.md", "file:///outside.md", "C:\\outside.md",
    "\\\\host\\share\\x.md", "MEMORY.md", "memory.MD", "Memory.md", "ＭＥＭＯＲＹ.md", ".journal/lock",
    ".journal/journal.jsonl", ".journal/x.md", ".hidden.md", "team/../../outside.md", "logs/2026/11/x.md",
    "a/" * 600 + "x.md", "x" * 300 + ".md", "\ud800.md", "a\nb.md", "a\x1b[31m.md", "a\u202egpj.md",
    "con.md/..", "MEM\u041eRY.md", "MEMORY\u3164.md", "note\u1160.md", "\u0440aypal.md", "kind\u03bf.md",
    ".md", " .md", "-rf.md", "a .md ", "", ".", "..", "x.md/", "x.md\0",
    ".reverie-tmp-1.md", "$(id).md", "`id`.md", "a|b.md", "a;b.md", "link/x.md", "link.md", "fifo.md",
    "hard.md", "dir.md",
]  # fmt: skip
TRICKS = [f"{up}{slash}{end}" for up, slash, end in itertools.product(UPS, SLASHES, ENDS)] + OTHERS


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """Return a memory directory with traps in it, beside files that must not be touched."""
    root = tmp_path / "store" / "memory"
    root.mkdir(parents=True)
    (tmp_path / "store" / "outside.md").write_text("outside")
    (tmp_path / "outside.md").write_text("outside")
    (root / "link").symlink_to(tmp_path)
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    os.link(tmp_path / "outside.md", root / "hard.md")
    os.mkfifo(root / "fifo.md")
    (root / "dir.md").mkdir()
    return root


@pytest.mark.requirement("S1")
@pytest.mark.slow
def test_three_hundred_tricks_with_names_reach_nothing_outside(trapped: Path, tmp_path: Path) -> None:
    assert len(TRICKS) >= 300
    memory = Memory(trapped)
    memory.save("A first memory so that there is a store", type="user", name="first")
    outside = {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and trapped not in path.parents
    }
    text = "---\nname: x\ndescription: y\ntype: user\n---\nWritten by a model.\n"
    for number, name in enumerate(TRICKS):
        with pytest.raises(ReverieError):
            memory.write(name, text, author="model")
        for act in (memory.get, memory.forget, memory.blame):
            with pytest.raises(ReverieError):
                act(name)
        with pytest.raises(ReverieError):
            memory.update(name, "changed by a model", author="model")
        if "\ud800" in name or number % 6:
            continue  # no such text can be written at all, or a sixth of them is enough
        saved = memory.save(
            f"A memory with a name that tricks {len(name)}", type="user", name=name or None, author="model"
        )
        assert saved.path.parent == trapped, name
        memory.forget(saved.file)
    now = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and trapped not in path.parents}
    assert now == outside
    assert [head.file for head in memory.list()] == ["user_first.md"]


@pytest.mark.requirement("S1")
def test_traps_are_named_and_hide_nothing(trapped: Path) -> None:
    memory = Memory(trapped)
    memory.save("A first memory so that there is a store", type="user", name="first")
    named = {found.file for found in memory.lint()}
    assert {"link.md", "hard.md", "fifo.md"} <= named
    assert [head.file for head in memory.list()] == ["user_first.md"]
    with pytest.raises(UnsafePath):
        memory.get("fifo.md")


@given(st.text(), st.sampled_from(["user", "feedback", "project", "reference"]))
def test_any_name_becomes_a_plain_file(name: str, kind: str) -> None:
    file = file_for(kind, name)
    assert check_file(file) == (file,)
    assert file.isascii()
    assert is_memory(file)


@given(st.text(st.sampled_from("aZ9_-. /\\%2e\u00e9\uff0e"), max_size=12).map(lambda text: text + ".md"))
def test_the_quick_look_at_a_name_agrees_with_the_long_one(file: str) -> None:
    try:
        check_file(file)
        allowed = True
    except UnsafePath:
        allowed = False
    assert is_memory(file) == allowed


@pytest.mark.requirement("M11")
def test_a_daily_log_lies_under_its_year_and_month_and_is_only_appended_to(tmp_path: Path) -> None:
    assert daily_log(date(2026, 3, 7)) == "logs/2026/03/2026-03-07.md"
    memory = Memory(tmp_path / "memory", clock=lambda: datetime(2026, 3, 7, 14, 5).astimezone())
    path = memory.append_daily("The first thing\nof the day")
    memory.append_daily("The second thing", source="s1 (m2)", trust="unconfirmed")
    assert path.read_text() == (
        "- 14:05 (agent) The first thing of the day\n- 14:05 (unconfirmed, s1 m2) The second thing\n"
    )
    assert path.relative_to(tmp_path / "memory").parts[0] == "logs"
    assert memory.list() == [], "a log is no memory"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError):
        memory.append_daily("password: hunter2Zq!7Kx")


@pytest.mark.requirement("S1")
def test_a_name_in_parts_is_the_same_name_as_the_composed_one(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    text = "---\nname: x\ndescription: y\ntype: user\n---\nThe caf\u00e9 closes at six.\n"
    memory.write("cafe\u0301.md", text, author="model")
    assert [head.file for head in memory.list()] == ["caf\u00e9.md"]
    assert "closes at six" in memory.get("cafe\u0301.md").body
    memory.forget("caf\u00e9.md")
    assert memory.list() == []


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    "name",
    [
        "\u043e\u0442\u0447\u0451\u0442_api.md",
        "API\u8a2d\u8a08.md",
        "\uba54\ubaa8a.md",
        "\u30c7\u30fc\u30bfbase.md",
        "na\u00efve.md",
        "\u03b1_b.md",
    ],
)
def test_names_in_other_scripts_are_names_of_memories(name: str) -> None:
    assert check_file(name) == (name,)


@pytest.mark.requirement("S1")
@pytest.mark.parametrize("linked", ["notes", ".team"])
def test_a_link_in_place_of_a_shared_folder_is_refused_by_every_door(linked: str, tmp_path: Path) -> None:
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    team = checkout / ".team" / "notes"
    team.mkdir(parents=True)
    (checkout / ".git").mkdir()
    memory = Memory(tmp_path / "memory", team=team)
    memory.save("The team deploys on Fridays", type="project", scope="team")
    folder = next(path for path in (team, team.parent) if path.name == linked)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = sorted(path for path in elsewhere.rglob("*"))
    acts = (
        lambda: memory.save("The team never deploys on Fridays", type="project", scope="team"),
        lambda: memory.index("team"),
        lambda: memory.get("team/project_x.md"),
        memory.list,
        lambda: memory.recall("deploy", everything=True),
    )
    for act in acts:
        with pytest.raises(UnsafePath, match=rf"{linked}.*symbolic link; replace the link"):
            act()
    assert MemoryReader(str(tmp_path / "memory"), str(team), query="deploy", home=str(tmp_path)).records == {}
    assert sorted(path for path in elsewhere.rglob("*")) == before
    folder.unlink()
    elsewhere.rename(folder)
    assert len(memory.recall("deploy", everything=True)) == 1


@pytest.mark.requirement("S1")
def test_a_checkout_that_the_user_reached_by_a_link_is_used(tmp_path: Path) -> None:
    (tmp_path / "real" / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    memory = Memory(tmp_path / "memory", team=tmp_path / "link" / "notes")
    memory.save("The team deploys on Fridays", type="project", scope="team")
    assert len(memory.recall("deploy", everything=True)) == 1
