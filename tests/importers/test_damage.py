"""Damaged files: only ``InputError`` is raised, and intact records are kept."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.entries import encode_entry
from reverie.errors import InputError
from reverie.importers import ImportedSession

pytestmark = pytest.mark.requirement("D3")

MARK = re.compile(rb"mark-\d+")
Import = Callable[[bytes], list[ImportedSession]]


def lines_of(recordings: Any, name: str) -> list[bytes]:
    """Return a session of marked records in this format, one a line."""
    rows: list[dict[str, Any]] = []
    for at in range(12):
        words = f"mark-{at:02d}"
        if name == "claude-code":
            content: Any = words if at % 3 == 0 else [recordings.use(f"t{at}-{words}")]
            content = [recordings.result(f"t{at - 1}-mark-{at - 1:02d}", words)] if at % 3 == 2 else content
            kind = "assistant" if at % 3 == 1 else "user"
            rows.append(recordings.line(at, kind, at - 1 if at else None, content))
        elif name == "codex":
            part = {"type": "output_text" if at % 2 else "input_text", "text": words}
            item = {"type": "message", "role": "assistant" if at % 2 else "user", "content": [part]}
            rows.append({"timestamp": "t", "type": "response_item", "payload": item})
        else:
            message = {"role": "assistant" if at % 2 else "user", "content": [recordings.text(words)]}
            rows.append({"type": "message", "timestamp": "t", "message": message})
    return [json.dumps(row).encode() for row in rows]


def marks_in(found: list[ImportedSession]) -> set[bytes]:
    return {mark for one in found for entry in one.entries for mark in MARK.findall(encode_entry(entry))}


def check_intact_lines(data: bytes, originals: list[bytes], read: Import) -> None:
    """Every line that is still exactly one of the originals has to be in what was read."""
    lines = [line.strip(b"\r\0 \t") for line in data.split(b"\n")]
    intact = [line for line in lines if line in originals]
    strange = [line for line in lines if line and line not in originals]
    try:
        found = read(data)
    except InputError:
        assert not intact
        return
    # A line that was changed and still is a record may well move others to another branch.
    if not any(_is_record(line) for line in strange):
        wanted = {mark for line in intact for mark in MARK.findall(line)[-1:]}
        assert wanted <= marks_in(found)
        assert not strange or any(one.damage for one in found)


def _is_record(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


Steps = list[tuple[str, float, float, int]]
KINDS = ("truncate", "flip", "splice", "nul", "crlf", "repeat", "junk")
PLACES = st.integers(0, 999).map(lambda place: place / 1000)


def damage_of(kinds: tuple[str, ...], most: int) -> st.SearchStrategy[Steps]:
    step = st.tuples(st.sampled_from(kinds), PLACES, PLACES, st.integers(0, 7))
    return st.lists(step, min_size=1, max_size=most)


DAMAGE = damage_of(KINDS, 4)


def damaged(data: bytes, steps: Steps) -> bytes:
    """Damage a file in a few ways, one after the other."""
    for kind, one, two, bit in steps:
        first, second = sorted((int(one * len(data)), int(two * len(data))))
        if kind == "truncate":
            data = data[:second]
        elif kind == "flip" and data:
            data = data[:first] + bytes([data[first] ^ (1 << bit)]) + data[first + 1 :]
        elif kind == "splice":
            data = data[:first] + data[second:]
        elif kind == "repeat":
            data = data[:second] + data[first:]
        elif kind == "nul":
            span = min(second - first, 64)
            data = data[:first] + b"\0" * span + data[first + span :]
        elif kind == "crlf":
            data = data.replace(b"\n", b"\r\n")
        elif kind == "junk":
            data = data[:first] + b'{"type": "user", "uuid": 7}\n\xff\xfe\n' + data[first:]
    return data


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi"])
@given(steps=DAMAGE)
def test_a_damaged_file_of_lines_keeps_every_intact_line(recordings: Any, name: str, steps: Steps) -> None:
    originals = lines_of(recordings, name)
    check_intact_lines(damaged(b"\n".join(originals) + b"\n", steps), originals, recordings.import_bytes)


# The numbers of the lines of a file; the lines that are missing were damaged.
REPEATS = [
    (0, 1, 2, 3, 6, 4, 6, 7),  # the parent of 6 is damaged, and a copy of 6 stands before 4
    (0, 1, 2, 6, 7, 3, 5, 6, 7),
    (0, 1, 3, 10, 4, 5, 6, 9),
    (0, 1, 2, 4, 9, 5, 6, 7, 10, 11),
    (0, 1, 2, 4, 5, 8, 9, 6),
    (0, 2, 3, 8, 10, 1, 2, 3, 9, 10, 11),  # the next line of 3 is damaged, and the branch goes on behind it
]


@pytest.mark.parametrize("order", REPEATS)
def test_a_line_whose_parent_is_damaged_is_no_abandoned_branch(recordings: Any, order: tuple[int, ...]) -> None:
    originals = lines_of(recordings, "claude-code")
    broken = b'{"type": "user", "uu'
    check_intact_lines(b"\n".join([broken, *(originals[at] for at in order)]), originals, recordings.import_bytes)
    branch = [
        recordings.line(0, "user", None, "mark-00"),
        *(recordings.line(at, "user", 0, f"mark-0{at}") for at in (1, 2)),
    ]
    read = recordings.import_bytes(b"\n".join(json.dumps(row).encode() for row in branch))
    assert marks_in(read) == {b"mark-00", b"mark-02"}, "the older of two children of one line is abandoned"


def test_a_reader_that_stops_at_the_first_broken_line_is_caught(recordings: Any) -> None:
    """The known-bad twin of the property above."""
    originals = lines_of(recordings, "pi")
    data = b"\n".join([*originals[:4], originals[4][:-9], *originals[5:]])
    check_intact_lines(data, originals, recordings.import_bytes)
    with pytest.raises(AssertionError):
        check_intact_lines(
            data, originals, lambda given: recordings.import_bytes(given[: given.index(originals[4][:-9])])
        )


def document_of(name: str, indent: int | None) -> tuple[bytes, list[bytes]]:
    """Return a document of marked records and the bytes by which each is still whole in it."""
    key = "messages" if name == "mini-swe-agent" else "history"
    records: list[dict[str, Any]] = []
    for at in range(12):
        inner = {"role": "assistant", "content": "nested"}
        record = {"role": "assistant" if at % 2 else "user", "content": f"mark-{at:02d}", "agent": "main"}
        records.append({**record, "extra": {"response": {"choices": [{"message": inner, "index": 0}]}}})
    document = {"info": {"exit_status": "x"}, key: records, "environment": "main"}
    data = json.dumps(document, indent=indent).encode()
    pieces: list[bytes] = []
    for record in records:
        piece = json.dumps(record, indent=indent)
        if indent:
            pieces.append(("\n" + piece.replace("\n", "\n" + " " * 2 * indent).join([" " * 2 * indent, ""])).encode())
        else:
            pieces.append(piece.encode() + b", {")
    assert sum(data.count(piece) for piece in pieces) >= len(records) - 1
    return data, pieces


@pytest.mark.parametrize("indent", [2, None])
@pytest.mark.parametrize("name", ["mini-swe-agent", "swe-agent"])
@given(steps=damage_of(KINDS[:5], 2))
def test_a_damaged_document_keeps_every_intact_record(
    recordings: Any, name: str, indent: int | None, steps: Steps
) -> None:
    data, pieces = document_of(name, indent)
    start = data.index(b"[") + 1
    head, tail = data[:start], damaged(data[start:], steps)
    try:
        found = recordings.import_bytes(head + tail, "session.json")
    except InputError:
        found = []
    wanted = {MARK.findall(piece)[0] for piece in pieces if piece in tail}
    text = json.dumps([json.loads(encode_entry(entry)) for one in found for entry in one.entries]).encode()
    assert wanted <= set(MARK.findall(text))
    # Cut and joined bytes can put an inner record where a member of the list would stand; nothing else can.
    if not {kind for kind, *_ in steps} & {"splice"}:
        assert b'"content": "nested"' not in text


def test_an_inner_record_before_overwritten_bytes_is_no_member_of_the_list(recordings: Any) -> None:
    text = document_of("swe-agent", None)[0].decode()
    broken, inner = text.index('"mark-03"'), text.index("nested", text.index('"mark-03"'))
    end, following = text.index("}", inner) + 1, text.index(', {"role"', inner)
    cut = text[: broken - 4] + "\0" * 8 + text[broken + 4 : end] + "\0" * (following - end) + text[following:]
    found = recordings.import_bytes(cut.encode(), "session.json")
    said = b"".join(encode_entry(entry) for one in found for entry in one.entries)
    assert b'"nested"' not in said
    assert {b"mark-02", b"mark-04", b"mark-11"} <= marks_in(found)


def test_a_bracket_that_a_cut_moved_to_the_margin_does_not_end_the_list(recordings: Any) -> None:
    data, pieces = document_of("swe-agent", 2)
    text = data.decode()
    seventh, eleventh = text.index('"mark-07"'), text.index('"mark-10"')
    cut = text[: text.rindex("\n    {", 0, seventh)] + "\n  " + text[text.index("]\n", eleventh) :]
    found = recordings.import_bytes(cut.encode(), "session.json")
    assert {b"mark-06", b"mark-11"} <= marks_in(found)
    assert sum(piece in data for piece in pieces) >= 11


@pytest.mark.parametrize("at", range(8))
@given(steps=DAMAGE)
def test_whatever_becomes_of_a_file_only_input_error_is_raised(recordings: Any, at: int, steps: Steps) -> None:
    data = damaged(recordings.bytes_of(recordings.names[at]), steps)
    try:
        found = recordings.import_bytes(data)
    except InputError:
        return
    for one in found:
        assert all(encode_entry(entry) for entry in one.entries)
        assert all(damage.reason for damage in one.damage)


WRONG: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", [], [None], [[]], {}, {"a": None}, {"type": 7}, ["x", {}]]


def retyped(value: Any, chance: random.Random, rate: float) -> Any:
    """Return the value with some of its parts replaced by something of another type."""
    if chance.random() < rate:
        return chance.choice(WRONG)
    if isinstance(value, dict):
        return {key: retyped(item, chance, rate) for key, item in value.items()}
    if isinstance(value, list):
        return [retyped(item, chance, rate) for item in value]
    return value


@pytest.mark.parametrize("at", range(8))
def test_records_with_values_of_the_wrong_type_never_raise(recordings: Any, seed: int, torture: bool, at: int) -> None:
    chance = random.Random(seed + at)
    data = recordings.bytes_of(recordings.names[at])
    for _ in range(20_000 if torture else 250):
        rate = chance.choice([0.01, 0.05, 0.2])
        if recordings.names[at] in ("mini-swe-agent", "swe-agent"):
            changed = json.dumps(retyped(json.loads(data), chance, rate), indent=2).encode()
        else:
            rows = [retyped(json.loads(line), chance, rate) for line in data.splitlines()]
            changed = b"\n".join(json.dumps(row).encode() for row in rows)
        try:
            for one in recordings.import_bytes(changed):
                for entry in one.entries:
                    assert encode_entry(entry)
                    if entry.message is not None and one.format != "reverie":
                        assert entry.message["role"] in ("user", "assistant")
                        assert entry.message["content"]
        except InputError:
            continue


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi", "mini-swe-agent", "swe-agent", "openhands"])
def test_line_ends_of_another_system_and_a_byte_order_mark_change_nothing(recordings: Any, name: str) -> None:
    data = recordings.bytes_of(name)
    plain = recordings.import_bytes(data)
    assert recordings.import_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")) == plain
    assert all(one.damage == () for one in plain)


def test_runs_of_nul_bytes_are_named_and_cost_nothing_else(recordings: Any) -> None:
    originals = lines_of(recordings, "pi")
    data = b"\n".join([*originals[:3], b"\0" * 4096 + originals[3], *originals[4:]])
    [found] = recordings.import_bytes(data)
    assert len(found.messages) == 12
    assert [one.line for one in found.damage] == [4]
