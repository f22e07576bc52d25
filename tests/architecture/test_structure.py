"""The tree stays readable: small folders with a README, no import cycle, nothing unreachable, simple functions."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"

MAX_FILES = 25
DOORS = ("reverie", "reverie.cli", "reverie.integrations", "reverie.testing", "reverie.telemetry")
STARTED_BY_PATH = {
    "reverie.__main__": "a person starts it with python -m reverie",
    "reverie.runtime.dream.process": "dream.control starts it with python -m",
    "reverie.tools.files.search_program": "Grep starts it as a child process",
    "reverie.tools.shell.confine": "the sandbox starts it by path",
    "reverie.tools.shell.hide_files": "the sandbox starts it by path",
    "reverie.tools.shell.git_program": "tools/git.py and the sandbox start it by path",
    "reverie.tools.shell.supervise": "shells start it by path",
}
# Functions that ruff finds more complex than 10, each with a noqa of its own. This list only shrinks.
MAX_COMPLEX_FUNCTIONS = 3

MAX_PARAMETERS = 8
# Constructors that users write with keywords; every other one with many parameters takes a record.
LONG_CONSTRUCTORS = {"Agent", "MessagesServer"}

Graph = Mapping[str, frozenset[str]]


@cache
def imports() -> Graph:
    """Return which module imports which, imports for type checkers included."""
    graph = grimp.build_graph("reverie", exclude_type_checking_imports=False, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def cycles(graph: Graph) -> list[list[str]]:
    """Return every group of modules that import each other, by Tarjan's algorithm without recursion."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in sorted(graph):
        work = [(root, iter(sorted(graph[root])))] if root not in order else []
        while work:
            module, rest = work[-1]
            if module not in order:
                order[module] = lowest[module] = len(order)
                stack.append(module)
            for target in rest:
                if target not in graph:
                    continue
                if target not in order:
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    lowest[module] = min(lowest[module], order[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    group = stack[stack.index(module) :]
                    del stack[stack.index(module) :]
                    found += [sorted(group)] if len(group) > 1 else []
    return found


def unreachable(graph: Graph, doors: Iterable[str]) -> set[str]:
    """Return the modules that cannot be reached by imports from the doors."""
    reached: set[str] = set()
    waiting = [module for module in doors if module in graph]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        parent = module.rpartition(".")[0]
        waiting += [*graph[module], *([parent] if parent in graph else [])]
    return set(graph) - reached


def doors_of(graph: Graph) -> list[str]:
    """Return the front door, every command, integration and listener, and the programs started by path."""
    packages = tuple(f"{door}." for door in DOORS[1:])
    return [*DOORS, *STARTED_BY_PATH, *(module for module in graph if module.startswith(packages))]


def folders() -> list[Path]:
    return sorted({module.parent for module in SOURCE.rglob("*.py")})


def test_no_folder_has_too_many_files() -> None:
    counts = {str(folder.relative_to(SOURCE)): len(list(folder.glob("*.py"))) for folder in folders()}
    assert {name: count for name, count in counts.items() if count > MAX_FILES} == {}


def test_every_folder_has_a_readme_that_names_its_modules() -> None:
    missing = [str(folder.relative_to(SOURCE)) for folder in folders() if not (folder / "README.md").is_file()]
    assert missing == []
    silent: dict[str, list[str]] = {}
    for folder in folders():
        text = (folder / "README.md").read_text()
        names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
        unnamed = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
        if unnamed:
            silent[str(folder.relative_to(SOURCE))] = unnamed
    assert silent == {}


def test_no_modules_import_each_other() -> None:
    assert cycles(imports()) == []


def test_every_module_is_reachable_from_a_door() -> None:
    assert unreachable(imports(), doors_of(imports())) == set()


def test_every_program_started_by_path_exists() -> None:
    assert STARTED_BY_PATH.keys() <= imports().keys()


def test_layers_are_imported_through_their_doors() -> None:
    past: list[str] = []
    for module, targets in imports().items():
        for target in targets:
            layer = re.match(r"(reverie\.layers\.l\d\w+)\.\w+", target)
            if layer is not None and not module.startswith(layer.group(1)):
                past.append(f"{module} -> {target}")
    assert past == []


def names_of_doors() -> list[tuple[str, str, str]]:
    """Return layer, module and name of each import in the doors of the layers."""
    return [
        (folder.name, node.module or "", alias.name)
        for folder in (SOURCE / "layers").glob("l*_*")
        for node in ast.walk(ast.parse((folder / "__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    ]


def test_no_door_of_a_layer_exports_a_name_of_one_of_its_modules() -> None:
    names = names_of_doors()
    assert len(names) > 100
    assert [one for one in names if (SOURCE / "layers" / one[0] / f"{one[2]}.py").exists()] == []


def test_the_door_of_a_layer_has_the_names_that_type_checkers_see() -> None:
    for layer, module, name in names_of_doors():
        door = importlib.import_module(f"reverie.layers.{layer}")
        assert getattr(door, name) is getattr(importlib.import_module(f"{door.__name__}.{module}"), name)


def test_the_list_of_complex_functions_only_shrinks() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text().splitlines()
        if "C901" in line
    ]
    assert len(found) <= MAX_COMPLEX_FUNCTIONS, "\n".join(found)


def long_constructors(source: str) -> set[str]:
    """Return the classes whose constructor has too many parameters."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)) if "__init__" in source else ():
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                arguments = part.args
                count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
                found |= {node.name} if isinstance(node, ast.ClassDef) and count > MAX_PARAMETERS else set()
    return found


def test_constructors_with_many_parameters_take_a_record() -> None:
    found = {name for path in SOURCE.rglob("*.py") for name in long_constructors(path.read_text())}
    assert found == LONG_CONSTRUCTORS


def test_a_long_constructor_is_found() -> None:
    assert long_constructors("class A:\n    def __init__(self, a, b, c, d, e, f, g, h, *, i): ...") == {"A"}
    assert long_constructors("class A:\n    def __init__(self, a, b, c, d, e, f, g, h): ...") == set()


def test_a_cycle_is_found() -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    assert cycles(graph) == [["a", "b", "c"]]
    assert cycles({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset[str]()}) == []


@pytest.mark.parametrize(("doors", "lost"), [(["a"], {"d"}), (["d"], set[str]()), (["b"], {"a", "d"})])
def test_an_unreachable_module_is_found(doors: list[str], lost: set[str]) -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset[str](), "d": frozenset({"a"})}
    assert unreachable(graph, doors) == lost
