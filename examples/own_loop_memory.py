"""Your own loop with memory and two tools, with Anthropic's SDK (ANTHROPIC_API_KEY)."""

import anyio
from anthropic import AsyncAnthropic

from reverie import Session, tool


@tool
async def read_file(path: str) -> str:
    """Return the text of a file."""
    return await anyio.Path(path).read_text()


@tool
def count_words(text: str) -> int:
    """Return the number of words in a text."""
    return len(text.split())


async def main() -> None:
    tools, calls = [read_file, count_words], None
    async with AsyncAnthropic() as client, Session.open("notes", memory=True) as session:
        await session.say("What is in notes.txt?")
        while calls is None or calls:
            request = await session.prepare(model="claude-haiku-4-5", max_tokens=1000, tools=tools)
            calls = await session.observe(await client.messages.create(**request))
            for call in calls:
                await session.run(call, tools)
        print(session.view.messages()[-1]["content"][0]["text"])


anyio.run(main)
