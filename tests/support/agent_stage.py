"""A main agent and the agents it starts, on one scripted model that plays their roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from reverie import InMemoryStorage, Settings
from reverie.conversation.decisions import decision_of
from reverie.conversation.entries import DECISION
from reverie.conversation.log import parse_log
from reverie.events import Event
from reverie.layers.l7_relay.policy import RelayPolicy
from reverie.models import ScriptedModel
from reverie.ports import Capabilities
from reverie.runtime.agent.agent import Agent
from reverie.settings import PermissionRules, Switches
from reverie.values import replace

BOUND_SECONDS = 100.0
MAIN = "You are the main agent."


def use(name: str, **given: Any) -> dict[str, Any]:
    """Return a tool call as a scripted reply has it."""
    return {"type": "tool_use", "name": name, "input": given}


def task(kind: str = "", prompt: str = "Do it.", **more: Any) -> dict[str, Any]:
    """Return a call that starts an agent."""
    return use("Agent", description="a task", prompt=prompt, **({"kind": kind} if kind else {}), **more)


def role_of(request: Mapping[str, Any]) -> tuple[str, int]:
    """Return who is asked, and which of its turns this is."""
    messages = request["messages"]
    forked = [at for at, message in enumerate(messages) if "<reverie-fork" in str(message["content"])]
    if forked:
        return "fork", sum(message["role"] == "assistant" for message in messages[forked[-1] :])
    system = str(request["system"])
    role = "main" if MAIN in system else "explore" if "only read" in system else "general"
    role = system.split("ROLE ", 1)[1].split()[0] if "ROLE " in system else role
    return role, sum(message["role"] == "assistant" for message in messages)


class Stage:
    """A main agent, and the agents it starts, on one scripted model."""

    def __init__(self, tmp_path: Path, roles: Mapping[str, Callable[..., Any]], **given: Any) -> None:
        self.storage = InMemoryStorage()
        self.home = tmp_path / "home"
        self.cwd = tmp_path / "work"
        self.cwd.mkdir(exist_ok=True)
        self.events: list[Event] = []
        relay = replace(RelayPolicy(), **given.pop("relay", {}))
        switches = given.pop("switches", Switches(extraction=False, recall=False, dream=False))
        rules = given.pop("rules", PermissionRules())
        self.settings = Settings(home=self.home, switches=switches, relay=relay, permissions=rules)
        self.roles = roles
        self.model = ScriptedModel(self._answer, capabilities=Capabilities(True, window=200_000))
        self.given = given

    def _answer(self, request: Mapping[str, Any]) -> Any:
        role, turn = role_of(request)
        return self.roles[role](turn, request)

    def agent(self, **more: Any) -> Agent:
        given: dict[str, Any] = {
            "session": "s",
            "mode": "bypass",
            "system": MAIN,
            "storage": self.storage,
            **self.given,
        }
        agent = Agent(model=self.model, cwd=self.cwd, settings=self.settings, **{**given, **more})
        agent.listen(self.events.append)
        return agent

    def run(self, steps: Callable[[Agent], Any], **more: Any) -> Any:
        async def main() -> Any:
            with anyio.fail_after(BOUND_SECONDS):
                async with self.agent(**more) as agent:
                    return await steps(agent)

        return anyio.run(main)

    def ask(self, prompt: str = "go", **more: Any) -> list[Event]:
        async def steps(agent: Agent) -> list[Event]:
            return [event async for event in agent.ask(prompt)]

        return self.run(steps, **more)

    def decisions(self, kind: type[Any], key: str = "") -> list[Any]:
        keys = [one for one in self.storage.list("") if one.endswith(".jsonl") and (not key or one == key)]
        entries = [entry for one in keys for entry in parse_log(self.storage.load(one) or b"").entries]
        found = [decision_of(entry.body) for entry in entries if entry.kind == DECISION]
        return [one for one in found if isinstance(one, kind)]

    def seen(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def requests(self, role: str) -> list[dict[str, Any]]:
        return [request for request in self.model.requests if role_of(request)[0] == role]


def results(request: Mapping[str, Any]) -> list[str]:
    """Return the tool results in the last message of a request."""
    content = request["messages"][-1]["content"]
    blocks = content if isinstance(content, list) else []
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def plays(*replies: Any) -> Callable[[int, Any], Any]:
    """Return a role that says these things, and the last of them for ever."""
    return lambda turn, request: replies[min(turn, len(replies) - 1)]
