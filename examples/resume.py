"""Continue a session in another process: the log is the only state, so its name is enough."""

from __future__ import annotations

import tempfile

import anyio

from reverie import FileStorage, Session


def reply(text: str) -> dict[str, object]:
    """Act as a provider."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 9}}


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with Session.open("repo-42", storage=FileStorage(home)) as session:
            await session.say("The port is 7027. What is 6 times 7?")
            first = await session.prepare(model="claude-haiku-4-5", max_tokens=100)
            await session.observe(reply("42."))

        async with Session.open("repo-42", storage=FileStorage(home)) as session:  # later, elsewhere
            await session.say("Which port?")
            second = await session.prepare(model="claude-haiku-4-5", max_tokens=100)
            await session.observe(reply("7027."))
            print([message["role"] for message in second["messages"]])
            old, new = first["messages"][0]["content"][-1]["text"], second["messages"][0]["content"][-1]["text"]
            print("the beginning is the same:", old == new)


anyio.run(main)
