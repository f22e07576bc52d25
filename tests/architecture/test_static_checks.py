"""Ruff and pyright report no problems."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 280  # pyright takes half a minute alone on a core
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a checker of this environment in the repository."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # pyright is a program that starts another
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, complaints)


def pyright(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pyright, or skip where its Node runtime can neither be found nor fetched."""
    result = check("pyright", "--pythonpath", sys.executable, *arguments)
    if result.returncode not in (0, 1):
        pytest.skip(f"pyright cannot run here: {(result.stderr or result.stdout).strip()[-300:]}")
    return result


def test_ruff_finds_nothing() -> None:
    result = check("ruff", "check", "--no-cache")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_file_is_formatted() -> None:
    result = check("ruff", "format", "--check", "--no-cache", "--output-format", "concise")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_types_are_right_in_strict_mode() -> None:
    result = pyright()
    assert result.returncode == 0, result.stdout


def test_a_wrong_type_would_be_found(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("count: int = 'three'\n")
    assert pyright(str(wrong)).returncode == 1
