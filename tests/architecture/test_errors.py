"""The tree in the docstring of ``reverie.errors`` is the tree of classes."""

from __future__ import annotations

import re

from reverie import errors


def drawn_tree(text: str) -> dict[str, str | None]:
    """Read a tree of names drawn with box characters as child -> parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in text.splitlines():
        found = re.match(r"^((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)\b", line)
        if found is None:
            continue
        depth = len(found.group(1)) // 4
        del path[depth:]
        parents[found.group(2)] = path[-1] if path else None
        path.append(found.group(2))
    return parents


def class_tree() -> dict[str, str | None]:
    """Return every exception class of the module as child -> parent."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    return {kind.__name__: base.__name__ if (base := kind.__base__) in classes and base else None for kind in classes}


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert errors.__doc__
    tree = drawn_tree(errors.__doc__.partition("\n\n")[2])
    assert tree == class_tree()
    assert [name for name, parent in tree.items() if parent is None] == ["ReverieError"]


def test_every_error_is_exported_in_order() -> None:
    assert list(errors.__all__) == sorted(class_tree())


def test_every_error_of_the_package_is_in_the_module() -> None:
    assert {kind.__module__ for kind in map(errors.__dict__.get, errors.__all__) if isinstance(kind, type)} == {
        "reverie.errors"
    }


def test_a_tree_with_a_missing_branch_is_told_apart() -> None:
    drawing = "ReverieError\n├── InputError   text\n│   └── Deeper   text\n└── SettingsError   text\n"
    assert drawn_tree(drawing) == {
        "ReverieError": None,
        "InputError": "ReverieError",
        "Deeper": "InputError",
        "SettingsError": "ReverieError",
    }
