"""``SyncSession``: the session without ``await``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from reverie import InMemoryStorage, Session, SessionError, SyncSession, tool

MODEL = "claude-sonnet-4-5"
INTERNAL = {"log", "parts"}


@tool
def lookup(order: str) -> str:
    """Return the state of an order."""
    return f"{order} is open"


def reply(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.requirement("U2")
def test_a_loop_without_await_is_the_same_conversation() -> None:
    storage, events = InMemoryStorage(), list[str]()
    with_it = SyncSession.open("s", storage=storage)
    with_it.listen(lambda event: events.append(type(event).__name__))
    with with_it as session:
        session.say("Where is order 42?")
        request = session.prepare(model=MODEL, max_tokens=99, tools=[lookup])
        assert request["tools"][0]["name"] == "lookup"
        (call,) = session.observe(reply({"type": "tool_use", "id": "t1", "name": "lookup", "input": {"order": "42"}}))
        assert session.run(call, [lookup]).content == "42 is open"
        assert session.observe(reply({"type": "text", "text": "It is open."})) == []
        assert session.name == "s"
        known = session.view.messages()
    assert (events[0], events[-1]) == ("SessionOpened", "SessionClosed")
    with SyncSession.open("s", storage=storage, mode="read") as again:
        assert again.view.messages() == known


@pytest.mark.requirement("U2")
def test_every_public_member_of_a_session_is_there_with_the_same_parameters() -> None:
    public = {name for name in dir(Session) if not name.startswith("_")} - INTERNAL
    assert public - set(dir(SyncSession)) == set()
    methods = [name for name in public if inspect.isfunction(getattr(Session, name))]
    assert len(methods) > 25
    for name in methods:
        ours, theirs = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (SyncSession, Session))
        assert (name, ours) == (name, theirs)
        assert not inspect.iscoroutinefunction(vars(SyncSession).get(name))


def test_an_error_reaches_the_caller_and_the_session_is_closed(tmp_path: Path) -> None:
    session = SyncSession.open("s", cwd=tmp_path)
    with pytest.raises(SessionError, match="with SyncSession"):
        session.say("too early")
    with pytest.raises(KeyError, match="mine"), session:
        raise KeyError("mine", session.say("hello"))
    with SyncSession.open("s", cwd=tmp_path) as again:  # the lease is free
        assert again.view.length == 1
    with pytest.raises(SessionError, match="with SyncSession"):
        again.say("too late")
