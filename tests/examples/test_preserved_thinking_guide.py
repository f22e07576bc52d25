"""The guide to preserved thinking tells the truth: its models, its table of edits and its code."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raw_requests import RawConversation
from reverie.model_facts import known_facts
from reverie.testing.messages_server import MessagesServer

REPOSITORY = Path(__file__).resolve().parents[2]
GUIDE = (REPOSITORY / "docs" / "guides" / "preserved-thinking.md").read_text()
READ = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
GREP = {"name": "Grep", "description": "Search.", "input_schema": {"type": "object"}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
OTHER = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
Change = Callable[[RawConversation], None]


def replied(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Think and answer; read a file on the first turn."""
    turn = len(request["messages"])
    thought = {"type": "thinking", "thinking": f"Thought {turn}."}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    return [thought, call if turn == 1 else {"type": "text", "text": f"Answer {turn}."}]


def conversation(server: MessagesServer) -> RawConversation:
    talk = RawConversation(server, "claude-opus-5-5", system="Be brief.", tools=[READ])
    talk.say("Read notes.txt. Today is Monday.")
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    talk.say([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "buy bread"}, image])
    talk.say("And then?")
    talk.say("And now?")
    talk.messages.append({"role": "user", "content": "Go on."})
    return talk


def fields(**changed: Any) -> Change:
    return lambda talk: talk.body.update(changed)


def without_thinking(*messages: int) -> Change:
    def edit(talk: RawConversation) -> None:
        for at in messages:
            talk.messages[at]["content"] = talk.messages[at]["content"][1:]

    return edit


def appended(*messages: dict[str, Any]) -> Change:
    return lambda talk: talk.messages.extend(messages)


def put(at: int, content: Any) -> Change:
    return lambda talk: talk.messages[at].update(content=content)


def in_result(**changed: Any) -> Change:
    return lambda talk: talk.messages[2]["content"][0].update(changed)


def other_image(talk: RawConversation) -> None:
    talk.messages[2]["content"][1]["source"]["data"] = OTHER


def left_out_once(talk: RawConversation) -> None:
    """Send a request without the thinking of the last reply, get another one, and put the thinking back."""
    whole = copy.deepcopy(talk.messages[7])
    without_thinking(7)(talk)
    talk.messages.pop()
    talk.say("Go on.")
    talk.messages[7] = whole
    talk.messages.append({"role": "user", "content": "Next."})


def summarised_by_provider(talk: RawConversation) -> None:
    talk.messages[:5] = [{"role": "assistant", "content": [talk.compact(talk.messages[:5])]}]


def summarised_here(talk: RawConversation) -> None:
    talk.messages[:5] = [{"role": "user", "content": "Summary: a file was read."}]


def removed(talk: RawConversation) -> None:
    del talk.messages[4:6]


def moved(talk: RawConversation) -> None:
    talk.messages[4], talk.messages[6] = talk.messages[6], talk.messages[4]


MARK = {"type": "ephemeral"}
LATER = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": GREP}}
CLEARING = {
    "edits": [
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 0},
            "keep": {"type": "tool_uses", "value": 0},
        }
    ]
}
ROWS: dict[str, tuple[Change, ...]] = {
    "messages appended, a message of the role `system` at the end, a tool added there by `tool_addition`": (
        appended(),
        appended({"role": "system", "content": "Today is Tuesday."}),
        appended({"role": "system", "content": [LATER]}),
    ),
    "`cache_control` added, moved or removed": (in_result(cache_control=MARK),),
    "effort, `max_tokens`, `tool_choice`, `metadata`: anything outside `system`, `tools` and `messages`": (
        fields(output_config={"effort": "low"}),
        fields(max_tokens=9, tool_choice={"type": "none"}, metadata={"user_id": "one"}),
    ),
    "a tool with `defer_loading` declared that nothing has referred to yet": (
        fields(tools=[READ, {**GREP, "defer_loading": True}]),
    ),
    "all thinking left out from the start up to some turn, from some turn to the end, or everywhere, and never put "
    "back": (without_thinking(1, 3), without_thinking(5, 7), without_thinking(1, 3, 5, 7)),
    "old results cleared by the provider (`context_management`)": (fields(context_management=CLEARING),),
    "a signed summary of the provider in place of exactly the messages it summarises": (summarised_by_provider,),
    "`system` reworded": (fields(system="Be brief. Today is Tuesday."),),
    "a tool added to `tools`, removed, renamed or reworded": (
        fields(tools=[READ, GREP]),
        fields(tools=[GREP]),
        fields(tools=[{**READ, "name": "Look"}]),
        fields(tools=[{**READ, "description": "Read one file."}]),
    ),
    "an old tool result cleared or shortened, an image re-encoded": (
        in_result(content="[cleared]"),
        in_result(content="buy"),
        other_image,
    ),
    "an earlier message reworded, removed or moved; the first message rendered again": (
        put(4, "And after that?"),
        removed,
        moved,
        put(0, "Read notes.txt. Today is Tuesday."),
    ),
    "thinking left out in the middle, or put back later": (without_thinking(3), left_out_once),
    "your own summary, followed by kept turns that still have thinking": (summarised_here,),
}


def table(heading: str) -> dict[str, str]:
    """Return the first two columns of the first table below a heading of the guide."""
    section = GUIDE.split(f"\n## {heading}\n")[1]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section.split("\n\n## ")[0], flags=re.MULTILINE)
    return dict(rows[1:])


def code(name: str) -> str:
    """Return the Python block of the guide that contains a name."""
    return next(
        block for block in re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL) if name in block
    )


@pytest.mark.requirement("V2")
def test_the_guide_names_the_families_that_check_thinking() -> None:
    told = {
        family: "all" if "every account" in accounts else "new" if "created on or after" in accounts else "none"
        for families, accounts in table("The error").items()
        for family in re.findall(r"`(claude-[\w-]+)`", families)
    }
    checked = {one.name: one.prefix_check for one in known_facts() if one.checks_thinking and not one.strict}
    assert {family: check for family, check in told.items() if check != "none"} == checked
    assert {"claude-opus-5", "claude-sonnet-5"} <= {family for family, check in told.items() if check == "none"}


@pytest.mark.requirement("V2")
def test_the_table_of_edits_is_that_of_the_server_and_the_comparison_finds_each_refused_one() -> None:
    told = table("Edits")
    assert list(told)[: len(ROWS)] == list(ROWS)
    made: dict[str, Any] = {}
    exec(code("def first_edit"), made)
    with MessagesServer(replied, preserved_thinking="error") as server:
        for row, changes in ROWS.items():
            for change in changes:
                talk = conversation(server)
                before = copy.deepcopy(talk.body)
                change(talk)
                status, answer = talk.send()
                refused = "is bound to a different conversation" in str(answer.get("error"))
                assert ("refused" if refused else "valid") == told[row], (row, answer)
                assert refused == (status != 200)
                if "thinking left out" not in row and change is not summarised_by_provider:
                    found = made["first_edit"](before, talk.body)
                    assert bool(found) == (refused or "defer_loading" in row), (row, found)


@pytest.mark.requirement("V5")
def test_the_code_for_summaries_in_the_background_is_that_of_the_program() -> None:
    program = [line.strip() for line in (REPOSITORY / "examples" / "preserved_thinking.py").read_text().splitlines()]
    for name in ("async def summarise", "background_request()"):
        lines = [line.strip() for line in code(name).splitlines()]
        at = program.index(lines[0])
        assert program[at : at + len(lines)] == lines
