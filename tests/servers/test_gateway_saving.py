"""Saving changes only results that are new in a request, shows the same bytes for good, and ends with a refusal."""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_world import ListedExchanges, gateway_thread
from reverie import FileStorage, Library
from reverie.servers.gateway.saver import Saver, spliced
from reverie.testing.messages_server import MessagesServer

MODEL = "claude-sonnet-4-5"
TOOLS = [{"name": "Grep", "input_schema": {"type": "object"}}]
Message = dict[str, Any]


def turn(number: int, output: Any) -> list[Message]:
    """Return a call and its result."""
    use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Grep", "input": {"pattern": "x"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def big(number: int) -> str:
    return f"result {number}: " + "grüße and a line of output\n" * 2_000


class World:
    """A server, a gateway that saves, and a client."""

    def __init__(self, url: str, server: MessagesServer, listed: ListedExchanges) -> None:
        self.url, self.server, self.listed = url, server, listed

    def ask(self, messages: list[Message], session: str = "s-1") -> int:
        body = {"model": MODEL, "max_tokens": 100, "tools": TOOLS, "system": "You help.", "messages": messages}
        headers = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}
        request = urllib.request.Request(
            f"{self.url}/v1/messages", json.dumps(body).encode(), {**headers, "x-claude-code-session-id": session}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def sent(self, at: int = -1) -> list[Any]:
        """Return the content of each result that the server got."""
        messages = self.server.requests[at]["messages"]
        blocks = [block for one in messages if isinstance(one["content"], list) for block in one["content"]]
        return [block["content"] for block in blocks if block["type"] == "tool_result"]


@contextmanager
def saving(home: Path) -> Iterator[World]:
    listed = ListedExchanges(home)
    server = MessagesServer(lambda body: "Done.")
    with server, gateway_thread(server.base_url, listed, rewriter=Saver(home)) as url:
        yield World(url, server, listed)


ASKED: list[Message] = [{"role": "user", "content": "look"}]


@pytest.mark.slow
@pytest.mark.requirement("G3")
def test_a_big_new_result_is_shown_as_a_preview_in_this_and_every_later_request(home: Path) -> None:
    with saving(home) as world:
        first = [*ASKED, *turn(1, big(1))]
        assert world.ask(first) == 200
        preview = world.sent()[0]
        assert len(preview) < 4_000
        assert "tool-results/toolu_1.txt" in preview
        later = [*first, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "more"}]
        assert world.ask(later) == 200
        assert world.sent() == [preview]
        assert world.server.requests[-1]["tools"] == TOOLS
        assert world.server.requests[-1]["system"] == "You help."
    with saving(home) as world:  # another process
        assert world.ask([*later, *turn(2, "small")]) == 200
        assert world.sent() == [preview, "small"]
    assert next(home.rglob("toolu_1.txt")).read_text() == big(1)
    library = Library(FileStorage(home))
    key = next(key for key in sorted(library.keys()) if "gateway-s-1" in key)
    shown = [block for one in library.view(key).messages() for block in one["content"] if isinstance(block, dict)]
    assert [block["content"] for block in shown if block["type"] == "tool_result"] == [preview, "small"]


@pytest.mark.slow
@pytest.mark.requirement("G3")
def test_results_that_were_sent_before_stay_as_they_were(home: Path) -> None:
    with saving(home) as world:
        old = [*ASKED, *turn(1, big(1)), {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        assert world.ask(old) == 200
        assert world.sent() == [big(1)]
        assert world.ask([*old, *turn(2, big(2))]) == 200
        assert world.sent()[0] == big(1)
        assert world.sent()[1] != big(2)
        small = [*ASKED, *turn(3, "a small result")]
        assert world.ask(small, session="s-2") == 200
        assert world.sent() == ["a small result"]


@pytest.mark.slow
@pytest.mark.requirement("G3")
def test_a_refusal_ends_saving_and_keeps_what_the_provider_has_accepted(home: Path) -> None:
    with saving(home) as world:
        first = [*ASKED, *turn(1, big(1))]
        world.ask(first)
        preview = world.sent()[0]
        second = [*first, *turn(2, big(2))]
        world.server.fail(400)
        assert world.ask(second) == 400
        assert world.sent()[1] != big(2)
        assert world.ask(second) == 200
        assert world.sent() == [preview, big(2)]
        assert world.ask([*second, *turn(3, big(3))]) == 200
        assert world.sent() == [preview, big(2), big(3)]


@pytest.mark.slow
def test_without_a_place_for_the_result_the_request_passes_whole(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "gateway").write_text("a file where a folder should be")
    with saving(home) as world:
        assert world.ask([*ASKED, *turn(1, big(1))]) == 200
        assert world.sent() == [big(1)]


@pytest.mark.requirement("G3")
def test_no_byte_beside_the_content_of_a_replaced_result_changes(seed: int) -> None:
    draw = random.Random(seed)
    for number in range(200):
        marker = f"<<{number}>>"
        content = draw.choice([marker, [{"type": "text", "text": marker, "content": "inner"}], [], None])
        block = {"type": "tool_result", "tool_use_id": "t1", "content": content, "cache_control": {"type": "ephemeral"}}
        keys = list(block)
        draw.shuffle(keys)
        other = {"type": "tool_result", "tool_use_id": "t2", "content": draw.choice([marker, '"content": "x"', []])}
        blocks = [{key: block[key] for key in keys}, other]
        draw.shuffle(blocks)
        said = [{"role": "user", "content": '{"type": "tool_result"}'}, {"content": blocks, "role": "user"}]
        body = {"odd": [1.0, {"content": content}], "messages": said, "z": "é"}
        spacing = draw.choice([(", ", ": "), (",", ":"), (" ,\n ", " :\t")])
        data = json.dumps(body, separators=spacing, ensure_ascii=draw.random() < 0.5).encode()
        made = spliced(data, {"t1": 'a "preview" é'})
        old = json.dumps(content, separators=spacing, ensure_ascii=b"\\u" in data).encode()
        new = '"a \\"preview\\" é"'.encode()
        at = next(at for at in range(len(data)) if data[at : at + 1] != made[at : at + 1])
        assert len(made) == len(data) - len(old) + len(new)
        assert made.startswith(data[:at])
        assert made[at - 1 :].count(new[1:]) == 1
        assert made.endswith(data[len(data) - 20 :])
