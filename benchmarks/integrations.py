"""What does a coding session cost in another framework, with and without Reverie, by the provider's own ledger?

Every framework is the real package and runs the same scripted session (reads, searches, test runs, logs, edits, a
person who pauses) against our loopback server, which refuses invalid requests and charges by its own cache:

* ``plain``: the framework alone, with its prompt caching turned on where this is needed (the SDK loop:
  ``cache_control``; LangChain: ``AnthropicPromptCachingMiddleware``; Pydantic AI: ``Caching()``; OpenAI: automatic);
* ``uncached``: the same requests at the price of uncached input, the cost of the framework's default;
* ``own``: with its own way to shorten the past (see ``OWN``);
* ``reverie``: with our integration instead, with the preset ``thrifty``, because the session is short;
* ``both``: with its own and ours.

Limits: ``reverie`` costs at most 0.8 of ``plain``, and ``both`` less than ``own``. The table shows whether ours alone
costs less than its own alone: summarising at every turn saves money and loses the past. If ours keeps the context below
the threshold of its own, ``both`` costs the same as ``reverie``.

A break is a request that does not extend the one before; it is explained if a logged decision says so.

Every conversation has its own process, two at a time (``--jobs``). Most of the time is spent in two of the
packages themselves, which process every item of the history before every call: openai's ``async_maybe_transform``
(3 ms per item) and langchain-core's ``is_data_content_block`` (1 ms per block).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reverie import InMemoryStorage, Session, load_settings
from reverie.cache.prices import prices_for
from reverie.cache.usage import usage_of
from reverie.conversation.wire.canonical import canonical
from reverie.events import DecisionMade, Event, FellBack
from reverie.integrations.sync_session import sync_session
from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer
from reverie.values import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from prefixes import extends
from tool_script import SYSTEM, TOOLS, ToolScript

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-4.1"
WINDOW = 1_000_000
SUM_UP_AT = 160_000
WAYS = ("plain", "own", "reverie", "both")
OWN = {
    "anthropic": "the provider's context editing: clear_tool_uses_20250919 with its defaults",
    "langchain": f"SummarizationMiddleware at {SUM_UP_AT:,} tokens, 20 messages kept; it gives up on a long past",
    "pydantic-ai": f"the summarising history processor of its documentation, at {SUM_UP_AT:,} tokens, 20 messages kept",
    "openai-agents": "OpenAIResponsesCompactionSession as it comes: after every run, from 10 items on",
}
LIMIT = 0.8
SLOWEST = ("openai-agents", "langchain", "pydantic-ai", "anthropic")
TELL_EVERY = 100
"""After so many replies a conversation says how far it is."""


class Run:
    """One running conversation: the script, the server, the session, and its events."""

    def __init__(self, framework: str, way: str, replies: int, seed: int) -> None:
        self.framework, self.way = framework, way
        self.began = time.perf_counter()
        self.script = ToolScript(seed, replies)
        kind: Any = ChatServer if framework == "openai-agents" else MessagesServer
        self.server: Any = kind(self._reply, clock=self.script.clock, window=WINDOW)
        self.events: list[Event] = []
        self.explained: set[int] = set()
        settings = replace(load_settings(), preset="thrifty")
        self.session = Session.open(
            "hosted", storage=InMemoryStorage(), settings=settings, clock=lambda: self.script.clock.now
        )
        self.session.listen(self._hear)

    @property
    def own(self) -> bool:
        return self.way in ("own", "both")

    @property
    def ours(self) -> bool:
        return self.way in ("reverie", "both")

    def _reply(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        blocks = self.script.reply(request)
        if request.get("tools") and self.script.said % TELL_EVERY == 0:
            tell(f"{self.framework} {self.way}: {self.script.said} replies in {time.perf_counter() - self.began:.0f} s")
        return blocks

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, DecisionMade) and event.decision.cause.moves_prefix:
            self.explained.add(len(self.server.requests))

    def bill(self) -> dict[str, Any]:
        """Return the server's charges and its observations."""
        rates = [(prices_for(model), usage_of(usage)) for model, usage in self.server.usages]
        breaks = [at for at, extending in enumerate(extensions(self.server.requests)) if not extending]
        return {
            "usd": sum(price.cost_of(usage) for price, usage in rates),
            "uncached_usd": sum(price.cost(uncached=usage.input, output=usage.output) for price, usage in rates),
            "replies": self.script.said,
            "summaries": self.script.sides,
            "invalid": len(self.server.refusals),
            "breaks": len(breaks),
            "unexplained": len(set(breaks) - self.explained) if self.ours else None,
            "fallbacks": [f"{one.what}: {one.why}" for one in self.events if isinstance(one, FellBack)],
        }


