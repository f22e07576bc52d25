"""When memories are extracted: after a query, from the cursor on, every so many turns."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_logs import random_log
from reverie.conversation.decisions import Cause, Compacted, CursorMoved, Decision, body_of
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry
from reverie.conversation.view import View
from reverie.layers.l5_extract.plan import CURSOR, after_cursor, extraction_step
from reverie.layers.l5_extract.policy import ExtractPolicy

MEMORY = "/home/ann/.reverie/projects/p/memory"
EACH = ExtractPolicy()


class Log:
    """A log that grows."""

    def __init__(self) -> None:
        self.view = View()
        self.serial = 0

    def add(self, kind: str, body: dict[str, Any]) -> str:
        self.serial += 1
        uuid = f"e{self.serial}"
        self.view = self.view.fold(Entry(uuid, None, "2026-11-11T10:00:00Z", "s", kind, body))
        return uuid

    def decide(self, decision: Decision) -> str:
        return self.add(DECISION, body_of(decision))

    def user(self, content: Any) -> str:
        return self.add(USER, {"message": {"role": "user", "content": content}})

    def reply(self, *blocks: dict[str, Any]) -> str:
        reply = {"id": f"m{self.serial}"}
        return self.add(ASSISTANT, {"message": {"role": "assistant", "content": list(blocks)}, "reply": reply})

    def turn(self, words: str = "Do it.") -> str:
        self.user(words)
        return self.reply({"type": "text", "text": "Done."})

    def call(self, name: str, given: dict[str, Any], *, failed: bool = False, answered: bool = True) -> None:
        called = f"t{self.serial}"
        self.reply({"type": "tool_use", "id": called, "name": name, "input": given})
        if answered:
            self.user([{"type": "tool_result", "tool_use_id": called, "content": "ok", "is_error": failed}])

    @property
    def cursor(self) -> str | None:
        return self.view.facts.cursors.get(CURSOR)

    def look(self, policy: ExtractPolicy = EACH) -> Any:
        return extraction_step(self.view, self.cursor, policy, memory_path=MEMORY)

    def move(self) -> None:
        self.decide(CursorMoved(Cause("extract", "test"), CURSOR, self.look().upto))


@pytest.mark.requirement("L5.1")
def test_a_query_is_looked_through_when_its_reply_asks_for_nothing_more() -> None:
    log = Log()
    assert log.look().act == "wait"
    log.user("Fix it.")
    assert log.look().act == "wait"
    log.call("Read", {"file_path": "/a"}, answered=False)
    assert log.look().act == "wait"
    log = Log()
    log.user("Fix it.")
    log.call("Read", {"file_path": "/a"})
    assert log.look().act == "wait"
    last = log.reply({"type": "text", "text": "Done."})
    found = log.look()
    assert (found.act, found.upto, found.turns) == ("run", last, 1)


@pytest.mark.requirement("L5.2")
def test_every_nth_turn_counts_from_the_cursor_in_the_log() -> None:
    policy = ExtractPolicy(every_turns=3)
    log = Log()
    acts: list[str] = []
    for _ in range(7):
        log.turn()
        found = log.look(policy)
        acts.append(found.act)
        if found.act == "run":
            log.decide(CursorMoved(Cause("extract", "test"), CURSOR, found.upto))
    assert acts == ["wait", "wait", "run", "wait", "wait", "run", "wait"]


@pytest.mark.requirement("L5.3")
@pytest.mark.parametrize(
    ("tool", "given_", "writes"),
    [
        ("Write", {"file_path": f"{MEMORY}/a.md", "content": "x"}, True),
        ("Edit", {"file_path": f"{MEMORY}/../memory/a.md"}, True),
        ("str_replace_editor", {"path": f"{MEMORY}/a.md", "command": "create"}, True),
        ("Memory", {"action": "save", "text": "x"}, True),
        ("mcp__reverie__memory_save", {"text": "x"}, True),
        ("Bash", {"command": f"echo x > {MEMORY}/a.md"}, True),
        ("Memory", {"action": "list"}, False),
        ("Read", {"file_path": f"{MEMORY}/a.md"}, False),
        ("Write", {"file_path": f"{MEMORY}-other/a.md"}, False),
        ("Write", {"file_path": f"{MEMORY}/../a.md"}, False),
        ("Bash", {"command": f"cat {MEMORY}/a.md"}, False),
        ("Bash", {"command": "rm -rf build"}, False),
    ],
)
def test_what_the_agent_wrote_itself_is_not_looked_through_again(
    tool: str, given_: dict[str, Any], writes: bool
) -> None:
    log = Log()
    log.user("Remember that I prefer tabs.")
    log.call(tool, given_)
    last = log.reply({"type": "text", "text": "Done."})
    found = log.look()
    assert (found.act, found.upto) == ("skip" if writes else "run", last)
    log.move()
    log.turn("And remember that I prefer vim.")
    assert log.look().act == "run", "what it wrote before the cursor does not count"


@pytest.mark.requirement("L5.3")
def test_a_write_that_failed_does_not_count() -> None:
    log = Log()
    log.user("Remember that I prefer tabs.")
    log.call("Memory", {"action": "save", "text": "x"}, failed=True)
    log.reply({"type": "text", "text": "It was refused."})
    assert log.look().act == "run"


@pytest.mark.requirement("L5.6")
def test_messages_without_a_persons_prose_wait_for_some() -> None:
    log = Log()
    log.turn("Hello.")
    log.move()
    log.user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}])
    log.reply({"type": "text", "text": "A picture."})
    assert log.look().act == "wait"
    log.turn("Say what it is.")
    found = log.look()
    assert (found.act, len(found.entries)) == ("run", 4), "what was skipped is looked through then"


@pytest.mark.requirement("L5.6")
def test_a_lost_cursor_makes_every_message_count_and_a_compaction_does_not_lose_it() -> None:
    log = Log()
    log.turn("One.")
    log.move()
    kept = log.turn("Two.")
    summary = Compacted(Cause("compact", "full"), "auto", "full", "They talked.", 10, kept, None)
    log.decide(summary)
    log.turn("Three.")
    assert len(log.look().entries) == 4
    log.decide(CursorMoved(Cause("extract", "test"), CURSOR, "nowhere"))
    found = log.look()
    assert found.lost
    assert len(found.entries) == len(log.view.history)


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_random_logs_never_break_it_and_the_cursor_only_goes_forward(number: int, every: int) -> None:
    policy = ExtractPolicy(every_turns=every)
    view, at = View(), -1
    cursor: str | None = None
    covered: list[str] = []
    for entry in random_log(Random(number), entries=60, disorder=0.4):
        view = view.fold(entry)
        found = extraction_step(view, cursor, policy, memory_path=MEMORY)
        assert found == extraction_step(view, cursor, policy, memory_path=MEMORY)
        if found.act == "wait":
            continue
        said = [one.uuid for one in view.history]
        assert not found.lost
        assert said.index(found.upto) > at
        at, cursor = said.index(found.upto), found.upto
        covered += [one.uuid for one in found.entries]
        assert covered == said[: at + 1], "every message once, in order"


def test_a_plan_that_forgets_where_it_was_is_caught() -> None:
    """The known-bad twin: counting from the snapshot's own cursor looks at messages twice."""
    log = Log()
    log.turn("One.")
    snapshot = log.view
    log.move()
    log.turn("Two.")
    right = extraction_step(log.view, log.cursor, EACH).entries
    wrong = extraction_step(log.view, snapshot.facts.cursors.get(CURSOR), EACH).entries
    assert len(right) == 2
    assert len(wrong) == 4


def test_nothing_after_the_cursor_is_nothing() -> None:
    log = Log()
    last = log.turn()
    assert after_cursor(log.view.latest(), last) == ((), False)
    assert after_cursor([], "x") == ((), True)
