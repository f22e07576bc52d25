"""Preserved thinking in a session: a frozen prefix, dropped thinking, repairs, summaries by the provider."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session
from reverie.conversation.decisions import (
    Cause,
    Compacted,
    CompactionPrepared,
    PrefixAmended,
    PrefixRendered,
    Replacement,
    ResultsCleared,
    Snipped,
    ThinkingDropped,
    ThinkingRepaired,
)
from reverie.conversation.wire.validate import problems
from reverie.errors import ModelUnavailable, StorageError, ThinkingRefused
from reverie.events import BackgroundChanged
from reverie.layers.l4_compact import CompactPolicy
from reverie.model_facts import facts_of
from thinking_desk import CHECKED, FREE, GREP, READ, SYSTEM, Desk, thoughts


@pytest.mark.requirement("V6")
def test_a_changed_system_prompt_and_changed_tools_go_to_the_end_and_thinking_stays() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.", system="Be brief.\nUse the tools with care.", tools=[READ, GREP])
        async with desk.session() as session:
            await desk.ask(session, "Three.", system="Be brief.\nUse the tools with care.", tools=[GREP])
        last = desk.requests()[-1]
        assert all(_opening(request) == (SYSTEM, [READ]) for request in desk.requests())
        told = [message for message in last["messages"] if message["role"] == "system"]
        assert "Use the tools with care." in told[0]["content"][0]["text"]
        assert "Be brief." not in told[0]["content"][0]["text"]
        assert [block["type"] for block in told[0]["content"]] == ["text", "tool_addition"]
        assert [block["tool"]["name"] for block in told[1]["content"]] == ["Read"]
        assert thoughts(last) == [f"Thought {turn}." for turn in range(1, desk.turns)]
        assert desk.refusals == []
        assert len(desk.decisions(PrefixAmended)) == 2

    anyio.run(main)


@pytest.mark.requirement("V6")
def test_a_reload_renders_the_prefix_anew_and_says_the_price() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.", tools=[GREP])
            price = await session.reload()
            assert price.thinking_lost == desk.turns
            assert price.thinking_lost_tokens > 0
            assert "is lost" in price.text
            await desk.ask(session, "Three.", tools=[GREP])
        last = desk.requests()[-1]
        assert _opening(last) == (SYSTEM, [GREP])
        assert all(message["role"] != "system" for message in last["messages"])
        assert desk.refusals == []
        assert len(desk.decisions(PrefixRendered)) == 2

    anyio.run(main)


@pytest.mark.requirement("K8", "V7")
@pytest.mark.parametrize("model", [CHECKED, FREE])
def test_a_change_that_was_told_after_a_summary_of_everything_has_a_message_before_it_once_that_is_undone(
    model: str,
) -> None:
    async def main() -> None:
        desk = Desk()
        desk.calls = False
        async with desk.session(None) as session:
            for words in ("One.", "Two."):
                await desk.ask(session, f"{words} " * 4_000)
            await session.compact(from_message=session.view.history[0].uuid)
            assert [group.role for group in session.view.groups] == ["user"]
            request = await session.prepare(model=CHECKED, max_tokens=500, system=f"{SYSTEM}\nAsk.", tools=[READ])
            assert [message["role"] for message in request["messages"]] == ["user", "system"]
            await session.observe((await desk.models[CHECKED].complete(request)).body)
            await session.undo()
            await desk.ask(session, "Three.", model, system=f"{SYSTEM}\nAsk.")
        assert all(problems(request) == [] for request in desk.requests(model))
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("K8", "V2")
def test_a_tool_round_whose_thinking_was_dropped_goes_on_without_a_thinking_budget() -> None:
    async def main() -> None:
        desk, model = Desk(), "claude-sonnet-4-5"
        given: dict[str, Any] = {"model": model, "tools": [READ], "max_tokens": 2_000}
        given["thinking"] = {"type": "enabled", "budget_tokens": 1_024}
        async with desk.session() as session:
            await session.say("One.")
            request = await session.prepare(**given)
            [call] = await session.observe((await desk.models[model].complete(request)).body)
            await session.result(call.id, "a line")
            refusal = ThinkingRefused("Invalid `signature` in `thinking` block", message_index=1, block_index=0)
            assert await session.recover(refusal)
            request = await session.prepare(**given)
            assert "thinking" not in request
            await session.observe((await desk.models[model].complete(request)).body)
            await session.say("Two.")
            assert "thinking" in await session.prepare(**given)
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V6")
def test_models_without_system_messages_are_told_of_changes_by_the_user() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session(FREE) as session:
            long = "\n".join(f"Rule {number} of this long system prompt." for number in range(40))
            await desk.ask(session, "One.", FREE, system=long)
            await desk.ask(session, "Two.", FREE, system=f"{long}\nAnswer in French.")
        last = desk.requests(FREE)[-1]
        assert _opening(last) == (long, [READ])
        assert any("Answer in French." in repr(message["content"]) for message in last["messages"])
        assert {message["role"] for message in last["messages"]} == {"user", "assistant"}
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V2")
@pytest.mark.parametrize("logs_bindings", [True, False], ids=["bindings logged", "an older version's log"])
def test_a_session_that_was_dead_comes_alive_when_it_is_opened(logs_bindings: bool) -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.")
            # The clearing of an older version: the history before later thinking changed, and the thinking stayed.
            cleared = [Replacement("toolu_1", "[Old tool result content cleared]")]
            await session.log.decide(ResultsCleared(Cause("trim", "due", moves_prefix=True), cleared))
        if not logs_bindings:
            for key in list(desk.storage.list("")):
                if key.endswith(".jsonl"):
                    lines = (desk.storage.load(key) or b"").splitlines()
                    desk.storage.delete(key)
                    for line in lines:
                        desk.storage.append(key, line.replace(b'"bound":', b'"unbound":'))
        async with desk.session() as session:
            await desk.ask(session, "Three.")
            await desk.ask(session, "Four.")
        assert desk.refusals == []
        [dropped] = desk.decisions(ThinkingDropped)
        assert len(dropped.messages) == 3  # the first thought came before the result that was cleared
        assert dropped.tokens > 0
        assert thoughts(desk.requests()[-1])[:1] == ["Thought 1."]
        assert "Thought 2." not in thoughts(desk.requests()[-1])

    anyio.run(main)


@pytest.mark.requirement("V2")
def test_a_refusal_that_nobody_foresaw_is_repaired_once_for_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from reverie.runtime.session import thinking

    async def main() -> None:
        desk = Desk()
        monkeypatch.setattr(thinking, "stale_replies", lambda *_, **__: [])
        async with desk.session() as session:
            await desk.ask(session, "One.")
            cleared = [Replacement("toolu_1", "[cleared]")]
            await session.log.decide(ResultsCleared(Cause("trim", "due", moves_prefix=True), cleared))
            await desk.ask(session, "Two.")
        async with desk.session() as session:
            await desk.ask(session, "Three.")
        assert len(desk.refusals) == 1
        assert len(desk.decisions(ThinkingRepaired)) == 1
        binding = {"prefix_mismatch_behavior": "drop_block"}
        assert all(request["thinking"]["block_binding"] == binding for request in desk.requests()[-3:])
        dropped = {one["reason"] for one in desk.models[CHECKED].reported}
        assert dropped == {"prefix_binding_mismatch"}
        assert desk.decisions(ThinkingDropped), "the provider's report is logged"

    anyio.run(main)


@pytest.mark.requirement("V1", "V2")
def test_a_repair_on_bedrock_uses_the_field_of_bedrock_and_keeps_the_others() -> None:
    model, bound = "us.anthropic.claude-opus-5-5-v1:0", {"bind_to_end_user": True}

    async def main() -> None:
        desk = Desk()
        given: dict[str, Any] = {"model": model, "max_tokens": 500}
        given["thinking"] = {"type": "adaptive", "block_binding": bound}
        async with desk.session(None) as session:
            await session.say("One.")
            await session.prepare(**given)
            thought = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
            reply = {"role": "assistant", "model": model, "content": [thought, {"type": "text", "text": "Yes."}]}
            await session.observe(reply)
            await session.say("Two.")
            assert await session.recover(ThinkingRefused("bound elsewhere", message_index=1, block_index=0))
            request = await session.prepare(**given)
        assert request["thinking"]["block_binding"] == {**bound, "mismatch_behavior": "drop_block"}
        sent = {key: value for key, value in request.items() if key != "extra_headers"}
        assert problems(sent, facts=facts_of(model)) == []
        assert problems({**sent, "model": CHECKED}), "Anthropic's own API has another field"

    anyio.run(main)


@pytest.mark.slow  # loads the SDK
@pytest.mark.requirement("V2")
@pytest.mark.parametrize("foresees", [True, False], ids=["foreseen", "refused"])
def test_an_own_loop_passes_the_exception_of_its_sdk_to_recover(
    foresees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anthropic import APIStatusError, AsyncAnthropic

    from reverie.runtime.session import thinking
    from reverie.testing.messages_server import MessagesServer

    if not foresees:
        monkeypatch.setattr(thinking, "stale_replies", lambda *_, **__: [])

    async def ask(session: Session, client: AsyncAnthropic) -> None:
        await session.say("Go on.")
        while True:
            request = await session.prepare(model=CHECKED, max_tokens=500, system=SYSTEM)
            try:
                await session.observe(await client.messages.create(**request))
            except APIStatusError as error:
                if not await session.recover(error):
                    raise
            else:
                return

    async def main() -> None:
        words = [{"type": "thinking", "thinking": "Well."}, {"type": "text", "text": "Done."}]
        with MessagesServer(lambda _: words) as server:
            client = AsyncAnthropic(base_url=server.base_url, api_key="test")
            async with client, Session.open("own", storage=InMemoryStorage()) as session:
                first = await session.attach("A fact.")
                await ask(session, client)
                await session.log.decide(Snipped(Cause("snip", "an edit", moves_prefix=True), [first.uuid]))
                await ask(session, client)
                await ask(session, client)
                assert not await session.recover(ValueError("of another kind"))
            assert len(server.refusals) == (0 if foresees else 1)

    anyio.run(main)


@pytest.mark.requirement("V16")
def test_a_change_of_model_strips_nothing_and_the_thinking_is_there_when_the_model_returns() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.", FREE)
            await desk.ask(session, "Three.")
        first = thoughts(desk.requests()[1])
        assert thoughts(desk.requests(FREE)[-1])[: len(first)] == first
        assert thoughts(desk.requests()[-1])[: len(first)] == first
        assert desk.refusals == []
        assert not desk.decisions(ThinkingDropped)

    anyio.run(main)


async def _filled(desk: Desk, session: Session, prompts: int, size: int = 1_500) -> None:
    for number in range(prompts):
        await desk.ask(session, f"Prompt {number}.", size=size)


@pytest.mark.requirement("V5", "U3")
def test_a_model_that_breaks_while_it_writes_a_summary_in_the_background_leaves_the_session_as_it_was() -> None:
    async def main() -> None:
        desk, broken = Desk(window=40_000), list[str]()

        async def pause(_: dict[str, Any]) -> None:
            broken.append("once")
            raise KeyError("a mistake of its author")

        desk.models[CHECKED].pause = pause
        failed: list[str] = []
        async with desk.session() as session:
            session.listen(lambda event: failed.append(event.detail) if isinstance(event, BackgroundChanged) else None)
            while not broken:
                await desk.ask(session, "Go on.", size=800)
            await desk.ask(session, "Are you still there?")
        assert "a mistake of its author" in str(failed)
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V5")
def test_nobody_waits_for_a_summary_and_nothing_said_meanwhile_is_lost() -> None:
    async def main() -> None:
        desk = Desk(window=40_000)
        released, asked = anyio.Event(), anyio.Event()

        async def pause(_: dict[str, Any]) -> None:
            asked.set()
            await released.wait()

        desk.models[CHECKED].pause = pause
        async with desk.session() as session:
            prompts = 0
            while not asked.is_set():
                await desk.ask(session, f"Prompt {prompts}.", size=800)
                prompts += 1
                assert prompts < 40
            await desk.ask(session, "Said meanwhile.")  # no turn waits for the summary
            released.set()
            with anyio.fail_after(30):
                while session.view.facts.prepared is None:
                    await anyio.sleep(0.001)
            await desk.ask(session, "Said afterwards.")
            last = desk.requests()[-1]
            assert last["messages"][0]["content"][0]["type"] == "compaction"
            for words in ("Said meanwhile.", "Said afterwards."):
                assert words in repr(last["messages"])
            assert thoughts(last)
        assert desk.refusals == []
        assert not desk.decisions(ThinkingDropped)

    anyio.run(main)


@pytest.mark.requirement("V5")
def test_a_summary_that_cannot_be_logged_does_not_end_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk(window=40_000)
        released, asked = anyio.Event(), anyio.Event()

        async def pause(_: dict[str, Any]) -> None:
            asked.set()
            await released.wait()

        async def full(*_: Any, **__: Any) -> None:
            raise StorageError("the disk is full", path="x")

        desk.models[CHECKED].pause = pause
        async with desk.session() as session:
            prompts = 0
            while not asked.is_set():
                await desk.ask(session, f"Prompt {prompts}.", size=800)
                prompts += 1
                assert prompts < 40
            with monkeypatch.context() as patched, anyio.fail_after(30):
                patched.setattr(session.log, "decide", full)
                released.set()
                while session.parts.compact.background.is_running:
                    await anyio.sleep(0.001)
            await desk.ask(session, "Said afterwards.")
        assert "Said afterwards." in repr(desk.requests()[-1]["messages"])

    anyio.run(main)


@pytest.mark.requirement("V5")
@pytest.mark.parametrize("arrived", [True, False], ids=["the summary is logged", "the summary is still being written"])
def test_a_process_that_ends_between_request_and_swap_loses_nothing(arrived: bool) -> None:
    async def main() -> None:
        desk = Desk(window=40_000)
        async with desk.session() as session:
            prompts = 0
            while session.view.facts.prepared is None:
                await desk.ask(session, f"Prompt {prompts}.", size=800)
                await anyio.wait_all_tasks_blocked()
                prompts += 1
                assert prompts < 40
        key = next(key for key in desk.storage.list("") if key.endswith("desk.jsonl"))
        lines = (desk.storage.load(key) or b"").splitlines()
        at = next(number for number, line in enumerate(lines) if b'"compaction_prepared"' in line)
        desk.storage.delete(key)
        for line in lines[: at + 1 if arrived else at]:
            desk.storage.append(key, line)
        async with desk.session() as session:
            await desk.ask(session, "After the restart.")
            await anyio.wait_all_tasks_blocked()
            await desk.ask(session, "And on.")
        assert "Prompt 0." in repr(desk.requests()[-1]["messages"])
        assert desk.refusals == []
        assert len(desk.decisions(CompactionPrepared)) >= 1
        assert [one.method for one in desk.decisions(Compacted)] == ["provider"]

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_the_opening_context_is_said_again_with_the_first_new_user_turn() -> None:
    async def main() -> None:
        desk = Desk(window=40_000, compact=CompactPolicy(in_background=False))
        async with desk.session() as session:
            await session.attach("Project rules: tabs, never spaces.", type="user_context")
            while not session.view.facts.compactions:
                await desk.ask(session, "Use the file zebra.py and go on.", size=800)
            await desk.ask(session, "Next.")
        last = desk.requests()[-1]["messages"]
        assert [block["type"] for block in last[0]["content"]] == ["compaction"]
        at = [number for number, message in enumerate(last) if "never spaces" in repr(message["content"])]
        assert len(at) == 1
        assert last[at[0]]["role"] == "user"
        assert "by the provider: the provider's summary costs about" in desk.decisions(Compacted)[0].cause.reason
        early = [message for message in last[: at[0]] if message["role"] == "user"]
        assert all("zebra.py" not in repr(message) for message in early)
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_undoing_a_summary_of_the_provider_brings_the_past_back_and_says_which_thinking_is_lost() -> None:
    async def main() -> None:
        desk = Desk(window=40_000, compact=CompactPolicy(in_background=False))
        async with desk.session() as session:
            while not session.view.facts.compactions:
                before = desk.requests()[-1] if desk.requests() else {}
                await desk.ask(session, "Go on.", size=800)
            made_since = len(thoughts(desk.requests()[-1]))
            price = await session.undo_price()
            assert price.thinking_valid_again > 0
            assert price.thinking_lost > 0
            assert price.rewrite_usd is not None
            await session.undo()
            request = await session.prepare(model=CHECKED, max_tokens=500, system=SYSTEM, tools=[READ])
            sent = before["messages"]
            assert _bare(request["messages"])[: len(sent)] == _bare(sent)
            assert len(thoughts(request)) >= len(thoughts(before))
            assert made_since
            await desk.models[CHECKED].complete(request)
        assert desk.refusals == []
        [dropped] = desk.decisions(ThinkingDropped)
        assert len(dropped.messages) == price.thinking_lost

    anyio.run(main)


def _opening(request: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return the system prompt and the tools of a request without cache marks."""
    system = request["system"]
    text = system if isinstance(system, str) else "".join(block["text"] for block in system)
    return text, [{key: value for key, value in tool.items() if key != "cache_control"} for tool in request["tools"]]


