"""A fact of your program that survives every compaction. Needs only this file: no model is called."""

from __future__ import annotations

import anyio

from reverie import InMemoryStorage, Session

MODEL = {"model": "claude-haiku-4-5", "max_tokens": 1000}


def texts(request: dict) -> list[str]:
    """Return the texts of a request's messages."""
    contents = [message["content"] for message in request["messages"]]
    return [block["text"] for content in contents if isinstance(content, list) for block in content]


async def main() -> None:
    async with Session.open("example", storage=InMemoryStorage()) as session:
        await session.set_context("freeze", "The release branch is frozen until Friday.")
        for number in range(60):
            await session.say(f"Question {number}: " + "why is the build red? " * 40)
            await session.prepare(**MODEL)
            await session.observe({"role": "assistant", "content": [{"type": "text", "text": "A test fails. " * 60}]})
        await session.compact()
        await session.say("May I push to the release branch?")
        print("after a compaction:", texts(await session.prepare(**MODEL))[-1])
        await session.set_context("freeze", "The release branch is frozen until Monday.")
        print("\nchanged:", texts(await session.prepare(**MODEL))[-1])
        await session.remove_context("freeze")
        print("\nremoved:", texts(await session.prepare(**MODEL))[-1])


anyio.run(main)
