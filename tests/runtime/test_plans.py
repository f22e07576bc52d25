"""Plan mode: the agent writes a plan, the user or its lead answers it, and it holds until it is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_stage import Stage, plays, results, task, use
from log_script import Script
from reverie.conversation.decisions import Cause, PlanChanged
from reverie.conversation.entries import marked_imported
from reverie.conversation.standing_context import StandingItem
from reverie.conversation.view import View
from reverie.conversation.wire.validate import problems
from reverie.errors import InputError
from reverie.events import PermissionDecided, QueryEnded
from reverie.runtime.agent.agent import Agent
from reverie.runtime.agent.plan import granted_mode
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.runtime.session.plan.keeper import PlanKeeper
from reverie.settings import PermissionRules
from reverie.values import replace

PLAN = "# The boat\n\n- [ ] paint the hull\n- [ ] buy a rope"
EDITED = "# The boat\n\n- [ ] paint the hull twice"
SUMMARY = "<summary>They talked about the sea.</summary>"
EDIT = use("Write", file_path="hull.txt", content="blue\n")


def write(text: str = PLAN) -> dict[str, Any]:
    return use("Plan", action="write", text=text)


def answering(*answers: ApprovalAnswer) -> tuple[Callable[[Approval], Any], list[Approval]]:
    """Return an approver that gives these answers, the last for ever, and the list of its questions."""
    asked: list[Approval] = []

    async def approve(approval: Approval) -> ApprovalAnswer:
        asked.append(approval)
        return answers[min(len(asked), len(answers)) - 1]

    return approve, asked


async def ask(agent: Agent, prompt: str = "go") -> str:
    """Ask an open agent and return how the query ended."""
    ends = [event async for event in agent.ask(prompt) if isinstance(event, QueryEnded)]
    return ends[-1].end


def texts(request: dict[str, Any], part: str) -> int:
    """Return how often a request's messages, without the inputs of calls, contain a text."""
    count = 0
    for message in request["messages"]:
        content = message["content"]
        for block in [{"text": content}] if isinstance(content, str) else content:
            count += str(block.get("text") or block.get("content") or "").count(part)
    return count


def plan_file(stage: Stage) -> str:
    return next(key for key in stage.storage.list("") if key.endswith("/plan.md"))


# -- the user answers