def _bare(messages: list[Any]) -> list[Any]:
    """Return messages without cache marks, with texts as blocks."""
    out: list[Any] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        bare = [{key: value for key, value in one.items() if key != "cache_control"} for one in blocks]
        out.append((message["role"], bare))
    return out


@pytest.mark.requirement("V5")
@pytest.mark.parametrize("window", [40_000, 90_000])
def test_an_own_loop_sends_the_request_for_a_summary_itself(window: int) -> None:
    async def main() -> None:
        desk = Desk(window=window)
        async with desk.session(None) as session:
            asked: dict[str, Any] | None = None
            while asked is None:
                await desk.ask(session, "Go on.", size=800)
                asked = await session.background_request()
            assert asked["compaction"]["type"] == "summarize"
            assert asked["extra_headers"] == {"anthropic-beta": "compact-2026-09-04"}, "an SDK adds no beta"
            assert 3_600 * asked["max_tokens"] / 128_000 <= 600, "Anthropic's SDK refuses more without a stream"
            assert await session.background_request() is None, "one at a time"
            reply = await desk.models[CHECKED].complete(asked)
            await desk.ask(session, "Said meanwhile.")
            assert await session.background_reply(reply.body)
            await desk.ask(session, "Said afterwards.")
        last = desk.requests()[-1]
        assert last["messages"][0]["content"][0] == reply.body["content"][0]
        assert "Said meanwhile." in repr(last["messages"])
        assert desk.refusals == []
        assert not desk.decisions(ThinkingDropped)

    anyio.run(main)