def tell(text: str) -> None:
    """Print the progress, separate from the figures."""
    print(text, file=sys.stderr, flush=True)


def extensions(requests: Sequence[dict[str, Any]]) -> list[bool]:
    """Say for each request whether it extends the last one that also had tools."""
    said: list[bool] = []
    last: list[bytes] = []
    for request in requests:
        if not request.get("tools"):
            said.append(True)
            continue
        now = canonical(request) if "max_tokens" in request else [_item(one) for one in _items(request)]
        said.append(extends(last, now))
        last = now
    return said


def _items(request: dict[str, Any]) -> list[Any]:
    given = request.get("messages") or request.get("input")
    return given if isinstance(given, list) else [given]


def _item(item: Any) -> bytes:
    kept = (
        {key: value for key, value in item.items() if key not in ("id", "status")} if isinstance(item, dict) else item
    )
    return json.dumps(kept, sort_keys=True).encode()


# -- the frameworks, each in its own idiom


def play_anthropic(run: Run) -> None:
    """Run the conversation in a plain loop around the SDK."""
    from anthropic import Anthropic

    from reverie.integrations.anthropic import reverie_middleware

    options: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    if run.own:
        options["context_management"] = {"edits": [{"type": "clear_tool_uses_20250919"}]}
        options["betas"] = ["context-management-2025-06-27"]
    with ExitStack() as stack:
        client = stack.enter_context(Anthropic(base_url=run.server.base_url, api_key="none", max_retries=0))
        if run.ours:
            client = client.with_middleware(reverie_middleware(stack.enter_context(sync_session(run.session))))
        messages: list[Any] = []
        for ask in run.script.prompts:
            messages.append({"role": "user", "content": ask})
            while True:
                reply = client.beta.messages.create(
                    model=CLAUDE, max_tokens=8_000, system=SYSTEM, tools=TOOLS, messages=messages, **options
                )
                messages.append({"role": "assistant", "content": reply.content})
                calls = [block for block in reply.content if block.type == "tool_use"]
                if not calls:
                    break
                results = [(call.id, run.script.run(call.name, call.input)) for call in calls]
                blocks = [{"type": "tool_result", "tool_use_id": one, "content": text} for one, text in results]
                messages.append({"role": "user", "content": blocks})


