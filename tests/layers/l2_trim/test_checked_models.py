"""Layer 2 on a model that checks thinking: the server clears, and nothing that was sent changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest

from prefixes import extends
from reverie import InMemoryStorage, InputError, Session, Settings, load_settings
from reverie.conversation.boundary import ClearedRange
from reverie.conversation.decisions import (
    ClearingBoundaryMoved,
    PrefixRendered,
    ResultsCleared,
    ResultsClearedByProvider,
    Snipped,
    ThinkingDropped,
    decision_of,
)
from reverie.conversation.entries import ASSISTANT, DECISION
from reverie.conversation.log import parse_log
from reverie.conversation.reads import files_in_view
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import build_request
from reverie.events import CacheBroken, Event, FellBack, ResultsTrimmed
from reverie.layers.l2_trim import TrimPolicy
from reverie.runtime.places.projects import log_key, project_slug
from reverie.runtime.session.cache_plan import CachePlan
from reverie.runtime.session.thinking import ThinkingWatch
from reverie.settings import Switches
from reverie.testing.messages_server import ManualClock, MessagesServer
from reverie.values import replace

MODEL = "claude-opus-5-5"
BETA = "context-management-2025-06-27"
KEEP_THINKING = {"type": "clear_thinking_20251015", "keep": "all"}
TOOLS: list[dict[str, Any]] = [
    {"name": name, "input_schema": {"type": "object"}} for name in ("Read", "Ask", "mcp__x__y")
]


def settings(*, window: int = 60_000, **changes: Any) -> Settings:
    trim = TrimPolicy(**{name: changes.pop(name) for name in list(changes) if name in TrimPolicy.__dataclass_fields__})
    switches = Switches(notes=False, **changes)
    return replace(load_settings(), preset="thrifty", trim=trim, switches=switches, window_tokens=window)


def thinking_caller(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Think, and call Read on a new file; every seventh call is one of a tool whose results are never cleared."""
    number = len([one for one in request["messages"] if one["role"] == "assistant"])
    tool = "mcp__x__y" if number % 7 == 3 else "Read"
    return [
        {"type": "thinking", "thinking": f"File {number} may hold it. " * 5},
        {"type": "tool_use", "name": tool, "input": {"file_path": f"/{number}"}},
    ]


