"""Modules stay small and well named, and the inner packages stay pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.conversation.decisions import DECISIONS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"

MAX_LINES = 500
# Words that end like a participle and are nouns of the field.
NOUNS = {
    "Accounting",
    "Feed",
    "Finding",
    "Recording",
    "_Heading",
    "accounting",
    "counting",
    "learning",
    "recording",
    "thinking",
}
VAGUE_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}

INNER_HOUSE = ("conversation", "cache", "layers", "memories", "text")
# The inner modules that may read files: prompt files of four layers, and the memory store with its journal.
MAY_TOUCH_FILES = {
    "layers/l3_notes/prompts.py",
    "layers/l4_compact/summary.py",
    "layers/l5_extract/prompts.py",
    "layers/l6_dream/prompts.py",
    "memories/rules/secret_values.py",
    "memories/store/file_stamps.py",
    "memories/store/head_files.py",
    "memories/store/journal_files.py",
    "memories/store/side_files.py",
    "memories/store/store.py",
}
# Clock, network, file system, processes, chance: whatever makes the same input give another output.
IMPURE_MODULES = {
    "anthropic",
    "anyio",
    "asyncio",
    "fcntl",
    "filelock",
    "glob",
    "http",
    "httpx",
    "httpx2",
    "importlib",
    "io",
    "mcp",
    "multiprocessing",
    "openai",
    "os",
    "pathlib",
    "platformdirs",
    "psycopg",
    "random",
    "requests",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "xllamacpp",
}
IMPURE_BUILTINS = {"input", "open", "print"}
IMPURE_METHODS = {"now", "today", "utcnow"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def inner_modules() -> list[Path]:
    return [
        module
        for module in modules()
        if module.relative_to(SOURCE).parts[0] in INNER_HOUSE
        and module.relative_to(SOURCE).as_posix() not in MAY_TOUCH_FILES
    ]


def impurities(source: str) -> Iterator[str]:
    """Yield what in a module's source reaches for the world."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names if alias.name.split(".")[0] in IMPURE_MODULES]
            case ast.ImportFrom(module=str(name), level=0):
                found = [name] if name.split(".")[0] in IMPURE_MODULES else []
            case ast.Call(func=ast.Name(id=name)):
                found = [f"{name}()"] if name in IMPURE_BUILTINS else []
            case ast.Call(func=ast.Attribute(attr=name)):
                found = [f".{name}()"] if name in IMPURE_METHODS else []
            case _:
                continue
        yield from (f"line {node.lineno}: {what}" for what in found)


def other_rooms(module: Path, source: str) -> list[str]:
    """Return the rooms other than its own that a module under layers/ imports."""
    own = module.relative_to(SOURCE).parts[1]
    inside = module.relative_to(SOURCE).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            base = ["reverie", *inside[: len(inside) + 1 - node.level]] if node.level else []
            start = [*base, *(node.module or "").split(".")]
            names = [[*filter(None, start), alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        found |= {name[2] for name in names if name[:2] == ["reverie", "layers"] and len(name) > 2}
    return sorted(room for room in found - {own} if room[:1] == "l" and room[1:2].isdigit())


def test_no_module_is_longer_than_one_can_hold_in_mind() -> None:
    lengths = {str(module.relative_to(SOURCE)): len(module.read_text().splitlines()) for module in modules()}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def participles(source: str, stem: str) -> list[str]:
    """Return a module's name and the names of its classes that are only a participle or a gerund."""
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    names = [stem, *(name for name in classes if len(re.findall("[A-Z]", name)) == 1)]
    return [name for name in names if re.search("(?:ed|ing)$", name) and "_" not in name.strip("_")]


def test_modules_and_classes_are_named_by_nouns() -> None:
    found = {name for module in modules() for name in participles(module.read_text(), module.stem)}
    assert found - NOUNS - DECISIONS.keys() - {kind.__name__ for kind in DECISIONS.values()} == set()


def test_a_participle_is_found() -> None:
    assert participles("class Asked: ...\nclass Noting: ...\nclass AskedQuestion: ...", "known_ed") == [
        "Asked",
        "Noting",
    ]
    assert participles("", "compacting") == ["compacting"]


def test_no_module_has_a_name_that_says_nothing() -> None:
    parts = {part.removesuffix(".py") for module in modules() for part in module.relative_to(SOURCE).parts}
    assert "conversation" in parts
    assert parts & VAGUE_NAMES == set()


@pytest.mark.slow
def test_the_inner_house_touches_no_clock_no_network_and_no_file() -> None:
    assert inner_modules()
    found = {str(module.relative_to(SOURCE)): list(impurities(module.read_text())) for module in inner_modules()}
    assert {name: what for name, what in found.items() if what} == {}


def test_every_exempted_module_needs_its_exemption() -> None:
    assert {name for name in MAY_TOUCH_FILES if not list(impurities((SOURCE / name).read_text()))} == set()


def test_no_room_opens_onto_another() -> None:
    rooms = [module for module in modules() if module.relative_to(SOURCE).parts[0] == "layers"]
    found = {
        str(module.relative_to(SOURCE)): other_rooms(module, module.read_text())
        for module in rooms
        if len(module.relative_to(SOURCE).parts) > 2
    }
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path",
        "def f():\n    from time import monotonic",
        "from pathlib import Path",
        "import anthropic",
        "from datetime import datetime\nstamp = datetime.now()",
        "text = open('x').read()",
        "print('hello')",
    ],
)
def test_a_reach_for_the_world_is_caught(source: str) -> None:
    assert list(impurities(source))


@pytest.mark.parametrize(
    "source", ["import json", "from datetime import datetime\nd = datetime.fromisoformat('2026-01-01')", "x.open()"]
)
def test_what_is_pure_is_not_mistaken(source: str) -> None:
    assert list(impurities(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from ..l2_trim import plan",
        "from .. import l2_trim",
        "import reverie.layers.l2_trim.plan",
        "from reverie.layers.l2_trim.plan import plan",
    ],
)
def test_a_door_between_rooms_is_caught(source: str) -> None:
    assert other_rooms(SOURCE / "layers" / "l1_offload" / "plan.py", source) == ["l2_trim"]
