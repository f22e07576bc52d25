"""The requests of deepagents' summarisation, as ``create_deep_agent`` sets it up, turn by turn.

The middleware's own call, with a model that answers immediately, and the building of the request are timed.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from typing import Any

from chains import Builder, Scripted, items_of, message_of
from deepagents.backends import FilesystemBackend
from deepagents.middleware.summarization import create_summarization_middleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage
from wire import Play, clock, main


def play(played: Play) -> dict[str, Any]:
    """Play a conversation."""
    with tempfile.TemporaryDirectory() as folder:
        return _play(played, FilesystemBackend(root_dir=folder, virtual_mode=True))


def _play(played: Play, backend: FilesystemBackend) -> dict[str, Any]:
    model = Scripted(play=played, profile={"max_input_tokens": played.window})
    middleware = create_summarization_middleware(model, backend)
    builder = Builder(played)
    system = SystemMessage(played.system)
    state: dict[str, Any] = {"messages": []}
    numbers: dict[int, int] = {}
    held: list[AnyMessage] = []
    taken = 0
    sent: list[AnyMessage] = []
    reply = ModelResponse(result=[AIMessage("")])

    def answer(request: ModelRequest) -> ModelResponse:
        sent[:] = request.messages
        return reply

    for end in played.turns:
        for at in range(taken, end):
            held.append(message_of(played.items[at], at))
            numbers[id(held[-1])] = at
            state["messages"].append(held[-1])
        taken = end
        request = ModelRequest(
            model=model, messages=state["messages"], system_message=system, tools=played.tools, state=state
        )
        start = clock()
        response = middleware.wrap_model_call(request, answer)
        decided = clock() - start
        if isinstance(response, ExtendedModelResponse) and response.command is not None:
            update = dict(response.command.update)
            replaced = {message.id: message for message in update.pop("messages", [])}
            state["messages"] = [replaced.get(message.id, message) for message in state["messages"]]
            state |= update
        start = clock()
        builder.built(sent)
        played.sent(decided, clock() - start, items_of(sent, numbers) if played.tells else [])
    return played.told(version("deepagents"), "its defaults: summary at 0.85 of the window, the last tenth kept")


if __name__ == "__main__":
    main(play)