class Reader:
    """A session that reads one large file a turn."""

    def __init__(
        self, server: MessagesServer, client: anthropic.Anthropic, chosen: Settings, betas: tuple[str, ...]
    ) -> None:
        self.server, self.client, self.settings, self.betas = server, client, chosen, list(betas)
        self.storage = InMemoryStorage()
        self.events: list[Event] = []
        self.sent: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []

    def open(self) -> Session:
        opened = Session.open("s", storage=self.storage, settings=self.settings, clock=lambda: self.server.clock.now)
        opened.listen(self.events.append)
        return opened

    async def turn(self, session: Session, *, words: int = 1_500, seconds: float = 10.0) -> str:
        self.server.clock.advance(seconds)
        options: dict[str, Any] = {"betas": self.betas} if self.betas else {}
        request = await session.prepare(
            model=MODEL, max_tokens=2_000, system="Be brief. " * 300, tools=TOOLS, **options
        )
        self.sent.append({key: value for key, value in request.items() if key != "betas"})
        reply = self.client.beta.messages.create(**request)
        self.replies.append(reply.to_dict())
        (called,) = await session.observe(reply)
        await session.result(called.id, f"word{len(self.sent)} " * words)
        return called.id

    def decided(self, kind: type[Any]) -> list[Any]:
        entries = parse_log(self.storage.load(log_key(project_slug(Path()), "s")) or b"").entries
        found = (decision_of(entry.body) for entry in entries if entry.kind == DECISION)
        return [one for one in found if isinstance(one, kind)]

    def heard(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@contextmanager
def reading(
    chosen: Settings, *, betas: tuple[str, ...] = (BETA,), reply: Any = thinking_caller
) -> Iterator[tuple[MessagesServer, Reader]]:
    with (
        MessagesServer(reply, clock=ManualClock(1_767_225_600.0)) as server,
        anthropic.Anthropic(base_url=server.base_url, api_key="any", max_retries=0) as client,
    ):
        yield server, Reader(server, client, chosen, betas)
    assert server.errors == []


def reported(reply: dict[str, Any]) -> int:
    return sum(edit.get("cleared_tool_uses", 0) for edit in reply["context_management"]["applied_edits"])


def thoughts(request: dict[str, Any]) -> int:
    blocks = (
        one for message in request["messages"] if isinstance(message["content"], list) for one in message["content"]
    )
    return sum(one["type"] == "thinking" for one in blocks)


@pytest.mark.requirement("V3", "L2.1", "L2.4", "L2.7")
@pytest.mark.slow
def test_the_server_clears_what_the_log_computes_and_nothing_sent_ever_changes():
    async def steps() -> None:
        with reading(settings(auto_compact=False)) as (server, reader):
            async with reader.open() as session:
                await session.say("begin")
                for turn in range(24):
                    called = await reader.turn(session)
                    clearing = session.view.facts.clearing
                    assert len(session.view.facts.cleared_by_provider) == reported(reader.replies[-1])
                    assert clearing is None or clearing.count == clearing.computed
                    count = session.view.token_count
                    edits = reader.replies[-1]["context_management"]["applied_edits"]
                    assert count.cleared_tokens == sum(edit["cleared_input_tokens"] for edit in edits)
                    assert thoughts(reader.sent[-1]) == turn
                    assert session.view.tool_call(called) is not None
                gone = session.view.facts.cleared_by_provider
                assert len(gone) > 10
                tools = {use.name for use in map(session.view.tool_call, gone) if use is not None}
                assert tools == {"Read"}
                for number, one in enumerate(session.view.results, 1):
                    content = f"word{number} " * 1_500
                    assert await session.read_back(one.tool_use_id) == content.encode()
                paths = {one.path for one in session.view.results if one.tool_use_id not in gone and one.tool == "Read"}
                assert set(files_in_view(session.view)) == paths
                announced = "".join(one.text for one in reader.decided(ResultsClearedByProvider))
                assert all(announced.count(f"handle: {one}") == 1 for one in gone)
                assert str(session.view.messages()).count("can be read again by handle") == len(
                    reader.decided(ResultsClearedByProvider)
                )
                with pytest.raises(InputError, match="the provider cleared"):
                    await session.restore([next(iter(gone))])
            assert server.refusals == []
            for before, after in zip(reader.sent, reader.sent[1:], strict=False):
                assert extends(canonical(before), canonical(after))
            assert all(request["context_management"]["edits"][0] == KEEP_THINKING for request in reader.sent)
            counts = [reported(reply) for reply in reader.replies]
            assert counts == sorted(counts)
            assert len({*counts} - {0}) == len(reader.decided(ClearingBoundaryMoved))
            assert len(reader.decided(PrefixRendered)) == 1
            assert reader.decided(ThinkingDropped) == reader.decided(ResultsCleared) == []
            assert reader.heard(CacheBroken) == []
            handles = [handle for event in reader.heard(ResultsTrimmed) for handle in event.handles]
            assert {event.trigger for event in reader.heard(ResultsTrimmed)} == {"provider"}
            assert set(handles) == gone
            assert len(handles) == len(gone)

    anyio.run(steps)


def with_constant_number(cleared: ClearedRange) -> dict[str, Any]:
    """Return the edit as it would be with a constant number of results to keep."""
    return {**fixed_edit(cleared), "keep": {"type": "tool_uses", "value": 3}}


def without_mark(self: CachePlan, view: View, inserted: int) -> None:
    """Take the messages before the newly cleared results for unchanged."""


fixed_edit = ClearedRange.edit


@pytest.mark.requirement("V3", "L2.4")
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "constant number", "no mark"])
def test_between_two_clearings_nothing_is_written_twice_and_a_clearing_reads_the_cache_before_it(
    fault: str, monkeypatch: pytest.MonkeyPatch
):
    if fault == "constant number":
        monkeypatch.setattr(ClearedRange, "edit", with_constant_number)
    elif fault == "no mark":
        monkeypatch.setattr(CachePlan, "_newly_cleared", without_mark)

    async def steps() -> None:
        with reading(settings(window=40_000, auto_compact=False)) as (_, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(24):
                    await reader.turn(session)
                counts = [reported(reply) for reply in reader.replies]
                usages = [reply["usage"] for reply in reader.replies]
                written = [one["cache_creation_input_tokens"] + one["input_tokens"] for one in usages]
                since = next(at for at, count in enumerate(counts) if count) + 1
                decided = len(reader.decided(ClearingBoundaryMoved)) - 1
                assert decided > 1 or fault == "constant number"
                # Most turns write no more than their result, their call and their thinking.
                long = [at for at in range(since, 24) if written[at] > 3_200]
                assert (len(long) == decided) == (fault != "constant number")
                # A clearing reads the calls and the thinking before the results that it clears.
                if fault != "constant number":
                    read = [usages[at]["cache_read_input_tokens"] for at in long]
                    assert (min(read) > 2_000) == (fault == "")

    anyio.run(steps)


@pytest.mark.requirement("V3", "L2.4")
@pytest.mark.slow
def test_a_session_resumed_before_every_request_clears_and_writes_as_one_that_runs_through():
    async def steps() -> None:
        with (
            reading(settings(window=40_000, auto_compact=False)) as (server, resumed),
            reading(settings(window=40_000, auto_compact=False)) as (_, through),
        ):
            async with resumed.open() as session:
                await session.say("begin")
            async with through.open() as session:
                await session.say("begin")
                for _ in range(20):
                    await through.turn(session)
            for number in range(20):
                if number % 3 == 1:  # a process that dies between the decision and the request
                    async with resumed.open() as session:
                        await session.prepare(
                            model=MODEL, max_tokens=2_000, system="Be brief. " * 300, tools=TOOLS, betas=[BETA]
                        )
                async with resumed.open() as session:
                    await resumed.turn(session)
            assert server.refusals == []
            assert [reported(one) for one in resumed.replies] == [reported(one) for one in through.replies]
            written = [
                [one["usage"]["cache_creation_input_tokens"] for one in reader.replies] for reader in (resumed, through)
            ]
            # A resumed session knows the last entries of the cache, not the one after the first message.
            assert written[0] == pytest.approx(written[1], abs=10)
            assert len(resumed.decided(PrefixRendered)) == 1
            assert reported(resumed.replies[-1]) > 6

    anyio.run(steps)


@pytest.mark.requirement("V3", "L2.4")
@pytest.mark.slow
def test_every_request_is_rebuilt_from_the_log_alone():
    async def steps() -> None:
        with reading(settings(window=40_000, auto_compact=False)) as (_, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(20):
                    await reader.turn(session)
            log = parse_log(reader.storage.load(log_key(project_slug(Path()), "s")) or b"").entries
            replies = [at for at, entry in enumerate(log) if entry.kind == ASSISTANT]
            for at, sent in zip(replies, reader.sent, strict=True):
                built = build_request(View().fold_all(log[:at]))
                assert built["context_management"] == sent["context_management"]
                assert canonical(built) == canonical(sent)
            assert len({str(sent["context_management"]) for sent in reader.sent}) > 3

    anyio.run(steps)


@pytest.mark.requirement("V3")
@pytest.mark.slow
@pytest.mark.parametrize("is_watched", [True, False])
def test_clearing_here_costs_thinking_and_without_the_watch_the_server_refuses(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
):
    async def blind(self: ThinkingWatch, log: Any, facts: Any) -> dict[str, Any]:
        return build_request(log.view)

    if not is_watched:
        monkeypatch.setattr(ThinkingWatch, "request", blind)

    async def steps() -> None:
        with reading(settings(mode="client", auto_compact=False)) as (server, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(9):
                    await reader.turn(session)
                if not is_watched:
                    with pytest.raises(anthropic.BadRequestError, match="different conversation"):
                        await reader.turn(session, seconds=400.0)
                    return
                await reader.turn(session, seconds=400.0)
            (cleared,), (dropped,) = reader.decided(ResultsCleared), reader.decided(ThinkingDropped)
            assert len(dropped.messages) == 8
            assert f"drops the thinking of 8 later replies, about {dropped.tokens} tokens" in cleared.cause.reason
            said = [event for event in reader.heard(FellBack) if event.what in ("trim", "thinking")]
            assert [event.what for event in said[:2]] == ["trim", "thinking"]
            assert said[1].why in cleared.cause.reason
            assert "leave trim.mode at 'auto'" in said[0].why
            assert server.refusals == []

    anyio.run(steps)


@pytest.mark.requirement("V3")
def test_a_loop_that_cannot_send_the_beta_clears_nothing_and_is_told_how_once():
    async def steps() -> None:
        with reading(settings(auto_compact=False, budget_tokens=1_000), betas=()) as (server, reader):
            async with reader.open() as session:
                await session.say("begin")
                await reader.turn(session)
                assert reader.heard(FellBack) == []  # there is nothing to clear yet
                for _ in range(8):
                    await reader.turn(session, seconds=400.0)
            assert server.refusals == []
            assert all("context_management" not in request for request in reader.sent)
            assert reader.decided(ResultsCleared) == []
            (said,) = reader.heard(FellBack)
            assert said.what == "trim"
            assert BETA in said.why

    anyio.run(steps)


@pytest.mark.requirement("V3", "L2.9")
@pytest.mark.slow
def test_a_user_who_asks_may_clear_and_restore_here_and_is_told_the_price_first():
    async def steps() -> None:
        with reading(settings(auto_compact=False, budget_trim=True)) as (server, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(5):
                    await reader.turn(session)
                (refused,) = reader.heard(FellBack)
                assert "budget_trim clears nothing" in refused.why
                done = await session.trim(0)
                assert done is not None
                assert "drops the thinking of" in reader.heard(FellBack)[-1].why
                await reader.turn(session)
                await session.restore(done.handles)
                await reader.turn(session)
            assert len(reader.decided(ThinkingDropped)) == 2
            assert server.refusals == []

    anyio.run(steps)


@pytest.mark.requirement("V3", "L2.11")
@pytest.mark.slow
@pytest.mark.parametrize("switch", ["snip", "collapse"])
def test_cuts_from_the_middle_are_refused_with_one_event(switch: str):
    async def steps() -> None:
        with reading(settings(window=30_000, mode="off", **{switch: True})) as (server, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(14):
                    await reader.turn(session)
            (said,) = [event for event in reader.heard(FellBack) if event.what == switch]
            assert "compacting instead" in said.why
            assert reader.decided(Snipped) == []
            assert server.refusals == []

    anyio.run(steps)


@pytest.mark.requirement("L2.4")
def test_a_batch_larger_than_the_kept_results_reaches_the_model_before_any_of_it_is_cleared():
    def batches(request: dict[str, Any]) -> list[dict[str, Any]]:
        number = len(request["messages"])
        return [{"type": "tool_use", "name": "Read", "input": {"file_path": f"/{number}/{at}"}} for at in range(7)]

    async def steps() -> None:
        with reading(settings(window=30_000, auto_compact=False), reply=batches) as (_, reader):
            async with reader.open() as session:
                await session.say("begin")
                for _ in range(5):
                    request = await session.prepare(model=MODEL, max_tokens=2_000, tools=TOOLS, betas=[BETA])
                    reader.sent.append(request)
                    unseen = set(session.view.group(session.view.length - 1).expects)
                    reply = reader.client.beta.messages.create(**request)
                    calls = await session.observe(reply)
                    gone = session.view.facts.cleared_by_provider
                    assert not unseen & gone
                    assert len(gone) % 7 == 0
                    for one in calls:
                        await session.result(one.id, "word " * 900)
                assert session.view.facts.cleared_by_provider
            kept = [request["context_management"]["edits"][1:] for request in reader.sent]
            assert {edits[0]["keep"]["value"] % 7 for edits in kept if edits} == {0}
            assert len(reader.decided(PrefixRendered)) == 1

    anyio.run(steps)
