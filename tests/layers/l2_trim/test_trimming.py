"""Layer 2 in a session: by idle time, by cache edit, by the provider, by budget and by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, Session, SessionError, Settings, load_settings
from reverie.conversation.decisions import CacheEdits, CallRecorded, Cause, Compacted, decision_of
from reverie.conversation.entries import ASSISTANT, DECISION
from reverie.conversation.log import parse_log
from reverie.conversation.reads import files_in_view
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import Limits, problems
from reverie.events import CacheBroken, Event, ResultsTrimmed
from reverie.layers.l2_trim.policy import CLEARED, TrimPolicy
from reverie.runtime.places.projects import log_key, project_slug
from reverie.settings import Switches
from reverie.testing.messages_server import ManualClock, MessagesServer
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
TOOLS: list[dict[str, Any]] = [
    {"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Bash", "Edit", "mcp__x__y")
]
ABLE = frozenset({"cache_edits"})


def settings(*, budget: bool = False, window: int | None = None, **trim: Any) -> Settings:
    switches = Switches(budget_trim=budget)
    return replace(load_settings(), preset="thrifty", trim=TrimPolicy(**trim), switches=switches, window_tokens=window)


class Shop:
    """A session that talks to a real server, one tool call a turn."""

    def __init__(self, server: MessagesServer, chosen: Settings, *, capabilities: frozenset[str] = frozenset()) -> None:
        self.server = server
        self.settings = chosen
        self.capabilities = capabilities
        self.storage = InMemoryStorage()
        self.events: list[Event] = []
        self.client = anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0)
        self.turns = 0
        self.sent: list[dict[str, Any]] = []

    def open(self) -> Session:
        opened = Session.open(
            "s",
            storage=self.storage,
            settings=self.settings,
            clock=lambda: self.server.clock.now,
            capabilities=self.capabilities,
        )
        opened.listen(self.events.append)
        return opened

    async def turn(self, session: Session, output: str = "", *, seconds: float = 10.0) -> str:
        """Ask, and give the result of the call that comes back; return its id."""
        self.server.clock.advance(seconds)
        request = await session.prepare(model=MODEL, max_tokens=2_000, system="Be brief. " * 600, tools=TOOLS)
        self.sent.append(request)
        beta = {"anthropic-beta": "context-management-2025-06-27"} if "context_management" in request else {}
        raw = self.client.post("/v1/messages", body=request, cast_to=object, options={"headers": beta})
        (called,) = await session.observe(raw)
        self.turns += 1
        await session.result(called.id, output or f"line {self.turns} of it\n" * 60)
        return called.id

    def trims(self) -> list[ResultsTrimmed]:
        return [event for event in self.events if isinstance(event, ResultsTrimmed)]

    def log(self) -> list[Any]:
        return parse_log(self.storage.load(log_key(project_slug(Path()), "s")) or b"").entries


def calling(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Answer with one more call of Read, on a file of its own."""
    number = len(request["messages"]) // 2
    return [
        {"type": "text", "text": "Next."},
        {"type": "tool_use", "name": "Read", "input": {"file_path": f"/{number}"}},
    ]


@contextmanager
def served(**options: Any) -> Iterator[MessagesServer]:
    with MessagesServer(calling, clock=ManualClock(1_767_225_600.0), **options) as server:
        yield server
    assert server.refusals == []
    assert server.errors == []


def run(steps: Callable[[], Any]) -> None:
    anyio.run(steps)


