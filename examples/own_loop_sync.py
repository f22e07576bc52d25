"""Your own loop without asyncio, with Anthropic's SDK (ANTHROPIC_API_KEY)."""

from pathlib import Path

from anthropic import Anthropic

from reverie import SyncSession, tool


@tool
def read_file(path: str) -> str:
    """Return the text of a file."""
    return Path(path).read_text()


with Anthropic() as client, SyncSession.open("notes") as session:
    session.say("What is in notes.txt?")
    calls = None
    while calls is None or calls:
        request = session.prepare(model="claude-haiku-4-5", max_tokens=1000, tools=[read_file])
        calls = session.observe(client.messages.create(**request))
        for call in calls:
            session.run(call, [read_file])
    print(session.view.messages()[-1]["content"][0]["text"])
