"""Random conversations and random edits: the server's digests agree with a comparison of whole requests."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest

from raw_requests import RawConversation
from reverie.testing.messages_server import MessagesServer

pytestmark = [pytest.mark.requirement("V10"), pytest.mark.slow]

MODEL = "claude-opus-5-5"
READ: Any = {"name": "Read", "input_schema": {"type": "object"}}


def is_thinking(block: Any) -> bool:
    return block["type"] == "thinking"


def content(message: Any) -> list[Any]:
    words = message["content"]
    return [{"type": "text", "text": words}] if isinstance(words, str) else words


def plain(messages: list[Any]) -> list[Any]:
    """Return messages without thinking."""
    return [
        {**message, "content": [block for block in content(message) if not is_thinking(block)]} for message in messages
    ]


class Oracle:
    """The whole request behind each thinking block and each summary, to compare with."""

    def __init__(self, *, forgets_links: bool = False) -> None:
        self.forgets_links = forgets_links
        self.made: dict[str, tuple[Any, list[Any], list[str]]] = {}
        self.covered: dict[str, tuple[Any, list[Any]]] = {}

    def opening(self, body: Any) -> Any:
        return copy.deepcopy([body.get("system"), body.get("tools")])

    def learn(self, body: Any, answer: Any, kept: list[str]) -> None:
        for block in answer["content"]:
            if is_thinking(block):
                self.made[block["signature"]] = self.opening(body), plain(copy.deepcopy(body["messages"])), kept
                kept = [*kept, block["signature"]]

    def learn_summary(self, body: Any, messages: list[Any], block: Any) -> None:
        self.covered[block["signature"]] = self.opening(body), plain(copy.deepcopy(messages))

    def histories(self, body: Any, messages: list[Any]) -> list[list[Any]]:
        """Return the messages as sent, and with every summary replaced by the messages that it covers."""
        found = [messages]
        first = content(messages[0])[0] if messages else {"type": ""}
        while first["type"] == "compaction":
            opening, covered = self.covered[first["signature"]]
            kept = found[-1][1:]
            if opening != self.opening(body) or (kept and covered[-1]["role"] == kept[0]["role"]):
                break
            found.append([*covered, *kept])
            first = content(covered[0])[0]
        return found

    def stale(self, body: Any, *, drops: bool) -> tuple[list[str], list[str]]:
        """Return the paths of the blocks that fail, and the signatures of those that stay."""
        messages, failed, kept = body["messages"], list[str](), list[str]()
        for index, message in enumerate(messages):
            for position, block in enumerate(content(message)):
                if not is_thinking(block):
                    continue
                opening, before, run = self.made[block["signature"]]
                linked = self.forgets_links or not kept or run[-len(kept) :] == kept
                histories = self.histories(body, plain(messages[:index]))
                if linked and opening == self.opening(body) and before in histories:
                    kept.append(block["signature"])
                else:
                    failed.append(f"messages.{index}.content.{position}")
                    kept += [] if drops else [block["signature"]]
        return failed, kept


def edit(rng: Random, talk: RawConversation, oracle: Oracle) -> None:
    """Change something in the conversation, or nothing."""
    messages = talk.messages
    replies = [message for message in messages if any(is_thinking(block) for block in content(message))]
    kind = rng.choice(["none", "none", "system", "tool", "text", "answer", "thinking", "prefix", "compact", "compact"])
    if kind == "system":
        talk.body["system"] = rng.choice(["Be brief.", "Be long."])
    elif kind == "tool":
        talk.body["tools"] = rng.choice([[READ], [READ, {**READ, "name": "Write"}]])
    elif kind == "text" and messages:
        rng.choice([message for message in messages if message["role"] == "user"])["content"] = rng.choice("abc")
    elif kind == "answer" and replies:
        rng.choice(replies)["content"][-1]["text"] = rng.choice("abc")
    elif kind == "thinking" and replies:
        chosen = rng.choice(replies)
        chosen["content"] = [block for block in chosen["content"] if not is_thinking(block)]
    elif kind == "prefix" and replies:
        for chosen in replies[: rng.randrange(len(replies))]:
            chosen["content"] = [block for block in chosen["content"] if not is_thinking(block)]
    elif kind == "compact" and len(messages) > 3:
        cut = rng.randrange(2, len(messages))
        body = {**talk.body, "messages": messages[:cut]}
        stale = oracle.stale(body, drops=True)[0]
        block = talk.compact(messages[:cut])
        if not stale:
            oracle.learn_summary(talk.body, messages[:cut], block)
            messages[:cut] = [{"role": "assistant", "content": [block]}]


def disagreements(server: MessagesServer, oracle: Oracle, rng: Random, turns: int) -> int:
    """Hold a conversation with random edits, and return how often the server and the oracle disagree."""
    talk = RawConversation(server, MODEL, system="Be brief.", tools=[READ])
    found = 0
    for turn in range(turns):
        edit(rng, talk, oracle)
        talk.messages.append({"role": "user", "content": f"{rng.randrange(3)} {turn}"})
        expected, kept = oracle.stale(talk.body, drops=True)
        status, answer = talk.send()
        assert status == 200, answer
        found += [entry["path"] for entry in answer["input_transformations"]] != expected
        oracle.learn(talk.body, answer, kept)
        talk.messages.append({"role": "assistant", "content": answer["content"]})
    return found


def reply(request: dict[str, Any]) -> list[dict[str, Any]]:
    number = len(str(request["messages"])) % 7
    thought = [{"type": "thinking", "thinking": f"Thought {number}."}] if number else []
    return [*thought, {"type": "text", "text": f"Answer {number}."}]


def test_the_server_drops_exactly_the_blocks_whose_whole_request_differs(torture: bool, seed: int) -> None:
    with MessagesServer(reply, preserved_thinking="drop_block") as server:
        for number in range(2_000 if torture else 60):
            rng = Random(f"{seed}/{number}")
            assert disagreements(server, Oracle(), rng, turns=12) == 0, number


def test_an_oracle_that_forgets_the_run_of_thinking_disagrees(seed: int) -> None:
    with MessagesServer(reply, preserved_thinking="drop_block") as server:
        rngs = [Random(f"{seed}/{number}") for number in range(60)]
        assert any(disagreements(server, Oracle(forgets_links=True), rng, turns=12) for rng in rngs)
