"""Agents that write to the user, agents that end because they approved it, and agents with a name of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import Stage, plays, results, task, use
from reverie import Agent, Mailbox
from reverie.conversation.decisions import AgentFinished, AgentSpawned, MessageQueued
from reverie.errors import InputError, ReverieError, SessionBusy
from reverie.events import AgentEnded, FellBack, QueryEnded, UserMessaged
from reverie.layers.l7_relay.messages import Letter, agent_name
from reverie.models import ScriptedModel
from reverie.settings import Switches

APPROVED = {"type": "shutdown_response", "request_id": "r1", "approve": True}
REFUSED = {"type": "shutdown_response", "request_id": "r1", "approve": False, "reason": "not yet"}


# -- to the user


@pytest.mark.requirement("L7.5")
def test_an_agent_at_any_depth_writes_to_the_user(tmp_path: Path) -> None:
    letter = use("SendMessage", to="user", message="The build is red.", summary="build")
    roles = {"main": plays([task("general")], "Done."), "general": plays([letter], "Told.")}
    stage = Stage(tmp_path, roles)
    stage.ask()
    (told,) = stage.seen(UserMessaged)
    assert (told.sender, told.text, told.summary) == (
        stage.decisions(AgentSpawned)[0].agent,
        "The build is red.",
        "build",
    )
    assert results(stage.requests("general")[-1]) == ["Shown to the user."]
    assert stage.decisions(MessageQueued) == []  # it is no message of the conversation


@pytest.mark.requirement("L7.5")
def test_the_user_who_has_a_mailbox_finds_the_message_there_too(tmp_path: Path) -> None:
    home = Path(os.environ["REVERIE_HOME"])

    async def act() -> str:
        async with Agent(model=ScriptedModel(["Done."]), cwd=tmp_path, session="worker") as agent:
            assert agent.parts.context.post is not None
            with Mailbox(home, agent.settings.relay.team, "user"):
                return await agent.parts.context.post.send("user", "All tests pass.")

    assert "mailbox" in anyio.run(act)
    with Mailbox(home, "default", "user") as person:
        assert [letter.text for letter in person.poll()] == ["All tests pass."]


@pytest.mark.requirement("L7.5")
def test_no_agent_can_be_called_user(tmp_path: Path) -> None:
    assert agent_name("user") != "user"
    assert agent_name("worker") == "worker"
    with pytest.raises(InputError, match="address of the user"):
        Agent(model=ScriptedModel([]), cwd=tmp_path, name="User")


# -- shutdown


@pytest.mark.requirement("L7.7")
@pytest.mark.parametrize("background", [False, True])
def test_an_agent_that_approves_its_shutdown_ends(tmp_path: Path, background: bool) -> None:
    answer = use("SendMessage", to="s", message=APPROVED)
    more = {"background": True} if background else {}
    stage = Stage(
        tmp_path,
        {"main": plays([task("general", **more)], "Done."), "general": plays([answer], "I go on.")},
    )

    async def steps(agent: Agent) -> None:
        async for _ in agent.ask("go"):
            pass
        (started,) = stage.decisions(AgentSpawned)
        await agent.wait_agent(started.agent)
        async for _ in agent.ask("and now?"):
            pass

    stage.run(steps)
    assert len(stage.requests("general")) == 1  # the model is not asked again
    (finished,) = stage.decisions(AgentFinished)
    assert (finished.status, "approved the request of s to end" in finished.text) == ("completed", True)
    assert stage.seen(AgentEnded)[0].status == "completed"
    assert any("It agrees to end" in one.text for one in stage.decisions(MessageQueued))  # the leader is told


@pytest.mark.requirement("L7.7")
def test_an_agent_that_refuses_its_shutdown_goes_on(tmp_path: Path) -> None:
    answer = use("SendMessage", to="s", message=REFUSED)
    stage = Stage(tmp_path, {"main": plays([task("general")], "Done."), "general": plays([answer], "I go on.")})
    stage.ask()
    assert len(stage.requests("general")) == 2
    assert stage.decisions(AgentFinished)[0].text == "I go on."


@pytest.mark.requirement("L7.7")
def test_an_approval_that_was_not_delivered_ends_nothing(tmp_path: Path) -> None:
    answer = use("SendMessage", to="nobody", message=APPROVED)
    stage = Stage(tmp_path, {"main": plays([task("general")], "Done."), "general": plays([answer], "I go on.")})
    stage.ask()
    assert len(stage.requests("general")) == 2


@pytest.mark.requirement("L7.7", "Q6")
def test_a_main_agent_that_approves_ends_its_query_and_answers_the_next_prompt(tmp_path: Path) -> None:
    home = Path(os.environ["REVERIE_HOME"])
    answer = use("SendMessage", to="planner", message=APPROVED)
    ends: list[QueryEnded] = []

    async def act() -> None:
        with Mailbox(home, "default", "planner") as planner:
            async with Agent(model=ScriptedModel([[answer], "Back."]), cwd=tmp_path, session="worker") as agent:
                planner.send("worker", "", control={"type": "shutdown_request", "request_id": "r1"})
                for prompt in ("go", "again"):
                    ends.extend([event async for event in agent.ask(prompt) if isinstance(event, QueryEnded)])
            (told,) = planner.poll()
            assert told.control == APPROVED

    anyio.run(act)
    assert [(one.end, "planner" in one.detail, one.turns) for one in ends] == [
        ("completed", True, 1),
        ("completed", False, 1),
    ]


@pytest.mark.requirement("L7.7")
def test_an_agent_without_the_tool_is_not_told_to_answer_with_it(tmp_path: Path) -> None:
    """An explore agent has no SendMessage, a general one has."""
    told: dict[str, str] = {}

    def waits(name: str) -> Any:
        async def turn(number: int, request: Any) -> Any:
            if number:
                told[name] = str(request["messages"])
                return "Done."
            return [use("Glob", pattern="*")]

        return turn

    stage = Stage(tmp_path, {"explore": waits("explore"), "general": waits("general"), "main": plays("Done.")})

    async def steps(agent: Agent) -> None:
        for kind in ("explore", "general"):
            started = await agent.spawn("Look.", kind=kind, background=True)
            assert agent.parts.context.post is not None
            while agent.agents()[-1].state == "running":
                try:
                    await agent.parts.context.post.send(
                        started.agent, "", control={"type": "shutdown_request", "request_id": "r1"}
                    )
                    break
                except InputError:  # it has not opened its queue yet
                    await anyio.sleep(0)
            await agent.wait_agent(started.agent)

    stage.run(steps)
    assert "asks you to end your work" in told["explore"]
    assert "SendMessage" not in told["explore"]
    assert "SendMessage" in told["general"]


# -- a name of its own


@pytest.mark.requirement("L7.5")
def test_an_agent_gets_letters_under_the_name_it_was_given(tmp_path: Path) -> None:
    home = Path(os.environ["REVERIE_HOME"])
    heard: list[Letter] = []

    async def act() -> None:
        with Mailbox(home, "default", "planner") as planner:
            options: dict[str, Any] = {"model": ScriptedModel(["Heard."]), "cwd": tmp_path, "on_control": heard.append}
            async with Agent(name="builder", session="20260101-120000", **options) as agent:
                planner.send("builder", "", control={"type": "idle"})
                async for _ in agent.ask("go"):
                    pass
            planner.send("builder", "Are you there?")  # the name outlives the session

    anyio.run(act)
    assert [letter.to for letter in heard] == ["builder"]


@pytest.mark.requirement("L7.5")
def test_a_name_that_a_running_agent_has_is_refused_when_the_second_one_opens(tmp_path: Path) -> None:
    async def act() -> None:
        async with Agent(model=ScriptedModel([]), cwd=tmp_path, session="a", name="builder"):
            with pytest.raises(SessionBusy, match="named builder runs"):
                async with Agent(model=ScriptedModel([]), cwd=tmp_path, session="b", name="builder"):
                    pass
        async with Agent(model=ScriptedModel([]), cwd=tmp_path, session="b", name="builder"):
            pass  # the first one ended

    anyio.run(act)


@pytest.mark.requirement("L7.5")
def test_a_session_whose_name_is_taken_opens_and_says_that_it_gets_no_letters(tmp_path: Path) -> None:
    events: list[Any] = []

    async def act() -> None:
        async with Agent(model=ScriptedModel(["Done."]), cwd=tmp_path, session="a", name="b"):
            other = Agent(model=ScriptedModel(["Done."]), cwd=tmp_path, session="b")
            other.listen(events.append)
            async for _ in other.ask("go"):
                pass

    anyio.run(act)
    assert any("b cannot receive messages" in event.why for event in events if isinstance(event, FellBack))


def test_a_name_needs_agents(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {}, switches=Switches(relay=False))

    async def steps(agent: Agent) -> None:
        pytest.fail("it opened")

    with pytest.raises(ReverieError, match="switched off"):
        stage.run(steps, name="builder")
