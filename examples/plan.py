"""An agent that plans first: the program reads the plan and approves it. Name a model to ask a real one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from reverie import Agent, Settings
from reverie.events import PermissionDecided
from reverie.models import ScriptedModel

WRITE = {"type": "tool_use", "name": "Write", "input": {"file_path": "count.py", "content": "print(3)\n"}}
PLAN = {"type": "tool_use", "name": "Plan", "input": {"action": "write", "text": "- [ ] Write count.py"}}
DONE = {"type": "tool_use", "name": "Plan", "input": {"action": "done"}}
SCRIPT = [[WRITE], [PLAN], "The plan waits for you.", [WRITE], [DONE], "Done."]


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(SCRIPT)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder, "home"))
        async with Agent(model=model, cwd=folder, settings=settings, mode="plan") as agent:
            async for event in agent.ask("Plan a program that prints the number 3."):
                if isinstance(event, PermissionDecided) and not event.allowed:
                    print(f"[{event.tool} refused: {event.reason}]")
            if agent.plan is not None:
                print(f"{agent.plan.text}\n[{agent.plan.state}]")
                await agent.approve_plan("accept-edits")
                async for _ in agent.ask("Carry out the plan."):
                    pass
                print(f"[{agent.plan.state}; count.py exists: {Path(folder, 'count.py').exists()}]")


anyio.run(main)
