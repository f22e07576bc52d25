"""Every benchmark starts, and every name that it takes from the library exists."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(BENCHMARKS.glob("*.py"))


def missing_names(source: str) -> list[str]:
    """Return the names that a module imports from the library, anywhere in it, and that do not exist.

    Integrations are left out: their own tests import them, and each loads a framework.
    """
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and re.match(r"reverie(?!\.integrations)", node.module or ""):
            names = ", ".join(one.name for one in node.names)
            try:
                exec(f"from {node.module} import {names}", {})
            except ImportError as error:
                found.append(str(error))
    return found


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the benchmarks importable, and forget those that were imported, so that no other test gets one of them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.usefixtures("importable")
def test_every_benchmark_prints_its_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for script in SCRIPTS:
        monkeypatch.setattr(sys, "argv", [str(script), "--help"])
        if "__main__" not in script.read_text(encoding="utf-8"):
            runpy.run_path(str(script))  # a part of other benchmarks
            continue
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert ended.value.code == 0, script.name
        assert "usage:" in capsys.readouterr().out, script.name


@pytest.mark.usefixtures("importable")
def test_the_benchmark_of_turns_creates_the_directory_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, file = tmp_path / "a" / "b", tmp_path / "file"
    file.touch()
    for given, code in ((missing, 0), (missing, 0), (file, 2)):
        monkeypatch.setattr(sys, "argv", ["turn.py", "--files", str(given), "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(BENCHMARKS / "turn.py"), run_name="__main__")
        assert ended.value.code == code
    assert missing.is_dir()
    assert f"cannot create {file}: File exists" in capsys.readouterr().err


@pytest.mark.parametrize("script", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.name)
def test_every_name_that_a_benchmark_imports_exists(script: Path) -> None:
    assert missing_names(script.read_text(encoding="utf-8")) == []


def test_known_bad_a_name_that_was_renamed_is_found() -> None:
    assert missing_names("def late():\n    from reverie.replay.needs import Needs\n") != []


@pytest.mark.usefixtures("importable")
def test_a_peer_that_sends_everything_pays_as_much_as_append_only() -> None:
    bill = importlib.import_module("peers.bill")
    recording = bill.recorded(1, 20_000)
    conversation = bill.told(recording, 200_000)
    requests = [{"sent": [[0, turn]]} for turn in conversation["turns"]]
    theirs = bill.bill_of_peer(recording, {"requests": requests, "made": [], "asked": []}, conversation)
    ours = bill.bills_of_ours(recording)
    assert theirs == pytest.approx(ours["append-only"])
    half = len(conversation["items"]) // 2
    cut = [{"sent": [[-1, 0], [half, turn]] if turn > half else [[0, turn]]} for turn in conversation["turns"]]
    made = [{"role": "user", "blocks": [{"type": "text", "text": "A summary."}]}]
    asked = [{"prompt": "Sum up. " * 1_000}]
    compacted = bill.bill_of_peer(recording, {"requests": cut, "made": made, "asked": asked}, conversation)
    assert compacted["mean_window"] < theirs["mean_window"]
    assert compacted["summaries"] == 1
    assert compacted["summary_usd"] > 0
