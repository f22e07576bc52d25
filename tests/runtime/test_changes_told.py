"""Changes of system prompt and tools stay told: after a cut, on another model, and while the provider pauses."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from log_script import Script, text
from reverie import InMemoryStorage, Session
from reverie.conversation import view
from reverie.conversation.decisions import (
    Cause,
    Compacted,
    CompactionFailed,
    PrefixAmended,
    PrefixRendered,
    ResultStubbed,
    ThinkingDropped,
    decision_of,
)
from reverie.errors import ModelRefused, ThinkingRefused
from reverie.layers.l4_compact import CompactPolicy, CutRange, parts_tool_changes
from reverie.runtime.session.compact import background
from reverie.testing.messages_server.replies import ServerReply
from reverie.values import replace
from thinking_desk import CHECKED, FREE, GREP, READ, SYSTEM, Desk, thoughts

OLD = "claude-sonnet-4-5"
OTHER = "claude-opus-5"
SEARCH = {"type": "web_search_20260209", "name": "web_search"}
NEW = {"name": "New", "description": "A tool.", "input_schema": {"type": "object", "properties": {}}}
RULE = f"{SYSTEM}\nRule one."


def told(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of the system messages in a request."""
    return [block for message in request["messages"] if message["role"] == "system" for block in message["content"]]


