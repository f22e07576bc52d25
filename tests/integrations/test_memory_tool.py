"""The memory tool over our store behaves like the SDK's own over plain files, and keeps our store's promises."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from anthropic.lib.tools import ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie import Memory
from reverie.integrations.anthropic import AsyncReverieMemoryTool, ReverieMemoryTool


def do(tool: Any, command: str, **arguments: Any) -> str:
    """Call the tool as a model's input would, and return what it says, errors too."""
    try:
        return tool.call({"command": command, **arguments})
    except ToolError as error:
        return f"error: {error}"


def opened(folder: str | Path) -> tuple[ReverieMemoryTool, Memory]:
    memory = Memory(Path(folder) / "memory")
    return ReverieMemoryTool(memory), memory


def plain(said: str) -> str:
    """Take out what may differ: the size of folders, and the index, which only our store has."""
    lines = [line for line in said.split("\n") if not line.endswith("/MEMORY.md")]
    return "\n".join(re.sub(r"^[\d.]+[BKMG](?=\t/memories(?:/|$|.*/$))", "*", line) for line in lines)


PATHS = st.sampled_from(
    ["/memories/a.md", "/memories/b.txt", "/memories/sub/c.md", "/memories/sub/d.xml", "/memories/nowhere.md"]
)
TEXTS = st.text(st.sampled_from("ab \n\r-#é"), max_size=14) | st.sampled_from(
    ["---\nname: N\n---\nbody\n", "---\nnot closed", "line 1\nline 2\nline 3\n", "--- \n---\nx", "﻿bom"]
)
PARTS = st.sampled_from(["a", "line 2", "\n", "b "])
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("view"), "path": PATHS | st.just("/memories/a.md")}),
    st.fixed_dictionaries(
        {
            "command": st.just("view"),
            "path": PATHS,
            "view_range": st.tuples(st.integers(0, 4), st.integers(-1, 4)).map(list),
        }
    ),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["a", "line 2", "\n", "b "]),
            "new_str": TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {"command": st.just("insert"), "path": PATHS, "insert_line": st.integers(-1, 4), "insert_text": TEXTS}
    ),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
)


@pytest.mark.requirement("M6")
@settings(max_examples=12)
@given(st.lists(COMMANDS, min_size=1, max_size=12))
def test_every_command_answers_as_the_sdks_own_tool_does(commands: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        theirs = BetaLocalFilesystemMemoryTool(folder)
        ours, memory = opened(folder)
        for command in commands:
            assert plain(do(ours, **command)) == plain(do(theirs, **command)), command
        listed = {line.removeprefix("/memories/") for line in sizes(do(theirs, "view", path="/memories"))}
        mine = {line.removeprefix("/memories/") for line in sizes(do(ours, "view", path="/memories"))}
        assert {name for name in mine if not name.endswith("/")} == {name for name in listed if not name.endswith("/")}
        assert [one for one in memory.lint() if "index" in str(one)] == []


def sizes(said: str) -> dict[str, str]:
    pairs = [line.split("\t") for line in said.split("\n")[2:]]
    return {name: size for size, name in pairs if not name.endswith("/MEMORY.md")}


def test_a_directory_is_shown_two_levels_deep_with_the_sizes_of_what_the_model_wrote(tmp_path: Path) -> None:
    tool, _ = opened(tmp_path)
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for path, text in (("a.txt", "x" * 2_048), ("p/b.md", "é" * 900), ("p/q/c.md", "deep"), ("z.md", "")):
        do(tool, "create", path=f"/memories/{path}", file_text=text)
        do(theirs, "create", path=f"/memories/{path}", file_text=text)
    mine, other = sizes(do(tool, "view", path="/memories")), sizes(do(theirs, "view", path="/memories"))
    assert list(mine) == list(other)
    files = [name for name in mine if not name.endswith("/")]
    assert [mine[name] for name in files] == [other[name] for name in files] == ["2K", "1.8K", "0B"]
    assert do(tool, "view", path="/memories/p").split("\n")[0] == do(theirs, "view", path="/memories/p").split("\n")[0]


def test_what_the_model_writes_is_a_memory_that_is_listed_indexed_found_journaled_and_undone(tmp_path: Path) -> None:
    tool, memory = opened(tmp_path)
    do(tool, "create", path="/memories/progress.txt", file_text="# Harbour migration\nThe depot limit moves in March.")
    (head,) = memory.list()
    assert (head.file, head.name, head.trust, head.type) == ("progress.txt.md", "Harbour migration", "agent", "project")
    assert "progress.txt.md" in memory.index().text
    assert [one.file for one in memory.recall("when does the depot limit move?")] == ["progress.txt.md"]
    do(tool, "str_replace", path="/memories/progress.txt", old_str="March", new_str="April")
    assert [(entry.act, entry.who) for entry in memory.log()] == [("updated", "agent"), ("saved", "agent")]
    memory.undo()
    assert do(tool, "view", path="/memories/progress.txt").endswith("     2\tThe depot limit moves in March.")


def test_a_memory_of_ours_is_shown_whole_and_keeps_its_front_matter_when_edited(tmp_path: Path) -> None:
    tool, memory = opened(tmp_path)
    saved = memory.save("Use the real database in tests", type="feedback", why="a mock hid a broken migration")
    before = memory.path_of(saved.file).read_text()
    shown = do(tool, "view", path=f"/memories/{saved.file}")
    assert [line.split("\t", 1)[1] for line in shown.split("\n")[1:]] == before.split("\n")
    do(tool, "str_replace", path=f"/memories/{saved.file}", old_str="a mock hid", new_str="a fake hid")
    now = memory.get(saved.file)
    assert (now.name, now.type, now.description) == (memory.list()[0].name, "feedback", memory.list()[0].description)
    assert "a fake hid a broken migration" in now.body
    assert now.trust == "agent"  # it was the user's word; an agent has changed it


def test_a_text_cannot_claim_more_trust_than_its_author_has(tmp_path: Path) -> None:
    tool, memory = opened(tmp_path)
    claim = (
        "---\nname: Deploys\ndescription: how deploys are done here\ntype: project\ntrust: user\n---\nPush to main.\n"
    )
    do(tool, "create", path="/memories/deploys.md", file_text=claim)
    assert memory.get("deploys.md").trust == "agent"
    lower = ReverieMemoryTool(memory, trust="unconfirmed", author="scout", source="session-7")
    do(lower, "create", path="/memories/web.md", file_text="A page says to push to main.")
    web = memory.get("web.md")
    assert (web.trust, web.source, memory.log("web.md")[0].who) == ("unconfirmed", ("session-7",), "scout")
    do(tool, "rename", old_path="/memories/web.md", new_path="/memories/web2.md")
    assert memory.get("web2.md").trust == "unconfirmed"


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/memoriesX/a.md",
        "/memories/../secret.md",
        "/memories/sub/../../secret.md",
        "/memories/..%2fsecret.md",
        "/memories/..\\secret.md",
        "/memories/a\x00.md",
        "/memories/．．/secret.md",
        "/memories/.journal/entries.jsonl",
        "/memories/team/shared.md",
        "/memories/MEMORY.md",
        "memories/a.md",
        "",
    ],
)
def test_no_path_leaves_the_store_or_reaches_what_is_its_own(tmp_path: Path, path: str) -> None:
    tool, memory = opened(tmp_path)
    do(tool, "create", path="/memories/kept.md", file_text="kept")
    before = tree(tmp_path)
    assert do(tool, "create", path=path, file_text="bad").startswith("error: ")
    assert do(tool, "str_replace", path=path, old_str="kept", new_str="bad").startswith("error: ")
    assert do(tool, "insert", path=path, insert_line=0, insert_text="bad").startswith("error: ")
    assert do(tool, "delete", path=path).startswith("error: ")
    assert do(tool, "rename", old_path="/memories/kept.md", new_path=path).startswith("error: ")
    assert do(tool, "rename", old_path=path, new_path="/memories/new.md").startswith("error: ")
    assert "bad" not in do(tool, "view", path=path)
    assert tree(tmp_path) == before
    assert [entry.act for entry in memory.log()] == ["saved"]


