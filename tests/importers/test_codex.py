from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from reverie.conversation.decisions import Compacted, decision_of
from reverie.errors import InputError
from reverie.importers import read_session

pytestmark = pytest.mark.requirement("D3")


def test_a_rollout_becomes_messages_calls_and_results(recordings: Any) -> None:
    [found] = recordings.imported("codex")
    assert (found.session_id, found.cwd, found.model) == (recordings.session, "/home/ada/shop", "gpt-5-codex")
    assert (found.system, found.title) == ("You are Codex.", "list the files")
    kinds = [entry.kind for entry in found.entries]
    assert kinds == [
        "meta",
        "attachment",
        "user",
        "user",
        *["assistant"] * 3,
        "user",
        "user",
        "assistant",
        "decision",
        "user",
    ]
    call, patch = found.entries[5].message, found.entries[6].message
    assert call == {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_1", "name": "shell", "input": {"command": ["ls"]}}],
    }
    assert patch is not None
    assert patch["content"][0]["input"] == {"input": "*** Begin Patch"}
    failed = found.entries[8].message
    assert failed is not None
    assert failed["content"] == [{"type": "tool_result", "tool_use_id": "call_2", "is_error": True, "content": "no"}]


def test_the_parts_of_one_reply_share_an_id_and_its_usage(recordings: Any) -> None:
    [found] = recordings.imported("codex")
    replies = [entry.reply for entry in found.entries if entry.kind == "assistant"]
    assert len({reply["id"] for reply in replies}) == 2
    assert [reply["id"] for reply in replies[:3]] == [replies[0]["id"]] * 3
    assert replies[0]["usage"] == {
        "input_tokens": 200,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 800,
        "output_tokens": 10,
    }
    assert replies[0]["recorded"]["cached_input_tokens"] == 800
    assert replies[3]["usage"]["cache_read_input_tokens"] == 1000


def test_a_compaction_is_a_decision_and_sealed_reasoning_is_counted(recordings: Any) -> None:
    [found] = recordings.imported("codex")
    made = next(decision_of(entry.body) for entry in found.entries if entry.kind == "decision")
    assert isinstance(made, Compacted)
    assert made.summary == "The user listed files; there is one."
    assert made.tokens_before == 1110
    assert made.last_before == found.entries[9].uuid
    assert found.skipped["reasoning (sealed for its provider)"] == 1


def test_a_compaction_without_words_takes_them_from_the_history_it_left(recordings: Any) -> None:
    rows = recordings.codex_rows()
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept words"}]}]
    rows[-2]["payload"] = {"message": "", "replacement_history": kept}
    [found] = recordings.import_rows(rows)
    made = next(decision_of(entry.body) for entry in found.entries if entry.kind == "decision")
    assert isinstance(made, Compacted)
    assert made.summary == "user: kept words"


def test_turns_that_were_rolled_back_are_gone_and_counted(recordings: Any) -> None:
    rows = recordings.codex_rows()
    back = {"timestamp": "", "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    [found] = recordings.import_rows([*rows[:16], back])
    assert [entry.kind for entry in found.entries] == ["meta", "attachment", "user"]
    assert found.skipped["abandoned branch"] == 7


def test_the_first_generation_of_bare_items_is_read(recordings: Any) -> None:
    [found] = recordings.imported("codex-bare")
    assert (found.format, found.session_id, found.system) == ("codex", recordings.session, "Be brief.")
    assert [entry.kind for entry in found.messages] == ["user", "assistant", "user", "assistant"]
    call = found.messages[1].message
    assert call is not None
    assert call["content"][0]["name"] == "local_shell"


def test_the_document_of_the_earliest_program_is_read(recordings: Any) -> None:
    import json

    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    document = {"session": {"id": "s-1", "timestamp": "2025-04-01T00:00:00Z", "instructions": ""}, "items": [said]}
    [found] = recordings.import_bytes(json.dumps(document, indent=2).encode(), "rollout-2025.json")
    assert (found.session_id, len(found.messages)) == ("s-1", 1)


@pytest.mark.parametrize("name", ["codex", "codex-bare"])
def test_a_compressed_rollout_is_the_same_session(recordings: Any, name: str) -> None:
    import zstandard

    packed = zstandard.ZstdCompressor().compress(recordings.bytes_of(name))
    [plain] = recordings.import_bytes(recordings.bytes_of(name), "rollout-a.jsonl")
    [found] = recordings.import_bytes(packed, "rollout-a.jsonl.zst")
    assert found.entries[1:] == plain.entries[1:]
    assert found.damage == ()


def test_a_compressed_rollout_cut_short_gives_the_lines_before_the_cut(recordings: Any) -> None:
    import zstandard

    half = zstandard.ZstdCompressor()
    rows = recordings.codex_rows()
    first, second = recordings.jsonl(rows[:9]), recordings.jsonl(rows[9:])
    packed = half.compress(first) + half.compress(second)[:20]
    [found] = recordings.import_bytes(packed, "rollout-b.jsonl.zst")
    assert len(found.messages) == 5


def test_without_the_decompressor_the_error_names_the_extra(recordings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import zstandard

    path = recordings.folder / "rollout-c.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(recordings.bytes_of("codex")))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"reverie\[codex\]"):
        read_session(path)


@pytest.mark.parametrize("unit", [b"[", b"{}\n", b'{"messages":[', b"\0"])
def test_a_compressed_file_that_unpacks_to_far_more_than_a_recording_is_refused(recordings: Any, unit: bytes) -> None:
    import zstandard

    path = recordings.folder / "rollout-d.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(unit * (2**22 // len(unit))))
    with pytest.raises(InputError, match="at most 100 times the packed size and 256 MB"):
        read_session(path)


def test_a_small_recording_may_unpack_to_more_than_a_hundred_times_its_size(recordings: Any) -> None:
    import zstandard

    data = recordings.bytes_of("codex") + b"\n" * 2**19
    packed = zstandard.ZstdCompressor().compress(data)
    [plain] = recordings.import_bytes(data, "rollout-e.jsonl")
    assert len(data) > 100 * len(packed)
    assert recordings.import_bytes(packed, "rollout-e.jsonl.zst")[0].entries[1:] == plain.entries[1:]


@pytest.mark.parametrize(
    "unit", [b"[", b'{"a":', b'{"history":[\n', b'{"role":', b'{"role":"a",]},', b'{"role":"', b'\n {"role":[']
)
def test_deep_and_broken_json_is_refused_in_linear_time(
    recordings: Any, unit: bytes, is_linear: Callable[[Callable[[int], object], int], bool]
) -> None:
    def read(size: int) -> None:
        path = recordings.folder / "broken.json"
        path.write_bytes(b'{"messages":[' + unit * size)
        with pytest.raises(InputError, match="unknown format"):
            read_session(path)

    # Each of the first 200 broken records costs a pass; small files would hide that no more follow.
    assert is_linear(read, 1_000)


def test_the_first_thousand_broken_lines_are_named_and_the_rest_counted(recordings: Any) -> None:
    [found] = recordings.import_bytes(recordings.bytes_of("codex") + b"[\n" * 5_000, "rollout-f.jsonl")
    assert len(found.damage) == 1_001
    assert "4,000 more broken lines" in found.damage[-1].reason