def play_langchain(run: Run) -> None:
    """Run the conversation with a LangChain agent."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_anthropic import ChatAnthropic
    from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
    from langchain_core.tools import StructuredTool
    from langgraph.checkpoint.memory import InMemorySaver

    from reverie.integrations.langchain import ReverieMiddleware

    def tool(declared: dict[str, Any]) -> StructuredTool:
        return StructuredTool(
            name=declared["name"],
            description=declared["description"],
            args_schema=declared["input_schema"],
            func=lambda **given: run.script.run(declared["name"], given),
        )

    model = ChatAnthropic(
        model_name=CLAUDE, api_key="none", base_url=run.server.base_url, max_tokens=8_000, max_retries=0
    )
    middleware: list[Any] = [SummarizationMiddleware(model, trigger=("tokens", SUM_UP_AT))] if run.own else []
    middleware.append(AnthropicPromptCachingMiddleware())
    with ExitStack() as stack:
        if run.ours:
            middleware.append(ReverieMiddleware(stack.enter_context(sync_session(run.session))))
        agent = create_agent(
            model,
            [tool(one) for one in TOOLS],
            system_prompt=SYSTEM,
            middleware=middleware,
            checkpointer=InMemorySaver(),
        )
        config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 10_000}
        for ask in run.script.prompts:
            agent.invoke({"messages": [("user", ask)]}, config)


def play_pydantic_ai(run: Run) -> None:
    """Run the conversation with a Pydantic AI agent."""
    asyncio.run(_play_pydantic_ai(run))


async def _play_pydantic_ai(run: Run) -> None:
    from anthropic import AsyncAnthropic
    from pydantic_ai import Agent, Tool
    from pydantic_ai.capabilities import Caching, ProcessHistory
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.usage import UsageLimits

    from reverie.integrations.pydantic_ai import ReverieCapability

    def tool(declared: dict[str, Any]) -> Any:
        def act(**given: Any) -> str:
            return run.script.run(declared["name"], given)

        return Tool.from_schema(
            act, name=declared["name"], description=declared["description"], json_schema=declared["input_schema"]
        )

    async with AsyncAnthropic(base_url=run.server.base_url, api_key="none", max_retries=0) as client, run.session:
        model = AnthropicModel(CLAUDE, provider=AnthropicProvider(anthropic_client=client))
        capabilities: list[Any] = [Caching()]
        if run.own:
            capabilities.append(ProcessHistory(_summing_up(Agent(model, instructions="Sum up this conversation."))))
        if run.ours:
            capabilities.append(ReverieCapability(run.session))
        agent = Agent(model, tools=[tool(one) for one in TOOLS], instructions=SYSTEM, capabilities=capabilities)
        history: list[Any] = []
        for ask in run.script.prompts:
            done = await agent.run(ask, message_history=history, usage_limits=UsageLimits(request_limit=None))
            history = done.all_messages()


def _summing_up(agent: Any) -> Callable[[list[Any]], Any]:
    """Return a history processor as in Pydantic AI's documentation: old messages become a summary."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

    async def process(messages: list[Any]) -> list[Any]:
        last = next((one for one in reversed(messages) if isinstance(one, ModelResponse)), None)
        if last is None or last.usage.input_tokens < SUM_UP_AT or len(messages) <= 20:
            return messages
        cut = len(messages) - 20
        while not isinstance(messages[cut], ModelResponse):
            cut -= 1
        past = "\n".join(str(getattr(part, "content", part)) for one in messages[:cut] for part in one.parts)
        summary = await agent.run(f"Sum up what was said and done:\n{past}")
        told = ModelRequest(parts=[UserPromptPart(f"What was done before:\n{summary.output}")])
        return [told, *messages[cut:]]

    return process


def play_openai_agents(run: Run) -> None:
    """Run the conversation with an OpenAI agent."""
    asyncio.run(_play_openai_agents(run))


async def _play_openai_agents(run: Run) -> None:
    from agents import Agent, FunctionTool, OpenAIResponsesModel, Runner, SQLiteSession, set_tracing_disabled
    from agents.memory import OpenAIResponsesCompactionSession
    from openai import AsyncOpenAI

    from reverie.integrations.openai_agents import ReverieSession

    set_tracing_disabled(True)

    def tool(declared: dict[str, Any]) -> FunctionTool:
        async def act(context: Any, given: str) -> str:
            return run.script.run(declared["name"], json.loads(given))

        return FunctionTool(
            name=declared["name"],
            description=declared["description"],
            params_json_schema=declared["input_schema"],
            on_invoke_tool=act,
            strict_json_schema=False,
        )

    async with AsyncOpenAI(base_url=run.server.base_url, api_key="none", max_retries=0) as client, run.session:
        model = OpenAIResponsesModel(GPT, openai_client=client)
        agent = Agent(name="coder", instructions=SYSTEM, model=model, tools=[tool(one) for one in TOOLS])
        kept: Any = SQLiteSession("hosted")
        more: dict[str, Any] = {}
        if run.ours:
            kept = ReverieSession(run.session)
            more = {"run_config": kept.run_config(), "hooks": kept.hooks}
        if run.own:
            kept = OpenAIResponsesCompactionSession("hosted", kept, client=client, model=GPT)
        for ask in run.script.prompts:
            await Runner.run(agent, ask, session=kept, max_turns=10_000, **more)
        if hasattr(kept, "close"):
            kept.close()


PLAYERS: dict[str, Callable[[Run], None]] = {
    "anthropic": play_anthropic,
    "langchain": play_langchain,
    "pydantic-ai": play_pydantic_ai,
    "openai-agents": play_openai_agents,
}


def played(framework: str, way: str, replies: int, seed: int = 1) -> dict[str, Any]:
    """Play one conversation and return its bill."""
    run = Run(framework, way, replies, seed)
    with run.server:
        PLAYERS[framework](run)
    return {**run.bill(), "seconds": time.perf_counter() - run.began}


