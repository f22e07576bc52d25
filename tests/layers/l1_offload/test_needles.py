"""Facts planted in results and early turns are in view, or can be read back, after any change of the view."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from reverie.conversation.decisions import Cause, Collapsed, Compacted, Replacement, ResultsCleared, Snipped
from reverie.conversation.wire.request import build_request
from reverie.errors import ReverieError
from reverie.layers.l1_offload import OffloadPolicy, result_forms

SMALL = OffloadPolicy(
    default_limit_chars=600,
    declared_chars={},
    ceiling_chars={},
    preview_bytes=80,
    aggregate_chars=1_500,
    duplicate_min_bytes=40,
    duplicate_max_bytes=600,
)
CAUSE = Cause("test", "reduced")
MakeDesk = Callable[..., Any]


def planted(rng: Random, needle: str) -> Any:
    """Return a result of any kind with a needle anywhere in it."""
    length = rng.choice((0, 5, 300, 590, 1_200, 9_000))
    at = rng.randrange(length + 1)
    hay = "".join(rng.choice(("word ", "é", "漢", "\n", "\r\n", "\x1b[1m", '"')) for _ in range(length // 3))
    text = f"{hay[:at]}{needle}{hay[at:]}"
    match rng.randrange(4):
        case 0:
            return text.encode() + rng.choice((b"", b"\xff\xfe\0"))
        case 1:
            return [{"type": "text", "text": text}, {"type": "text", "text": "end"}]
        case _:
            return text


def reduce_somehow(desk: Any, rng: Random, spoken: list[str]) -> None:
    """Do one of the things that layers do to a view."""
    shown = [piece.uuid for group in desk.view.groups for piece in group.pieces]
    match rng.randrange(5):
        case 0 | 1:
            ids = [one.tool_use_id for one in desk.view.results if rng.random() < 0.4]
            cleared = [Replacement(called, f"[cleared] handle: {called}", called) for called in ids]
            desk.log((ResultsCleared(CAUSE, cleared),))
        case 2:
            desk.log((Snipped(CAUSE, [uuid for uuid in shown if rng.random() < 0.3]),))
        case 3:
            first, last = sorted(rng.sample(range(len(shown)), 2)) if len(shown) > 1 else (0, 0)
            desk.log((Collapsed(CAUSE, shown[first], shown[last], "[collapsed]"),))
        case _:
            kept = rng.choice((None, *shown[-3:]))
            desk.log((Compacted(CAUSE, "auto", "full", "A summary.", 10, shown[-1], kept),))


def in_view(desk: Any, needle: str) -> bool:
    return needle in str(build_request(desk.view)["messages"])


def lost(desk: Any, results: dict[str, tuple[str, Any]], spoken: dict[str, str]) -> list[str]:
    """Return the needles that are neither in view nor one read away, or come back with other bytes."""
    back = desk.back()
    gone: list[str] = []
    for handle, (needle, output) in results.items():
        try:
            found = back.find(handle)
        except ReverieError:
            gone.append(handle)
            continue
        same = hashlib.sha256(result_forms(output).data).hexdigest() == found.sha256
        if not (same and needle in found.text and back.search(handle, needle)):
            gone.append(handle)
    for uuid, needle in spoken.items():
        if not in_view(desk, needle) and needle.encode() not in back.read(uuid):
            gone.append(uuid)
    return gone


def played(make_desk: MakeDesk, rng: Random) -> tuple[Any, dict[str, tuple[str, Any]], dict[str, str]]:
    desk = make_desk(policy=SMALL)
    results: dict[str, tuple[str, Any]] = {}
    spoken: dict[str, str] = {}
    outputs: list[tuple[str, Any]] = []
    for turn in range(rng.randrange(1, 6)):
        word = f"needle-said-{turn}-{rng.random()}"
        spoken[desk.say(f"Please {word}.")] = word
        ids = [f"t{turn}_{at}" for at in range(rng.randrange(1, 5))]
        desk.ask(*ids)
        for called in ids:
            needle = f"needle-{called}-{rng.randrange(10**9)}"
            one = rng.choice(outputs) if outputs and rng.random() < 0.3 else (needle, planted(rng, needle))
            outputs.append(one)
            results[called] = one
            desk.give(called, one[1])
        desk.send()
        if rng.random() < 0.6:
            reduce_somehow(desk, rng, list(spoken))
    return desk, results, spoken


@pytest.mark.requirement("L1.4", "L1.10")
def test_every_needle_is_in_view_or_one_read_away(make_desk: MakeDesk, seed: int, torture: bool) -> None:
    for number in range(3_000 if torture else 150):
        desk, results, spoken = played(make_desk, Random(f"{seed}-{number}"))
        assert lost(desk, results, spoken) == [], f"game {number}"


def test_a_lost_or_altered_needle_is_caught(make_desk: MakeDesk) -> None:
    rng = Random(1)
    desk, results, spoken = played(make_desk, rng)
    desk.ask("big")
    results["big"] = ("needle-big", "x" * 700 + "needle-big")
    desk.give("big", results["big"][1])
    assert lost(desk, results, spoken) == []
    desk.storage.write(desk.view.offloaded("big").path, b"needle-big, but not what it was")
    assert lost(desk, results, spoken) == ["big"]
    desk.storage.delete(desk.view.offloaded("big").path)
    assert lost(desk, results, spoken) == ["big"]
