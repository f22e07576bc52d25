"""Check each call of an agent before it runs, and tell the model the reason. The model follows a script."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio

from reverie import Agent, Settings
from reverie.events import PermissionDecided, TextStreamed
from reverie.models import ScriptedModel

SCRIPT = [
    [{"type": "tool_use", "name": "Bash", "input": {"command": "deploy --to production"}}],
    "You deploy on other days, so I did not.",
]


async def no_deployment(event: dict[str, Any]) -> dict[str, str] | None:
    if event["tool_name"] == "Bash" and "deploy" in event["tool_input"]["command"]:
        return {"decision": "block", "reason": "no deployment on a Friday"}
    return None


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder, "home"))
        hooks = {"before_tool": [no_deployment]}
        agent = Agent(model=ScriptedModel(SCRIPT), cwd=folder, settings=settings, hooks=hooks)
        async for event in agent.ask("Deploy, please."):
            if isinstance(event, PermissionDecided):
                print(f"{event.tool}: {'allowed' if event.allowed else 'denied'} by {event.by}: {event.reason}")
            elif isinstance(event, TextStreamed):
                print(event.text, end="")
        print()


anyio.run(main)
