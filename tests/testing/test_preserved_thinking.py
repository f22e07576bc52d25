"""Preserved thinking on the Messages API server, with raw requests.

Pages: build-with-claude/preserved-thinking and its parts prefix-checks, switching-models, account-bound-thinking and
fix-bound-to-a-different-conversation; build-with-claude/compaction-thinking-blocks; thinking-troubleshooting.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raw_requests import RawConversation, ask
from reverie.testing.messages_server import MessagesServer, redact_thinking, sign_thinking

pytestmark = pytest.mark.requirement("V10")

CHECKED = "claude-opus-5-5"
ALWAYS = "claude-fable-5-2"
FREE = "claude-opus-5"
BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or "
    'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
WRITE = {"name": "Write", "description": "Write a file.", "input_schema": {"type": "object"}}
LATER = {"name": "Later", "input_schema": {"type": "object"}, "defer_loading": True}
SYSTEM = "Be brief."
Change = Callable[[RawConversation], None]


def thinking_reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    turn = len(request["messages"])
    return [{"type": "thinking", "thinking": f"Thought {turn}."}, {"type": "text", "text": f"Answer {turn}."}]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, MessagesServer]]:
    with (
        MessagesServer(thinking_reply, preserved_thinking="error") as error,
        MessagesServer(thinking_reply, preserved_thinking="drop_block") as drop,
        MessagesServer(thinking_reply, preserved_thinking="silent") as silent,
    ):
        yield {"error": error, "drop_block": drop, "silent": silent}


def conversation(server: MessagesServer, model: str = CHECKED, turns: int = 3) -> RawConversation:
    talk = RawConversation(server, model, system=SYSTEM, tools=[READ, LATER])
    for number in range(turns):
        talk.say(f"Question {number}")
    return talk


def asking(behavior: str) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": behavior}}}


def thinking_paths(messages: list[Any]) -> list[str]:
    return [
        f"messages.{index}.content.{position}"
        for index, message in enumerate(messages)
        if isinstance(message["content"], list)
        for position, block in enumerate(message["content"])
        if block["type"] == "thinking"
    ]


def drop_thinking(talk: RawConversation, *turns: int) -> None:
    for turn in turns:
        message = talk.messages[2 * turn + 1]
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]


def change(**fields: Any) -> Change:
    return lambda talk: talk.body.update(fields)


def edit_turn(talk: RawConversation) -> None:
    talk.messages[0]["content"] = "Another question 0"


def edit_middle(talk: RawConversation) -> None:
    talk.messages[2]["content"] = "Another question 1"


def edit_answer(talk: RawConversation) -> None:
    talk.messages[1]["content"][1]["text"] = "Another answer."


def remind(talk: RawConversation) -> None:
    talk.messages.extend(
        [
            {"role": "user", "content": "Go on."},
            {"role": "system", "clear_at": "next_user_message", "content": "One file is open."},
        ]
    )


def mark_cache(talk: RawConversation) -> None:
    talk.messages[0]["content"] = [
        {"type": "text", "text": "Question 0", "cache_control": {"type": "ephemeral"}},
    ]


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def reload(talk: RawConversation) -> None:
    talk.body = reordered(talk.body)


def compact(talk: RawConversation) -> None:
    block = talk.compact(talk.messages[:3])
    talk.messages[:3] = [{"role": "assistant", "content": [block]}]


def summarize_by_hand(talk: RawConversation) -> None:
    talk.messages[:3] = [{"role": "user", "content": "Summary: two questions."}]


def add_tool_at_the_end(talk: RawConversation) -> None:
    reference = {"type": "tool_reference", "name": "Later"}
    talk.messages.extend(
        [
            {"role": "user", "content": "Go on."},
            {"role": "system", "content": [{"type": "tool_addition", "tool": reference}]},
        ]
    )


def effort_message(talk: RawConversation) -> None:
    talk.messages.insert(0, {"role": "system", "content": [], "output_config": {"effort": "low"}})


# The change, and the thinking blocks of the next request that fail, by their place among all of them.
MATRIX: list[tuple[str, Change, list[int]]] = [
    ("nothing changed", lambda talk: None, []),
    ("system changed", change(system="Be long."), [0, 1, 2]),
    ("tool added", change(tools=[READ, LATER, WRITE]), [0, 1, 2]),
    ("tool removed", change(tools=[LATER]), [0, 1, 2]),
    ("tool added again", change(tools=[READ, LATER]), []),
    ("tools in another order", change(tools=[LATER, READ]), []),
    ("deferred tool added", change(tools=[READ, LATER, {**WRITE, "defer_loading": True}]), []),
    ("deferred tool referred to at the end", add_tool_at_the_end, []),
    ("schema changed", change(tools=[{**READ, "input_schema": {"type": "object", "properties": {}}}]), [0, 1, 2]),
    ("effort changed", change(output_config={"effort": "low"}), []),
    ("effort in a message at the front", effort_message, [0, 1, 2]),
    ("max_tokens and tool_choice changed", change(max_tokens=9, tool_choice={"type": "none"}), []),
    ("reminder at the end", remind, []),
    ("reload in another key order", reload, []),
    ("cache mark moved", mark_cache, []),
    ("first turn edited", edit_turn, [0, 1, 2]),
    ("middle turn edited", edit_middle, [1, 2]),
    ("answer edited", edit_answer, [1, 2]),
    ("thinking removed at the start", lambda talk: drop_thinking(talk, 0), []),
    ("thinking removed at the end", lambda talk: drop_thinking(talk, 2), []),
    ("all thinking removed", lambda talk: drop_thinking(talk, 0, 1, 2), []),
    ("thinking removed from the middle", lambda talk: drop_thinking(talk, 1), [1]),
    ("compaction", compact, []),
    ("summary of the client", summarize_by_hand, [0, 1]),
]


@pytest.mark.parametrize("behavior", ["error", "drop_block", "silent"])
@pytest.mark.parametrize("source", ["account", "request"])
@pytest.mark.parametrize(("edit", "stale"), [row[1:] for row in MATRIX], ids=[row[0] for row in MATRIX])
def test_thinking_fails_exactly_where_content_before_it_changed(
    servers: dict[str, MessagesServer], behavior: str, source: str, edit: Change, stale: list[int]
) -> None:
    by_request = source == "request" and behavior != "silent"
    server = servers["silent" if by_request else behavior]
    talk = conversation(server)
    edit(talk)
    if talk.messages[-1]["role"] == "assistant":
        talk.messages.append({"role": "user", "content": "Next"})
    paths = [thinking_paths(talk.messages)[index] for index in stale]
    status, answer = talk.send(**(asking(behavior) if by_request else {}))
    if behavior == "error" and stale:
        assert (status, answer["error"]["message"]) == (400, f"{paths[0]}: {BOUND}")
        assert answer["error"]["type"] == "invalid_request_error"
        return
    assert status == 200, answer
    kind = "thinking_dropped" if behavior == "drop_block" else "thinking_mismatch_allowed"
    expected = [{"type": kind, "path": path, "reason": "prefix_binding_mismatch"} for path in paths]
    assert answer["input_transformations"] == expected


@pytest.mark.parametrize("account", ["error", "drop_block", "silent"])
def test_the_request_overrides_the_account_and_a_model_without_the_check_accepts_the_field(
    servers: dict[str, MessagesServer], account: str
) -> None:
    talk = conversation(servers[account])
    edit_turn(talk)
    talk.messages.append({"role": "user", "content": "Next"})
    assert talk.send(**asking("error"))[0] == 400
    assert len(talk.send(**asking("drop_block"))[1]["input_transformations"]) == 3
    free = conversation(servers[account], FREE)
    edit_turn(free)
    free.messages.append({"role": "user", "content": "Next"})
    assert free.send(**asking("error"))[1]["input_transformations"] == []


def test_some_models_check_on_every_account(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["silent"], ALWAYS)
    edit_turn(talk)
    talk.messages.append({"role": "user", "content": "Next"})
    status, answer = talk.send()
    assert status == 400
    assert BOUND in answer["error"]["message"]


def test_without_the_beta_blocks_are_dropped_and_nothing_is_reported(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["drop_block"])
    whole = talk.send(messages=[*talk.messages, {"role": "user", "content": "Next"}], betas=())[1]
    edit_turn(talk)
    talk.messages[0]["content"] = "Question X"
    cut = talk.send(messages=[*talk.messages, {"role": "user", "content": "Next"}], betas=())[1]
    assert "input_transformations" not in whole | cut
    assert cut["usage"]["input_tokens"] < whole["usage"]["input_tokens"]
    status, refused = talk.send(**asking("drop_block"), betas=())
    assert status == 400
    assert refused["error"]["message"] == "thinking.adaptive.block_binding: Extra inputs are not permitted"


def test_dropped_blocks_cost_nothing_and_the_cache_starts_again_at_the_edit(servers: dict[str, MessagesServer]) -> None:
    long = "A long and steady question. " * 200
    mark = {"cache_control": {"type": "ephemeral"}}
    talk = RawConversation(servers["drop_block"], CHECKED, system=SYSTEM)
    for number in range(2):
        talk.say([{"type": "text", "text": f"{number} {long}", **(mark if number == 0 else {})}])
    talk.messages.append({"role": "user", "content": [{"type": "text", "text": "Next", **mark}]})
    before = talk.send()[1]["usage"]
    assert before["cache_read_input_tokens"] > 1_000
    talk.messages[2]["content"][0]["text"] += "!"
    after = talk.send()[1]["usage"]
    assert 1_000 < after["cache_read_input_tokens"] < before["cache_read_input_tokens"] + 1
    assert after["cache_creation_input_tokens"] > 1_000
    sizes = [sum(usage[name] for name in usage if name.endswith("input_tokens")) for usage in (before, after)]
    assert sizes[1] < sizes[0]


def test_thinking_made_after_a_drop_is_valid_and_a_block_put_back_is_not(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["drop_block"])
    edit_turn(talk)
    talk.say("Next")
    reported = talk.say("And then?")["input_transformations"]
    assert [entry["path"] for entry in reported] == thinking_paths(talk.messages)[:3]
    whole = conversation(servers["error"])
    full = copy.deepcopy(whole.messages)
    drop_thinking(whole, 0, 1)
    whole.say("Next")
    whole.messages[:6] = full
    whole.messages.append({"role": "user", "content": "And then?"})
    status, answer = whole.send()
    assert status == 400
    assert answer["error"]["message"].startswith(f"{thinking_paths(whole.messages)[3]}: Invalid `signature`")


def test_a_branch_at_a_point_that_was_sent_keeps_its_thinking(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["error"])
    branch = RawConversation(talk.server, CHECKED, system=SYSTEM, tools=[READ, LATER])
    branch.messages.extend(copy.deepcopy(talk.messages[:4]))
    branch.say("Another way")
    assert branch.say("On")["input_transformations"] == []


def test_a_signature_is_checked_by_another_server_of_the_same_provider(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["error"])
    talk.server = servers["drop_block"]
    assert talk.say("Next")["input_transformations"] == []


def test_an_unreadable_block_is_dropped_on_a_switch_and_comes_back_with_its_reader(
    servers: dict[str, MessagesServer],
) -> None:
    talk = conversation(servers["error"])
    paths = thinking_paths(talk.messages)
    switched = talk.say("Next", model="claude-haiku-5-5")
    assert switched["input_transformations"] == [
        {"type": "thinking_dropped", "path": path, "reason": "model_binding_mismatch"} for path in paths
    ]
    # This model reads the other's thinking, so that nothing is missing on the way back.
    assert talk.say("Back")["input_transformations"] == []
    assert len(talk.say("On")["input_transformations"]) == 0
    assert talk.say("Without reporting", model="claude-opus-4-8", betas=())["stop_reason"] == "end_turn"


def test_some_thinking_works_only_in_the_account_that_made_it(servers: dict[str, MessagesServer]) -> None:
    bound = conversation(servers["error"], "claude-sonnet-5-5")
    reasons = {entry["reason"] for entry in bound.say("Next", key="another account")["input_transformations"]}
    assert reasons == {"organization_binding_mismatch"}
    free = conversation(servers["error"])
    assert free.say("Next", key="another account")["input_transformations"] == []


def test_a_damaged_signature_is_refused_whatever_the_request_asks_for(servers: dict[str, MessagesServer]) -> None:
    for damage in (lambda old: old[:-9], lambda old: "", lambda old: "A" + old):
        for model in (CHECKED, FREE):
            talk = conversation(servers["drop_block"], model)
            block = talk.messages[1]["content"][0]
            block["signature"] = damage(block["signature"])
            talk.messages.append({"role": "user", "content": "Next"})
            status, answer = talk.send(**asking("drop_block"))
            assert status == 400
            assert answer["error"]["message"].endswith("Invalid `signature` in `thinking` block")


def test_the_thinking_of_the_latest_reply_is_whole_or_absent() -> None:
    def reply(request: dict[str, Any]) -> Any:
        return [
            {"type": "thinking", "thinking": "One."},
            {"type": "redacted_thinking"},
            {"type": "thinking", "thinking": ""},
            {"type": "tool_use", "name": "Read", "input": {}},
        ]

    with MessagesServer(reply) as server:
        talk = RawConversation(server, CHECKED, tools=[READ])
        content = talk.say("Read it")["content"]
        result = {"type": "tool_result", "tool_use_id": content[3]["id"], "content": "hi"}
        talk.messages.append({"role": "user", "content": [result]})
        assert talk.send()[0] == 200
        variants = [
            content[1:],
            [content[0], *content[2:]],
            content[:2] + content[3:],
            [content[1], content[0], *content[2:]],
        ]
        variants.append([{**content[0], "thinking": "Two."}, *content[1:]])
        for variant in variants:
            talk.messages[1]["content"] = variant
            status, answer = talk.send(**asking("drop_block"))
            assert status == 400
            assert "blocks in the latest assistant message cannot be modified" in answer["error"]["message"]
        talk.messages[1]["content"] = content[3:]
        assert talk.send()[0] == 200
        talk.messages[1]["content"] = [content[0], {**content[1], "data": content[1]["data"][:-4]}, *content[2:]]
        assert talk.send()[1]["error"]["message"] == "messages.1.content.1: Invalid `data` in `redacted_thinking` block"


def test_history_that_a_test_signed_has_no_conversation_and_fails_where_one_is_needed(
    servers: dict[str, MessagesServer],
) -> None:
    content = [
        {"type": "redacted_thinking", "data": redact_thinking("Old.")},
        {"type": "thinking", "thinking": "Old.", "signature": sign_thinking("Old.")},
        {"type": "text", "text": "So."},
    ]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]
    body = {"max_tokens": 90, "messages": [*messages, {"role": "user", "content": "!"}]}
    assert ask(servers["error"], {"model": FREE, **body})[0] == 200
    status, answer = ask(servers["error"], {"model": CHECKED, **body})
    assert status == 400
    assert "bound to a different conversation" in answer["error"]["message"]
    _, dropped = ask(servers["drop_block"], {"model": CHECKED, **body})
    assert len(dropped["input_transformations"]) == 2


def test_counting_runs_the_same_check(servers: dict[str, MessagesServer]) -> None:
    talk = conversation(servers["error"])
    talk.messages.append({"role": "user", "content": "Next"})
    body = {key: value for key, value in talk.body.items() if key != "max_tokens"}
    status, whole = ask(talk.server, body, path="/v1/messages/count_tokens")
    assert status == 200
    edit_turn(talk)
    status, answer = ask(talk.server, body, path="/v1/messages/count_tokens")
    assert status == 400
    assert BOUND in answer["error"]["message"]
    _, fewer = ask(talk.server, {**body, **asking("drop_block")}, path="/v1/messages/count_tokens")
    assert fewer["input_tokens"] < whole["input_tokens"]


def test_a_turn_scoped_message_stays_in_place_and_its_change_is_an_edit(servers: dict[str, MessagesServer]) -> None:
    changes: list[tuple[Callable[[list[Any]], Any], int]] = [
        (lambda messages: None, 200),
        (lambda messages: messages[1].update(content="Two files are open."), 400),
        (lambda messages: messages[1].update(clear_at="never"), 400),
        (lambda messages: messages[1].pop("clear_at"), 400),
        (lambda messages: messages.pop(1), 400),
    ]
    for edit, expected in changes:
        talk = RawConversation(servers["error"], CHECKED)
        remind(talk)
        status, answer = talk.send()
        assert status == 200
        talk.messages.append({"role": "assistant", "content": answer["content"]})
        talk.messages.append({"role": "user", "content": "Next"})
        edit(talk.messages)
        assert talk.send()[0] == expected
