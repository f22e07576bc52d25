"""``reverie rules``: show, add and drop the rules of the user in a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from log_script import Script, text
from reverie import FileStorage, Library
from reverie.cli.terminal.colours import Paint
from reverie.cli.terminal.commands import run_command
from reverie.cli.terminal.transcript import Transcript
from reverie.models import ScriptedModel
from reverie.runtime.agent.agent import Agent
from reverie.settings import Settings, Switches

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


@pytest.mark.requirement("W10")
def test_the_chat_shows_adds_and_drops_rules(home: Path, tmp_path: Path) -> None:
    shown: list[str] = []
    settings = Settings(home, switches=Switches(extraction=False, recall=False, dream=False))
    model = ScriptedModel(["Done.", "Done."])

    async def steps() -> None:
        async with Agent(model=model, cwd=tmp_path, session="s", settings=settings) as agent:
            transcript = Transcript(shown.extend, paint=Paint(colour=False), cwd=tmp_path, size=lambda: (80, 250))
            chat: Any = SimpleNamespace(agent=agent, settings=settings, transcript=transcript)
            _ = [event async for event in agent.ask("Mend the fence")]
            for line in ("/rules", "/rules add No barbed wire.", "/rules", "/rules drop 7", "/rules what"):
                await run_command(chat, line)
            _ = [event async for event in agent.ask("Mend the gate")]
            assert "No barbed wire." in repr(model.requests[-1]["messages"])
            await run_command(chat, "/rules drop 1")
            assert agent.session.parts.rules.rules == []

    anyio.run(steps)
    said = " ".join(" ".join(shown).split())
    for line in ("no rules", "rule 1 holds from now on", "1 No barbed wire.", "no rule '7'", "usage: /rules"):
        assert line in said
    assert "dropped: No barbed wire." in said
