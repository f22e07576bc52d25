"""Your own loop that prints the reply while it is written, with Anthropic's SDK (ANTHROPIC_API_KEY)."""

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
        with client.messages.stream(**request) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            calls = session.observe(stream.get_final_message())
        for call in calls:
            session.run(call, [read_file])
    print()
