"""``reverie stats --by`` prints the cost of calls, grouped as requested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reverie.cache.ledger import LedgerCall
from reverie.cache.usage import Usage
from reverie.cli.main import run
from reverie.runtime.places.projects import project_slug
from reverie.runtime.session.ledger import FILE_NAME, LedgerStore

NOON = 1_763_208_000.0  # 2025-11-15 12:00 UTC
WARM = Usage(read=90_000, write_5m=10_000, output=500)
TABLE = ("stats", "--days", "36500", "--by")
COLD = Usage(write_5m=100_000, output=500)


def filled(home: Path, project: str = "app-1") -> None:
    with LedgerStore(home) as store:
        for number, (session, usage, broke) in enumerate(
            [("alpha", WARM, ""), ("alpha", COLD, "tools[3].description changed"), ("beta", WARM, "")]
        ):
            usd, at = (2.0 if broke else 0.5), NOON + number * 86_400
            source = "main" if number < 2 else "session_memory"
            layer = "request" if number < 2 else "notes"
            store.enter(
                LedgerCall(session, project, at, "m", source, layer, "turn", usage, WARM, usd, 0.5, broke, f"c{number}")
            )


@pytest.mark.requirement("C6", "B7")
@pytest.mark.parametrize(
    ("axis", "keys"),
    [
        ("session", ["alpha", "beta"]),
        ("day", ["2025-11-15", "2025-11-16", "2025-11-17"]),
        ("project", ["app-1"]),
        ("layer", ["request", "notes"]),
    ],
)
def test_calls_are_summed_by_what_was_asked(
    home: Path, capsys: pytest.CaptureFixture[str], axis: str, keys: list[str]
) -> None:
    filled(home)
    assert run([*TABLE, axis, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row[axis] for row in report["rows"]] == keys
    total = report["total"]
    assert (total["calls"], total["breaks"], total["usd"], total["lost_usd"]) == (3, 1, 3.0, 1.5)
    assert total["hit_rate"] == pytest.approx(180_000 / 300_000)
    assert total["expected_hit_rate"] == pytest.approx(0.9)
    assert total["lost_by_reason"] == {"tools[3].description changed": 1.5}
    assert total["actual"]["read"] == 180_000


def test_a_person_sees_a_table_with_the_sum_and_what_was_lost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(home)
    assert run(["ledger"]) == 0
    shown, hint = capsys.readouterr()
    assert "is now 'reverie stats --by session" in hint
    assert "alpha" in shown
    assert "60.0%" in shown
    assert "tools[3].description changed" in shown
    assert "$1.50 of it was lost to 1 cache break; otherwise it would have been $1.50." in shown
    assert shown.splitlines()[3].split()[0] == "all"


def test_only_what_was_asked_for_is_counted(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(home, project_slug(tmp_path))
    assert run([*TABLE, "day", "--project", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["calls"] == 3
    (tmp_path / "other").mkdir()
    assert run([*TABLE, "day", "--project", str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []


def test_an_empty_ledger_says_so_and_stays_unmade(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TABLE, "day"]) == 0
    assert "No model calls" in capsys.readouterr().out
    assert not (home / FILE_NAME).exists()


@pytest.mark.parametrize("arguments", [["--by", "moon"], ["--project", "/nowhere/at/all"]])
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_ledger_is_one_clear_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / FILE_NAME).write_bytes(b"garbage" * 500)
    assert run([*TABLE, "day"]) == 0
    assert "rebuilt from the logs" in capsys.readouterr().err
