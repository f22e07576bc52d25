"""``reverie rules``: show, add and drop the rules of the user in a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from log_script import Script, text
from reverie import FileStorage, Library

from .conftest import Asked, Reverie

KEY = "projects/farm-1/fence-7.jsonl"


@pytest.fixture(autouse=True)
def session(home: Path) -> None:
    script = Script()
    script.user("Mend the fence.")
    script.reply(text("It is mended."))
    storage = FileStorage(home)
    Library(storage).store(KEY, script.entries)
    storage.close()


@pytest.mark.requirement("W10")
def test_a_rule_is_added_shown_and_dropped(reverie: Reverie, asked: Asked) -> None:
    assert "no rules" in reverie("rules", "fence-7")[1]
    added = asked("rules", "fence-7", "--add", "No barbed wire.")
    assert added["added"] == {"id": "1", "text": "No barbed wire.", "message": ""}
    assert asked("rules", "fence-7")["rules"] == [added["added"]]
    assert reverie("rules", "fence-7")[1] == "  1  No barbed wire.\n"
    assert reverie("rules", "fence-7", "--drop", "1")[1] == "dropped: No barbed wire.\n"
    assert asked("rules", "fence-7")["rules"] == []


@pytest.mark.requirement("W10")
def test_a_dry_run_changes_nothing(reverie: Reverie, asked: Asked) -> None:
    assert reverie("rules", "fence-7", "--add", "No gates.", "--dry-run")[1] == "would be added: No gates.\n"
    assert asked("rules", "fence-7")["rules"] == []
    asked("rules", "fence-7", "--add", "No gates.")
    assert asked("rules", "fence-7", "--drop", "1", "--dry-run")["applied"] is False
    assert [rule["text"] for rule in asked("rules", "fence-7")["rules"]] == ["No gates."]


def test_an_unknown_rule_and_two_changes_at_once_are_errors(reverie: Reverie) -> None:
    code, _, err = reverie("rules", "fence-7", "--drop", "4")
    assert (code, "there is no rule '4'" in err) == (2, True)
    code, _, err = reverie("rules", "fence-7", "--drop", "4", "--add", "x")
    assert (code, "exclude each other" in err) == (2, True)
