"""A kept session follows its recording: branches, damaged lines, and messages that were caught half written."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.view import View
from reverie.importers import opencode, read_session, usual_places
from reverie.runtime.archive import Keeper
from reverie.runtime.archive.recordings import Recordings
from reverie.runtime.library import Library
from reverie.storage.files import FileStorage

Rows = list[dict[str, Any]]


def said(uuid: str, parent: str | None, kind: str = "user", **more: Any) -> dict[str, Any]:
    """Return a line of Claude Code: a prompt, a reply, or the boundary and the summary of a compaction."""
    row = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "cwd": "/p", **more}
    text = f"words of {uuid}"
    if kind == "user":
        row["message"] = {"role": "user", "content": text}
    elif kind == "assistant":
        row["message"] = {
            "id": f"m-{uuid}",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": text}],
        }
    return {**row, "timestamp": "2026-11-17T10:00:00.000Z"}


def boundary(uuid: str, after: str) -> Rows:
    """Return the two lines of a compaction after a message."""
    head = said(f"b{uuid}", None, "system", subtype="compact_boundary", logicalParentUuid=after, content="Compacted")
    return [head, said(f"s{uuid}", f"b{uuid}", isCompactSummary=True)]


class Archive:
    """A transcript on disk and the log that keeps it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s1.jsonl"
        self.library = Library(FileStorage(folder / "home"))

    def keep(self, rows: Rows, damaged: int | None = None) -> None:
        """Write the transcript, with one damaged line, and keep it."""
        lines = [json.dumps(row) for row in rows]
        if damaged is not None:
            lines[damaged] = lines[damaged][: len(lines[damaged]) // 2]
        self.path.write_text("\n".join(lines) + "\n")
        [found] = read_session(self.path)
        Recordings(self.library).file(found, "p-1", self.path)

    def view(self) -> list[str]:
        """Return the texts that the kept session shows."""
        (key,) = self.library.keys()
        return shown(self.library.load(key).entries)

    def texts(self) -> list[str]:
        """Return the texts of all messages in the log."""
        (key,) = self.library.keys()
        return [json.dumps(entry.message) for entry in self.library.load(key).entries if entry.message]


def shown(entries: Any) -> list[str]:
    """Return the messages of a view."""
    return [json.dumps(message) for message in View().fold_all(entries).messages()]


def names(texts: list[str]) -> str:
    """Return the names of messages."""
    return " ".join(text.rpartition("words of ")[2][:2] for text in texts)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


def fresh(archive: Archive) -> list[str]:
    """Return the view of the transcript as it is now, read for the first time."""
    return shown(read_session(archive.path)[0].entries)


@pytest.mark.requirement("A1")
def test_a_branch_that_the_program_returns_to_is_shown_again(archive: Archive) -> None:
    one = [said("u0", None), said("a0", "u0", "assistant"), said("u1", "a0"), said("a1", "u1", "assistant")]
    other = [said("u2", "a0"), said("a2", "u2", "assistant")]
    back = [said("u3", "a1"), said("a3", "u3", "assistant")]
    again = [said("u4", "a2"), said("a4", "u4", "assistant")]
    rows: Rows = []
    for more, shows in (
        (one, "u0 a0 u1 a1"),
        (other, "u0 a0 u2 a2"),
        (back, "u0 a0 u1 a1 u3 a3"),
        (again, "u0 a0 u2 a2 u4 a4"),
    ):
        rows += more
        archive.keep(rows)
        assert archive.view() == fresh(archive)
        assert names(archive.view()) == shows
    assert len(archive.texts()) == len(set(archive.texts())) == len(rows)


@pytest.mark.requirement("A1")
def test_another_first_prompt_takes_the_old_one_out_of_view(archive: Archive) -> None:
    archive.keep([said("u0", None), said("a0", "u0", "assistant")])
    archive.keep([said("u0", None), said("a0", "u0", "assistant"), said("u1", None)])
    assert archive.view() == fresh(archive)
    assert len(archive.texts()) == 3


@pytest.mark.requirement("A1")
def test_a_compaction_that_the_program_went_back_from_is_undone_and_done_again(archive: Archive) -> None:
    rows = [said("u0", None), said("a0", "u0", "assistant"), said("u1", "a0"), *boundary("1", "u1"), said("u2", "s1")]
    for more in ([], [said("u3", "a0")], [said("u4", "u2")], [said("u5", "u3")]):
        rows += more
        archive.keep(rows)
        assert archive.view() == fresh(archive)
    assert not any("s1" in text for text in archive.view())


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("line", range(6))
def test_a_damaged_line_is_kept_at_its_place_once_it_can_be_read(line: int, archive: Archive) -> None:
    rows = [said(f"{kind[0]}{turn}", None, kind) for turn in range(3) for kind in ("user", "assistant")]
    for before, row in pairwise(rows):
        row["parentUuid"] = before["uuid"]
    archive.keep(rows, damaged=line)
    assert len(archive.texts()) == 5
    archive.keep(rows)
    assert archive.view() == fresh(archive)
    assert names(archive.texts()) == "u0 a0 u1 a1 u2 a2"
    more = [said("u9", "a2"), said("a9", "u9", "assistant")]
    archive.keep([*rows, *more], damaged=line)
    assert names(archive.view()) == "u0 a0 u1 a1 u2 a2 u9 a9"


@pytest.mark.requirement("A1")
def test_any_tree_is_shown_as_its_transcript_whenever_it_was_kept(tmp_path: Path, seed: int, torture: bool) -> None:
    for number in range(seed, seed + (400 if torture else 25)):
        chance, archive = random.Random(number), Archive(tmp_path / str(number))
        archive.path.parent.mkdir()
        rows, damaged = [said("u0", None)], None
        for step in range(1, chance.randint(4, 16)):
            parent = chance.choice(rows[-3:] if chance.random() < 0.7 else rows)["uuid"]
            if chance.random() < 0.15:
                rows += boundary(str(step), parent)
            else:
                rows.append(said(f"n{step}", parent, chance.choice(["user", "assistant"])))
            if chance.random() < 0.6:
                damaged = chance.randrange(1, len(rows)) if chance.random() < 0.3 else None
                archive.keep(rows, damaged)
        archive.keep(rows)
        assert archive.view() == fresh(archive), number


@pytest.mark.requirement("A1")
def test_the_order_and_the_return_need_the_places_and_the_abandoned_branch(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known-bad twin: a growth that only appends, as it did."""
    appended: Callable[..., Any] = lambda kept, found: (  # noqa: E731
        list(kept),
        [entry for entry in found if entry.uuid not in {one.uuid for one in kept}],
    )
    monkeypatch.setattr("reverie.runtime.growth._merged", appended)
    rows = [said("u0", None), said("a0", "u0", "assistant"), said("u1", "a0"), said("a1", "u1", "assistant")]
    archive.keep(rows, damaged=1)
    archive.keep(rows)
    assert archive.view() != fresh(archive)


# -- opencode, whose rows change while it works


class Database:
    """A database of opencode with one session."""

    def __init__(self, folder: Path) -> None:
        self.user, self.home = folder / "user", folder / "home"
        self.home.mkdir()
        self.path = self.user / ".local" / "share" / "opencode" / "opencode.db"
        self.path.parent.mkdir(parents=True)
        self.run("CREATE TABLE session (id, parent_id, directory, title, agent, cost, time_created, time_updated)")
        self.run("CREATE TABLE message (id PRIMARY KEY, session_id, time_created, time_updated, data)")
        self.run("CREATE TABLE part (id PRIMARY KEY, message_id, session_id, time_created, time_updated, data)")
        self.run("INSERT INTO session VALUES ('o1', NULL, '/p', 't', NULL, 0, 1, 1)")
        self.now = 1

    def run(self, query: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as opened:
            opened.execute(query, values)
            opened.commit()

    def put(self, table: str, id: str, data: dict[str, Any]) -> None:
        """Write a message, or a part of the message that its name begins with; the session's own time stays."""
        self.now += 1
        if table == "message":
            self.run("REPLACE INTO message VALUES (?, 'o1', ?, ?, ?)", id, int(id[1:]), self.now, json.dumps(data))
        else:
            values = (id, id.split("p")[0], 1, self.now, json.dumps(data))
            self.run("REPLACE INTO part VALUES (?, ?, 'o1', ?, ?, ?)", *values)

    def keep(self) -> list[Any]:
        """Run a pass and return the contents that are kept."""
        storage = FileStorage(self.home)
        Keeper(storage, storage.root, usual_places(self.user, {})).keep(0.0)
        library = Library(storage)
        keys = library.keys()
        entries = [entry for key in keys for entry in library.load(key).entries]
        storage.close()
        return [entry.message["content"] for entry in entries if entry.message]


@pytest.mark.requirement("A1")
def test_a_reply_of_opencode_that_was_caught_half_written_is_completed(tmp_path: Path) -> None:
    """The states are those that the real program left in its database while a command ran."""
    base = Database(tmp_path)
    base.put("message", "m1", {"role": "user", "time": {"created": 1}})
    base.put("part", "m1p1", {"type": "text", "text": "go"})
    reply = {"role": "assistant", "time": {"created": 2}, "modelID": "m"}
    base.put("message", "m2", reply)
    base.put("part", "m2p1", {"type": "text", "text": "I will"})
    call = {"type": "tool", "tool": "bash", "callID": "c1"}
    base.put("part", "m2p2", {**call, "state": {"status": "pending", "input": {}}})
    base.put("message", "m3", {"role": "user", "time": {"created": 3}})
    base.put("part", "m3p1", {"type": "text", "text": "and this"})
    assert base.keep() == [text("go"), text("I will"), text("and this")]
    base.put("part", "m2p1", {"type": "text", "text": "I will look.", "time": {"start": 1, "end": 2}})
    base.put("part", "m2p2", {**call, "state": {"status": "running", "input": {"command": "ls"}}})
    base.put("part", "m3p2", {"type": "text", "text": "too"})
    use = [{"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}]
    last = [*text("and this"), *text("too")]
    assert base.keep() == [text("go"), text("I will look."), use, last]
    base.put("part", "m2p2", {**call, "state": {"status": "completed", "input": {"command": "ls"}, "output": "a"}})
    base.put("message", "m2", {**reply, "time": {"created": 2, "completed": 4}, "finish": "tool-calls"})
    result = [{"type": "tool_result", "tool_use_id": "c1", "content": "a"}]
    assert base.keep() == [text("go"), text("I will look."), use, result, last]


def text(words: str) -> list[dict[str, Any]]:
    """Return a text as content."""
    return [{"type": "text", "text": words}]


@pytest.mark.requirement("A1")
def test_a_session_of_opencode_has_the_time_of_its_newest_row(tmp_path: Path) -> None:
    base = Database(tmp_path)
    assert opencode.sessions_in(base.path) == {"o1": 1}
    base.put("message", "m1", {"role": "user"})
    assert opencode.sessions_in(base.path) == {"o1": 2}
    base.put("part", "m1p1", {"type": "text", "text": "go"})
    assert opencode.sessions_in(base.path) == {"o1": 3}
    base.run("UPDATE session SET time_updated = 9")
    assert opencode.sessions_in(base.path) == {"o1": 9}
