"""One total function builds every request: valid for any log, and never an unexplained cache break."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from log_script import Script, call, text
from pictures import image_block, png
from prefixes import extends
from random_logs import random_log
from reverie.conversation.decisions import Cause, PrefixRendered, body_of
from reverie.conversation.entries import ASSISTANT, Entry
from reverie.conversation.view import View
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.request import CONTINUE, build_request, ends_with_reply, repairs
from reverie.conversation.wire.validate import problems

SHARDS = 10


def refused(seed: int, **how: Any) -> list[str]:
    view = View().fold_all(random_log(Random(seed), **how))
    request = build_request(view)
    version = None if "temperature" in request or "top_p" in request or "top_k" in request else "2026-10-21"
    return [problem.text for problem in problems(request, version=version or "2023-06-01")]


@pytest.mark.requirement("K8")
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.slow
def test_no_random_conversation_makes_an_invalid_request(shard: int, torture: bool, seed: int):
    count = (200_000 if torture else 20_000) // SHARDS
    for number in range(count):
        faults = refused(seed + shard * count + number, disorder=(0.05, 0.25, 0.6)[number % 3])
        assert not faults, (seed + shard * count + number, faults)


@pytest.mark.requirement("K8")
def test_the_validator_refuses_what_a_naive_builder_would_send():
    """Known-bad twin: messages just concatenated, as most loops do it."""

    def naive(log: list[Entry]) -> dict[str, Any]:
        messages = [entry.body["message"] for entry in log if entry.kind in ("user", "assistant") and entry.message]
        return {"model": "m", "max_tokens": 9, "messages": messages}

    bad = sum(bool(problems(naive(random_log(Random(seed))))) for seed in range(500))
    assert bad > 400


@pytest.mark.requirement("K8")
@pytest.mark.slow
def test_every_recorded_session_makes_valid_requests_at_every_reply(corpus_sessions: list[list[Entry]]):
    for entries in corpus_sessions:
        view = View()
        for at, entry in enumerate(entries):
            if entry.kind == ASSISTANT and at % 7 == 0:
                assert problems(build_request(view)) == []
            view = view.fold(entry)
        assert problems(build_request(view)) == []


@pytest.mark.requirement("K8", "K4")
def test_what_the_builder_has_to_add_can_be_logged_first_and_then_changes_nothing():
    for seed in range(600):
        view = View().fold_all(random_log(Random(seed)))
        request = build_request(view)
        for number, decision in enumerate(repairs(view)):
            view = view.fold(Entry(f"repair{number}", None, "", "s", "decision", body_of(decision)))
        if ends_with_reply(view):
            view = view.fold(Entry("go on", None, "", "s", "attachment", {"content": CONTINUE}))
        assert canonical(build_request(view)) == canonical(request)
        assert repairs(view) == []


@pytest.mark.requirement("K8")
def test_a_result_that_comes_after_its_stub_was_sent_does_not_change_what_was_sent():
    script = Script()
    script.user("go")
    script.reply(call("t1"), call("t2"))
    script.result("t1")
    sent = canonical(build_request(script.view))
    for decision in repairs(script.view):
        script.decide(decision)
    assert canonical(build_request(script.view)) == sent
    script.result("t2", "too late")
    later = canonical(build_request(script.view))
    assert extends(sent, later)
    assert b"too late" in later[-1]


@pytest.mark.requirement("K8")
def test_without_the_logged_stub_the_late_result_would_have_changed_it():
    """Known-bad twin of the test above."""
    script = Script()
    script.user("go")
    script.reply(call("t1"))
    sent = canonical(build_request(script.view))
    script.result("t1", "too late")
    assert not extends(sent, canonical(build_request(script.view)))


def test_an_empty_log_makes_a_request_and_a_first_reply_gets_a_user_before_it():
    assert problems(build_request(View())) == []
    script = Script()
    script.reply(text("hello"))
    request = build_request(script.view)
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    assert problems(request) == []


@pytest.mark.requirement("K8")
def test_more_than_a_hundred_images_are_dropped_oldest_first_and_in_one_go():
    image = image_block(png(1, 1))
    script = Script()
    for number in range(101):
        script.user([text(f"picture {number}"), image])
    view = script.view
    assert problems(build_request(view)) == []
    (decision,) = repairs(view)
    script.decide(decision)
    assert script.view.images.count == 60
    content = script.messages[0]["content"]
    assert content[1] == text("[image]")
    assert content[-1] == image


@pytest.mark.requirement("V8")
def test_a_model_with_more_room_keeps_more_images():
    script = Script()
    script.decide(PrefixRendered(Cause("request", "first"), "m", max_images=600))
    script.user([image_block(png(1, 1))] * 600)
    assert repairs(script.view) == []
    script.user([image_block(png(1, 1))])
    (decision,) = repairs(script.view)
    script.decide(decision)
    assert script.view.images.count == 360


@pytest.mark.requirement("K8", "V8")
@pytest.mark.parametrize(
    ("images", "left", "said"),
    [
        ([image_block(png(1, 1))] * 21, 21, ""),
        ([image_block(png(2001, 1))] * 20, 20, ""),
        ([image_block(png(2001, 1)), *[image_block(png(1, 1))] * 20], 20, "wider than 2000 pixels among more than 20"),
        ([image_block(png(1, 1, at_least_bytes=5_000_000))] * 4, 2, "more than 26 MB in all"),
        ([image_block(png(1, 1, at_least_bytes=7_000_000)), image_block(png(1, 1))], 1, "more than 9 MB"),
    ],
)
def test_images_that_a_request_may_not_have_together_are_dropped(images: list[Any], left: int, said: str):
    script = Script()
    script.decide(PrefixRendered(Cause("request", "first"), "m", max_image_bytes=9_000_000))
    script.user(images)
    before = build_request(script.view)
    planned = repairs(script.view)
    assert [said in decision.cause.reason for decision in planned] == ([True] if said else [])
    for decision in planned:
        script.decide(decision)
    assert script.view.images.count == left
    assert repairs(script.view) == []
    assert canonical(build_request(script.view)) == canonical(before)


@pytest.mark.requirement("K8", "V8")
@pytest.mark.parametrize(
    "data", [png(1280, 9000), png(1, 1, at_least_bytes=7_600_000), b"no image", "broken base64", "QUI"]
)
def test_an_image_that_no_provider_accepts_becomes_text_also_in_a_tool_result(data: bytes | str):
    script = Script()
    script.user([image_block(data)])
    script.reply(call("t1"))
    script.result("t1", [image_block(data), image_block(png(1, 1))])
    request = build_request(script.view)
    assert script.view.images.count == 1
    assert request["messages"][0]["content"][0]["text"].startswith("[image that cannot be sent: ")
    assert problems(request) == []


@pytest.mark.requirement("K8", "V8")
def test_an_image_gets_the_type_of_its_bytes():
    script = Script()
    script.user([image_block(png(1, 1), "image/jpeg")])
    assert script.messages[0]["content"] == [image_block(png(1, 1), "image/png")]


@pytest.mark.requirement("K8")
def test_tools_are_declared_when_calls_stand_in_the_view():
    script = Script()
    script.user("go")
    script.reply(call("t1", "Read"), call("t2", "Bash"))
    assert [tool["name"] for tool in build_request(script.view)["tools"]] == ["Read", "Bash"]
    prefix = PrefixRendered(
        Cause("request", "first"), "m", None, [{"name": "Read", "input_schema": {"type": "object"}}]
    )
    assert build_request(script.view, prefix)["tools"] == prefix.tools


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": -1},
        {"thinking": {"type": "enabled", "budget_tokens": 5_000}, "max_tokens": 5_000},
        {"thinking": "yes"},
        {"tool_choice": {"type": "any"}},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
        {"made_up": 1},
    ],
)
@pytest.mark.requirement("K8")
def test_options_a_provider_would_refuse_do_not_leave(options: dict[str, Any]):
    script = Script()
    script.decide(PrefixRendered(Cause("request", "first"), "m", None, [], options))
    script.user("hello")
    assert problems(build_request(script.view)) == []


def test_a_provider_pausing_its_own_tool_is_continued_as_it_stands():
    paused = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    script = Script()
    script.user("search")
    script.reply(text("let me look"), paused)
    request = build_request(script.view)
    assert request["messages"][-1]["content"][-1] is paused
    assert problems(request) == []


@pytest.mark.requirement("K8", "V10")
def test_a_tool_round_that_lacks_its_first_thinking_goes_on_with_thinking_off():
    manual = {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    for first in ([], [thought]):
        script = Script()
        script.decide(PrefixRendered(Cause("request", "first"), "claude-sonnet-4-5", None, [], manual))
        script.user("go")
        script.reply(*first, call("t1"))
        script.result("t1")
        script.reply(thought, call("t2"))
        script.result("t2")
        request = build_request(script.view)
        assert ("thinking" in request) == bool(first)
        assert problems(request) == []
        bad = problems({**request, **manual})
        assert [problem.path for problem in bad] == ([] if first else ["messages.1.content.0.type"])
        script.reply(text("done"))
        script.user("and now")
        assert "thinking" in build_request(script.view)
