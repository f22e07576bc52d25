"""Events are the same for any division of their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reverie.errors import ModelError
from reverie.models import open_model, wire
from reverie.models.wire import EventDecoder, ServerEvent

WORDS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[ServerEvent]]:
    """Draw the bytes of a stream and the events a reader must find in it."""
    text, events, end = "", list[ServerEvent](), draw(ENDS)
    for _ in range(draw(st.integers(0, 5))):
        name, lines = draw(WORDS), draw(st.lists(WORDS, max_size=3))
        text += f": a comment{end}" if draw(st.booleans()) else ""
        text += f"event: {name}{end}" if name else ""
        text += "".join(f"data: {line}{end}" for line in lines) + end
        events += [ServerEvent(name, "\n".join(lines))] if lines else []
    return text.encode(), events


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def decoded(chunks: list[bytes]) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
@example((b"data: a\r\n\r\n", [ServerEvent("", "a")]), [8])
@example((b"data: \xc3\xa4\n\n", [ServerEvent("", "ä")]), [7])
def test_events_are_the_same_however_their_bytes_arrive(
    stream: tuple[bytes, list[ServerEvent]], cuts: list[int]
) -> None:
    data, events = stream
    assert decoded(pieces(data, cuts)) == events


def test_a_reader_that_looks_at_each_piece_alone_is_caught() -> None:
    data = b"event: a\ndata: one\n\n"
    alone = [event for chunk in pieces(data, [12]) for event in EventDecoder().feed(chunk)]
    assert alone != [ServerEvent("a", "one")]


@given(streams(), st.integers(0, 10_000))
def test_a_stream_cut_short_gives_only_events_that_had_ended(stream: tuple[bytes, list[ServerEvent]], at: int) -> None:
    data, events = stream
    found = decoded([data[: at % (len(data) + 1)]])
    assert found == events[: len(found)]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert decoded([b"\xef\xbb\xbfdata: x\n\n"]) == [ServerEvent("", "x")]


@pytest.mark.parametrize("chunk", [b"data: abc", b"data: a\r", b"\n"])
def test_a_line_that_never_ends_costs_no_more_than_its_bytes(
    chunk: bytes, is_linear: Callable[[Callable[[int], object], int], bool]
) -> None:
    assert is_linear(lambda size: decoded([b"data: a"] + [chunk] * size), 1_000)


@pytest.mark.parametrize("endless", [b"data: " + b"x" * 300, b"data: x\n" * 60])
def test_a_stream_whose_event_never_ends_is_a_model_error_after_one_try(
    serving: Any, run: Any, monkeypatch: pytest.MonkeyPatch, endless: bytes
) -> None:
    monkeypatch.setattr(wire, "MAX_EVENT_BYTES", 200)

    async def ask() -> None:
        async with serving([{"body": endless}]) as server:
            environ = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "key"}
            model = open_model("anthropic", environ=environ)
            with pytest.raises(ModelError, match="an event of more than 0 MB"):
                await model.complete({"messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 10})
            await model.aclose()

    run(ask())


def test_many_events_may_be_longer_together_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_EVENT_BYTES", 200)
    assert len(decoded([b"data: x\n\n"] * 100 + [b"data: x\n\n" * 100])) == 200
