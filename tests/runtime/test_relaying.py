"""Messages that an agent receives from others, and addresses beyond this machine."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from reverie import Agent, Mailbox
from reverie.layers.l7_relay.messages import Letter
from reverie.models.scripted_model import ScriptedModel


class Pigeons:
    """A bridge that writes down what it was given."""

    def __init__(self) -> None:
        self.carried: list[tuple[str, str]] = []

    async def carry(self, id: str, letter: Letter) -> str:
        """Take a letter along."""
        self.carried.append((id, letter.text))
        return f"a pigeon took it to {id}"


@pytest.mark.requirement("L7.5", "L7.7")
def test_a_bridge_carries_and_control_messages_are_told(tmp_path: Path) -> None:
    pigeons, heard = Pigeons(), list[Letter]()

    async def act() -> None:
        async with Agent(
            model=ScriptedModel(["Done."]), cwd=tmp_path, session="worker", bridge=pigeons, on_control=heard.append
        ) as agent:
            assert agent.parts.context.post is not None
            said = await agent.parts.context.post.send("bridge:far", "hello", summary="a greeting")
            assert "far" in said
            with Mailbox(os.environ["REVERIE_HOME"], agent.settings.relay.team, "planner") as planner:
                control = {"type": "shutdown_request", "request_id": "r1", "reason": "enough"}
                planner.send("worker", "", control=control)
                async for _ in agent.ask("Go on."):
                    pass

    anyio.run(act)
    assert pigeons.carried == [("far", "hello")]
    assert [letter.sender for letter in heard] == ["planner"]
