"""Every package imports only from the floors below it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def lint_imports(repository: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the contracts and the sources of a repository."""
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the house that a test may spoil."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "src" / "reverie", tmp_path / "src" / "reverie", ignore=ignore)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_every_module_stands_on_its_floor_and_looks_only_down() -> None:
    result = lint_imports(REPOSITORY)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_module_without_a_floor_is_caught(copy: Path) -> None:
    (copy / "src/reverie/attic.py").write_text("")
    result = lint_imports(copy)
    assert result.returncode == 1
    assert "reverie.attic" in result.stdout


def test_a_look_upwards_is_caught(copy: Path) -> None:
    (copy / "src/reverie/conversation/peek.py").write_text("from ..settings import Settings\n")
    result = lint_imports(copy)
    assert result.returncode == 1
    assert "reverie.conversation.peek -> reverie.settings" in result.stdout


def test_a_vendor_in_the_conversation_is_caught(copy: Path) -> None:
    (copy / "src/reverie/conversation/peek.py").write_text("import anyio\n")
    result = lint_imports(copy)
    assert result.returncode == 1
    assert "reverie.conversation.peek -> anyio" in result.stdout