def tools_told(request: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the changes of tools in a request, each as (kind, name)."""
    changes = [block for block in told(request) if block["type"] != "text"]
    return {(block["type"], (block["tool"].get("definition") or block["tool"])["name"]) for block in changes}


def declared(request: dict[str, Any]) -> list[str]:
    """Return the names of the tools in a request's prefix."""
    return [tool["name"] for tool in request["tools"]]


async def fill(desk: Desk, session: Session, **options: Any) -> None:
    for number in range(5):
        await desk.ask(session, f"Fill {number}.", size=6_000, **options)


@pytest.mark.requirement("V6")
def test_a_change_in_the_summarised_part_is_told_again_although_a_later_change_is_kept() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await fill(desk, session, system=RULE, tools=[READ, GREP])
            await desk.ask(session, "Two.", system=RULE, tools=[READ, GREP, NEW])
            assert (await session.compact()).method == "provider"
            assert tools_told({"messages": session.view.messages()}) == {("tool_addition", "New")}
            await desk.ask(session, "Three.", system=RULE, tools=[READ, GREP, NEW])
        last = desk.requests()[-1]
        assert tools_told(last) == {("tool_addition", "New"), ("tool_addition", "Grep")}
        assert "Rule one." in repr(told(last))
        assert desk.refusals == []
        assert desk.decisions(ThinkingDropped) == []

    anyio.run(main)


@pytest.mark.requirement("V6")
@pytest.mark.parametrize("model", [CHECKED, OLD])
def test_a_system_prompt_that_a_later_call_leaves_out_stays_and_an_empty_one_removes_it(model: str) -> None:
    async def main() -> None:
        async with Session.open("s", storage=InMemoryStorage()) as session:
            await session.say("One.")
            first = await session.prepare(model=model, max_tokens=100, system=SYSTEM)
            rendered = session.view.facts.prefix
            assert (await session.prepare(model=model, max_tokens=100))["system"] == first["system"]
            assert session.view.facts.prefix is rendered
            assert session.view.facts.amended is None
            emptied = await session.prepare(model=model, max_tokens=100, system="")
            assert emptied.get("system") != first["system"] or session.view.facts.amended is not None

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_a_cut_does_not_part_the_removal_of_a_tool_from_its_addition() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await fill(desk, session, tools=[READ, NEW])
            await desk.ask(session, "Two.", tools=[READ])
            assert (await session.compact()).method == "provider"
            await desk.ask(session, "Three.", tools=[READ])
        assert desk.refusals == []
        assert desk.decisions(ThinkingDropped) == []

    anyio.run(main)


@pytest.mark.requirement("V6")
def test_a_summary_that_carries_an_outdated_change_of_tools_is_corrected() -> None:
    async def main() -> None:
        for before, during, after in (
            ([READ], [READ, GREP], [READ]),
            ([READ, GREP], [READ], [READ, GREP]),
        ):
            desk = Desk(window=1_000_000)
            async with desk.session() as session:
                await desk.ask(session, "One.", tools=before)
                await fill(desk, session, tools=during)
                assert (await session.compact()).method == "provider"
                await desk.ask(session, "Two.", tools=after)
            last = desk.requests()[-1]
            assert last["messages"][0]["content"][0]["tool_changes"]
            if after == [READ]:  # the tool is defined nowhere in this request, so a reference would be refused
                assert "no longer available; do not call them: Grep" in repr(told(last))
            else:
                assert tools_told(last) == {("tool_addition", "Grep")}
            assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V2")
def test_a_reload_after_a_summary_is_named_as_the_cause_and_corrects_the_tools_that_the_summary_carries() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        async with desk.session() as session:
            await desk.ask(session, "One.", tools=[READ, GREP])
            await fill(desk, session, tools=[READ])
            assert (await session.compact()).method == "provider"
            await session.reload()
            await desk.ask(session, "Two.", system=RULE, tools=[READ, GREP])
            [dropped] = desk.decisions(ThinkingDropped)
            reloaded = desk.decisions(PrefixRendered)[-1]
            assert "reload" in reloaded.cause.reason
        [uuid] = [entry.uuid for entry in desk.entries() if decision_of(entry.body) == reloaded]
        assert dropped.changed_by == uuid
        assert tools_told(desk.requests()[-1]) == {("tool_addition", "Grep")}
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V3")
def test_results_that_the_provider_left_out_count_again_where_it_is_not_asked_to() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        desk.settings = replace(desk.settings, window_tokens=None)
        async with desk.session(None) as session:
            for number, (billed, left_out) in enumerate([(1_000, 0), (60_000, 150_000)]):
                await session.say("word " * 200)
                await session.prepare(model=CHECKED, max_tokens=500, betas=["context-management-2025-06-27"])
                edit = {"type": "clear_tool_uses_20250919", "cleared_input_tokens": left_out}
                managed = {"context_management": {"applied_edits": [edit]}, "model": CHECKED, "id": f"msg_{number}"}
                reply = {"role": "assistant", "content": [{"type": "text", "text": "Yes. " * 200}], **managed}
                await session.observe({**reply, "usage": {"input_tokens": billed, "output_tokens": 200}})
            assert desk.decisions(Compacted) == []
            await session.say("On a model with a smaller window.")
            await session.prepare(model=OLD, max_tokens=500)
        assert len(desk.decisions(Compacted)) == 1

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_a_summary_by_a_model_that_does_not_check_keeps_no_thinking_valid() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000, compact=CompactPolicy(by_provider=True))
        async with desk.session() as session:
            await fill(desk, session)
        async with desk.session(OTHER) as session:
            await desk.ask(session, "Two.", OTHER)
            assert (await session.compact()).method == "provider"
            await desk.ask(session, "Three.")
        assert len(desk.decisions(ThinkingDropped)) == 1
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V6")
def test_a_cut_by_hand_puts_changes_into_effect_where_the_model_takes_them_only_in_the_prefix() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        async with desk.session() as session:
            await fill(desk, session)
        async with desk.session(FREE) as session:
            await desk.ask(session, "Two.", FREE, tools=[READ, GREP])
            assert declared(desk.requests(FREE)[-1]) == ["Read"]
            await session.compact()
            await desk.ask(session, "Three.", FREE, tools=[READ, GREP])
        assert declared(desk.requests(FREE)[-1]) == ["Read", "Grep"]
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V4")
def test_an_undo_finds_the_prefix_of_the_thinking_that_it_brings_back() -> None:
    async def main() -> None:
        desk = Desk(window=1_000_000)
        async with desk.session() as session:
            await fill(desk, session)
            await desk.ask(session, "Two.", system=RULE, tools=[READ, GREP])
            made = desk.turns
            await session.compact(up_to=session.view.history[-1].uuid)
            await desk.ask(session, "Three.", system=RULE, tools=[READ, GREP])
            assert tools_told(desk.requests()[-1]) == {("tool_addition", "Grep")}
            price = await session.undo_price()
            assert price.thinking_valid_again == made - 1  # the kept reply lost its thinking to the summary
            assert price.thinking_lost == 2
            await session.undo()
            await desk.ask(session, "Four.", system=RULE, tools=[READ, GREP])
        assert len(thoughts(desk.requests()[-1])) >= made - 1
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V6")
def test_tools_follow_a_change_of_model_in_both_directions() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.", tools=[READ, GREP])
            await desk.ask(session, "Three.", FREE, tools=[READ, GREP])
            assert declared(desk.requests(FREE)[-1]) == ["Read", "Grep"]
            await desk.ask(session, "Four.", FREE, tools=[READ, GREP, NEW])
            await desk.ask(session, "Five.", tools=[READ, GREP, NEW])
        last = desk.requests()[-1]
        assert declared(last) == ["Read"]
        assert tools_told(last) == {("tool_addition", "Grep"), ("tool_addition", "New")}
        assert len(desk.decisions(PrefixAmended)) == 3
        assert desk.decisions(ThinkingDropped) == []
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V2")
def test_the_repair_of_refused_thinking_is_not_sent_to_models_that_do_not_check() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.session() as session:
            await desk.ask(session, "One.")
            assert await session.recover(ThinkingRefused("refused", message_index=1, block_index=0))
            for model in (OLD, FREE, CHECKED):
                await desk.ask(session, "Two.", model, thinking=None)
        assert [desk.requests(model)[-1].get("thinking") for model in (OLD, FREE)] == [None, None]
        assert "block_binding" in desk.requests()[-1]["thinking"]
        assert desk.refusals == []

    anyio.run(main)


