from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.entries import encode_entry
from reverie.errors import InputError
from reverie.importers import FORMATS, find_sessions, format_of, read_session, read_sessions, usual_places

pytestmark = pytest.mark.requirement("D3")


@pytest.mark.parametrize(
    "name", ["claude-code", "codex", "codex-bare", "pi", "mini-swe-agent", "swe-agent", "openhands"]
)
def test_a_format_is_known_by_what_is_in_the_file(recordings: Any, name: str) -> None:
    found = recordings.import_bytes(recordings.bytes_of(name), "anything.data")
    assert found[0].format == name.removesuffix("-bare")
    assert format_of(recordings.folder / "anything.data") == name.removesuffix("-bare")


def test_our_own_log_comes_back_as_it_is(recordings: Any) -> None:
    [found] = recordings.imported("claude-code")
    lines = [json.loads(encode_entry(entry)) for entry in found.entries]
    lines[1]["unknown_field"] = {"kept": True}
    [again] = recordings.import_rows(lines)
    assert again.format == "reverie"
    assert (again.title, again.model, again.session_id) == (found.title, found.model, found.session_id)
    assert [json.loads(encode_entry(entry)) for entry in again.entries] == lines


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00\xff\xfe\n\x00binary", "is binary"),
        (b"hello, this is prose\nand more of it\n", "unknown format: line 1 is not JSON;"),
        (b'{"a": 1}\n{"b": 2}\n', "unknown format: a record with the keys a;"),
        (b'{"messages": []}', "unknown format: a record with the keys messages;"),
        (b'{"a": 1, "b": 2, "c": 3, "%b": 4}' % (b"x" * 999), "unknown format: a record with the keys a, b, c ...;"),
        (b"\xef\xbb\xbf", "unknown format: no record;"),
        (b"{}", "unknown format: an empty record;"),
        (b"\n[1, 2, 3]", "unknown format: line 2 is a JSON list, not a record;"),
        (b"[" * 100_000, "unknown format: line 1 is nested too deeply;"),
    ],
)
def test_what_is_no_session_is_refused_in_one_sentence_that_names_the_known_formats(
    recordings: Any, data: bytes, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        recordings.import_bytes(data)
    message = str(caught.value)
    assert "\n" not in message
    assert all(one.name in message for one in FORMATS)
    assert len(message.removeprefix(str(recordings.folder))) <= 3 * 80


def test_a_missing_file_a_directory_and_a_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_session(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match=r"is a directory; .* 'reverie replay DIRECTORY'"):
        read_session(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="not a regular file"):
        read_session(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        read_session("a\0b")
    with pytest.raises(InputError, match="is not a directory"):
        find_sessions(tmp_path / "none")


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses; root, who may read everything, would not see it."""

    def refuse(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match="permissions"):
        read_session(tmp_path / "closed.jsonl")


def test_a_directory_is_walked_for_files_that_are_sessions(recordings: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.jsonl").write_bytes(recordings.bytes_of("pi"))
    (tmp_path / "b" / "two.traj").write_bytes(recordings.bytes_of("swe-agent"))
    (tmp_path / "a.jsonl").write_bytes(recordings.bytes_of("openhands"))
    (tmp_path / "notes.md").write_text("no session")
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "dead.jsonl").symlink_to(tmp_path / "gone")
    found = [path.relative_to(tmp_path).as_posix() for path in find_sessions(tmp_path)]
    assert found == ["a.jsonl", "b/one.jsonl", "b/two.traj"]
    assert [one.format for one in read_sessions(tmp_path)] == ["openhands", "openhands", "pi", "swe-agent"]
    assert [one.format for one in read_sessions(tmp_path / "a.jsonl")] == ["openhands", "openhands"]


def test_a_large_document_is_recognised_by_more_than_its_head(recordings: Any, tmp_path: Path) -> None:
    document = {"padding": "x" * 400_000, **recordings.mini_document()}
    (tmp_path / "large.json").write_text(json.dumps(document, indent=2))
    assert format_of(tmp_path / "large.json") == "mini-swe-agent"


def test_the_usual_places_follow_the_environment(recordings: Any, tmp_path: Path) -> None:
    claude = tmp_path / ".claude" / "projects" / "-home-ada-shop"
    codex = tmp_path / "elsewhere" / "sessions" / "2026" / "03" / "01"
    for folder in (claude, codex):
        folder.mkdir(parents=True)
    (claude / "s.jsonl").write_bytes(recordings.bytes_of("claude-code"))
    (codex / "rollout-2026-03-01.jsonl").write_bytes(recordings.bytes_of("codex"))
    (codex / "rollout-2026-03-02.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (codex / "other.jsonl").write_bytes(b"{}")
    first, second, *_ = usual_places(tmp_path, {"CODEX_HOME": str(tmp_path / "elsewhere")})
    assert (first.format, [path.name for path in first.sessions()]) == ("claude-code", ["s.jsonl"])
    names = ["rollout-2026-03-01.jsonl", "rollout-2026-03-02.jsonl.zst"]
    assert (second.format, [path.name for path in second.sessions()]) == ("codex", names)
    moved, *_ = usual_places(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "none")})
    assert list(moved.sessions()) == []


def test_half_a_surrogate_pair_is_no_damage(recordings: Any) -> None:
    row = json.dumps(recordings.line(0, "user", None, "cut here")).replace("cut here", "cut \\ud83d here")
    [found] = recordings.import_bytes(row.encode())
    assert found.damage == ()
    assert found.messages[0].message == {"role": "user", "content": "cut ? here"}
    assert encode_entry(found.messages[0])
