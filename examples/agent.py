"""An agent of your own in one loop. Without a key it follows a script: name a model to ask a real one.

python examples/agent.py anthropic:claude-sonnet-4-5
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from reverie import Agent, Settings
from reverie.events import QueryEnded, TextStreamed, ToolFinished
from reverie.models import ScriptedModel

SCRIPT = [
    [{"type": "tool_use", "name": "Grep", "input": {"pattern": "def .*total"}}],
    "`cart.py:1` defines `total`.",
]


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(SCRIPT)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cart.py").write_text("def total(items):\n    return sum(items)\n")
        agent = Agent(model=model, cwd=folder, settings=Settings(home=Path(folder, "home")))
        async for event in agent.ask("Where is the total computed?"):
            if isinstance(event, TextStreamed):
                print(event.text, end="", flush=True)
            elif isinstance(event, ToolFinished):
                print(f"[{event.name}: {event.text.splitlines()[0]}]")
            elif isinstance(event, QueryEnded):
                print(f"\n[{event.end} after {event.turns} turns]")


anyio.run(main)
