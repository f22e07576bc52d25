"""Sessions can be listed, found, exported, deleted and purged, and removals are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_script import Script, text
from reverie import InMemoryStorage, InputError, Library, SessionBusy, SessionNotFound
from reverie.conversation.entries import Entry, encode_entry
from reverie.runtime.places.projects import canonical_root, log_key, project_slug, session_key


def stocked() -> tuple[InMemoryStorage, Library, str]:
    storage = InMemoryStorage()
    script = Script()
    script.add("meta", {"schema": 1, "cwd": "/repo"})
    script.user("Fix the login test")
    script.reply(text("Done."))
    key = log_key("app-1234", "abc-1")
    for entry in script.entries:
        storage.append(key, encode_entry(entry))
    storage.append(log_key("app-1234", "abc-2"), encode_entry(script.entries[0]))
    return storage, Library(storage), key


@pytest.mark.requirement("K14")
def test_sessions_are_found_by_name_or_by_the_start_of_it():
    _, library, key = stocked()
    assert library.find("abc-1") == key
    with pytest.raises(InputError, match="2 sessions"):
        library.find("abc")
    with pytest.raises(SessionNotFound, match="reverie sessions"):
        library.find("xyz")
    listing = library.describe(key)
    assert (listing.title, listing.model, listing.messages, listing.cwd) == (
        "Fix the login test",
        "claude-test",
        2,
        "/repo",
    )


@pytest.mark.requirement("K14")
def test_an_export_is_the_log_byte_for_byte_damage_and_all():
    storage, library, key = stocked()
    storage.append(key, b"{ damaged")
    assert library.export(key) == storage.load(key)
    assert library.describe(key).damaged == 1


@pytest.mark.requirement("K14")
def test_deleting_takes_the_log_and_all_that_belongs_to_it():
    storage, library, key = stocked()
    base = session_key("app-1234", "abc-1")
    storage.write(f"{base}/tool-results/t1.txt", b"big")
    storage.write(f"{base}/session-memory/summary.md", b"# notes")
    storage.write("projects/app-1234/memory/quoted.md", b"---\nname: x\nsource: abc-1 e4\n---\nhello")
    storage.write("projects/app-1234/memory/other.md", b"---\nname: y\nsource: zzz\n---\nabc-1 is mentioned here only")
    planned = library.remove(key, dry_run=True)
    assert storage.load(key) is not None
    assert set(planned.keys) == {key, f"{base}/tool-results/t1.txt", f"{base}/session-memory/summary.md"}
    assert planned.memories == ["projects/app-1234/memory/quoted.md"]
    assert library.remove(key) == planned
    assert list(storage.list("projects/app-1234")) == [
        log_key("app-1234", "abc-2"),
        "projects/app-1234/memory/other.md",
    ]


@pytest.mark.requirement("K14", "K13")
def test_a_session_cannot_be_opened_while_it_is_deleted(monkeypatch: pytest.MonkeyPatch):
    """Else its writer would find the log gone, and rescue the conversation into a new session."""
    storage, library, key = stocked()
    delete, refused = storage.delete, list[str]()

    def opened_meanwhile(name: str) -> bool:
        with pytest.raises(SessionBusy):
            storage.lease(key, holder="pid 7")
        refused.append(name)
        return delete(name)

    monkeypatch.setattr(storage, "delete", opened_meanwhile)
    assert library.remove(key).keys == refused
    storage.lease(key, holder="pid 7").release()


@pytest.mark.requirement("K14", "K13")
def test_an_open_session_is_neither_deleted_nor_overwritten():
    storage, library, key = stocked()
    lease = storage.lease(key, holder="pid 7")
    with pytest.raises(SessionBusy, match="pid 7"):
        library.remove(key)
    lease.release()
    with pytest.raises(InputError, match="already"):
        library.store(key, [])


@pytest.mark.requirement("K14")
def test_a_log_without_a_schema_line_or_of_a_newer_one_loads():
    storage = InMemoryStorage()
    key = log_key("app-1234", "old")
    storage.append(
        key, encode_entry(Entry("u", None, "", "old", "user", {"message": {"role": "user", "content": "hi"}}))
    )
    storage.append(key, encode_entry(Entry("v", "u", "", "old", "meta", {"schema": 99, "new": {"a": 1}})))
    view = Library(storage).view(key)
    assert view.messages() == [{"role": "user", "content": "hi"}]
    assert view.facts.meta["schema"] == 99


def test_worktrees_of_a_repository_share_one_project(tmp_path: Path):
    main = tmp_path / "app"
    (main / ".git" / "worktrees" / "feature").mkdir(parents=True)
    (main / "src").mkdir()
    worktree = tmp_path / "feature"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {main / '.git' / 'worktrees' / 'feature'}\n")
    assert canonical_root(worktree) == worktree.resolve(), "a repository that does not know of it lends it nothing"
    (main / ".git" / "worktrees" / "feature" / "gitdir").write_text(f"{worktree / '.git'}\n")
    assert canonical_root(worktree) == canonical_root(main / "src") == main.resolve()
    assert project_slug(worktree) == project_slug(main)
    assert project_slug(tmp_path) != project_slug(main)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200, "a b", "a\n", "x.jsonl"])
def test_a_session_name_that_could_leave_its_place_is_refused(name: str):
    with pytest.raises(InputError, match="cannot name a session"):
        session_key("app", name)


@pytest.mark.requirement("K14")
def test_what_a_lost_log_left_behind_can_still_be_deleted():
    storage, library, key = stocked()
    base = session_key("app-1234", "abc-1")
    storage.write(f"{base}/tool-results/t1.txt", b"big")
    storage.delete(key)
    assert library.find("abc-1") == key
    assert f"{base}/tool-results/t1.txt" in library.remove(key).keys
    with pytest.raises(SessionNotFound):
        library.find("abc-1")