@pytest.mark.requirement("W9")
@pytest.mark.parametrize(("kind", "mode"), [("once", "default"), ("always", "accept-edits")])
def test_the_user_approves_a_plan_and_chooses_the_mode_that_follows(tmp_path: Path, kind: Any, mode: str) -> None:
    approve, asked = answering(ApprovalAnswer(kind))
    stage = Stage(tmp_path, {"main": plays([EDIT], [write()], "Good.")}, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        assert await ask(agent) == "completed"
        plan = agent.plan
        assert plan is not None
        assert (plan.state, plan.text, plan.by) == ("approved", PLAN, "user")
        assert agent.mode == mode
        assert agent.status().plan == "approved"

    stage.run(steps)
    assert [(one.is_plan, one.preview, one.tool) for one in asked] == [(True, PLAN, "Plan")]
    refused = [(one.tool, one.allowed) for one in stage.seen(PermissionDecided)]
    assert refused == [("Write", False), ("Plan", True)]
    stored = stage.storage.read(plan_file(stage))
    assert stored is not None
    assert stored.data.decode() == f"{PLAN}\n"
    told = results(stage.requests("main")[-1])[0]
    assert "approved by the user" in told
    assert f"The permission mode is {mode}." in told


@pytest.mark.requirement("W9")
def test_a_rejected_plan_is_told_with_the_words_of_the_user_and_plan_mode_goes_on(tmp_path: Path) -> None:
    approve, asked = answering(ApprovalAnswer("deny", "no rope"), ApprovalAnswer("once"))
    second = "# The boat\n\n- [ ] paint the hull"
    stage = Stage(tmp_path, {"main": plays([write()], [EDIT], [write(second)], "Good.")}, mode="plan", approve=approve)
    stage.ask()
    first, refused, _ = (results(one)[0] for one in stage.requests("main")[1:4])
    assert "rejected by the user" in first
    assert "no rope" in first
    assert "plan mode" in refused
    assert [one.state for one in stage.decisions(PlanChanged)] == ["proposed", "rejected", "proposed", "approved"]
    assert len(asked) == 2


@pytest.mark.requirement("W9")
def test_without_a_person_the_plan_waits_and_a_program_answers_it_later(tmp_path: Path) -> None:
    main = plays([write()], "It waits.", [EDIT], [use("Plan", action="done")], "Done.")
    stage = Stage(tmp_path, {"main": main}, mode="plan")

    async def steps(agent: Agent) -> None:
        with pytest.raises(InputError, match="no open plan"):
            await agent.end_plan()
        await ask(agent)
        assert agent.plan is not None
        assert (agent.plan.state, agent.mode) == ("proposed", "plan")
        await agent.approve_plan("accept-edits", "quickly")
        assert agent.mode == "accept-edits"
        with pytest.raises(InputError, match="it is approved"):
            await agent.reject_plan()
        await ask(agent, "go on")
        assert (agent.plan.state, agent.plan.by) == ("done", "agent")

    stage.run(steps)
    assert "There is no one to ask now" in results(stage.requests("main")[1])[0]
    told = stage.requests("main")[2]
    assert texts(told, "approved by the user") == 1
    assert texts(told, "quickly") == 1
    assert (stage.cwd / "hull.txt").read_text() == "blue\n"


@pytest.mark.requirement("W9")
def test_an_interrupt_is_no_answer_to_a_plan(tmp_path: Path) -> None:
    agents: list[Agent] = []

    async def approve(approval: Approval) -> ApprovalAnswer:
        agents[0].interrupt()  # as Esc does in the terminal, which then has no answer
        return ApprovalAnswer("deny")

    stage = Stage(tmp_path, {"main": plays([write()], "Good.")}, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        agents.append(agent)
        assert await ask(agent) == "aborted"
        assert agent.plan is not None
        assert agent.plan.state == "proposed"

    stage.run(steps)


# -- it stands


def deaf(self: PlanKeeper, view: View) -> Any:
    async def nothing() -> Sequence[StandingItem]:
        return ()

    return nothing()


@pytest.mark.requirement("W9")
@pytest.mark.parametrize("is_bad", [False, True])
def test_an_approved_plan_stands_after_a_compaction_and_a_resume(
    tmp_path: Path, is_bad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_bad:  # known bad: the plan is only in the messages
        monkeypatch.setattr(PlanKeeper, "items", deaf)
    approve, _ = answering(ApprovalAnswer("once"))
    long = "The sea is wide. " * 600
    state = {"turn": 0}

    def main(turn: int, request: Any) -> Any:
        state["turn"] += 1
        return [write()] if state["turn"] == 1 else long

    stage = Stage(tmp_path, {"main": main, "fork": plays(SUMMARY)}, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        for prompt in ("go", "more", "and more"):
            await ask(agent, prompt)
        await agent.session.compact()

    stage.run(steps)
    native = stage.requests("main")[-1]
    assert texts(native, "paint the hull") == 0  # the call itself shows the plan

    async def resumed(agent: Agent) -> None:
        assert agent.plan is not None
        assert (agent.plan.state, agent.plan.text) == ("approved", PLAN)
        await ask(agent, "go on")
        await ask(agent, "and on")

    stage.run(resumed, mode="default")
    after = stage.requests("main")[-2:]
    assert all(problems(request) == [] for request in after)
    assert [texts(request, PLAN) for request in after] == ([0, 0] if is_bad else [1, 1])


def approved_stage(tmp_path: Path, kind: Any = "always") -> Stage:
    """Return a stage whose session has an approved plan; its settings ask for plan mode."""
    approve, _ = answering(ApprovalAnswer(kind))
    said = iter([[write()], *["Good."] * 9])
    roles = {"main": lambda turn, request: next(said)}
    stage = Stage(tmp_path, roles, mode=None, approve=approve, rules=PermissionRules(mode="plan"))
    stage.ask()
    return stage


async def mode_of(agent: Agent) -> str:
    assert agent.parts.runs.mode == agent.mode
    return agent.mode


@pytest.mark.requirement("W5", "W9")
@pytest.mark.parametrize(("kind", "mode"), [("once", "default"), ("always", "accept-edits"), ("deny", "plan")])
def test_a_resumed_session_has_the_mode_that_the_user_gave_with_the_approval(
    tmp_path: Path, kind: Any, mode: str
) -> None:
    stage = approved_stage(tmp_path, kind)
    assert stage.run(mode_of) == mode
    assert stage.run(mode_of, mode="plan") == "plan"  # a mode that the caller chooses holds
    assert stage.run(mode_of) == "plan"


@pytest.mark.requirement("W9")
def test_the_mode_of_an_approval_ends_with_the_plan_and_when_the_user_sets_another_one(tmp_path: Path) -> None:
    async def narrow(agent: Agent) -> None:
        assert agent.mode == "accept-edits"
        before, agent.mode = agent.plan, "default"
        await ask(agent, "go on")
        assert before is not None
        assert agent.plan == replace(before, mode="")
        assert texts(stage.requests("main")[-1], "approved by the user") == 1

    async def end(agent: Agent) -> None:
        await agent.end_plan()

    for name, act in {"set": narrow, "done": end}.items():
        (tmp_path / name).mkdir()
        stage = approved_stage(tmp_path / name)
        stage.run(act)
        assert stage.run(mode_of) == "plan"


@pytest.mark.requirement("W9")
@pytest.mark.parametrize("by", ["user", "lead", "agent", "mode"])
def test_only_an_approval_by_the_user_in_a_log_of_our_own_gives_a_mode(by: str) -> None:
    def found(mode: str, *, is_imported: bool = False, **meta: Any) -> str:
        script = Script()
        if meta:
            script.add("meta", meta)
        script.decide(PlanChanged(Cause("plan", "test"), "approved", PLAN, by, mode=mode))
        entries = marked_imported(script.entries, "script") if is_imported else script.entries
        return granted_mode(View().fold_all(entries), "default")

    assert found("accept-edits") == ("accept-edits" if by == "user" else "default")
    assert found("bypass") == "default"
    assert found("accept-edits", source={"format": "other"}) == "default"
    assert found("accept-edits", is_imported=True) == "default"  # a log of ours from somewhere else


@pytest.mark.requirement("W8", "W9")
def test_after_an_undone_compaction_the_plan_stands_in_its_call_alone(tmp_path: Path) -> None:
    approve, _ = answering(ApprovalAnswer("once"))
    said = iter([[write()], *["The sea is wide. " * 600] * 9])
    roles = {"main": lambda turn, request: next(said), "fork": plays(SUMMARY)}
    stage = Stage(tmp_path, roles, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        for prompt in ("go", "more", "and more"):
            await ask(agent, prompt)
        await agent.session.compact()
        await ask(agent, "go on")
        await agent.session.undo()
        await ask(agent, "and on")

    stage.run(steps)
    assert [texts(request, PLAN) for request in stage.requests("main")[-2:]] == [1, 0]
    assert "paint the hull" in str(stage.requests("main")[-1])


@pytest.mark.requirement("W9")
def test_a_done_plan_is_not_said_again_after_a_compaction(tmp_path: Path) -> None:
    approve, _ = answering(ApprovalAnswer("once"))
    said = iter([[write()], [use("Plan", action="done")], *["The sea is wide. " * 600] * 9])
    roles = {"main": lambda turn, request: next(said), "fork": plays(SUMMARY)}
    stage = Stage(tmp_path, roles, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        for prompt in ("go", "more", "and more"):
            await ask(agent, prompt)
        await agent.session.compact()
        await ask(agent, "go on")

    stage.run(steps)
    assert texts(stage.requests("main")[-1], PLAN) == 0


@pytest.mark.requirement("W9")
def test_a_plan_that_a_person_edits_is_said_as_changed(tmp_path: Path) -> None:
    approve, asked = answering(ApprovalAnswer("once"))
    stage = Stage(tmp_path, {"main": plays([write()], "Good.")}, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        await ask(agent)
        stage.storage.write(plan_file(stage), f"{EDITED}\n".encode())
        await ask(agent, "go on")
        assert agent.plan is not None
        assert (agent.plan.state, agent.plan.text) == ("approved", EDITED)
        stage.storage.write(plan_file(stage), f"{PLAN}\n".encode())  # as a crash before the write would leave it
        await ask(agent, "and on")
        assert agent.plan.text == EDITED

    stage.run(steps)
    last = stage.requests("main")[-1]
    assert texts(last, EDITED) == 1
    assert texts(last, "The user changed its text") == 1
    assert texts(last, PLAN) == 0
    assert len(asked) == 1


@pytest.mark.requirement("W9")
def test_a_plan_edited_while_the_question_is_open_is_approved_as_it_is_then(tmp_path: Path) -> None:
    async def approve(approval: Approval) -> ApprovalAnswer:
        stage.storage.write(plan_file(stage), f"{EDITED}\n".encode())
        return ApprovalAnswer("once")

    stage = Stage(tmp_path, {"main": plays([write()], "Good.")}, mode="plan", approve=approve)
    stage.ask()
    approved = stage.decisions(PlanChanged)[-1]
    assert approved.state == "approved"
    assert texts(stage.requests("main")[-1], EDITED) == 1


@pytest.mark.requirement("W9")
def test_the_agent_cannot_overwrite_a_plan_that_the_user_has_just_changed(tmp_path: Path) -> None:
    def main(turn: int, request: Any) -> Any:
        if turn == 1:
            stage.storage.write(plan_file(stage), f"{EDITED}\n".encode())
            return [write("# Another boat")]
        return [write()] if turn == 0 else "Good."

    stage = Stage(tmp_path, {"main": main}, mode="plan")

    async def steps(agent: Agent) -> None:
        await ask(agent)
        assert agent.plan is not None
        assert agent.plan.text == EDITED

    stage.run(steps)
    assert EDITED in results(stage.requests("main")[2])[0].replace("\\n", "\n")


@pytest.mark.requirement("W9")
def test_progress_needs_no_new_approval_and_every_other_change_does(tmp_path: Path) -> None:
    approve, asked = answering(ApprovalAnswer("once"), ApprovalAnswer("deny", "stay with the hull"))
    ticked = PLAN.replace("[ ] paint", "[x] paint")
    main = plays([write()], [write(ticked)], [write(f"{ticked}\n- [ ] sink it")], "Good.")
    stage = Stage(tmp_path, {"main": main}, mode="plan", approve=approve)
    stage.ask()
    assert [one.preview for one in asked] == [PLAN, f"{ticked}\n- [ ] sink it"]
    states = [one.state for one in stage.decisions(PlanChanged)]
    assert states == ["proposed", "approved", "approved", "proposed", "rejected"]


@pytest.mark.requirement("W9")
def test_plan_mode_is_told_while_it_is_on(tmp_path: Path) -> None:
    approve, _ = answering(ApprovalAnswer("once"))
    stage = Stage(tmp_path, {"main": plays("Hm.", [write()], "Good.")}, mode="plan", approve=approve)

    async def steps(agent: Agent) -> None:
        await ask(agent)
        await ask(agent, "plan it")

    stage.run(steps)
    before, asked, after = stage.requests("main")
    assert [texts(one, "Plan mode is on") for one in (before, asked, after)] == [1, 1, 1]
    assert "no longer holds: plan mode" in str(after["messages"])
    assert "no longer holds: plan mode" not in str(asked["messages"])


def test_a_fork_has_no_plan_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays([task()], "Done."), "fork": plays([write()], "No.")})
    stage.ask()
    assert "There is no plan here" in results(stage.requests("fork")[-1])[0]
    assert stage.decisions(PlanChanged) == []


# -- a lead answers

TYPE = "---\ndescription: paints boats\nmode: plan\nbackground: {background}\n---\nROLE painter You paint boats.\n"


def with_painter(stage: Stage, *, background: bool) -> Stage:
    folder = stage.home / "agent-types"
    folder.mkdir(parents=True)
    (folder / "painter.md").write_text(TYPE.format(background=str(background).lower()))
    return stage


def leading(approve: bool, request_id: str = "") -> Callable[[int, Any], Any]:
    """Return a lead that starts a painter and answers its request; another id may be given in the answer."""

    def main(turn: int, request: Any) -> Any:
        if turn == 0:
            return [task("painter")]
        said = str(request["messages"])
        if "plan_approval_request" in said and "SENT" not in said:
            name = said.split("message-", 1)[1].split('from="', 1)[1].split('"', 1)[0]
            found = request_id or said.split('"request_id": "', 1)[1].split('"', 1)[0].rstrip("\\")
            answer = {"type": "plan_approval_response", "request_id": found, "approve": approve, "feedback": "SENT"}
            return [use("SendMessage", to=name, message=answer)]
        return "Waiting." if "agent-result" not in said else "Done."

    return main


async def until_done(agent: Agent, limit: int = 200) -> None:
    """Ask until every agent that was started has ended."""
    for _ in range(limit):
        await ask(agent, "go on")
        if agent.agents() and all(one.state != "running" for one in agent.agents()):
            await ask(agent, "and the result?")
            return
        await anyio.sleep(0.01)
    raise AssertionError("the agent never ended")


@pytest.mark.requirement("W9", "L7.7")
@pytest.mark.parametrize("is_approved", [True, False])
def test_the_lead_of_a_background_agent_answers_its_plan(tmp_path: Path, is_approved: bool) -> None:
    painter = plays([EDIT], [write()], [EDIT], "Done.")
    stage = Stage(tmp_path, {"main": leading(is_approved), "painter": painter}, mode="accept-edits")
    with_painter(stage, background=True).run(until_done)
    states = [one.state for one in stage.decisions(PlanChanged)]
    assert states == ["proposed", "approved" if is_approved else "rejected"]
    assert stage.decisions(PlanChanged)[-1].by == "lead"
    told = results(stage.requests("painter")[2])[0]
    assert ("approved by your lead" if is_approved else "rejected by your lead") in told
    assert (stage.cwd / "hull.txt").exists() is is_approved


@pytest.mark.requirement("W9", "L7.7")
def test_the_wait_for_agents_ends_when_one_needs_an_answer_to_its_plan(tmp_path: Path) -> None:
    painter = plays([write()], [EDIT], "Done.")
    stage = Stage(tmp_path, {"main": leading(True), "painter": painter}, mode="accept-edits")

    async def steps(agent: Agent) -> list[list[str]]:
        await ask(agent)
        unseen: list[list[str]] = []
        while found := await agent.wait_agents():
            unseen.append([one.partition("-")[0] for one in found])
            async for _ in agent.ask(None):
                pass
        return unseen

    assert with_painter(stage, background=True).run(steps) == [["painter"], ["painter"]]  # its plan, its result
    assert (stage.cwd / "hull.txt").exists()


@pytest.mark.requirement("W9", "L7.7")
def test_an_answer_to_another_plan_approves_nothing(tmp_path: Path) -> None:
    painter = plays([write()], [EDIT], "Done.")
    stage = Stage(tmp_path, {"main": leading(True, "plan-other"), "painter": painter}, mode="accept-edits")

    async def steps(agent: Agent) -> None:
        for _ in range(50):
            await ask(agent, "go on")
            await anyio.sleep(0.01)
        assert [one.state for one in agent.agents()] == ["running"]

    with_painter(stage, background=True).run(steps)
    assert [one.state for one in stage.decisions(PlanChanged)] == ["proposed"]
    assert len(stage.requests("painter")) == 1


@pytest.mark.requirement("W9")
def test_a_plan_approved_by_a_lead_in_plan_mode_allows_no_writes(tmp_path: Path) -> None:
    painter = plays([write()], [EDIT], "Done.")
    stage = Stage(tmp_path, {"main": leading(True), "painter": painter}, mode="plan")
    with_painter(stage, background=True).run(until_done)
    assert "plan mode" in results(stage.requests("painter")[2])[0]
    assert not (stage.cwd / "hull.txt").exists()


@pytest.mark.requirement("W9")
def test_the_user_answers_the_plan_of_an_agent_whose_lead_waits_for_it(tmp_path: Path) -> None:
    approve, asked = answering(ApprovalAnswer("always"))
    painter = plays([write()], [EDIT], "Done.")
    main = plays([task("painter")], "Done.")
    stage = Stage(tmp_path, {"main": main, "painter": painter}, mode="accept-edits", approve=approve)
    with_painter(stage, background=False).ask()
    assert [(one.is_plan, one.reason.startswith("agent painter-")) for one in asked] == [(True, True)]
    assert (stage.cwd / "hull.txt").exists()


@pytest.mark.requirement("W9")
def test_a_rule_can_forbid_plans(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays([write()], "No.")}, mode="plan", rules=PermissionRules(deny=("Plan",)))
    stage.ask()
    assert stage.decisions(PlanChanged) == []