@pytest.mark.requirement("V4")
@pytest.mark.parametrize("stop", ["refusal", "end_turn", "max_tokens", "tool_use", "model_context_window_exceeded"])
def test_each_failure_of_a_summary_has_its_own_path_and_swaps_nothing_without_a_block(stop: str) -> None:
    from reverie.testing.messages_server.replies import ServerReply

    async def main() -> None:
        desk = Desk(window=40_000, provider_window=200_000, compact=CompactPolicy(in_background=False))
        failures = 1
        script = desk.script

        def failing(request: dict[str, Any]) -> Any:
            nonlocal failures
            if request.get("compaction") is not None and failures:
                failures -= 1
                return ServerReply([], stop)
            return script(request)

        for model in desk.models.values():
            model.script = failing
        async with desk.session() as session:
            while not session.view.facts.compactions:
                await desk.ask(session, "Go on.", size=800)
        [made] = desk.decisions(Compacted)
        asked = [one for one in desk.models[CHECKED].requests if one.get("compaction") is not None]
        if stop in ("refusal", "end_turn"):
            assert made.method != "provider"
            assert len(asked) == 1
        else:
            assert made.method == "provider"
            assert made.block["type"] == "compaction"
            assert len(asked) == 2
        if stop == "max_tokens":
            assert asked[1]["max_tokens"] > asked[0]["max_tokens"]
        if stop == "tool_use":
            assert "Do not call a tool" in asked[1]["compaction"]["instructions"]
        if stop == "model_context_window_exceeded":
            assert len(asked[1]["messages"]) < len(asked[0]["messages"])

    anyio.run(main)


