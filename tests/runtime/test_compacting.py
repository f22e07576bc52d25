"""Layer 4 in a session: the past becomes a summary, nothing is lost for good, and undo works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import anyio
import pytest

from pictures import image_block, png
from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.cache.economics import RelativeRates
from reverie.cache.prices import prices_for
from reverie.cache.usage import Usage, usage_of
from reverie.conversation.decisions import (
    CallRecorded,
    Cause,
    Compacted,
    CompactionFailed,
    InstructionsAttached,
    NotesUpdated,
    Pinned,
    Snipped,
)
from reverie.conversation.standing_context import StandingItem
from reverie.conversation.tokens.tally import CUT
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.errors import CompactionError, PromptTooLong, SessionError, WindowFull
from reverie.events import (
    CacheBroken,
    CompactionEnded,
    CompactionProgressed,
    DecisionMade,
    Event,
    FellBack,
    ReplyObserved,
)
from reverie.layers.l4_compact import CompactPolicy
from reverie.models import ScriptedModel
from reverie.models.anthropic import AnthropicModel
from reverie.runtime.guard.hook_answers import HookOutcome
from reverie.runtime.guard.hooks import Hooks
from reverie.runtime.places.projects import inbox_key, project_slug
from reverie.runtime.session.compact.breaker import Breaker
from reverie.runtime.session.inbox import post
from reverie.settings import Switches
from reverie.testing.messages_server import ManualClock, MessagesServer
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
START = 1_790_000_000.0
SYSTEM = "You are careful and brief. " * 40
TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": f"{name} something.", "input_schema": {"type": "object"}}
    for name in ("Read", "Bash", "TodoWrite")
]
PROSE = "The harbour master wrote down every ship that came in, and the tide it came with. "


def run(steps: Callable[[], Any]) -> None:
    anyio.run(steps)


def small(window: int = 24_000, **switches: bool) -> Settings:
    return replace(load_settings(), window_tokens=window, switches=Switches(**switches))


class Talk:
    """A session and a conversation that fills it: every result names a file, a test and a commit."""

    def __init__(self, session: Session, events: list[Event] | None = None) -> None:
        self.session = session
        self.turns = self.cached = 0
        self.now = START
        self.events: list[Event] = events if events is not None else []
        self.requests: list[dict[str, Any]] = []
        session.listen(self.events.append)

    async def prepare(self, **options: Any) -> dict[str, Any]:
        request = await self.session.prepare(model=MODEL, max_tokens=1_000, system=SYSTEM, tools=TOOLS, **options)
        assert problems(request) == []
        self.requests.append(request)
        return request

    async def turn(self, words: int = 40) -> dict[str, Any]:
        """Ask, answer with a call, give its result."""
        request = await self.prepare()
        self.turns += 1
        n = self.turns
        blocks = [
            {"type": "text", "text": f"I look at part {n}."},
            {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"src/part_{n}/model.py"}},
        ]
        await self.session.observe({"id": f"m{n}", "role": "assistant", "model": MODEL, "content": blocks})
        await self.session.result(f"t{n}", f"tests/test_part_{n}.py::test_it failed at 4f2a{n:04d}\n" + PROSE * words)
        return request

    async def until_compacted(self, limit: int = 80) -> CompactionEnded:
        for _ in range(limit):
            await self.turn()
            found = [event for event in self.events if isinstance(event, CompactionEnded)]
            if found:
                return found[-1]
        raise AssertionError("it was never compacted")

    async def billed_answer(self, per_byte: float, *, is_cached: bool = False) -> None:
        """Answer the last request with a reply that reports usage: so many tokens a byte of the request."""
        request = self.requests[-1]
        self.turns += 1
        n = self.turns
        call = {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": f"src/part_{n}/model.py"}}
        tokens = int(len(repr(request)) * per_byte)
        usage = {"input_tokens": tokens, "output_tokens": 30}
        if is_cached:
            read = min(tokens, self.cached)
            written = {"cache_read_input_tokens": read, "cache_creation_input_tokens": tokens - read}
            usage, self.cached = {**usage, **written, "input_tokens": 0}, tokens
        reply = {"id": f"m{n}", "role": "assistant", "model": MODEL, "content": [call], "usage": usage}
        await self.session.observe(reply)
        await self.session.result(f"t{n}", f"part {n} " + PROSE * 40)

    def decisions(self) -> list[Any]:
        return [event.decision for event in self.of(DecisionMade)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def opened(storage: InMemoryStorage, settings: Settings, **rest: Any) -> Session:
    clock = rest.pop("clock", lambda: START)
    return Session.open("s", storage=storage, settings=settings, clock=clock, **rest)


def keeping(**switches: bool) -> dict[str, bool]:
    """Switches under which nothing but layer 4 makes room."""
    return {"priced_trim": False, "idle_trim": False, "offload": False, **switches}


@pytest.mark.requirement("L4.1", "L4.2", "L4.4", "L4.7", "L4.8", "L4.10", "L4.15", "B5")
def test_at_the_threshold_the_past_becomes_a_summary_without_any_model():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(**keeping())) as session:
            talk = Talk(session)
            first = await session.say("Please keep to src/harbour/ledger.py and the number 7741, nothing else.")
            ended = await talk.until_compacted()
            line = session.thresholds.auto_compact
            assert ended.model_calls == 0
            assert ended.method == "notes"
            assert ended.trigger == "auto"
            assert ended.tokens_before >= line * 3 // 4 > ended.tokens_after
            assert ended.tokens_after < line
            assert ended.metrics  # what filled the window before
            assert 0 < ended.unchanged_tokens_written_again < ended.tokens_after
            shown = talk.requests[-1]["messages"][0]["content"]
            text = shown if isinstance(shown, str) else shown[0]["text"]
            assert text.startswith("This session goes on")
            assert "Please keep to src/harbour/ledger.py and the number 7741, nothing else." in text
            assert "src/part_1/model.py" in text
            assert "tests/test_part_1.py" in text
            boundary = next(e.decision for e in talk.events if isinstance(getattr(e, "decision", None), Compacted))
            assert boundary.last_before
            assert boundary.first_kept
            assert boundary.preserved["head"] == boundary.first_kept
            assert boundary.handle in boundary.summary
            assert boundary.discovered_tools == [], "only tools that a search found are named"
            back = (await session.read_back(boundary.handle)).decode()
            assert first.uuid in back
            assert "part_1/model.py" in back
            assert [event.phase for event in talk.of(CompactionProgressed)][-1] == "done"
            await talk.turn()  # and the work goes on

    run(steps)


@pytest.mark.requirement("L4.14", "L4.13")
def test_undo_gives_the_past_back_byte_for_byte_and_does_not_compact_again_at_once():
    async def steps() -> None:
        storage = InMemoryStorage()
        async with opened(storage, small(**keeping())) as session:
            talk = Talk(session)
            await session.say("Look at everything.")
            before: list[bytes] = []
            while not talk.of(CompactionEnded):
                before = canonical(talk.requests[-1]) if talk.requests else []
                await talk.turn()
            await session.undo()
            count = len(talk.of(CompactionEnded))
            again = await talk.prepare()
            assert canonical(again)[: len(before)] == before  # all that was sent before the boundary is as it was
            assert len(talk.of(CompactionEnded)) == count
            assert any("undone" in event.why for event in talk.of(FellBack))
            with pytest.raises(SessionError, match="no compaction to undo"):
                await session.undo()
        async with opened(storage, small(**keeping())) as session:  # it stays so in another process
            talk = Talk(session)
            await talk.prepare()
            assert talk.of(CompactionEnded) == []
            assert session.parts.compact.breaker.suspended
            report = await session.compact()  # a person may always
            assert report.tokens_after < report.tokens_before
            assert not session.parts.compact.breaker.suspended

    run(steps)


@pytest.mark.requirement("L4.14")
def test_after_undo_the_blocking_limit_compacts_again():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(**keeping())) as session:
            talk = Talk(session)
            await session.say("Look at everything.")
            await talk.until_compacted()
            await session.undo()
            for _ in range(12):
                await talk.turn(20)
            assert len(talk.of(CompactionEnded)) >= 2
            assert not session.parts.compact.breaker.suspended

    run(steps)


@pytest.mark.requirement("L4.2", "L4.3")
def test_notes_of_a_model_are_used_and_what_follows_their_cursor_is_never_cut():
    model = ScriptedModel(lambda _: "<summary>By the model.</summary>", name=f"scripted:{MODEL}")

    async def steps() -> None:
        async with opened(InMemoryStorage(), small(40_000, **keeping()), model=model) as session:
            session.parts.notes.forks = None  # nobody writes notes behind; the ones below stand
            talk = Talk(session)
            await session.say("Look at everything.")
            for _ in range(14):
                await talk.turn()
            covered = session.view.group(session.view.length - 1).pieces[-1].uuid
            cause = Cause("notes", "due")
            for _ in range(3):
                await talk.turn()
            await session.log.decide(
                NotesUpdated(cause, {"Current State": "Half of the harbour is read."}, covered, "model")
            )
            report = await session.compact()
            assert report.method == "notes"
            assert report.model_calls == 0
            assert model.requests == []
            assert "Half of the harbour is read." in report.summary
            kept = str((await talk.prepare())["messages"][1:])
            assert all(f"src/part_{n}/model.py" in kept for n in (15, 16, 17))

    run(steps)


@pytest.mark.requirement("L4.2", "L4.5")
def test_notes_whose_cursor_is_gone_are_not_used_and_the_model_is_asked():
    asked: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any]) -> str:
        asked.append(request)
        return (
            "<analysis>My draft.</analysis><summary>1. Primary request: read all of it, and src/dreamt/of.py.</summary>"
        )

    async def steps() -> None:
        model = ScriptedModel(answer, name=f"scripted:{MODEL}")
        async with opened(InMemoryStorage(), small(**keeping()), model=model) as session:
            session.parts.notes.forks = None
            talk = Talk(session)
            await session.say("Look at everything.")
            for _ in range(5):
                await talk.turn()
            await session.log.decide(NotesUpdated(Cause("notes", "due"), {"Current State": "x"}, "nowhere", "model"))
            report = await session.compact()
            assert report.method == "full"
            assert report.model_calls == 1
            assert "read all of it, and [a name that is not in the log]." in report.summary
            assert any("1 names of the summary" in event.why for event in talk.of(FellBack))
            assert "My draft" not in report.summary
            assert "<summary>" not in report.summary
            assert "Look at everything." in report.summary
            assert any(event.what == "compact from notes" for event in talk.of(FellBack))
            assert [event.characters for event in talk.of(CompactionProgressed) if event.characters]
            assert asked[0]["tools"]
            assert asked[0]["messages"][-1]["content"][-1]["text"].startswith("<reverie-fork")

    run(steps)


@pytest.mark.requirement("L4.5", "L4.12", "V13")
def test_a_fork_without_text_is_followed_by_one_plain_request_and_that_by_the_local_note_taker():
    calls: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any]) -> Any:
        calls.append(request)
        return [{"type": "tool_use", "name": "Read", "input": {}}] if len(calls) == 1 else "<summary>Plain.</summary>"

    async def steps() -> None:
        model = ScriptedModel(answer, name=f"scripted:{MODEL}")
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            talk = Talk(session)
            await session.say([{"type": "text", "text": "Look."}, image_block(png(1, 1))])
            for _ in range(5):
                await talk.turn()
            report = await session.compact(instructions="Mind the tides.")
            assert report.model_calls == 2
            assert "Plain." in report.summary
            plain = calls[1]
            assert "You summarise" in plain["system"]
            assert "thinking" not in plain
            assert "[image]" in str(plain)
            assert plain["messages"][-1]["content"][-1]["text"].endswith("Mind the tides.")
            assert problems(dict(plain)) == []
            for _ in range(5):
                await talk.turn()
            model._function = lambda _: ""  # pyright: ignore[reportPrivateUsage]
            report = await session.compact(instructions="Again.")
            assert (report.method, report.model_calls) == ("notes", 2)
            assert any("no summary" in event.why and "local" in event.why for event in talk.of(FellBack))

    run(steps)


@pytest.mark.requirement("V9", "L4.5")
@pytest.mark.parametrize(
    "bad",
    [
        {"content": "I cannot", "stop_reason": "refusal", "stop_details": {"category": "reasoning_extraction"}},
        {"content": [], "stop_reason": "refusal"},
        {"content": [], "stop_reason": "max_tokens"},
        {"content": [{"type": "tool_use", "name": "Read", "input": {}}], "stop_reason": "tool_use"},
        {"content": [{"type": "text", "text": " \n"}], "stop_reason": "end_turn"},
    ],
)
def test_a_summary_that_is_refused_or_empty_falls_to_the_next_path_at_once(bad: dict[str, Any]):
    calls: list[Mapping[str, Any]] = []

    def refusing(times: int) -> Callable[[Mapping[str, Any]], Any]:
        def answer(request: Mapping[str, Any]) -> Any:
            calls.append(request)
            return bad if len(calls) <= times else "<summary>Plain.</summary>"

        return answer

    async def steps() -> None:
        model = ScriptedModel(refusing(1), name=f"scripted:{MODEL}")
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(5):
                await talk.turn()
            report = await session.compact()
            assert (len(calls), report.model_calls) == (2, 2)  # the fork, then the plain request
            assert "Plain." in report.summary
            assert "I cannot" not in report.summary
            for _ in range(5):
                await talk.turn()
            calls.clear()
            model._function = refusing(9)  # pyright: ignore[reportPrivateUsage]
            report = await session.compact()
            assert (report.method, len(calls)) == ("notes", 2)  # then the local note-taker, and no third call
            assert "I cannot" not in report.summary
            assert all(problems(dict(request)) == [] for request in calls)

    run(steps)


@pytest.mark.requirement("L4.6")
@pytest.mark.parametrize(
    ("model_name", "options", "drafts"),
    [
        ("claude-sonnet-4-5", {}, True),
        ("claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}, False),
        ("claude-opus-4-8", {}, True),
        ("claude-opus-4-8", {"thinking": {"type": "adaptive"}}, False),
        ("claude-opus-5", {}, False),
        ("claude-haiku-5-5", {"thinking": {"type": "disabled"}}, False),
        ("claude-fable-5-1", {}, False),
        ("claude-of-tomorrow", {}, False),
    ],
)
def test_only_a_model_that_does_not_think_is_asked_for_a_draft(model_name: str, options: dict[str, Any], drafts: bool):
    calls: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any]) -> Any:
        calls.append(request)
        return "" if len(calls) == 1 else "<summary>Plain.</summary>"

    async def steps() -> None:
        model = ScriptedModel(answer, name=f"scripted:{model_name}")
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            await session.say("Look.")
            for number in range(6):
                await session.prepare(model=model_name, max_tokens=2_000, tools=TOOLS, **options)
                use = {"type": "tool_use", "id": f"d{number}", "name": "Read", "input": {}}
                await session.observe({"id": f"r{number}", "role": "assistant", "content": [use], "model": model_name})
                await session.result(f"d{number}", "The harbour book. " * 200)
            await session.compact()
            assert ["<analysis>" in str(request["messages"][-1]) for request in calls] == [drafts, drafts]

    run(steps)


@pytest.mark.requirement("L4.12")
def test_a_summary_request_that_is_too_long_loses_its_oldest_rounds_until_it_fits():
    sizes: list[int] = []

    def answer(request: Mapping[str, Any]) -> str:
        sizes.append(len(request["messages"]))
        if len(sizes) <= 2:
            raise PromptTooLong("prompt is too long", tokens=12_000 if len(sizes) == 1 else None, limit=11_000)
        return "<summary>What was left.</summary>"

    async def steps() -> None:
        model = ScriptedModel(answer, name=f"scripted:{MODEL}")
        settings = small(200_000, **keeping(), notes=False, compact_from_notes=False)
        async with opened(InMemoryStorage(), settings, model=model) as session:
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(10):
                await talk.turn()
            report = await session.compact()
            assert "What was left." in report.summary
            assert sizes[0] >= sizes[1] > sizes[2] >= 2

    run(steps)


@pytest.mark.requirement("L4.11")
def test_a_part_from_a_message_on_keeps_the_prefix_and_up_to_one_keeps_what_follows():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(200_000, **keeping())) as session:
            talk = Talk(session)
            await session.say("The first task.")
            for _ in range(6):
                await talk.turn(200)
            second = await session.say("The second task, please.")
            for _ in range(6):
                await talk.turn(200)
            before = await talk.prepare()
            report = await session.compact(from_message=second.uuid, dry_run=True)
            assert canonical(await talk.prepare()) == canonical(before)  # a dry run changes nothing
            assert report.method == "from"
            assert "The second task, please." in report.summary
            await session.compact(from_message=second.uuid)
            assert talk.of(CompactionEnded)[-1].unchanged_tokens_written_again == 0
            after = canonical(await talk.prepare())
            kept = len(canonical(before)) // 3
            assert after[:kept] == canonical(before)[:kept]  # the cached prefix stays
            await session.undo()
            assert canonical(await talk.prepare()) == canonical(before)
            report = await session.compact(up_to=second.uuid[:13])
            assert talk.of(CompactionEnded)[-1].unchanged_tokens_written_again > 0
            request = await talk.prepare()
            assert report.method == "up_to"
            assert "part_3" in report.summary
            assert str(request["messages"][1:]).count("part_12/model.py")
            assert "The second task" in str(request)
            with pytest.raises(Exception, match="is in the view"):
                await session.compact(up_to="nothing")

    run(steps)


@pytest.mark.requirement("L4.13")
def test_one_that_frees_too_little_is_not_applied_and_three_failures_stop_trying_until_the_window_is_full():
    async def steps() -> None:
        now = [START]
        settings = small(24_000, **keeping())
        async with opened(InMemoryStorage(), settings, clock=lambda: now[0]) as session:
            talk = Talk(session)
            await session.say("Hello there.")
            with pytest.raises(CompactionError):
                await session.compact()

            async def turn(tokens: int) -> int:
                """Answer with this bill, mostly for system prompt and tools; count the attempts of the next request."""
                now[0] += 1.0
                usage = {"input_tokens": tokens, "output_tokens": 5}
                text = [{"type": "text", "text": "Yes."}]
                await session.observe(
                    {"id": f"m{now[0]}", "role": "assistant", "model": MODEL, "content": text, "usage": usage}
                )
                await session.say("And now?")
                tried = session.view.facts.failures
                try:
                    await talk.prepare()
                finally:
                    tried = session.view.facts.failures - tried
                return tried

            at = session.thresholds
            await talk.prepare()
            nearly = at.blocking - 100  # system prompt and tools leave no room for any summary
            assert [await turn(nearly) for _ in range(5)] == [1, 1, 1, 0, 0]
            for probe in range(5):  # half-open after five minutes, three times at most
                now[0] += 301.0
                assert await turn(nearly) == (1 if probe < 3 else 0)
            before = session.view.facts.failures
            with pytest.raises(WindowFull, match="new session"):
                await turn(at.blocking)
            assert session.view.facts.failures == before + 1  # a full window is always tried

    run(steps)


@pytest.mark.requirement("L4.13")
@pytest.mark.parametrize("share", [0.1, 0.6], ids=["freed most", "freed less than half"])
def test_only_compactions_that_freed_less_than_half_count_as_refilled(share: float):
    policy = CompactPolicy()
    breaker = Breaker()
    for at in range(4):
        made = Compacted(Cause("compact", "full"), "auto", "notes", "s", 1_000, None, None)
        breaker = breaker.after(replace(made, tokens_after=int(1_000 * share)), START + at, policy).replied()
    stopped = breaker.why_not(policy, START + 9, blocked=False) is not None
    assert stopped == (share > 0.5)
    assert breaker.why_not(policy, START + 9, blocked=True) is None


@pytest.mark.requirement("L4.13", "V13")
def test_a_full_window_is_compacted_by_the_local_note_taker_while_the_breaker_is_open():
    async def steps() -> None:
        calls: list[Any] = []
        model = ScriptedModel(lambda request: calls.append(request) or "", name=f"scripted:{MODEL}")
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(3):
                await session.log.decide(CompactionFailed(Cause("compact", "full"), "the model is down"))
            await talk.until_compacted()
            assert calls == []
            assert session.parts.compact.breaker.failures == 0

    run(steps)


@pytest.mark.requirement("V13")
@pytest.mark.parametrize("asked", [{}, {"instructions": "Mind the tides."}, {"from_message": "first"}])
def test_a_dry_run_calls_no_model_and_says_that_it_is_an_estimate(asked: dict[str, str]):
    async def steps() -> None:
        calls: list[Any] = []
        model = ScriptedModel(
            lambda request: calls.append(request) or "<summary>Short.</summary>", name=f"scripted:{MODEL}"
        )
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            talk = Talk(session)
            first = await session.say("Look.")
            for _ in range(5):
                await talk.turn()
            await talk.prepare()
            given = {key: first.uuid if value == "first" else value for key, value in asked.items()}
            before = canonical(talk.requests[-1])
            await session.observe({"id": "z", "role": "assistant", "content": [{"type": "text", "text": "Done."}]})
            report = await session.compact(dry_run=True, **given)
            assert (calls, report.is_estimate, report.model_calls) == ([], True, 0)
            assert (report.refusal, report.tokens_after < report.tokens_before) == ("", True)
            assert session.view.facts.compactions == ()
            assert canonical(await talk.prepare())[: len(before)] == before
            written = await session.compact(**given)  # the known-bad twin: the same without dry_run calls
            assert (len(calls), written.is_estimate) == (1, False)

    run(steps)


def test_a_dry_run_of_a_short_session_reports_why_nothing_would_be_compacted():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(**keeping())) as session:
            await session.say("Look.")
            report = await session.compact(dry_run=True)
            assert "it would free too little" in report.refusal
            assert f"{report.tokens_before:,} tokens before, {report.tokens_after:,} after" in report.refusal
            with pytest.raises(CompactionError, match="it would free too little"):  # not a dry run: it failed
                await session.compact()
            assert session.view.facts.compactions == ()

    run(steps)


@pytest.mark.requirement("V11", "L4.1")
@pytest.mark.parametrize("switch", ["compact", "auto_compact"])
def test_with_compaction_off_the_blocking_limit_still_holds(switch: str):
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(40_000, **keeping(), **{switch: False})) as session:
            talk = Talk(session)
            await session.say("Look.")
            while session.view.token_count.tokens < session.thresholds.blocking:
                await talk.turn()
            with pytest.raises(WindowFull) as full:
                await talk.prepare()
            assert full.value.tokens >= full.value.limit == session.thresholds.blocking
            assert session.view.token_count.tokens < 40_000

    run(steps)


@pytest.mark.requirement("L4.9")
def test_what_is_restored_shrinks_until_the_whole_result_is_at_most_half_of_the_threshold():
    class Open:
        name = "open"
        only_after_cuts = True

        async def items(self, view: View) -> list[StandingItem]:
            files = [
                StandingItem(f"file:{n}", self.name, f"the file {n}", f"src/file_{n}.py\n{PROSE * 120}", budget="files")
                for n in range(9)
            ]
            skill = StandingItem("skill:tides", self.name, "the skill tides", PROSE * 20, budget="skills")
            steps = StandingItem("steps", self.name, "the steps", "Todo: read on.")
            return [*files, skill, steps]

    async def steps() -> None:
        model = ScriptedModel(lambda _: "<summary>Short.</summary>", name=f"scripted:{MODEL}")
        settings = small(60_000, **keeping(), notes=False, compact_from_notes=False)
        async with opened(InMemoryStorage(), settings, model=model) as session:
            session.parts.standing.add(Open())
            talk = Talk(session)
            await session.say("Look.")
            await talk.until_compacted(120)
            sent = str(talk.requests[-1]["messages"])
            assert sent.count("Todo: read on.") == 1
            assert "src/file_0.py" in sent
            assert "src/file_5.py" not in sent  # five at most
            assert "Left out here to save room: the file 5 (read it back by its handle ctx-" in sent
            ended = talk.of(CompactionEnded)[0]
            assert ended.tokens_after <= session.thresholds.auto_compact // 2

    run(steps)


@pytest.mark.requirement("F2", "L4.5")
def test_hooks_may_add_instructions_block_and_add_context():
    payloads: list[tuple[str, dict[str, Any]]] = []
    block = [False]

    async def hook(payload: Mapping[str, Any]) -> dict[str, Any]:
        payloads.append((str(payload.get("hook_event_name") or payload.get("event")), dict(payload)))
        return {}

    class Listening(Hooks):
        async def run(self, event: str, payload: Mapping[str, Any], *, tool: str = "") -> HookOutcome:
            payloads.append((event, dict(payload)))
            if event == "before_compact":
                return HookOutcome(block=block[0], reason="not now", instructions="Keep the tides.")
            return HookOutcome(context="The hook says hello." if event == "after_compact" else "")

    async def steps() -> None:
        asked: list[str] = []

        def answer(request: Mapping[str, Any]) -> str:
            asked.append(request["messages"][-1]["content"][-1]["text"])
            return "<summary>Short.</summary>"

        model = ScriptedModel(answer, name=f"scripted:{MODEL}")
        async with opened(InMemoryStorage(), small(**keeping(), notes=False), model=model) as session:
            session.hooks = Listening({}, {}, session="s", cwd=".", emit=session.log.emit)
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(5):
                await talk.turn()
            block[0] = True
            with pytest.raises(CompactionError, match="not now"):
                await session.compact(instructions="Mine.")
            block[0] = False
            await session.compact(instructions="Mine.")
            assert asked[0].index("Mine.") < asked[0].index("Keep the tides.")
            assert [event for event, _ in payloads][-3:] == ["before_compact", "after_compact", "session_start"]
            assert payloads[-1][1] == {"source": "compact"}
            assert "The hook says hello." in str((await talk.prepare())["messages"][-1])
            phases = [event.phase for event in talk.of(CompactionProgressed)]
            assert {"hooks before", "compacting", "hooks after"} <= set(phases)
            assert phases[-1] == "done"

    run(steps)


@pytest.mark.requirement("Q5")
def test_a_prompt_that_the_provider_refuses_is_compacted_well_below_what_it_takes():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(200_000, **keeping())) as session:
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(8):
                await talk.turn()
            count = session.view.token_count.tokens
            error = PromptTooLong("too long", tokens=count * 2, limit=count)  # half of it fits
            report = await session.compact_reactively(error)
            assert report.decision.trigger == "reactive"
            assert report.tokens_after <= count * 3 // 8
            await talk.prepare()

    run(steps)


@pytest.mark.requirement("K13")
def test_commands_from_other_processes_compact_and_undo_at_the_round_boundary():
    async def steps() -> None:
        storage = InMemoryStorage()
        async with opened(storage, small(200_000, **keeping())) as session:
            talk = Talk(session)
            await session.say("Look.")
            for _ in range(12):
                await talk.turn(100)
            before = canonical(await talk.prepare())
            from pathlib import Path

            inbox = inbox_key(project_slug(Path(".")), "s")
            post(storage, inbox, "compact", {"instructions": ""})
            await talk.prepare()
            assert len(talk.of(CompactionEnded)) == 1
            assert list(storage.list(inbox)) == []
            done = session.view.facts.compactions[-1]
            post(storage, inbox, "undo", {"compaction": done})
            post(storage, inbox, "undo", {"compaction": done})  # asked twice, done once
            assert canonical(await talk.prepare()) == before
            post(storage, inbox, "compact", {"up_to": "no such message"})
            await talk.prepare()
            assert any("from the inbox failed" in event.why for event in talk.of(FellBack))

    run(steps)


@pytest.mark.requirement("C7", "C5", "L4.16")
@pytest.mark.requirement("V2")
@pytest.mark.parametrize("binds", [False, True], ids=["free thinking", "thinking that another model checks"])
def test_a_window_that_cost_enough_is_compacted_unless_a_model_checks_its_thinking(binds: bool):
    async def steps() -> None:
        now = [START]
        settings = replace(small(200_000, **keeping()), compact=CompactPolicy(patience=0.1))
        async with opened(InMemoryStorage(), settings, clock=lambda: now[0]) as session:
            talk = Talk(session)
            await session.say("Look.")
            if binds:  # a reply of a model that checks thinking came before
                session.parts.thinking.bind("another reply", "digest")
            for _ in range(40):
                await talk.prepare()
                await talk.billed_answer(0.25)
                now[0] += 5.0
            ended = talk.of(CompactionEnded)
            assert bool(ended) is not binds
            reasons = [one.cause.reason for one in talk.decisions() if isinstance(one, Compacted)]
            assert all("carrying the window has cost" in reason for reason in reasons)
            assert talk.of(CacheBroken) == []

    run(steps)


@pytest.mark.requirement("L4.18")
@pytest.mark.parametrize("good", [True, False])
def test_a_session_whose_provider_caches_nothing_is_compacted_earlier(monkeypatch: pytest.MonkeyPatch, good: bool):
    if not good:  # the twin takes the prices of a cache that is not there
        monkeypatch.setattr(RelativeRates, "uncached", property(lambda rates: rates))

    async def first_compaction(is_cached: bool) -> float:
        now = [START]
        settings = replace(small(200_000, **keeping()), compact=CompactPolicy(patience=0.1))
        async with opened(InMemoryStorage(), settings, clock=lambda: now[0]) as session:
            talk = Talk(session)
            await session.say("Look.")
            for number in range(60):
                await talk.prepare()
                if talk.of(CompactionEnded):
                    return number
                await talk.billed_answer(0.25, is_cached=is_cached)
                now[0] += 5.0
        return inf

    async def steps() -> None:
        uncached, cached = await first_compaction(False), await first_compaction(True)
        assert (uncached < cached) is good, (uncached, cached)

    run(steps)


@pytest.mark.requirement("L4.7")
def test_pinned_words_of_the_user_survive_whatever_their_age():
    async def steps() -> None:
        settings = small(24_000, **keeping())
        async with opened(InMemoryStorage(), settings) as session:
            talk = Talk(session)
            rule = await session.say("Never touch the lighthouse.")
            await session.log.decide(Pinned(Cause("user", "asked"), [rule.uuid]))
            for n in range(30):
                await session.say(f"Message {n}: " + PROSE * 6)
            for _ in range(12):
                await talk.turn()
            summary = next(
                e.decision.summary for e in talk.events if isinstance(getattr(e, "decision", None), Compacted)
            )
            assert "Never touch the lighthouse." in summary
            assert "Message 29: " in summary
            assert ", whole behind its handle" in summary

    run(steps)


@pytest.mark.requirement("L4.17", "L2.11", "F4")
def test_snip_and_collapse_make_room_by_cuts_that_leave_the_users_words():
    async def steps() -> None:
        for switch in ("snip", "collapse"):
            async with opened(InMemoryStorage(), small(30_000, **keeping(**{switch: True}))) as session:
                talk = Talk(session)
                for query in range(14):
                    await session.say(f"Question {query}?")
                    for _ in range(2):
                        await talk.turn(40)
                await talk.prepare()
                made = {type(e.decision).__name__ for e in talk.events if hasattr(e, "decision")}
                assert ("Snipped" if switch == "snip" else "Collapsed") in made
                assert "Compacted" not in made
                sent = str(talk.requests[-1]["messages"])
                assert all(f"Question {query}?" in sent for query in range(14))

    run(steps)


@pytest.mark.requirement("L4.2", "L4.3")
@pytest.mark.parametrize("covered", [False, True])
def test_a_resumed_session_with_notes_but_no_cursor_keeps_all_messages(covered: bool):
    """Notes that a person wrote do not say which messages they cover, so they replace none."""

    async def steps() -> None:
        storage, settings = InMemoryStorage(), small(60_000, **keeping())
        async with opened(storage, small(60_000, **keeping(notes=False))) as session:
            await session.say("Look at the harbour.")
            talk = Talk(session)
            for _ in range(4):
                await talk.turn(60)
            cursor = [entry.uuid for entry in session.view.history][-1] if covered else None
            sections = {"Current State": "They look at the harbour."}
            await session.log.decide(NotesUpdated(Cause("notes", "edited"), sections, cursor, "person"))
            for _ in range(4):
                await talk.turn(60)
        seen: list[str] = []

        def answer(request: Mapping[str, Any]) -> str:
            seen.append(str(request["messages"]))
            return "<summary>All of it.</summary>"

        model = ScriptedModel(answer, name=f"scripted:{MODEL}")
        async with opened(storage, settings, model=model) as session:
            events: list[Event] = []
            session.listen(events.append)
            report = await session.compact()
            told = [one.why for one in events if isinstance(one, FellBack) and one.what == "compact from notes"]
            assert report.method == ("notes" if covered else "full")
            assert [("all messages are kept" in why) for why in told] == ([] if covered else [True])
            if not covered:  # the summary was written from every message
                assert all(f"tests/test_part_{number}.py" in seen[-1] for number in range(1, 9))

    run(steps)


@pytest.mark.requirement("L2.11", "L4.1")
@pytest.mark.parametrize("per_byte", [0.2, 0.25, 0.33])
def test_a_snip_that_frees_enough_prevents_the_compaction(per_byte: float):
    """The bill before the snip, without the removed messages, is the count until the next reply reports."""

    async def steps() -> None:
        storage, settings = InMemoryStorage(), replace(small(60_000, **keeping(snip=True)), preset="faithful")
        async with opened(storage, settings) as session:
            talk = Talk(session)
            await session.say("Look.")
            await talk.prepare()
            while not any(isinstance(one, Snipped) for one in talk.decisions()):
                await talk.billed_answer(per_byte)
                await talk.prepare()
                assert talk.turns < 200
        billed = talk.of(ReplyObserved)[-1].usage["input_tokens"]  # of the last request before the snip
        async with opened(storage, settings) as session:  # the count is in the log
            again = Talk(session, talk.events)
            request = await again.prepare()
            assert not any(isinstance(one, Compacted | CompactionFailed) for one in talk.decisions())
            sent = len(repr(request)) * per_byte
            assert abs(session.view.token_count.tokens - sent) < 0.1 * sent
            assert billed > session.thresholds.auto_compact * 0.9
            assert session.view.token_count.threshold_tokens < session.thresholds.auto_compact * 0.8

    run(steps)


@pytest.mark.requirement("L2.11")
def test_known_bad_a_snip_after_which_no_bill_counts_is_followed_by_a_compaction(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reverie.conversation.view.SNIP", CUT)

    async def steps() -> None:
        settings = replace(small(60_000, **keeping(snip=True)), preset="faithful")
        async with opened(InMemoryStorage(), settings) as session:
            talk = Talk(session)
            await session.say("Look.")
            await talk.prepare()
            while not any(isinstance(one, Snipped) for one in talk.decisions()):
                await talk.billed_answer(0.2)
                await talk.prepare()
            assert any(isinstance(one, Compacted) for one in talk.decisions())

    run(steps)


@pytest.mark.requirement("L4.15", "T3")
def test_the_metrics_of_a_compaction_count_the_attachments_in_view_by_type():
    async def steps() -> None:
        async with opened(InMemoryStorage(), small(**keeping())) as session:
            talk = Talk(session)
            await session.say("Look.")
            await session.attach("Today is Monday.", type="date")
            await session.attach("A file changed.", type="note")
            await session.attach("Another file changed.", type="note")
            await session.log.decide(InstructionsAttached(Cause("instructions", "near"), ["/p/AGENTS.md"], "Be brief."))
            for _ in range(6):
                await talk.turn()
            await session.compact()
            (ended,) = talk.of(CompactionEnded)
            assert ended.metrics["attachments"] == {"note": 2, "date": 1, "instructions_attached": 1}
            await talk.turn()
            for _ in range(6):
                await talk.turn()
            await session.compact()
            assert talk.of(CompactionEnded)[-1].metrics["attachments"] == {}  # all of them were cut before

    run(steps)


@pytest.mark.requirement("L4.5")
@pytest.mark.slow
def test_a_compaction_by_fork_costs_a_fraction_of_one_with_a_prompt_of_its_own():
    """The same session twice, through the front door; where the fork gets no words, a plain request follows it."""

    def answering(fork: bool) -> Callable[[dict[str, Any]], Any]:
        def answer(request: dict[str, Any]) -> Any:
            last = str(request["messages"][-1]["content"][-1])
            if "<reverie-fork" in last and not fork:
                return [{"type": "tool_use", "name": "Read", "input": {"n": 0}}]
            if "nine sections" in last:
                return "<summary>" + "All ships are written down. " * 40 + "</summary>"
            turn = len(request["messages"]) // 2
            return [
                {"type": "text", "text": f"Turn {turn}."},
                {"type": "tool_use", "name": "Read", "input": {"n": turn}},
            ]

        return answer

    async def compacted(fork: bool) -> tuple[Usage, float | None]:
        clock = ManualClock(START)
        async with MessagesServer(answering(fork), clock=clock) as server:
            model = AnthropicModel(MODEL, base_url=server.base_url, api_key="any")
            settings = small(200_000, **keeping(), notes=False, compact_from_notes=False)
            async with opened(InMemoryStorage(), settings, model=model, clock=lambda: clock.now) as session:
                await session.say("Read the harbour book.")
                for _ in range(40):
                    request = await session.prepare(model=MODEL, max_tokens=500, system=SYSTEM, tools=TOOLS)
                    for one in await session.observe((await model.complete(request)).body):
                        await session.result(one.id, PROSE * 100)
                    clock.advance(5)
                made: list[Event] = []
                session.listen(made.append)
                report = await session.compact()
                assert report.method == "full"
                assert report.model_calls == (1 if fork else 2)
                assert server.errors == []
                calls = [one.decision for one in made if isinstance(one, DecisionMade)]
                billed = [usage_of(one.usage) for one in calls if isinstance(one, CallRecorded)]  # by the server
                assert len(billed) == report.model_calls == len(server.requests) - 40
            await model.aclose()
        return billed[-1], report.cost_usd

    async def steps() -> None:
        (fork, told), (own, _) = await compacted(True), await compacted(False)
        prices = prices_for(MODEL)
        assert prices is not None
        assert told == pytest.approx(prices.cost_of(fork))  # what we say it cost is what the server billed
        assert fork.read / fork.input >= 0.95
        assert own.read == 0
        assert 0.5 * fork.input <= own.input <= 1.1 * fork.input  # both are shown the same conversation
        assert abs(own.output - fork.output) <= 2
        assert prices.cost_of(fork) <= 0.3 * prices.cost_of(own)

    run(steps)
