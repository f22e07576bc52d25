"""Your own loop on a model that checks thinking: the provider summarises in the background, and no turn waits."""

import anyio
from anthropic import APIError, AsyncAnthropic, BadRequestError

from reverie import InMemoryStorage, Session, load_settings
from reverie.testing.messages_server import MessagesServer


async def summarise(session: Session, client: AsyncAnthropic, request: dict) -> None:
    try:
        reply = await client.beta.messages.create(**request)
    except APIError as error:
        reply = error  # the conversation goes on, and a summary is asked for again later
    print("summary written:", await session.background_reply(reply))


async def main(server: MessagesServer) -> None:
    client = AsyncAnthropic(base_url=server.base_url, api_key="none needed here")
    settings = load_settings(arguments={"window_tokens": 30_000})  # leave this out: the model has 1,000,000
    session = Session.open("example", storage=InMemoryStorage(), settings=settings)
    async with client, session, anyio.create_task_group() as background:
        for number in range(16):
            await session.say(f"Log {number}: " + "all is well; " * 500)
            while True:
                request = await session.prepare(model="claude-opus-5-5", max_tokens=4000, system="Be brief.")
                try:
                    await session.observe(await client.beta.messages.create(**request))
                    break
                except BadRequestError as error:
                    if not await session.recover(error):
                        raise
            if (due := await session.background_request()) is not None:
                background.start_soon(summarise, session, client, due)
        first, *kept = [one["content"][0] for one in request["messages"] if one["role"] == "assistant"]  # type: ignore
        print(f"{first['type']} block first, {len(kept)} replies kept, the last begins with {kept[-1]['type']}")


with MessagesServer(lambda _: [{"type": "thinking", "thinking": "Fine."}, {"type": "text", "text": "Seen."}]) as server:
    anyio.run(main, server)
