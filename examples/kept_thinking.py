"""Check that thinking in turns kept behind a provider's summary stays valid: four steps against the test server."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from reverie.testing.messages_server import MessagesServer

BETAS = ["compact-2026-09-04", "thinking-binding-controls-2026-08-01"]


def answer(request: dict) -> list[dict]:
    """Act as a model that thinks before each answer."""
    return [{"type": "thinking", "thinking": "Let me see."}, {"type": "text", "text": f"{len(request['messages'])}."}]


def checked(behavior: str) -> Any:
    return {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": behavior}}


with MessagesServer(answer) as server, Anthropic(base_url=server.base_url, api_key="none needed here") as client:
    messages: list[Any] = []
    asked: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4000, "system": "Be brief.", "betas": BETAS}
    for question in ("One?", "Two?", "Three?"):  # 1. a conversation whose replies carry thinking
        messages.append({"role": "user", "content": question})
        reply = client.beta.messages.create(**asked, messages=messages, thinking=checked("error"))
        messages.append({"role": "assistant", "content": reply.content})
    sent = 3  # 2. compact exactly the messages of a request that was sent: the kept part begins with its reply
    summary = client.beta.messages.create(**asked, messages=messages[:sent], compaction={"type": "summarize"})
    print(summary.stop_reason, summary.usage.iterations[0].output_tokens, "tokens of summary")
    kept = [{"role": "assistant", "content": summary.content}, *messages[sent:], {"role": "user", "content": "Four?"}]
    # 3. the block, the kept turns unchanged, a new turn: with "error" a stale block would be refused
    reply = client.beta.messages.create(**asked, messages=kept, thinking=checked("error"))
    print("kept thinking is valid:", reply.input_transformations == [])
    asked["system"] = "Be long."  # 4. break a condition: the same check now names the kept blocks
    reply = client.beta.messages.create(**asked, messages=kept, thinking=checked("drop_block"))
    print("with another system prompt:", [(found.path, found.reason) for found in reply.input_transformations])
