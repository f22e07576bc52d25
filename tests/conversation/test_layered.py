"""The layered mapping is a dict that never changes and never copies all of itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.layered_map import LayeredMap

Changes = dict[str, "int | None"]
Change = Callable[["LayeredMap[int]", Changes], "LayeredMap[int]"]
changes = st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.none() | st.integers(), max_size=4), max_size=30)


def changed(layered: LayeredMap[int], change: Changes) -> LayeredMap[int]:
    return layered.changed(change)


def check_like_a_dict(change: Change, steps: list[Changes]) -> None:
    layered, plain = LayeredMap[int](), dict[str, int]()
    past: list[tuple[LayeredMap[int], dict[str, int]]] = []
    for step in steps:
        past.append((layered, dict(plain)))
        layered = change(layered, step)
        plain.update({key: value for key, value in step.items() if value is not None})
        for key in [key for key, value in step.items() if value is None]:
            plain.pop(key, None)
        past.append((layered, dict(plain)))
    for one, expected in past:
        assert dict(one) == expected
        assert bool(one) == bool(expected)
        assert len(one) == len(expected)
        assert all((key in one) == (key in expected) for key in "abcdefghij")
        assert all(one.get(key, 7) == expected.get(key, 7) for key in "abcdefghij")


@pytest.mark.requirement("K5", "K12")
@given(changes)
def test_it_holds_what_a_dict_would_and_older_ones_keep_what_they_had(steps: list[Changes]) -> None:
    check_like_a_dict(changed, steps)


@pytest.mark.requirement("K12")
def test_the_check_catches_a_mapping_that_changes_in_place() -> None:
    def in_place(layered: LayeredMap[int], change: Changes) -> LayeredMap[int]:
        if not layered._layers:
            return layered.changed(change)
        layered._layers[0].update(change)
        return layered

    with pytest.raises(AssertionError):
        check_like_a_dict(in_place, [{"a": 1}, {"b": 2}])


@pytest.mark.requirement("K5")
def test_a_thousand_changes_copy_a_few_entries_each() -> None:
    layered, copied = LayeredMap[int](), 0
    for at in range(1_000):
        before = {id(layer) for layer in layered._layers}
        layered = layered.changed({f"key {at}": at})
        copied += sum(len(layer) for layer in layered._layers if id(layer) not in before)
        assert len(layered._layers) <= 6
    assert copied <= 1_000 * 15
    assert layered["key 3"] == 3
    with pytest.raises(KeyError):
        layered["key 1000"]
