"""A home that the inspector can show in every view: sessions, agents, messages, memories that wait, a dream, costs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from coding_session import coding_session
from reverie import Session, Settings, load_settings
from reverie.conversation.decisions import AgentFinished, AgentSpawned, Cause, MessageQueued
from reverie.replay.play import PlayedClock, play_session
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.memory import Memory

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [{"name": "Bash", "input_schema": {"type": "object"}}]
LEAD = "login-flow"
UNTRUSTED = "The staging database is reset every Monday at 06:00"


async def worked(name: str, cwd: Path, *, tokens: int = 60_000, compact_at: int | None = 40_000, seed: int = 7) -> None:
    """Play a coding session into the library, with its own bill and its compactions."""
    clock = PlayedClock()
    async with Session.open(name, cwd=cwd, clock=clock) as session:
        turns = play_session(
            coding_session(seed, tokens, compact_at=compact_at),
            session,
            clock,
            model=MODEL,
            system="You are a careful engineer. " * 300,
            tools=TOOLS,
        )
        async for _ in turns:
            pass


async def turn(session: Session, prompt: str, said: str, *, tokens: int, call: str = "") -> None:
    """Say something in an open session and answer it; ``call`` leaves a tool call without a result."""
    await session.say(prompt)
    await session.prepare(model=MODEL, max_tokens=1_000, system="You are a careful engineer.", tools=TOOLS)
    content: list[dict[str, Any]] = [{"type": "text", "text": said}]
    if call:
        content.append({"type": "tool_use", "id": f"t-{session.name}", "name": "Bash", "input": {"command": call}})
    usage = {"input_tokens": 2_400, "cache_read_input_tokens": tokens, "output_tokens": 180}
    reply = {"role": "assistant", "content": content, "id": f"m-{session.name}-{session.view.length}", "model": MODEL}
    await session.observe({**reply, "usage": usage})
    await session.log.sync()


async def team(lead: Session) -> None:
    """Record agents that the lead session started: one that runs, one that has ended and one below it."""
    for name, parent, task in (
        ("scout-1", "", "Find every caller of the old token check"),
        ("tester-1", "", "Run the login tests and report what fails"),
        ("tester-1-a", "tester-1", "Read the log of the failing test"),
    ):
        depth = 2 if parent else 1
        options = {"kind": "explore", "description": task, "parent": parent, "depth": depth}
        await lead.log.decide(AgentSpawned(Cause("relay", "the lead asked for it"), name, task, options))
        async with Session.open(name, folder=f"agents/{name}") as agent:
            await turn(agent, task, f"I begin: {task.lower()}.", tokens=18_000)
            if name == "tester-1":
                text = "Three callers are left, all in src/legacy."
                await agent.log.decide(MessageQueued(Cause("relay", "message"), "m1", text, "scout-1"))
    usage = {"turns": 6, "tokens": 41_200, "cost_usd": 0.0834}
    await lead.log.decide(
        AgentFinished(Cause("relay", "it ended"), "scout-1", "completed", "Three callers, all in src/legacy.", usage)
    )
    await lead.log.decide(MessageQueued(Cause("relay", "message"), "m2", "I found three callers.", "scout-1"))


async def remembered(cwd: Path, source: str, settings: Settings) -> None:
    """Save memories with their origin, one that waits for approval, and let a dream work on them."""
    memory = Memory.open(cwd, settings=settings)
    memory.save(
        "Tests of the repository layer use the real database, never a mock.",
        type="feedback",
        name="Real database in tests",
        why="a mock hid a broken migration",
        source=source,
    )
    for name in ("Deploys happen on Thursdays", "Deploys happen on Thursdays (2)"):
        memory.save("Deploys happen on Thursdays after 14:00.", type="project", name=name, why="the team agreed")
    await Dreams(memory, settings, project=cwd).run()
    memory.save(
        f"{UNTRUSTED}.", type="project", name="Staging is reset", author="agent", trust="unconfirmed", source=source
    )


@asynccontextmanager
async def inspected_home(cwd: Path) -> AsyncGenerator[Settings]:
    """Fill the home of the settings and keep two sessions of it open inside this block."""
    await worked("checkout-refactor", cwd)
    settings = load_settings(project=cwd)
    async with AsyncExitStack() as stack:
        lead = await stack.enter_async_context(Session.open(LEAD, cwd=cwd))
        said = "Please use the real database in tests of the repository layer. A mock hid a broken migration last week."
        await turn(lead, f"Why does test_login fail?\n{said}", "I look at the token check first.", tokens=21_000)
        origin = next(entry.uuid for entry in lead.view.latest() if entry.kind == "user")
        await team(lead)
        await turn(lead, "Go on.", "I run the tests again.", tokens=96_000, call="pytest -q tests/login")
        await remembered(cwd, f"{LEAD} {origin}", settings)
        docs = await stack.enter_async_context(Session.open("release-notes", cwd=cwd))
        await turn(docs, "Write the release notes of 2.4.", "Here is a draft of the notes.", tokens=158_000)
        yield settings
