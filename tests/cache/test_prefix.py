"""The chain of hashes grows incrementally and always equals a fresh hash."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from hashlib import blake2b
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reverie.cache.prefix as prefix_module
from prefixes import extends
from random_logs import random_log
from reverie.cache.prefix import Prefix, SettledMessages
from reverie.cache.simulator import CacheSimulator
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical, canonical_block
from reverie.conversation.wire.request import build_request

Request = dict[str, Any]


def requests_of(seed: int, disorder: float = 0.25) -> list[tuple[Request, SettledMessages | None]]:
    """Return the requests of a random session, after every entry, each with what its view says is settled."""
    view, found = View(), list[tuple[Request, SettledMessages | None]]()
    for entry in random_log(Random(seed), entries=40, disorder=disorder):
        view = view.fold(entry)
        found.append((build_request(view), settled_in(view)))
    return found


def settled_in(view: View) -> SettledMessages | None:
    return view.finished_messages


def fresh_chain(request: Mapping[str, Any]) -> list[bytes]:
    return CacheSimulator().chain(blake2b(block, digest_size=16).digest() for block in canonical(request))


def first_difference(earlier: Request, later: Request) -> int | None:
    one, other = canonical(earlier), canonical(later)
    if extends(one, other):
        return None
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in both if a != b), min(len(one), len(other)))


class TrustsLength(Prefix):
    """The known-bad twin: it believes that messages it has seen stay as they were."""

    def _kept(self, messages: Any, settled: SettledMessages | None) -> int:
        return min(self._length, len(messages))


def goes_wrong(kind: type[Prefix], requests: list[tuple[Request, SettledMessages | None]], *, settled: bool) -> bool:
    """Say whether any request of a session gets another chain than a fresh hash gives."""
    prefix = kind()
    for request, known in requests:
        prefix = prefix.next(request, settled=known if settled else None)
        if prefix.chain() != fresh_chain(request) or prefix.blocks != len(canonical(request)):
            return True
    return False


@given(st.integers(0, 2**32), st.booleans())
def test_the_chain_is_the_one_a_fresh_hash_gives(seed: int, settled: bool) -> None:
    assert not goes_wrong(Prefix, requests_of(seed), settled=settled)


def test_a_chain_that_trusts_the_length_is_caught(seed: int) -> None:
    rng = Random(seed)
    assert any(goes_wrong(TrustsLength, requests_of(rng.randrange(2**32)), settled=False) for _ in range(50))


@given(st.integers(0, 2**32), st.booleans())
def test_the_first_difference_is_where_the_canonical_blocks_part(seed: int, settled: bool) -> None:
    last, before = Prefix(), None
    for request, known in requests_of(seed):
        prefix = last.next(request, settled=known if settled else None)
        if before is not None:
            assert prefix.difference(last) == first_difference(before, request)
        last, before = prefix, request


@given(st.integers(0, 2**32))
def test_a_prefix_does_not_change_when_others_grow_from_it(seed: int) -> None:
    kept = [Prefix()]
    chains = [kept[0].chain()]
    for request, settled in requests_of(seed):
        for earlier in (kept[-1], kept[0]):
            kept.append(earlier.next(request, settled=settled))
            chains.append(kept[-1].chain())
            assert kept[-1].digest == (chains[-1] or [b""])[-1]
    assert [prefix.chain() for prefix in kept] == chains


def conversation(messages: int) -> Request:
    said = [
        {"role": ("user", "assistant")[at % 2], "content": [{"type": "text", "text": f"{at}"}]}
        for at in range(messages)
    ]
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash")]
    return {"model": "m", "max_tokens": 9, "tools": tools, "system": "Be brief.", "messages": said}


def test_only_what_is_new_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []

    def counted(block: Any, role: str) -> bytes:
        hashed.append(block)
        return canonical_block(block, role)

    monkeypatch.setattr(prefix_module, "canonical_block", counted)
    request = conversation(400)
    prefix = Prefix().next({**request, "messages": request["messages"][:396]})
    hashed.clear()
    prefix = prefix.next({**request, "messages": request["messages"][:398]})
    assert hashed == [message["content"][0] for message in request["messages"][396:398]]
    hashed.clear()
    cut = [{"role": "user", "content": "A summary."}, *request["messages"][301:]]
    prefix.next({**request, "messages": cut})
    assert [block["text"] for block in hashed] == ["A summary.", "398", "399"]


def test_what_the_caller_calls_settled_is_not_looked_at() -> None:
    request = conversation(40)
    flat = request["messages"]

    class Unread(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            if isinstance(at, slice):
                assert (at.start or 0) >= 30, "the settled messages were walked"
            return super().__getitem__(at)

    first = Prefix().next({**request, "messages": flat[:36]}, settled=(flat, 32))
    second = first.next({**request, "messages": Unread(flat)}, settled=(flat, 36))
    assert second.chain() == fresh_chain(request)


def test_a_settled_list_that_is_another_one_is_not_believed() -> None:
    request = conversation(40)
    first = Prefix().next(request, settled=(request["messages"], 38))
    changed = copy.deepcopy(request)
    changed["messages"][3]["content"][0]["text"] = "other"
    assert first.next(changed, settled=(changed["messages"], 38)).chain() == fresh_chain(changed)
    shifted = {**request, "messages": [{"role": "user", "content": "before"}, *request["messages"]]}
    assert first.next(shifted, settled=(request["messages"], 38)).chain() == fresh_chain(shifted)


def test_markers_do_not_count_and_the_order_of_keys_does() -> None:
    request = conversation(4)
    prefix = Prefix().next(request)
    marked = copy.deepcopy(request)
    marked["messages"][3]["content"][0]["cache_control"] = {"type": "ephemeral"}
    marked["tools"][1]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    assert prefix.next(marked).difference(prefix) is None
    turned = copy.deepcopy(request)
    turned["messages"][2]["content"][0] = {"text": "2", "type": "text"}
    assert prefix.next(turned).difference(prefix) == 3 + 2
    assert prefix.next(turned).message_at(2) == (2, 0)


@pytest.mark.parametrize(
    "odd", [{}, {"messages": None}, {"messages": [None, 3, {"role": "user", "content": 7}]}, {"tools": 5}]
)
def test_any_request_has_a_prefix(odd: Request) -> None:
    assert Prefix().next(odd).chain() == fresh_chain(odd)