def shown(request: dict[str, Any]) -> dict[str, Any]:
    blocks = [
        block for message in request["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}


@pytest.mark.requirement("L2.2", "L2.7", "L2.8")
@pytest.mark.parametrize(("idle", "cleared"), [(299.0, 0), (300.0, 4)])
def test_a_pause_longer_than_the_cache_lives_clears_all_but_the_last_five(idle: float, cleared: int):
    async def steps() -> None:
        with served() as server:
            shop = Shop(server, settings(priced=False))
            async with shop.open() as session:
                await session.say("begin")
                ids = [await shop.turn(session) for _ in range(9)]
                assert set(files_in_view(session.view)) == {f"/{number}" for number in range(9)}
                ids.append(await shop.turn(session, seconds=idle))
                gone = [one for one, text in shown(shop.sent[-1]).items() if str(text).startswith(CLEARED)]
                assert gone == ids[:cleared]
                if not cleared:
                    assert shop.trims() == []
                    return
                (event,) = shop.trims()
                assert (event.trigger, event.tools, event.paths) == ("idle", ["Read"], ["/0", "/1", "/2", "/3"])
                assert event.tokens_before - event.tokens_after > 4 * 200
                assert set(files_in_view(session.view)) == {f"/{number}" for number in range(4, 10)}
                assert [event for event in shop.events if isinstance(event, CacheBroken)] == []
                await shop.turn(session)
                assert len(shop.trims()) == 1
                assert extends(canonical(shop.sent[-2]), canonical(shop.sent[-1]))

    run(steps)


@pytest.mark.requirement("L2.2")
def test_with_the_long_lifetime_in_use_a_pause_of_minutes_is_none_and_one_of_an_hour_is():
    async def steps() -> None:
        with served() as server:
            shop = Shop(server, settings(priced=False, keep_cold=2))
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(31):  # a short session never pays for the long lifetime
                    await shop.turn(session)
                await shop.turn(session, seconds=400.0)  # a person who pauses once is expected to do so again
                for _ in range(5):
                    await shop.turn(session)
                assert "1h" in str(shop.sent[-1]["system"])
                trims = len(shop.trims())
                await shop.turn(session, seconds=3_599.0)
                assert len(shop.trims()) == trims
                await shop.turn(session, seconds=3_600.0)
                assert len(shop.trims()) == trims + 1

    run(steps)


@pytest.mark.requirement("L2.3")
def test_a_cache_edit_leaves_the_view_alone_stands_where_it_was_put_and_is_consumed_once():
    async def steps() -> None:
        with served(limits=Limits(cache_edits=True)) as server:
            shop = Shop(server, settings(mode="cache_edit"), capabilities=ABLE)
            ids: list[str] = []
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(30):
                    ids.append(await shop.turn(session))
            async with shop.open() as session:  # another process goes on
                for _ in range(15):
                    ids.append(await shop.turn(session))
                view = session.view
            assert not [text for text in shown(shop.sent[-1]).values() if str(text).startswith(CLEARED)]
            assert all(
                extends(canonical(one), canonical(two)) for one, two in zip(shop.sent, shop.sent[1:], strict=False)
            )
            named = [called for edit in view.facts.edits for called in edit.tool_use_ids]
            assert len(view.facts.edits) == 2
            assert named == ids[: len(named)]
            assert len(named) == 2 * 16
            last = [
                block
                for message in server.requests[-1]["messages"]
                for block in message["content"]
                if isinstance(block, dict)
            ]
            assert [block["tool_use_ids"] for block in last if block["type"] == "cache_edits"] == [
                edit.tool_use_ids for edit in view.facts.edits
            ]
            used = [decision_of(entry.body) for entry in shop.log() if entry.kind == DECISION]
            deleted = [one.usage.get("cache_deleted_input_tokens", 0) for one in used if isinstance(one, CallRecorded)]
            assert len([tokens for tokens in deleted if tokens]) == 2
            assert [event for event in shop.events if isinstance(event, CacheBroken)] == []

    run(steps)


@pytest.mark.requirement("L2.3", "L2.9")
@pytest.mark.slow
def test_a_provider_that_declares_nothing_gets_no_edit_and_one_that_lost_it_gets_none_either():
    async def steps() -> None:
        with served() as server:
            shop = Shop(server, settings(mode="cache_edit"))
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(24):
                    await shop.turn(session)
                assert session.view.facts.edits == ()
        with served(limits=Limits(cache_edits=True)) as server:
            shop = Shop(server, settings(mode="cache_edit"), capabilities=ABLE)
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(23):
                    await shop.turn(session)
                assert session.view.facts.edits
            shop.capabilities = frozenset()
            async with shop.open() as session:
                await shop.turn(session)
            assert problems(shop.sent[-1]) == []

    run(steps)


@pytest.mark.requirement("L2.3")
def test_an_edit_outlives_a_cut_that_took_its_results_away():
    async def steps() -> None:
        with served(limits=Limits(cache_edits=True)) as server:
            shop = Shop(server, settings(mode="cache_edit"), capabilities=ABLE)
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(23):
                    await shop.turn(session)
                replies = [entry.uuid for entry in session.view.history if entry.kind == ASSISTANT]
                cause = Cause("compact", "asked", moves_prefix=True)
                await session.log.decide(Compacted(cause, "manual", "full", "A summary.", 9, None, replies[-4]))
                await shop.turn(session)
                edits = [
                    one for message in shop.sent[-1]["messages"] for one in message["content"] if "tool_use_ids" in one
                ]
                assert edits == []
                assert session.view.facts.edits

    run(steps)


@pytest.mark.requirement("L2.9")
def test_idle_time_comes_first_and_alone_then_the_cache_edit():
    async def steps() -> None:
        with served(limits=Limits(cache_edits=True)) as server:
            shop = Shop(server, settings(mode="cache_edit", edit_above=6, edit_keep=2), capabilities=ABLE)
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(6):
                    await shop.turn(session)
                await shop.turn(session, seconds=4_000.0)
                assert [event.trigger for event in shop.trims()] == ["idle"]
                assert session.view.facts.edits == ()
                for _ in range(3):
                    await shop.turn(session)
                assert len(session.view.facts.edits) == 1
                cleared = {one for one in shown(shop.sent[-1]) if one in session.view.overrides.results}
                (edit,) = session.view.facts.edits
                assert isinstance(edit, CacheEdits)
                assert not cleared & set(edit.tool_use_ids)

    run(steps)


@pytest.mark.requirement("L2.4", "L2.9", "C5")
def test_a_provider_that_clears_by_itself_is_asked_to_and_what_it_did_is_logged():
    async def steps() -> None:
        with served() as server:
            shop = Shop(server, settings(mode="provider", window=24_000))
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(14):
                    await shop.turn(session, f"word {shop.turns} " * 1_200)
                with pytest.raises(SessionError, match="provider"):
                    await session.trim(0)
                assert not session.view.overrides.results
            replies = [entry.body["reply"] for entry in shop.log() if entry.kind == ASSISTANT]
            applied = [reply.get("context_management", {}).get("applied_edits", []) for reply in replies]
            asked = ["context_management" in request for request in shop.sent]
            assert asked == [bool(edits) for edits in applied]
            assert asked == sorted(asked)
            assert any(edits and edits[0]["cleared_tool_uses"] > 0 for edits in applied)
            calls = [decision_of(entry.body) for entry in shop.log() if entry.kind == DECISION]
            reasons = [one.cause.reason for one in calls if isinstance(one, CallRecorded)]
            assert sum("the provider cleared" in reason for reason in reasons) == sum(bool(edits) for edits in applied)
            told = [event for event in shop.trims() if event.trigger == "provider"]
            tokens = [sum(edit["cleared_input_tokens"] for edit in edits) for edits in applied if edits]
            assert [event.tokens_before - event.tokens_after for event in told] == list(dict.fromkeys(tokens))
            assert 1 < len(told) < len(tokens)
            assert {event.trigger for event in shop.trims()} == {"provider"}
            assert [event for event in shop.events if isinstance(event, CacheBroken)] == []

    run(steps)


@pytest.mark.requirement("L2.5", "L2.8")
def test_a_budget_and_a_run_by_hand_clear_the_oldest_and_say_so():
    async def steps() -> None:
        with served() as server:
            shop = Shop(server, settings(budget=True, priced=False, budget_tokens=2_000))
            async with shop.open() as session:
                await session.say("begin")
                for _ in range(12):
                    await shop.turn(session)
                assert {event.trigger for event in shop.trims()} == {"budget"}
                before = session.view.tokens
                event = await session.trim(0)
                assert event is not None
                assert (event.trigger, event.tokens_before, event.tokens_after) == (
                    "budget",
                    before,
                    session.view.tokens,
                )
                assert shop.trims()[-1] == event
                assert await session.trim(0) is None
                whole = [one for one in session.view.results if one.tool_use_id not in session.view.overrides.results]
                assert len(whole) == 3
                first = session.view.results[0].tool_use_id
                assert await session.read_back(first) == b"line 1 of it\n" * 60

    run(steps)
