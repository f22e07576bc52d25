"""A record is a frozen, slotted dataclass to whoever looks at it, and costs less to make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.hosts.events import HookEvent
from reverie.memories.rules.types import MemoryKind
from reverie.memories.store.records import MemoryRecord
from reverie.memories.store.store import Scan
from reverie.values import field, fields_of, record, replace


class Place:
    """Where something is."""

    town: str
    number: int = 7
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=lambda: [])

    @property
    def shown(self) -> str:
        return f"{self.town} {self.number}"


def as_library(cls: type[Any]) -> Any:
    """Return the standard library's making of the same class."""
    names = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    names["notes"] = dataclasses.field(default_factory=list)
    make: Callable[[Any], Any] = dataclasses.dataclass(frozen=True, slots=True)
    return make(type(cls.__name__, (), names))


Ours: Any = record(Place)
Theirs: Any = as_library(Place)
Ours.__qualname__ = Theirs.__qualname__ = "Place"
Place = Ours  # by which pickle finds it

ARGUMENTS = st.fixed_dictionaries(
    {"town": st.text(max_size=3)},
    optional={
        "number": st.integers(0, 2),
        "tags": st.tuples(st.text(max_size=1)),
        "notes": st.lists(st.text(max_size=1), max_size=1),
    },
)


def alike(ours: Any, theirs: Any) -> bool:
    return dataclasses.asdict(ours) == dataclasses.asdict(theirs) and repr(ours) == repr(theirs)


@given(first=ARGUMENTS, second=ARGUMENTS, changes=ARGUMENTS)
def test_a_record_does_what_the_librarys_does(
    first: dict[str, Any], second: dict[str, Any], changes: dict[str, Any]
) -> None:
    ours, theirs = Ours(**first), Theirs(**first)
    assert alike(ours, theirs)
    assert (ours == Ours(**second)) == (theirs == Theirs(**second))
    assert ours != theirs
    assert alike(replace(ours, **changes), dataclasses.replace(theirs, **changes))
    assert alike(dataclasses.replace(ours, **changes), dataclasses.replace(theirs, **changes))
    assert pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours) == copy.copy(ours) == ours
    assert msgspec.to_builtins(ours) == msgspec.to_builtins(theirs)
    assert msgspec.convert(msgspec.to_builtins(ours), Ours) == ours


def test_what_is_known_of_its_class() -> None:
    assert [one.name for one in dataclasses.fields(Ours)] == [one.name for one in dataclasses.fields(Theirs)]
    assert [one.default for one in dataclasses.fields(Ours)] == [one.default for one in dataclasses.fields(Theirs)]
    assert dataclasses.is_dataclass(Ours)
    assert fields_of(Ours) == fields_of(Ours("Lyon")) == Theirs.__match_args__
    mine, other = inspect.signature(Ours), inspect.signature(Theirs)
    assert list(mine.parameters) == list(other.parameters)
    assert mine.return_annotation is other.return_annotation is None
    assert Ours("Lyon").shown == "Lyon 7"
    match Ours("Lyon", 3):
        case Ours(town, number):
            assert (town, number) == ("Lyon", 3)


def test_it_is_frozen_and_has_no_room_for_more() -> None:
    place = Ours("Lyon")
    with pytest.raises(dataclasses.FrozenInstanceError, match="replace"):
        place.town = "Nantes"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del place.town
    with pytest.raises(AttributeError):
        place.street = "Rue"
    with pytest.raises(TypeError, match=r"Place\.__init__\(\) missing 1 required"):
        Ours()
    with pytest.raises(TypeError):
        hash(place)  # it holds a list
    assert Ours("Lyon").notes is not Ours("Lyon").notes


def test_a_default_that_all_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @record
        class Shared:
            names: list[str] = []  # noqa: RUF012

    with pytest.raises(TypeError):
        field()


def test_a_class_that_says_when_two_are_equal_keeps_its_word() -> None:
    @record
    class Name:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text.lower() == other.text.lower()

    assert Name("A") == Name("a")


def test_what_a_record_cannot_do_is_refused() -> None:
    @record
    class Base:
        unset: int
        set_unset: list[str] = field(default_factory=lambda: [])

    assert Base(1) == Base(1, [])
    assert "<factory>" in str(inspect.signature(Base))

    class Sub(Base):
        pass

    assert dataclasses.asdict(Sub(1)) == dataclasses.asdict(Base(1)) == {"unset": 1, "set_unset": []}
    for body in (
        {"__annotations__": {"more": "int"}, "__post_init__": lambda _: None},
        {"__annotations__": {"more": "int"}, "__init__": lambda _: None},
        {"__annotations__": {"more": "ClassVar[int]"}},
    ):
        with pytest.raises(TypeError, match="dataclass"):
            record(type("Odd", (), body))
    with pytest.raises(TypeError, match="has no Base"):
        record(type("Odd", (Base,), {"__annotations__": {"more": "int"}}))


def test_types_of_records_on_a_hooks_way_are_known_at_run_time() -> None:
    given = {"file": "a.md", "name": "a", "trust": "user", "scope": "team"}
    assert msgspec.convert(given, MemoryRecord) == MemoryRecord("a.md", "a", trust="user", scope="team")
    for kind in (MemoryRecord, MemoryKind, HookEvent, Scan):
        assert get_type_hints(kind).keys() == set(fields_of(kind))


def test_making_records_loads_nothing_of_the_library() -> None:
    code = (
        "import sys; from reverie.values import record\n"
        "@record\nclass A:\n    a: int = 1\n"
        "print(A(), *sorted({'dataclasses', 'inspect', 'typing'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "A(a=1)"
