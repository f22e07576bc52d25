"""Random conversations of an own loop against an enforcing provider: layers, resumes, kills, all kinds of changes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from enforcing_model import EnforcingModel, enforcing_provider
from reverie import InMemoryStorage, Session, Settings
from reverie.conversation.decisions import Compacted, CompactionUndone, ThinkingDropped, decision_of
from reverie.conversation.entries import Entry
from reverie.conversation.log import parse_log
from reverie.conversation.thinking import dropped_messages, unreadable_messages
from reverie.conversation.wire.blocks import as_blocks
from reverie.conversation.wire.request import build_request
from reverie.conversation.wire.thinking_rules import is_manual, open_round
from reverie.conversation.wire.validate import problems
from reverie.errors import CompactionError, InputError, ModelError, ModelUnavailable, SessionError, WindowFull
from reverie.layers.l4_compact import CompactPolicy
from reverie.model_facts import facts_of
from reverie.settings import Switches
from reverie.testing.messages_server.replies import ServerReply

CHECKED = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-fable-5-2")
FREE = ("claude-opus-5", "claude-sonnet-5")
MANUAL = "claude-opus-4-5"
"""A model whose thinking has a budget, so that a tool round must begin with thinking."""
WINDOWS = (16_384, 32_768, 200_000, 1_000_000)
ASKED = (
    "asked for",
    "a reload was asked for",
    "undone on request",
    "brought back on request",
    "clearable results were above",
)
"""Reasons of decisions that a person asked for and that say what happens to thinking."""
CUT = "the past was cut, so changes take effect"


def tool(name: str, text: str = "A tool.") -> dict[str, Any]:
    return {"name": name, "description": text, "input_schema": {"type": "object", "properties": {}}}


class RandomRun:
    """One conversation with its provider; ``play`` runs it and leaves what it saw in the attributes."""

    budgets = True
    """Whether thinking may have a budget: an agent has no option for it."""

    def __init__(self, seed: int, window: int, *, calm: bool = False) -> None:
        """Play by a seed; a calm run has no failures of the provider and keeps to one model."""
        self.calm = calm
        self.seed = seed
        self.random = random.Random(seed)
        self.window = window
        self.now = 1_000_000.0
        self.storage = InMemoryStorage()
        # A share of the large windows, so that a few thousand tokens reach the thresholds.
        self.percent = None if window < 100_000 else self.random.uniform(6, 10) * 200_000 / window
        names = (*CHECKED, *FREE, MANUAL)
        self.provider = enforcing_provider(window, names)
        self.main = self.random.choice(CHECKED)
        if self.budgets and not calm and seed % 5 == 4:
            self.main = MANUAL
        self.models = {name: EnforcingModel(name, self.provider, self.script, clock=lambda: self.now) for name in names}
        for one in self.models.values():
            one.reports = True
        self.system = "Work with care.\nBe brief.\nUse the tools."
        self.tools = [tool("Read"), tool("Bash"), tool("Edit")]
        self.effort: str | None = None
        self.calls = 0
        self.stopped: list[str] = []
        self.surprises: list[str] = []
        self.done: Counter[str] = Counter()
        self.explained: set[str] = set()

    # -- the model

    def script(self, request: dict[str, Any]) -> Any:
        """Return a reply with thinking, text and calls at random; a summary where one is asked for."""
        pick = self.random
        if request.get("compaction") is not None:
            if pick.random() < 0.08 and not self.calm:
                return ServerReply([], pick.choice(["refusal", "end_turn", "max_tokens"]))
            return "Summary: " + "the work goes on. " * pick.randrange(1, 40)
        content: list[dict[str, Any]] = []
        begins = is_manual(request) and not open_round(request["messages"])
        for _ in range(pick.choice([1 if begins else 0, 1, 1, 1, 2])):
            kind = pick.random()
            thought = "" if kind < 0.2 else f"Thought {pick.random()} " * pick.randrange(1, 30)
            content.append({"type": "thinking", "thinking": thought})
        if pick.random() < 0.7:
            content.append({"type": "text", "text": f"Word {pick.random()} " * pick.randrange(1, 20)})
        content += self.calls_of(request)
        if not any(block["type"] != "thinking" for block in content):
            content.append({"type": "text", "text": "Done."})
        return content

    def calls_of(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the calls of a reply at random."""
        names = [one["name"] for one in self.tools]
        out: list[dict[str, Any]] = []
        for _ in range(self.random.choice([0, 1, 1, 2]) if names and request.get("tools") else 0):
            self.calls += 1
            name = self.random.choice(names)
            out.append({"type": "tool_use", "id": f"toolu_{self.calls:05}", "name": name, "input": {"n": self.calls}})
        return out

    # -- the session

    def settings(self) -> Settings:
        pick = self.random
        policy = CompactPolicy(in_background=pick.random() < 0.5, patience=pick.choice((0.0, 3.0)))
        switches = Switches(
            notes=pick.random() < 0.5,
            snip=pick.random() < 0.2,
            budget_trim=pick.random() < 0.2,
            compact_from_notes=True,
            extraction=False,
            dream=False,
        )
        percent = self.percent if self.percent is None else min(90.0, self.percent)
        window = self.window if self.window < 100_000 else None
        home = Path("nowhere")  # nothing is written there: the storage is in memory
        return Settings(home=home, switches=switches, compact=policy, window_tokens=window, compact_percent=percent)

    def opened(self) -> Session:
        given: dict[str, Any] = {"storage": self.storage, "settings": self.settings(), "clock": lambda: self.now}
        return Session.open("run", model=self.models[self.main], **given)

    async def play(self, steps: int) -> None:
        """Play some prompts; between them the session is closed, killed or changed at random."""
        left = steps
        while left > 0:
            session = self.opened()
            await session.__aenter__()
            here = min(left, self.random.randrange(1, 6))
            for _ in range(here):
                await self.step(session)
            left -= here
            if self.random.random() < 0.3:
                self.done["kill"] += 1
                await self.kill(session)
            else:
                self.done["close"] += 1
                await session.__aexit__(None, None, None)

    async def kill(self, session: Session) -> None:
        """Leave the session as a killed process does: what is logged stays, all else is gone."""
        lines = {key: self.storage.load(key) for key in list(self.storage.list("")) if key.endswith(".jsonl")}
        await session.__aexit__(RuntimeError, RuntimeError(), None)
        fresh = InMemoryStorage()
        for key, data in lines.items():
            for line in (data or b"").splitlines():
                fresh.append(key, line)
        self.explain()
        self.storage = fresh

    async def step(self, session: Session) -> None:
        self.now += self.random.choice([1, 20, 400, 4_000])
        if self.random.random() < 0.35:
            await self.change(session)
            self.surprises += [f"{dict(self.done)}: {fault.text}" for fault in problems(build_request(session.view))]
        await session.say(f"Prompt {self.random.random()} " * self.random.randrange(1, 60))
        stays = self.calm or self.random.random() < 0.93
        model = self.main if stays else self.random.choice((*CHECKED, *FREE, MANUAL))
        for _ in range(self.random.randrange(1, 8)):
            if not await self.turn(session, model):
                return

    async def turn(self, session: Session, model: str) -> bool:
        """Send one request and give results for its calls; return whether the model called a tool."""
        options: dict[str, Any] = {"max_tokens": 1_000}
        if self.effort is not None:
            options["output_config"] = {"effort": self.effort}
        if model == MANUAL:
            options |= {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_024}
        try:
            request = await session.prepare(model=model, system=self.system, tools=list(self.tools), **options)
            if not self.calm and self.random.random() < 0.03:
                raise ModelUnavailable("overloaded")
            reply = await self.models[model].complete(request)
        except WindowFull as error:
            self.stopped.append(str(error))
            return False
        except ModelError as error:
            self.done[f"error {type(error).__name__}"] += 1
            return await session.recover(error)
        self.done["request"] += 1
        self.compare(session, model, reply.body)
        calls = await session.observe(reply.body)
        for call in calls:
            size = self.random.choice([10, 200, 3_000, 12_000])
            await session.result(call.id, f"{call.id} {self.random.random()} " * (size // 30))
            if self.random.random() < 0.03:
                return True  # the other results never come
        return bool(calls)

    def compare(self, session: Session, model: str, reply: dict[str, Any]) -> None:
        """Compare the thinking that the provider dropped with the thinking that the log says it cannot read."""
        predicted = set(unreadable_messages(session.view, facts_of(model).reads_model))
        reported = {at for at, _ in dropped_messages(reply)}
        self.done["dropped by a switch"] += bool(reported)
        if predicted != reported:
            self.surprises.append(f"{model}: predicted {sorted(predicted)}, reported {dropped_messages(reply)}")

    async def change(self, session: Session) -> None:
        """Change one thing, as a person or a program would between two prompts."""
        kind = self.random.choice(
            ["system", "add", "remove", "schema", "effort", "attach", "trim", "compact", "undo", "part", "fork"]
        )
        self.done[kind] += 1
        pick = self.random
        if kind == "system":
            self.system += f"\nRule {pick.random()}."
        elif kind == "add":
            self.tools.append(tool(f"Tool{pick.randrange(10_000)}"))
        elif kind == "remove" and len(self.tools) > 1:
            self.tools.pop(pick.randrange(len(self.tools)))
        elif kind == "schema":
            at = pick.randrange(len(self.tools))
            self.tools[at] = tool(self.tools[at]["name"], f"Changed {pick.random()}")
        elif kind == "effort":
            self.effort = pick.choice([None, "low", "high"])
        elif kind == "attach":
            await session.attach(f"A fact {pick.random()}")
        else:
            await self.ask(session, kind)

    async def ask(self, session: Session, kind: str) -> None:
        """Do one thing that a person may ask for."""
        try:
            if kind == "trim":
                await session.trim(target_tokens=200)
            elif kind == "compact":
                await session.compact(instructions=self.random.choice(["", "Keep the numbers."]))
            elif kind == "undo":
                await session.undo()
            elif kind == "part":
                uuids = [entry.uuid for entry in session.view.history if entry.kind == "user"]
                chosen = self.random.choice([*uuids, *uuids[:1]]) if uuids else ""
                named = {self.random.choice(["from_message", "up_to"]): chosen} if uuids else {}
                await session.compact(**named)
            elif session.view.length:
                await session.fork("What is the state?", max_tokens=500)
        except (SessionError, CompactionError, InputError) as error:
            self.done[f"{kind} refused: {type(error).__name__}"] += 1

    # -- what happened

    @property
    def refusals(self) -> list[str]:
        return [one for model in self.models.values() for one in model.refusals]

    def entries(self) -> list[Entry]:
        keys = [key for key in self.storage.list("") if key.endswith("run.jsonl")]
        return [entry for key in keys for entry in parse_log(self.storage.load(key) or b"").entries]

    def drops(self) -> list[str]:
        """Return the reasons of decisions that dropped thinking although nobody asked for the change."""
        by_uuid = {entry.uuid: entry for entry in self.entries()}
        out: list[str] = []
        for entry in by_uuid.values():
            decision = decision_of(entry.body) if entry.kind == "decision" else None
            if isinstance(decision, ThinkingDropped):
                cause = by_uuid.get(decision.changed_by)
                body = cause.body if cause is not None else {}
                # A cut of ours follows a summary that the provider did not write.
                refused = not self.calm and body.get("decision") == "compacted" and body.get("method") != "provider"
                asked = body.get("trigger") == "manual" or str(body.get("reason")).startswith(ASKED)
                # A model that takes no changes at the end gets them with a cut that left no thinking valid.
                asked = asked or (body.get("reason") == CUT and not facts_of(body["model"]).checks_thinking)
                if not (asked or refused):
                    out.append(f"{body.get('decision')}: {body.get('reason')}: {decision.cause.reason}")
        return out

    def unsaid(self) -> set[str]:
        """Return the calls that were sent in their round without their thinking although no decision dropped it."""
        self.explain()
        return self.provider.calls.left_out - self.explained

    def explain(self) -> None:
        """Remember the calls whose thinking a decision dropped, before a killed process takes the decision along."""
        entries = self.entries()
        found = (decision_of(entry.body) for entry in entries if entry.kind == "decision")
        dropped = {uuid for one in found if isinstance(one, ThinkingDropped) for uuid in one.messages}
        blocks = [block for entry in entries if entry.uuid in dropped for block in as_blocks(entry.body["message"])]
        self.explained |= {block["id"] for block in blocks if block["type"] == "tool_use"}

    def methods(self) -> Counter[str]:
        found = (decision_of(entry.body) for entry in self.entries() if entry.kind == "decision")
        return Counter(
            one.method if isinstance(one, Compacted) else "undone"
            for one in found
            if isinstance(one, Compacted | CompactionUndone)
        )
