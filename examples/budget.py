"""Limit the cost and the turns of an agent. Its model follows a script that never ends: name a model to ask a real one.

python examples/budget.py anthropic:claude-haiku-4-5
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from reverie import Agent, Settings
from reverie.events import QueryEnded
from reverie.models import ScriptedModel


async def main() -> None:
    endless = ScriptedModel(
        lambda request: [{"type": "tool_use", "name": "Glob", "input": {"pattern": "*.py"}}],
        name="anthropic:claude-haiku-4-5",
    )
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(
            model=sys.argv[1] if len(sys.argv) > 1 else endless,
            cwd=folder,
            settings=Settings(home=Path(folder, "home")),
            budget_usd=0.02,
            max_turns=50,
        )
        async for event in agent.ask("Look at the files until you find the bug."):
            if isinstance(event, QueryEnded):
                print(f"ended by {event.end}")


anyio.run(main)
