"""The drawn architecture is one text, and every path it names exists."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "reverie"


def missing_paths(text: str, root: Path) -> list[str]:
    """Return the paths in code marks that do not exist below a folder."""
    named = re.findall(r"`([a-z_0-9]+(?:/[a-z_0-9*]+)*(?:/|\.py|\.md)?)`", text)
    paths = [path for path in named if "/" in path or path.endswith(".py")]
    names = {path.name for path in root.rglob("*.py")}
    return [path for path in paths if not any(root.glob(path.rstrip("/"))) and path not in names]


def test_the_page_of_the_documentation_is_the_readme_of_the_source() -> None:
    assert (REPOSITORY / "docs/architecture.md").read_text() == (SOURCE / "README.md").read_text()


def test_every_path_in_the_drawing_exists() -> None:
    text = (SOURCE / "README.md").read_text()
    assert "`runtime/session/prepare.py`" in text
    assert missing_paths(text, SOURCE) == []


def test_the_floors_in_the_drawing_are_those_of_the_contract() -> None:
    text = (SOURCE / "README.md").read_text()
    drawn = text[text.index("## The floors") : text.index("## Where to change")]
    contract = (REPOSITORY / "pyproject.toml").read_text()
    floors = contract[contract.index("layers = [") : contract.index("]", contract.index("layers = ["))]
    for name in re.findall(r"[a-z_]+", floors.removeprefix("layers")):
        assert re.search(rf"\b{name}\b", drawn), name


def test_a_path_that_does_not_exist_is_found() -> None:
    assert missing_paths("`runtime/attic.py` and `cli/main.py`", SOURCE) == ["runtime/attic.py"]
