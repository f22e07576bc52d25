"""A process that asks an agent one prompt after another until it is killed.

Run as ``python -E agent_child.py URL FOLDER``: the provider's address, and a folder with ``project`` and ``home``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from reverie import Agent, Settings
from reverie.models.anthropic import AnthropicModel
from reverie.settings import Switches

MODEL = "claude-opus-5-5"
WINDOW_TOKENS = 32_768


def agent_of(url: str, folder: Path) -> Agent:
    """Return an agent on the session ``run`` of this folder."""
    settings = Settings(folder / "home", switches=Switches(dream=False), window_tokens=WINDOW_TOKENS)
    model = AnthropicModel(MODEL, base_url=url, api_key="any")
    return Agent(model=model, cwd=folder / "project", session="run", settings=settings, mode="bypass")


async def ask_until_killed(url: str, folder: Path) -> None:
    """Ask prompts for ever."""
    number = 0
    async with agent_of(url, folder) as agent:
        while True:
            number += 1
            async for _ in agent.ask(f"Prompt {number}. " * 20):
                pass


if __name__ == "__main__":
    anyio.run(ask_until_killed, sys.argv[1], Path(sys.argv[2]))
