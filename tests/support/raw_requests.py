"""Raw requests against the Messages API server, without the SDK and without Reverie's builder."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from reverie.testing.messages_server import MessagesServer

__all__ = ["ALL_BETAS", "RawConversation", "ask"]

ALL_BETAS = (
    "thinking-binding-controls-2026-08-01",
    "compact-2026-09-04",
    "compact-2026-01-12",
    "context-management-2025-06-27",
    "mid-conversation-system-clear-at-2026-08-21",
    "mid-conversation-tool-changes-2026-07-01",
    "mid-conversation-output-config-2026-07-01",
    "inline-tools-2026-09-15",
)


def ask(
    server: MessagesServer,
    body: dict[str, Any],
    *,
    betas: Iterable[str] = ALL_BETAS,
    key: str = "any",
    path: str = "/v1/messages",
) -> tuple[int, dict[str, Any]]:
    """Send a body as it is and return the status and the answer."""
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01", "anthropic-beta": ",".join(betas)}
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
    try:
        method = "POST" if body else "GET"
        connection.request(method, path, json.dumps(body).encode() if body else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


class RawConversation:
    """A conversation that is kept as the messages of its next request."""

    def __init__(self, server: MessagesServer, model: str, **options: Any) -> None:
        self.server = server
        self.body: dict[str, Any] = {"model": model, "max_tokens": 4_000, "messages": [], **options}

    @property
    def messages(self) -> list[Any]:
        """The messages of the next request."""
        return self.body["messages"]

    def send(self, *, betas: Iterable[str] = ALL_BETAS, key: str = "any", **changes: Any) -> tuple[int, dict[str, Any]]:
        """Send the messages as they are, with some fields changed, and return the status and the answer."""
        return ask(self.server, {**self.body, **changes}, betas=betas, key=key)

    def say(self, words: Any, *, betas: Iterable[str] = ALL_BETAS, key: str = "any", **changes: Any) -> dict[str, Any]:
        """Append a user message and the reply to it, and return the reply; the request must be accepted."""
        self.messages.append({"role": "user", "content": words})
        status, answer = self.send(betas=betas, key=key, **changes)
        assert status == 200, answer
        self.messages.append({"role": "assistant", "content": answer["content"]})
        return answer

    def compact(self, messages: list[Any] | None = None, **options: Any) -> dict[str, Any]:
        """Return the block that stands for the messages, or for all; the request must be accepted."""
        changes = {} if messages is None else {"messages": messages}
        status, answer = self.send(compaction={"type": "summarize", **options}, **changes)
        assert status == 200, answer
        assert answer["stop_reason"] == "compaction", answer
        return answer["content"][0]
