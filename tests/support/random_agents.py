"""Random conversations of an `Agent` against an enforcing provider: files, steps, settings, kills and resumes.

An agent has a folder with files of several sizes and an AGENTS.md that changes, its own tools or tools of the
user's, and settings that differ at every opening.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from math import inf
from pathlib import Path
from typing import Any

from enforcing_model import EnforcingModel
from random_runs import CHECKED, FREE, RandomRun
from reverie import Agent, InMemoryStorage, Session, Settings
from reverie.conversation.wire.request import build_request
from reverie.errors import ModelUnavailable
from reverie.events import QueryEnded
from reverie.layers.l4_compact import CompactPolicy
from reverie.models import RetryingModel
from reverie.ports import Reply, ReplyDelta
from reverie.settings import AgentPolicy, Switches
from reverie.tools.tool import Access, Output

FILES = 6
STOPPED = ("blocking_limit", "prompt_too_long", "aborted")
"""Ends of a query that leave a prompt without an answer."""


class RandomTool:
    """A tool of the user's, whose results have several sizes."""

    max_chars: float | None = None

    def __init__(self, name: str, description: str, size: Callable[[], int]) -> None:
        self.name, self.description = name, description
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
        self._size = size

    def access(self, input: Mapping[str, Any], context: Any) -> Access:
        return Access("none")

    async def preview(self, input: Mapping[str, Any], context: Any) -> str:
        return ""

    async def run(self, input: Mapping[str, Any], context: Any) -> Output:
        return Output(f"{self.name} {input.get('n')} line. " * (self._size() // 20))


class WatchedModel(EnforcingModel):
    """A model that reports each reply to a request of the conversation, before the agent logs it, and may be away."""

    watch: Callable[[str, dict[str, Any], dict[str, Any]], None]
    is_away: Callable[[], bool]

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyDelta | Reply, None]:
        yield await self.complete(request)

    async def complete(self, request: Mapping[str, Any]) -> Reply:
        if self.is_away():
            raise ModelUnavailable("overloaded")
        reply = await super().complete(request)
        self.watch(self.model_id, dict(request), reply.body)
        return reply


async def at_once(seconds: float) -> None:
    """Wait for nothing, in place of a retry's delay."""


class RandomAgentRun(RandomRun):
    """One conversation of an agent with its provider; ``play`` runs it and leaves what it saw in the attributes."""

    budgets = False

    def __init__(self, seed: int, window: int, folder: Path, *, calm: bool = False) -> None:
        """Play by a seed in an empty folder; a calm run has no failures of the provider and keeps to one model."""
        super().__init__(seed, window, calm=calm)
        pick = self.random
        # The agent's own prompt and tools need more than an own loop's.
        self.percent = None if window < 100_000 else pick.uniform(14, 22) * 200_000 / window
        if not calm and pick.random() < 0.2:
            self.main = pick.choice(FREE)
        self.folder = folder
        self.own_tools = pick.random() < 0.5
        self.system_words: str | None = None
        self.rounds = 0
        self.session: Session | None = None
        for name in (*CHECKED, *FREE):
            self.models[name] = one = WatchedModel(name, self.provider, self.script, clock=lambda: self.now)
            one.reports, one.watch = True, self.watch
            one.is_away = lambda: not calm and self.random.random() < 0.02
        (folder / "project").mkdir(parents=True)
        for number in range(FILES):
            self.write_file(number)
        self.write_instructions()
        self.tools = [{"name": name} for name in ("find", "look")]

    # -- the world

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def size(self) -> int:
        return self.random.choice([20, 400, 4_000, 14_000])

    def write_file(self, number: int) -> None:
        text = f"line {self.random.random()} of the file\n" * (self.size() // 30 + 1)
        (self.project / f"file_{number}.txt").write_text(text)

    def write_instructions(self) -> None:
        (self.project / "AGENTS.md").write_text(
            f"Rule {self.random.random()}: be brief.\n" * self.random.randrange(1, 20)
        )

    # -- the model

    def calls_of(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return calls of tools that the agent has, while the prompt has rounds left."""
        names = {tool.get("name") for tool in request.get("tools") or ()}
        if self.rounds <= 0 or not names:
            return []
        self.rounds -= 1
        pick = self.random
        out: list[dict[str, Any]] = []
        for _ in range(pick.choice([1, 1, 2, 3])):
            self.calls += 1
            name, given = pick.choice(self.choices(names))
            out.append({"type": "tool_use", "id": f"toolu_{self.calls:05}", "name": name, "input": given})
        return out

    def choices(self, names: set[Any]) -> list[tuple[str, dict[str, Any]]]:
        pick = self.random
        path = str(self.project / f"file_{pick.randrange(FILES)}.txt")
        steps = [
            {"content": f"Step {n} {pick.random()}", "status": pick.choice(["pending", "completed"])} for n in range(3)
        ]
        known: list[tuple[str, dict[str, Any]]] = [
            *[("Read", {"file_path": path})] * 3,
            ("Grep", {"pattern": "line", "path": str(self.project)}),
            ("Write", {"file_path": path, "content": f"New {pick.random()}\n" * pick.randrange(1, 200)}),
            ("TodoWrite", {"todos": steps}),
            *((str(one["name"]), {"n": self.calls}) for one in self.tools),
        ]
        found = [one for one in known if one[0] in names]
        return found or [(str(pick.choice(sorted(map(str, names)))), {})]  # a call that is refused gets an error

    # -- the agent

    def settings(self) -> Settings:
        pick = self.random
        policy = CompactPolicy(
            in_background=pick.random() < 0.5,
            patience=pick.choice((0.0, 3.0)),
            by_provider=None if self.calm or pick.random() < 0.7 else False,
        )
        switches = Switches(
            notes=pick.random() < 0.5,
            snip=pick.random() < 0.2,
            budget_trim=pick.random() < 0.2,
            extraction=pick.random() < 0.2,
            recall=pick.random() < 0.3,
            memory=pick.random() < 0.8,
            relay=pick.random() < 0.7,
            dream=False,
        )
        return Settings(
            home=self.folder / "home",
            switches=switches,
            compact=policy,
            window_tokens=self.window if self.window < 100_000 else None,
            compact_percent=self.percent if self.percent is None else min(90.0, self.percent),
            agent=AgentPolicy(max_turns=12, max_tokens=pick.choice([1_000, 4_000]), web_fetch=pick.random() < 0.3),
        )

    def agent(self) -> Agent:
        model = self.main if self.calm or self.random.random() < 0.9 else self.random.choice((*CHECKED, *FREE))
        given: dict[str, Any] = {}
        if not self.own_tools:
            described = [(str(one["name"]), f"Find things. {one.get('text', '')}") for one in self.tools]
            given["tools"] = [RandomTool(name, text, self.size) for name, text in described]
        return Agent(
            model=RetryingModel(self.models[model], sleep=at_once, jitter=lambda: 0.0),
            cwd=self.project,
            session="run",
            storage=self.storage,
            settings=self.settings(),
            system=self.system_words,
            mode="bypass",
            clock=lambda: self.now,
            **given,
        )

    async def play(self, steps: int) -> None:
        """Play some prompts; between them the agent is closed or killed and opened with other settings."""
        left = steps
        while left > 0:
            here = min(left, self.random.randrange(1, 5))
            left -= here
            kept: InMemoryStorage | None = None
            async with self.agent() as agent:
                self.session = agent.session
                for at in range(here):
                    dies = at == here - 1 and self.random.random() < 0.35
                    kept = await self.prompt(agent, dies=dies)
            self.session = None
            self.done["close" if kept is None else "kill"] += 1
            self.explain()
            self.storage = kept or self.storage
            self.change_outside()

    async def prompt(self, agent: Agent, *, dies: bool) -> InMemoryStorage | None:
        """Ask one prompt; return the storage as a process that was killed meanwhile leaves it if this one ``dies``."""
        pick = self.random
        self.now += pick.choice([1, 20, 400, 4_000, 90_000])
        if pick.random() < 0.3:
            await self.change_inside(agent.session)
        self.rounds = pick.choice([0, 1, 2, 4, 6])
        moment = pick.randrange(1, 12) if dies else inf
        words, seen = f"Prompt {pick.random()} " * pick.randrange(1, 60), 0
        kept: InMemoryStorage | None = None
        async with aclosing(agent.ask(words)) as events:
            async for event in events:
                seen += 1
                if seen == moment:
                    kept = self.copied()
                if isinstance(event, QueryEnded) and event.end in STOPPED:
                    self.stopped.append(f"{event.end}: {event.detail}")
                if isinstance(event, QueryEnded):
                    self.done[event.end] += 1
        return kept or (self.copied() if dies else None)

    def copied(self) -> InMemoryStorage:
        """Return a copy of all that is stored now."""
        fresh = InMemoryStorage()
        for key in self.storage.list(""):
            fresh.write(key, self.storage.load(key) or b"")
        return fresh

    def change_outside(self) -> None:
        """Change something while no agent runs: the system prompt, the tools, a file or the instructions."""
        pick = self.random
        kind = pick.choice(["system", "add", "remove", "schema", "instructions", "file", "nothing"])
        self.done[kind] += 1
        if kind == "system":
            self.system_words = pick.choice([None, f"Work with care. Rule {pick.random()}."])
        elif kind == "add":
            self.tools.append({"name": f"tool_{pick.randrange(10_000)}"})
        elif kind == "remove" and len(self.tools) > 1:
            self.tools.pop(pick.randrange(len(self.tools)))
        elif kind == "schema":
            self.tools[pick.randrange(len(self.tools))]["text"] = f"Changed {pick.random()}."
        elif kind == "instructions":
            self.write_instructions()
        elif kind == "file":
            self.write_file(pick.randrange(FILES))

    async def change_inside(self, session: Session) -> None:
        """Change something in a session, as a person or a program would between two prompts."""
        kind = self.random.choice(
            ["attach", "trim", "compact", "undo", "part", "fork", "reload", "instructions", "file"]
        )
        self.done[kind] += 1
        if kind == "attach":
            await session.attach(f"A fact {self.random.random()}")
        elif kind == "reload":
            await session.reload()
        elif kind == "instructions":
            self.write_instructions()
        elif kind == "file":
            self.write_file(self.random.randrange(FILES))
        else:
            await self.ask(session, kind)

    # -- what happened

    def watch(self, model: str, request: dict[str, Any], reply: dict[str, Any]) -> None:
        """Compare the thinking that the provider dropped with the log, for requests of the conversation itself."""
        self.done["request"] += 1
        if self.session is None or request.get("compaction") is not None:
            return
        mine = build_request(self.session.view)["messages"]
        sent = request["messages"]
        if len(mine) == len(sent) and _bare(mine[-1]) == _bare(sent[-1]):
            self.done["compared"] += 1
            self.compare(self.session, model, reply)


def _bare(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message's blocks without breakpoints."""
    content = message["content"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]
