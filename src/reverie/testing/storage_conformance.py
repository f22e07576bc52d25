"""The promises of a storage, as tests to inherit.

::

    class TestMyStorage(StorageConformance):
        def open_storage(self, folder: Path) -> Storage:
            return MyStorage(folder)

``open_storage`` is called with a folder for this test alone. Set ``shared = False`` where two storages opened on the
same folder do not see the same content, and ``searchable = False`` where content must not be indexed for search. Where
a holder can lose a lease while it lives, write ``take_over`` too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conversation.entries import USER, Entry, encode_entry, new_uuid
from ..errors import LogLost, SessionBusy, StorageConflict, StorageError, UnsafePath
from ..ports import Document, Stamp, Storage
from ..runtime.search.sessions import SessionSearch

__all__ = ["BAD_KEYS", "StorageConformance"]

BAD_KEYS = (
    "",
    "/",
    "/etc/passwd",
    "//double",
    ".",
    "..",
    "../outside",
    "a/../b",
    "a/../../outside",
    "a//b",
    "a/",
    "a/.",
    "./a",
    "a/..",
    "%2e%2e/outside",
    "%2E%2e/outside",
    ".%2e/outside",
    "%252e%252e/outside",
    "%25252e%25252e/outside",
    "%u002e%u002e/outside",
    "%c0%ae%c0%ae/outside",
    "a%2fb",
    "a%2f..%2f..%2foutside",
    "a%5cb",
    "a%00b",
    "\uff0e\uff0e/outside",
    "\u2025/outside",
    "a\uff0f..\uff0foutside",
    "..\\outside",
    "a\\b",
    "nul\0byte",
    "line\nbreak",
    "bell\x07",
    "escape\x1b[31m",
    "c1\x85control",
    "right\u202eleft",
    "zero\u200bwidth",
    "lone\ud800surrogate",
    "cafe\u0301",
    " ",
    "a/ /b",
    "x" * 256,
    "é" * 128,
    "/".join(["folder"] * 200),
    ".reverie-lock",
    "a/.reverie-tmp-0",
    ".REVERIE-leases/x",
)
"""Keys that every storage refuses: each would leave the root, hide something, or name no file."""

GOOD_KEYS = (
    "a",
    "a.b",
    "..a",
    "a..",
    "...",
    "deep/er/still.jsonl",
    "caf\u00e9/\u6587.md",
    "100%",
    "50%-off",
    "a b",
    ".hidden",
)


class StorageConformance:
    """The promises of ``reverie.ports.Storage``, one test each; inherit it and write ``open_storage``."""

    shared: bool = True
    searchable: bool = True

    def open_storage(self, folder: Path) -> Storage:
        """Return a storage in the folder, which may not exist yet; the inheriting class must write this method."""
        raise NotImplementedError

    def take_over(self, storage: Storage, folder: Path, name: str) -> Storage | None:
        """Let a second storage take a lease from ``storage``, as after a long pause; return the second one.

        None means that a holder keeps its lease for as long as it lives.
        """
        return None

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        """Give a test an empty storage and close it afterwards."""
        storage = self.open_storage(tmp_path / "store")
        yield storage
        storage.close()

    def test_what_was_never_written_is_not_there(self, storage: Storage) -> None:
        assert storage.read("a/b") is None
        assert storage.load("a/b") is None
        assert storage.holder("a/b") is None
        assert storage.delete("a/b") is False
        assert list(storage.list()) == []
        assert list(storage.list("a")) == []

    @pytest.mark.parametrize(
        "data", [b"", b"text", b"\x00\xff\r\n\n", b"x" * 300_000], ids=["none", "text", "raw", "big"]
    )
    def test_a_document_comes_back_as_it_was_written(self, storage: Storage, data: bytes) -> None:
        version = storage.write("folder/document.md", data)
        assert storage.read("folder/document.md") == Document(data, version)

    def test_a_document_is_replaced_only_in_the_version_expected(self, storage: Storage) -> None:
        first = storage.write("d", b"one")
        second = storage.write("d", b"two", expect=first)
        assert second != first
        with pytest.raises(StorageConflict) as conflict:
            storage.write("d", b"three", expect=first)
        assert "d" in conflict.value.path
        assert storage.read("d") == Document(b"two", second)
        storage.write("d", b"four")
        assert storage.load("d") == b"four"

    def test_what_is_expected_but_gone_is_a_conflict(self, storage: Storage) -> None:
        version = storage.write("d", b"one")
        assert storage.delete("d") is True
        with pytest.raises(StorageConflict):
            storage.write("d", b"two", expect=version)
        assert storage.read("d") is None

    def test_create_refuses_what_exists(self, storage: Storage) -> None:
        storage.write("d", b"one", create=True)
        with pytest.raises(StorageConflict):
            storage.write("d", b"one", create=True)
        assert storage.load("d") == b"one"

    def test_of_many_who_replace_one_version_one_wins(self, storage: Storage) -> None:
        version = storage.write("d", b"start")
        won = _together(8, lambda who: storage.write("d", b"by %d" % who, expect=version), StorageConflict)
        assert len(won) == 1
        found = storage.read("d")
        assert found is not None
        assert found.version == won[0]

    def test_of_many_who_create_one_wins(self, storage: Storage) -> None:
        assert len(_together(8, lambda who: storage.write("d", b"by %d" % who, create=True), StorageConflict)) == 1

    def test_lines_come_back_in_order_each_with_its_newline(self, storage: Storage) -> None:
        lines = [b"one", b"", b"\xff\x00\r", b"y" * 200_000, b"five"]
        for line in lines:
            storage.append("folder/log.jsonl", line)
        assert storage.load("folder/log.jsonl") == b"".join(line + b"\n" for line in lines)

    def test_a_part_is_read_by_its_offset_and_size(self, storage: Storage) -> None:
        storage.append("log", b"one")
        storage.append("log", b"two")
        assert [storage.load("log", *part) for part in ((0, 3), (2, 4), (4, -1), (6, 9), (8, 1), (9, -1))] == [
            b"one",
            b"e\ntw",
            b"two\n",
            b"o\n",
            b"",
            b"",
        ]

    @pytest.mark.parametrize("line", [b"\n", b"one\ntwo", b"one\n"])
    def test_a_line_with_a_newline_inside_is_refused(self, storage: Storage, line: bytes) -> None:
        storage.append("log", b"first")
        with pytest.raises(ValueError, match="newline"):
            storage.append("log", line)
        assert storage.load("log") == b"first\n"

    def test_a_torn_tail_is_set_apart_and_kept(self, storage: Storage) -> None:
        storage.write("log", b'whole\n{"torn')
        storage.append("log", b"next")
        storage.append("log", b"last")
        assert storage.load("log") == b'whole\n{"torn\nnext\nlast\n'

    def test_a_log_that_was_deleted_starts_anew(self, storage: Storage) -> None:
        storage.append("log", b"old")
        assert storage.delete("log") is True
        assert storage.load("log") is None
        storage.append("log", b"new")
        assert storage.load("log") == b"new\n"

    def test_a_log_that_was_replaced_goes_on_from_there(self, storage: Storage) -> None:
        storage.append("log", b"old")
        storage.write("log", b"replaced\n")
        storage.append("log", b"new")
        assert storage.load("log") == b"replaced\nnew\n"

    def test_a_line_is_appended_only_at_the_expected_size(self, storage: Storage) -> None:
        storage.append("log", b"one", expect=0)
        storage.append("log", b"two", expect=4)
        for size in (0, 4, 9):
            with pytest.raises(LogLost):
                storage.append("log", b"never", expect=size)
        assert storage.load("log") == b"one\ntwo\n"

    def test_a_deleted_log_with_an_expected_size_is_lost_and_not_created_again(self, storage: Storage) -> None:
        storage.append("log", b"one")
        storage.delete("log")
        with pytest.raises(LogLost):
            storage.append("log", b"two", expect=4)
        assert storage.load("log") is None

    def test_many_threads_append_whole_lines(self, storage: Storage) -> None:
        def append(who: int) -> str:
            for number in range(20):
                storage.append("log", b"%d:%d:" % (who, number) + b"z" * (who * 997))
            return str(who)

        _together(8, append, StorageError)
        log = storage.load("log") or b""
        lines = log.split(b"\n")
        assert lines.pop() == b""
        found = [tuple(map(int, line.split(b":")[:2])) for line in lines]
        assert sorted(found) == [(who, number) for who in range(8) for number in range(20)]
        assert all(len(line.split(b":")[2]) == int(line.split(b":")[0]) * 997 for line in lines)
        for who in range(8):
            assert [number for one, number in found if one == who] == list(range(20))

    def test_listing_gives_the_keys_under_a_folder_sorted(self, storage: Storage) -> None:
        keys = ["a/b/c", "a/b", "ab", "a-b", "z"]
        keys.remove("a/b")
        for key in keys:
            storage.write(key, b"")
        storage.append("a/log", b"")
        assert list(storage.list()) == sorted([*keys, "a/log"])
        assert list(storage.list("a")) == ["a/b/c", "a/log"]
        assert list(storage.list("a/")) == ["a/b/c", "a/log"]
        assert list(storage.list("a/b")) == ["a/b/c"]
        assert list(storage.list("z")) == []
        assert list(storage.list("none")) == []

    def test_a_stamp_shows_size_and_every_change(self, storage: Storage) -> None:
        def stamps() -> dict[str, Stamp]:
            return {one.key: one for one in storage.stamps("a")}

        storage.write("a/document", b"one")
        storage.append("a/log", b"line")
        storage.write("ab", b"")
        first = stamps()
        assert [(key, one.size) for key, one in first.items()] == [("a/document", 3), ("a/log", 5)]
        assert stamps() == first
        storage.write("a/document", b"two")
        storage.append("a/log", b"line")
        then = stamps()
        assert then["a/document"] != first["a/document"]
        assert (then["a/log"].size, then["a/log"].identity) == (10, first["a/log"].identity)

    def test_what_was_deleted_leaves_no_trace_in_the_way(self, storage: Storage) -> None:
        storage.write("a/b/c", b"")
        assert storage.delete("a/b/c") is True
        assert list(storage.list()) == []
        storage.write("a", b"now a file")
        assert storage.load("a") == b"now a file"

    def test_a_folder_is_not_a_file_nor_the_other_way_round(self, storage: Storage) -> None:
        storage.write("folder/file", b"")
        for act in _acts("folder"):
            with pytest.raises(StorageError):
                act(storage)
        assert storage.load("folder/file/below") is None
        for act in (_write, _append):
            with pytest.raises(StorageError):
                act(storage, "folder/file/below")
        assert list(storage.list()) == ["folder/file"]

    @pytest.mark.parametrize("key", GOOD_KEYS)
    def test_plain_names_are_keys(self, storage: Storage, key: str) -> None:
        storage.write(key, b"x")
        assert list(storage.list()) == [key]
        assert storage.load(key) == b"x"

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_a_key_that_could_leave_the_root_is_refused(self, storage: Storage, key: str) -> None:
        for act in _acts(key):
            with pytest.raises(UnsafePath) as refusal:
                act(storage)
            assert refusal.value.path == key
        for name_lease in (storage.lease, storage.holder):
            with pytest.raises(UnsafePath):
                name_lease(key)
        assert list(storage.list()) == []

    def test_a_lease_has_one_holder_who_is_named(self, storage: Storage) -> None:
        lease = storage.lease("project/session", holder="editor, pid 12")
        assert lease.name == "project/session"
        assert storage.holder("project/session") == "editor, pid 12"
        with pytest.raises(SessionBusy, match="editor, pid 12") as busy:
            storage.lease("project/session", holder="other")
        assert busy.value.holder == "editor, pid 12"
        other = storage.lease("project/another")
        assert storage.holder("project/another")
        lease.release()
        lease.release()
        other.release()
        assert storage.holder("project/session") is None
        storage.lease("project/session", holder="other").release()

    def test_a_released_lease_does_not_free_its_successor(self, storage: Storage) -> None:
        first = storage.lease("s", holder="first")
        first.release()
        second = storage.lease("s", holder="second")
        first.release()
        assert storage.holder("s") == "second"
        second.release()

    def test_leases_are_not_listed_and_do_not_hinder_documents(self, storage: Storage) -> None:
        lease = storage.lease("s")
        storage.write("s", b"document")
        storage.append("log", b"line")
        assert list(storage.list()) == ["log", "s"]
        lease.release()

    def test_of_many_who_want_a_lease_one_gets_it(self, storage: Storage) -> None:
        taken = _together(8, lambda who: storage.lease("s", holder=str(who)).name, SessionBusy)
        assert taken == ["s"]

    def test_looking_at_a_lease_never_keeps_anyone_from_taking_it(self, storage: Storage) -> None:
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                storage.holder("s")

        looking = [threading.Thread(target=look) for _ in range(2)]
        for thread in looking:
            thread.start()
        try:
            for _ in range(100):
                storage.lease("s").release()
        finally:
            stop.set()
            for thread in looking:
                thread.join(30)

    def test_a_holder_who_lost_the_lease_changes_nothing(self, storage: Storage, tmp_path: Path) -> None:
        log, notes = "projects/p/s.jsonl", "projects/p/s/notes.md"
        lease = storage.lease(log, holder="first")
        storage.append(log, b"one", expect=0)
        storage.write(notes, b"old")
        other = self.take_over(storage, tmp_path / "store", log)
        if other is None:
            with pytest.raises(SessionBusy):
                (self.open_storage(tmp_path / "store") if self.shared else storage).lease(log, holder="second")
            return
        for act in (
            lambda: storage.append(log, b"two", expect=4),
            lambda: storage.append(log, b"two"),
            lambda: storage.append(log, b"y" * 300_000, expect=4),
            lambda: storage.write(log, b"stale"),
            lambda: storage.write(notes, b"stale"),
            lambda: storage.delete(notes),
        ):
            with pytest.raises(SessionBusy):
                act()
        lease.release()
        assert other.holder(log) is not None
        assert (other.load(log), other.load(notes)) == (b"one\n", b"old")
        other.append(log, b"two", expect=4)
        storage.append("projects/p/other.jsonl", b"not under that lease")
        other.close()

    def test_messages_are_found_by_their_words_until_their_log_is_deleted(
        self, storage: Storage, tmp_path: Path
    ) -> None:
        said = {"one": "The herons nest in March.", "two": "A parser fails on empty input.", "three": "Nothing else."}
        for name, text in said.items():
            lease = storage.lease(f"projects/p/{name}.jsonl")
            storage.append(f"projects/p/{name}.jsonl", _said(name, text))
            lease.release()
        with SessionSearch(tmp_path / "machine", storage=storage) as search:

            def found(query: str) -> list[str]:
                return [hit.session for hit in search.search(query)][:1]

            there = ["one"] if self.searchable else []
            assert (found("where do herons nest"), found("zebra")) == (there, [])
            lease = storage.lease("projects/p/three.jsonl")
            storage.append("projects/p/three.jsonl", _said("three", "A zebra grazes."))
            lease.release()
            assert found("zebra") == (["three"] if self.searchable else [])
            storage.delete("projects/p/one.jsonl")
            assert found("where do herons nest") == []

    def test_close_gives_leases_back_and_may_be_called_twice(self, storage: Storage) -> None:
        storage.lease("s")
        storage.append("log", b"line")
        storage.close()
        storage.close()
        assert storage.holder("s") is None
        assert storage.load("log") == b"line\n"

    def test_two_storages_on_one_folder_are_one(self, storage: Storage, tmp_path: Path) -> None:
        if not self.shared:
            pytest.skip("this storage is private to its object")
        other = self.open_storage(tmp_path / "store")
        version = storage.write("d", b"one")
        storage.append("log", b"mine")
        other.append("log", b"theirs")
        storage.append("log", b"mine again")
        assert other.load("log") == b"mine\ntheirs\nmine again\n"
        other.write("d", b"two", expect=version)
        with pytest.raises(StorageConflict):
            storage.write("d", b"three", expect=version)
        lease = storage.lease("s", holder="first")
        assert other.holder("s") == "first"
        with pytest.raises(SessionBusy):
            other.lease("s")
        other.close()
        assert storage.holder("s") == "first"
        lease.release()
        assert other.delete("log") is True
        storage.append("log", b"anew")
        assert other.load("log") == b"anew\n"
        other.close()


def _said(session: str, text: str) -> bytes:
    """Return the line of a message that a user said."""
    body = {"message": {"role": "user", "content": text}}
    return encode_entry(Entry(new_uuid(), None, "2026-11-18T00:00:00.000Z", session, USER, body))


def _write(storage: Storage, key: str) -> None:
    storage.write(key, b"x")


def _append(storage: Storage, key: str) -> None:
    storage.append(key, b"x")


def _acts(key: str) -> list[Callable[[Storage], object]]:
    return [
        lambda storage: storage.read(key),
        lambda storage: storage.load(key),
        lambda storage: storage.write(key, b"x"),
        lambda storage: storage.write(key, b"x", create=True),
        lambda storage: storage.append(key, b"x"),
        lambda storage: storage.delete(key),
    ]


def _together(many: int, act: Callable[[int], str], refusal: type[Exception]) -> list[str]:
    """Run an action in ``many`` threads at once; return the results without a ``refusal``, raise other errors."""
    ready = threading.Barrier(many)
    got: list[str] = []
    wrong: list[BaseException] = []

    def run(who: int) -> None:
        ready.wait(30)
        try:
            got.append(act(who))
        except refusal:
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if wrong:
        raise wrong[0]
    return got