@pytest.mark.requirement("V2")
def test_a_report_in_a_reply_without_thinking_drops_all_that_it_names() -> None:
    async def main() -> None:
        desk = Desk()
        desk.calls = False
        async with desk.session() as session:
            for words in ("One.", "Two.", "Three."):
                await desk.ask(session, words)
            await session.say("Four.")
            await session.prepare(model=CHECKED, max_tokens=500, system=SYSTEM, tools=[READ])
            rows = [{"type": "thinking_dropped", "path": f"messages.{at}.content.0"} for at in (3, 5)]
            named = [{**row, "reason": "prefix_binding_mismatch"} for row in rows]
            reply: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "Plain."}]}
            await session.observe({**reply, "id": "msg_plain", "model": CHECKED, "input_transformations": named})
        [dropped] = desk.decisions(ThinkingDropped)
        assert len(dropped.messages) == 2

    anyio.run(main)


class PausingDesk(Desk):
    """A desk whose model pauses a search of the provider and finishes it with the next request."""

    def script(self, request: dict[str, Any]) -> Any:
        last = request["messages"][-1]
        thought = {"type": "thinking", "thinking": "Hm."}
        if last["role"] == "assistant":
            found = {"type": "web_search_result", "title": "t", "url": "https://example.org/", "encrypted_content": "e"}
            result = {"type": "web_search_tool_result", "tool_use_id": last["content"][-1]["id"], "content": [found]}
            return [result, thought, {"type": "text", "text": "Found."}]
        if "Search" in repr(last["content"]) and request.get("compaction") is None:
            use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
            return ServerReply([thought, use], "pause_turn")
        return super().script(request)

    async def one(self, session: Session, **options: Any) -> str:
        """Send one request and return the stop reason."""
        given = {"system": SYSTEM, "tools": [READ, SEARCH], **options}
        reply = await self.models[CHECKED].complete(await session.prepare(model=CHECKED, max_tokens=500, **given))
        await session.observe(reply.body)
        return reply.body["stop_reason"]


@pytest.mark.requirement("V6")
def test_a_change_waits_while_the_provider_pauses_a_call() -> None:
    async def main() -> None:
        desk = PausingDesk()
        later = {"system": RULE, "tools": [READ, SEARCH, GREP]}
        async with desk.session() as session:
            await desk.ask(session, "One.", tools=[READ, SEARCH])
            await session.say("Search.")
            assert await desk.one(session) == "pause_turn"
            assert await desk.one(session, **later) == "end_turn"
            assert told(desk.requests()[-1]) == []
            await desk.ask(session, "Two.", **later)
        assert tools_told(desk.requests()[-1]) == {("tool_addition", "Grep")}
        assert desk.refusals == []
        assert desk.decisions(ResultStubbed) == []
        assert desk.decisions(ThinkingDropped) == []

    anyio.run(main)


