"""Open a summary and a stored result by their handles, one level at a time. Needs only this file."""

from __future__ import annotations

import anyio

from reverie import InMemoryStorage, InputError, Session

MODEL = "claude-haiku-4-5"
TOOLS = [{"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object"}}, Session.EXPAND_TOOL]


async def main() -> None:
    async with Session.open("example", storage=InMemoryStorage()) as session:
        for number in range(6):
            await session.say(f"Look at server {number}.")
            await session.prepare(model=MODEL, max_tokens=1000, tools=TOOLS)
            call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": "uptime"}}
            await session.observe({"role": "assistant", "content": [call]})
            await session.result(f"toolu_{number}", f"server {number} is up\n" * 2_000)
            await session.prepare(model=MODEL, max_tokens=1000, tools=TOOLS)
            await session.observe({"role": "assistant", "content": f"Server {number} is up."})
        await session.compact()
        summary = session.view.messages()[0]["content"]
        text = summary if isinstance(summary, str) else summary[0]["text"]
        handle = text.split("all of it by the handle ")[1].split(".")[0]
        listed = await session.expand(handle)
        print(listed)
        result = next(line.split()[0] for line in listed.split("\n") if "result of Bash" in line)
        print((await session.expand(result))[:60])
        print((await session.expand("toolu_0", offset=20_000))[:40])
        try:
            await session.expand("toolu_99")
        except InputError as error:
            print(error)


anyio.run(main)