@pytest.mark.requirement("V4", "V5")
@pytest.mark.parametrize("is_final", [True, False])
def test_a_summary_that_is_declined_in_the_background_is_asked_for_once_and_then_written_here(is_final: bool) -> None:
    from reverie.testing.messages_server.replies import ServerReply

    async def main() -> None:
        desk = Desk(window=40_000, provider_window=200_000)
        asked, done = 0, False

        def failing(request: dict[str, Any]) -> Any:
            nonlocal asked
            if request.get("compaction") is None:
                return desk.script(request)
            asked += 1
            if is_final:
                return ServerReply([], "refusal")
            raise ModelUnavailable("overloaded")

        desk.models[CHECKED].script = failing
        while not done:
            async with desk.session() as session:  # a resumed session knows that it was declined
                await desk.ask(session, "Go on.", size=800)
                await anyio.wait_all_tasks_blocked()
                done = bool(session.view.facts.compactions)
        assert desk.decisions(Compacted)[0].method != "provider"
        assert asked == (1 if is_final else 3), "an overload may end, a refusal stands"
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_a_summary_that_somebody_edited_is_sent_without_its_signature() -> None:
    async def main() -> None:
        desk = Desk(window=40_000, compact=CompactPolicy(in_background=False))
        async with desk.session() as session:
            while not session.view.facts.compactions:
                await desk.ask(session, "Go on.", size=800)
        key = next(key for key in desk.storage.list("") if key.endswith("desk.jsonl"))
        lines = (desk.storage.load(key) or b"").splitlines()
        desk.storage.delete(key)
        for line in lines:
            desk.storage.append(key, line.replace(b'"summary":"The summary."', b'"summary":"Another text."'))
        async with desk.session() as session:
            await desk.ask(session, "Next.")
        last = desk.requests()[-1]["messages"]
        assert "Another text." in repr(last)
        assert all("signature" not in block for block in last[0]["content"])
        assert desk.refusals == []

    anyio.run(main)
