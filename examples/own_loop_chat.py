"""Your own loop around chat completions, of OpenAI or of any server with that API (OPENAI_API_KEY, OPENAI_BASE_URL)."""

from pathlib import Path

from openai import OpenAI

from reverie import SyncSession, tool


@tool
def read_file(path: str) -> str:
    """Return the text of a file."""
    return Path(path).read_text()


with OpenAI() as client, SyncSession.open("notes") as session:
    session.say("What is in notes.txt?")
    calls = None
    while calls is None or calls:
        request = session.prepare(model="gpt-4.1", max_tokens=1000, tools=[read_file], shape="chat")
        calls = session.observe(client.chat.completions.create(**request))
        for call in calls:
            session.run(call, [read_file])
    print(session.view.messages()[-1]["content"][0]["text"])