@pytest.mark.requirement("V5")
def test_a_summary_from_the_background_waits_while_the_provider_pauses_a_call() -> None:
    async def main() -> None:
        desk = PausingDesk(window=40_000)
        arrives = anyio.Event()

        async def wait(_: dict[str, Any]) -> None:
            await arrives.wait()

        desk.models[CHECKED].pause = wait
        async with desk.session() as session:
            while not session.parts.compact.background.is_running:
                await desk.ask(session, "More.", tools=[READ, SEARCH], size=600)
            await session.say("Search.")
            assert await desk.one(session) == "pause_turn"
            arrives.set()
            while session.view.facts.prepared is None:
                await anyio.lowlevel.checkpoint()
            assert await desk.one(session) == "end_turn"
            assert desk.decisions(Compacted) == []
            await desk.ask(session, "Two.", tools=[READ, SEARCH])
        assert [one.method for one in desk.decisions(Compacted)] == ["provider"]
        assert desk.refusals == []
        assert desk.decisions(ResultStubbed) == []
        assert desk.decisions(ThinkingDropped) == []

    anyio.run(main)


async def summarised_while_a_tool_leaves(desk: Desk) -> None:
    """Add a tool, let the provider summarise that in the background, and remove the tool before the summary comes."""
    arrives = anyio.Event()

    async def wait(_: dict[str, Any]) -> None:
        await arrives.wait()

    desk.models[CHECKED].pause = wait
    async with desk.session() as session:
        await desk.ask(session, "One.")
        while not session.parts.compact.background.is_running:
            await desk.ask(session, "More.", tools=[READ, GREP], size=600)
        await desk.ask(session, "Two.")
        arrives.set()
        while session.view.facts.prepared is None:
            await anyio.lowlevel.checkpoint()
        await desk.ask(session, "Three.")


@pytest.mark.requirement("V5", "V6")
def test_a_summary_from_the_background_is_not_used_if_a_tool_that_it_covers_was_removed_since() -> None:
    desk = Desk(window=40_000)
    anyio.run(summarised_while_a_tool_leaves, desk)
    [failed] = desk.decisions(CompactionFailed)
    assert "tools were changed since" in failed.error
    assert desk.decisions(Compacted) == []
    assert desk.refusals == []
    assert desk.decisions(ThinkingDropped) == []


@pytest.mark.requirement("V5", "V6")
def test_a_summary_is_not_used_if_a_change_of_tools_would_follow_it_directly() -> None:
    script = Script()
    script.user("One.")
    script.reply(text("Yes."))
    script.user("Two.")
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": GREP}}
    message = {"role": "system", "content": [added]}
    script.decide(PrefixAmended(Cause("request", "test"), SYSTEM, [READ, GREP], message))
    script.reply(text("Yes."))
    items = script.view.items_in_view()
    assert [parts_tool_changes(CutRange(items, 0, end)) for end in range(1, 6)] == [False, False, True, False, False]


@pytest.mark.requirement("V5", "V6")
def test_with_that_summary_thinking_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known-bad twin of the check before the swap."""
    monkeypatch.setattr(background, "parts_tool_changes", lambda _: False)
    desk = Desk(window=40_000)
    anyio.run(summarised_while_a_tool_leaves, desk)
    assert [one.method for one in desk.decisions(Compacted)] == ["provider"]
    assert desk.decisions(ThinkingDropped) != []


@pytest.mark.requirement("V6")
@pytest.mark.parametrize("known", [True, False])
def test_a_removal_of_a_tool_that_a_cut_took_is_not_sent(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not known:  # the known-bad twin sends it, and is refused from then on
        monkeypatch.setattr(view, "with_known_tools", lambda items, prefix: items)

    async def main() -> None:
        desk = Desk(window=1_000_000, compact=CompactPolicy(by_provider=False))
        async with desk.session() as session:
            await desk.ask(session, "One.")
            await desk.ask(session, "Two.", tools=[READ, GREP])
            kept = await session.say("Three.")
            await session.prepare(model=CHECKED, max_tokens=500, system=SYSTEM, tools=[READ])
            await desk.ask(session, "Four.")
            await session.compact(up_to=kept.uuid)
            if not known:
                with pytest.raises(ModelRefused, match="not defined at this position"):
                    await desk.ask(session, "Five.")
                return
            await desk.ask(session, "Five.")
        assert desk.refusals == []
        assert tools_told(desk.requests()[-1]) == set()

    anyio.run(main)
