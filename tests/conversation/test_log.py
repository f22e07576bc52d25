"""A log loads completely: every intact line is kept, and damage is reported by line."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_logs import random_log
from reverie.conversation.entries import Entry, decode_entry, encode_entry
from reverie.conversation.log import parse_log


def lines_of(seed: int, entries: int = 12) -> list[bytes]:
    return [encode_entry(entry) for entry in random_log(Random(seed), entries=entries, disorder=0.0)]


def intact(data: bytes) -> list[Entry]:
    """What a careful reader finds line by line, written without the loader."""
    found: list[Entry] = []
    for line in data.split(b"\n"):
        try:
            found.append(decode_entry(line))
        except ValueError:
            continue
    return found


@pytest.mark.requirement("K3")
@given(seed=st.integers(0, 500), cut=st.integers(0, 10_000))
def test_a_torn_tail_is_ignored_and_everything_before_it_loads(seed: int, cut: int):
    data = b"".join(line + b"\n" for line in lines_of(seed))
    torn = data[: cut % (len(data) + 1)]
    loaded = parse_log(torn)
    assert loaded.entries == intact(torn)
    assert not loaded.damage
    assert len(loaded.entries) >= torn.count(b"\n")


@pytest.mark.requirement("K3")
def test_a_damaged_line_is_reported_with_its_number_and_the_others_load():
    lines = lines_of(3)
    lines.insert(2, b'{"uuid": "half')
    loaded = parse_log(b"\n".join(lines) + b"\n")
    assert [damage.line for damage in loaded.damage] == [3]
    assert "JSON" in loaded.damage[0].reason
    assert len(loaded.entries) == len(lines) - 1


@pytest.mark.requirement("K2", "K3")
def test_lines_split_on_newline_only():
    entry = Entry("u", None, "", "s", "user", {"message": {"role": "user", "content": "a\u2028b\x0bc\x85d\re"}})
    assert parse_log(encode_entry(entry) + b"\n").entries == [entry]


@pytest.mark.requirement("K3")
@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"\0" * 4096, b"\xff\xfe", b"null\n", b"{}\n"])
def test_content_never_raises(data: bytes):
    assert parse_log(data).entries == []


@pytest.mark.requirement("K3")
def test_carriage_returns_a_byte_order_mark_and_runs_of_nul_lose_nothing():
    lines = lines_of(5)
    crlf = b"\xef\xbb\xbf" + b"".join(line + b"\r\n" for line in lines)
    assert len(parse_log(crlf).entries) == len(lines)
    holed = lines[0] + b"\n" + b"\0" * 512 + lines[1] + b"\n" + b"\0" * 100 + b"\n"
    loaded = parse_log(holed)
    assert len(loaded.entries) == 2
    assert [damage.line for damage in loaded.damage] == [2, 3]


@pytest.mark.requirement("K3")
def test_a_line_of_a_hundred_megabytes_loads(torture: bool):
    size = 100_000_000 if torture else 20_000_000
    entry = Entry("u", None, "", "s", "user", {"message": {"role": "user", "content": "x" * size}})
    data = encode_entry(entry) + b"\n" + encode_entry(entry)[: size // 2]
    loaded = parse_log(data)
    assert loaded.entries == [entry]
    assert len(loaded.torn) == size // 2


def mutated(data: bytes, rng: Random) -> bytes:
    at, other = rng.randrange(len(data)), rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 2:
            return data[:at] + data[other : other + rng.randrange(2_000)] + data[at:]
        case 3:
            return data[:at] + b"\0" * rng.randrange(1, 600) + data[at:]
        case 4:
            return data.replace(b"\n", b"\r\n")
        case _:
            return data[: min(at, other)] + data[max(at, other) :]


@pytest.mark.requirement("K3")
@pytest.mark.slow
def test_five_thousand_mutations_of_recorded_sessions_keep_every_intact_line(corpus_logs: list[list[bytes]]):
    rng = Random(20261115)
    for _ in range(5_000):
        lines = rng.choice(corpus_logs)
        start = rng.randrange(max(1, len(lines) - 12))
        data = b"".join(line + b"\n" for line in lines[start : start + 12])
        for _ in range(rng.randrange(1, 4)):
            data = mutated(data, rng) or data
        loaded = parse_log(data)
        kept = {entry.uuid for entry in loaded.entries}
        assert {entry.uuid for entry in intact(data.removeprefix(b"\xef\xbb\xbf"))} <= kept
        bad = [number for number, line in enumerate(data.split(b"\n"), 1) if line.strip() and not intact(line)]
        named = [damage.line for damage in loaded.damage] + ([data.count(b"\n") + 1] if loaded.torn else [])
        assert named == bad


def test_the_mutation_check_catches_a_loader_that_stops_at_the_first_bad_line():
    lines = lines_of(9)
    data = b"\n".join([lines[0], b"{broken", *lines[1:]])

    def stops_early(data: bytes) -> list[Entry]:
        found: list[Entry] = []
        for line in data.split(b"\n"):
            try:
                found.append(decode_entry(line))
            except ValueError:
                break
        return found

    assert stops_early(data) != intact(data)
