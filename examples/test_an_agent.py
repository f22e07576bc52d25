"""Test your own loop against a provider on loopback that refuses, caches and bills by the provider's rules.

pytest examples/test_an_agent.py
"""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from reverie import InMemoryStorage, SyncSession
from reverie.testing.messages_server import MessagesServer


def ask(client: Anthropic, session: SyncSession, text: str) -> str:
    """The loop under test."""
    session.say(text)
    reply = client.messages.create(**session.prepare(model="claude-haiku-4-5", max_tokens=100))
    session.observe(reply)
    return reply.content[0].text


def test_every_request_is_valid_and_the_second_one_has_the_past() -> None:
    def answer(request: dict[str, Any]) -> str:
        return f"I see {len(request['messages'])} messages."

    with (
        MessagesServer(answer) as server,
        Anthropic(base_url=server.base_url, api_key="any") as client,
        SyncSession.open("test", storage=InMemoryStorage()) as session,
    ):
        assert ask(client, session, "Hello") == "I see 1 messages."
        assert ask(client, session, "Hello again") == "I see 3 messages."
        assert server.refusals == []


if __name__ == "__main__":
    test_every_request_is_valid_and_the_second_one_has_the_past()
    print("passed")