def measure(
    frameworks: Sequence[str], ways: Sequence[str], replies: int, seed: int, *, jobs: int = 1
) -> dict[str, Any]:
    """Play every framework in every way, a number of them at a time."""
    asked = [(framework, way) for framework in frameworks for way in ways]
    found: dict[str, Any] = {framework: {} for framework in frameworks}
    start = time.perf_counter()
    for number, (framework, way, bill) in enumerate(_bills(asked, replies, seed, jobs), 1):
        found[framework][way] = bill
        done = f"{number} of {len(asked)} after {time.perf_counter() - start:.0f} s"
        tell(f"{done}: {framework} {way} ${bill['usd']:.2f} in {bill['seconds']:.0f} s")
    return {name: {way: bills[way] for way in ways} for name, bills in found.items()}


def _bills(
    asked: Sequence[tuple[str, str]], replies: int, seed: int, jobs: int
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield bills as they arrive; parallel conversations have separate processes, the longest first."""
    if jobs == 1:
        yield from ((framework, way, played(framework, way, replies, seed)) for framework, way in asked)
        return
    longest = sorted(asked, key=lambda one: (one[1] in ("own", "both"), SLOWEST.index(one[0])))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        coming = {pool.submit(played, *one, replies, seed): one for one in longest}
        yield from ((*coming[done], done.result()) for done in as_completed(coming))


def checked(found: dict[str, Any]) -> dict[str, bool]:
    """Compare the measurements with the limits."""
    checks: dict[str, bool] = {}
    for name, ways in found.items():
        for less, more, limit in (("reverie", "plain", LIMIT), ("both", "own", 1.0)):
            if less not in ways:
                continue
            bill = ways[less]
            checks[f"{name} {less}: nothing invalid"] = not bill["invalid"] and not bill["fallbacks"]
            checks[f"{name} {less}: every break is explained"] = not bill["unexplained"]
            if more in ways:
                ratio = bill["usd"] / ways[more]["usd"]
                checks[f"{name} {less}: {'at most' if limit < 1 else 'less than'} {limit} of {more}"] = (
                    ratio <= limit if limit < 1 else ratio < limit
                )
    return checks


def table(found: dict[str, Any], replies: int) -> None:
    """Print the measurements."""
    print(f"dollars for a coding session of {replies} replies, by the server's ledger")
    columns = ("uncached", *WAYS, "of plain", "of own", "breaks")
    print(f"{'':<16}" + "".join(f"{name:>12}" for name in columns))
    for name, ways in found.items():
        usd = {way: ways[way]["usd"] if way in ways else float("nan") for way in WAYS}
        uncached = ways["plain"]["uncached_usd"] if "plain" in ways else float("nan")
        figures = [uncached, *usd.values(), usd["reverie"] / usd["plain"], usd["both"] / usd["own"]]
        breaks = "/".join(str(ways[way]["breaks"]) for way in ("reverie", "both") if way in ways)
        print(f"{name:<16}" + "".join(f"{one:>12.3f}" for one in figures) + f"{breaks:>12}")
    for name, ways in found.items():
        seconds = ", ".join(f"{way} {bill['seconds']:.0f}" for way, bill in ways.items())
        sums = ", ".join(f"{way} {bill['summaries']}" for way, bill in ways.items() if way in ("own", "both"))
        print(f"({name}: seconds: {seconds}; summaries asked for: {sums or 'none'})")
    print("(of plain: reverie; of own: both; breaks: requests that do not extend the last, reverie/both)")
    for name in found:
        print(f"({name}, own: {OWN[name]})")


def main() -> int:
    """Measure, print, and with ``--check`` return the exit status: 0 if all limits hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--check", action="store_true", help="fail where something that must hold does not")
    parser.add_argument("--replies", type=int, default=300, help="how many times the model answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="how many conversations are played at a time")
    parser.add_argument("--only", nargs="+", choices=sorted(PLAYERS), default=list(PLAYERS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    found = measure(options.only, options.ways, options.replies, options.seed, jobs=options.jobs)
    checks = checked(found)
    if options.json:
        print(json.dumps({"found": found, "checks": checks}, indent=2))
    else:
        table(found, options.replies)
        print()
        for name, met in checks.items():
            print(f"{name:<52}{'met' if met else 'MISSED'}")
    return 1 if options.check and not all(checks.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
