"""``--dry-run`` prints the effect of a command and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.runtime.mail.mailbox import Mailbox

from .conftest import SAMPLE, Reverie

Prepare = Callable[[Path, Reverie], None]


def state_of(home: Path) -> dict[str, bytes]:
    # Lock files come and go; they are no content.
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and "lock" not in path.name}


def a_letter(home: Path, reverie: Reverie) -> None:
    Mailbox(home, "default", "worker").close()
    assert reverie("send", "worker", "the build is red")[0] == 0


def a_trusted_directory(home: Path, reverie: Reverie) -> None:
    assert reverie("trust", ".", "--yes")[0] == 0


def a_session(home: Path, reverie: Reverie) -> None:
    assert reverie("import", SAMPLE)[0] == 0


@pytest.mark.parametrize(
    ("prepare", "command", "says"),
    [
        (a_letter, ["send", "worker", "hello"], "would send 5 characters to worker"),
        (a_letter, ["inbox", "worker", "--take"], "would mark 1 message as read"),
        (a_session, ["trust", ".", "--yes"], "would be trusted"),
        (a_trusted_directory, ["trust", ".", "--remove"], "would no longer be trusted"),
        (a_session, ["notes", "", "--update"], "# Current State"),
    ],
)
def test_a_dry_run_says_the_effect_and_changes_nothing(
    reverie: Reverie,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Prepare,
    command: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(home, reverie)
    session = next((path.stem for path in home.glob("projects/*/*.jsonl")), "")
    command = [word or session for word in command]
    before = state_of(home)
    code, out, err = reverie(*command, "--dry-run")
    assert (code, err) == (0, "")
    assert says in out
    assert state_of(home) == before
    assert reverie(*command)[0] == 0
    assert state_of(home) != before, "without it, the command does change something"


@pytest.mark.parametrize("command", [["send", "nobody", "hello"], ["send", "worker", "x" * 200_000]])
def test_a_dry_run_refuses_as_the_command_would(reverie: Reverie, home: Path, command: list[str]) -> None:
    a_letter(home, reverie)
    assert reverie(*command, "--dry-run")[0] == reverie(*command)[0] == 2
