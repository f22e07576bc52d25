"""The requests of LangChain's SummarizationMiddleware, turn by turn."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from chains import Builder, Scripted, items_of, message_of
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AnyMessage, RemoveMessage
from wire import Play, clock, main


def play(played: Play) -> dict[str, Any]:
    """Play a conversation; the middleware's own call and the building of the request are timed."""
    model = Scripted(play=played, profile={"max_input_tokens": played.window})
    middleware = SummarizationMiddleware(model, trigger=("fraction", 0.8))
    builder = Builder(played)
    messages: list[AnyMessage] = []
    numbers: dict[int, int] = {}
    held: list[AnyMessage] = []
    taken = 0
    for end in played.turns:
        for at in range(taken, end):
            held.append(message_of(played.items[at], at))
            numbers[id(held[-1])] = at
            messages.append(held[-1])
        taken = end
        start = clock()
        update = middleware.before_model({"messages": messages}, None)
        decided = clock() - start
        if update is not None:
            messages = [message for message in update["messages"] if not isinstance(message, RemoveMessage)]
        start = clock()
        builder.built(messages)
        played.sent(decided, clock() - start, items_of(messages, numbers) if played.tells else [])
    return played.told(version("langchain"), "summary at 0.8 of the window, the last 20 messages kept (its default)")


if __name__ == "__main__":
    main(play)