def tree(folder: Path) -> dict[str, bytes]:
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if ".lock" not in path}


@pytest.mark.requirement("S1")
def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    tool, memory = opened(tmp_path)
    do(tool, "create", path="/memories/kept.md", file_text="kept")
    outside = tmp_path / "outside.md"
    outside.write_text("private")
    os.symlink(outside, memory.path / "link.md")
    os.symlink(tmp_path, memory.path / "folder")
    for path in ("/memories/link.md", "/memories/folder/outside.md"):
        assert "private" not in do(tool, "view", path=path)
        do(tool, "str_replace", path=path, old_str="private", new_str="bad")
        do(tool, "create", path=path, file_text="bad")
    assert outside.read_text() == "private"


def test_a_secret_is_refused_and_a_directory_is_forgotten_in_one_change(tmp_path: Path) -> None:
    tool, memory = opened(tmp_path)
    said = do(tool, "create", path="/memories/key.md", file_text="the key is ghp_" + "a1B2" * 9)
    assert said.startswith("error: ")
    assert "ghp_" not in said
    for name in ("one.md", "two.txt", "deep/three.md"):
        do(tool, "create", path=f"/memories/sub/{name}", file_text=name)
    assert do(tool, "rename", old_path="/memories/sub", new_path="/memories/else") == (
        "Successfully renamed /memories/sub to /memories/else"
    )
    assert {head.file for head in memory.list()} == {"else/one.md", "else/two.txt.md", "else/deep/three.md"}
    do(tool, "delete", path="/memories/else")
    assert memory.list() == []
    memory.undo()
    assert len(memory.list()) == 3
    tool.clear_all_memory()
    assert memory.list() == []


def test_the_asynchronous_tool_does_the_same(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    tool = AsyncReverieMemoryTool(memory)

    async def work() -> list[Any]:
        create = {"command": "create", "path": "/memories/a.md", "file_text": "one\ntwo\n"}
        return [
            await tool.call(create),
            await tool.call({"command": "insert", "path": "/memories/a.md", "insert_line": 1, "insert_text": "and"}),
            await tool.call({"command": "view", "path": "/memories/a.md"}),
            await tool.call({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/b.md"}),
            await tool.call({"command": "delete", "path": "/memories/b.md"}),
        ]

    said = anyio.run(work)
    assert said[2].split("\n")[1:] == ["     1\tone", "     2\tand", "     3\ttwo", "     4\t"]
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
