"""The query loop: every end of Q6, recovery, and a complete log in every case."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.conversation.wire.canonical import canonical
from reverie.conversation.wire.validate import problems
from reverie.errors import ModelRefused, ModelUnavailable, PromptTooLong, SessionBusy
from reverie.events import (
    Event,
    FellBack,
    ModelRetried,
    PermissionDecided,
    PromptAdded,
    QueryEnded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
)
from reverie.models import RetryingModel, ScriptedModel
from reverie.models.scripted_model import BrokenReply
from reverie.ports import Capabilities
from reverie.runtime.agent import interrupt
from reverie.runtime.agent.agent import Agent
from reverie.runtime.guard.permissions import Approval, ApprovalAnswer
from reverie.runtime.places.projects import inbox_key, project_slug
from reverie.runtime.places.trust import TrustList
from reverie.runtime.session.inbox import STOP, post
from reverie.settings import AgentPolicy, McpServer, PermissionRules, SettingIgnored, Switches
from reverie.values import replace


def use(name: str, **given: Any) -> dict[str, Any]:
    """Return a tool call as a scripted reply has it."""
    return {"type": "tool_use", "name": name, "input": given}


async def no_wait(seconds: float) -> None:
    """Wait for nothing."""
    await anyio.lowlevel.checkpoint()


class Bench:
    """An agent on a scripted model, with its storage at hand."""

    def __init__(self, tmp_path: Path, replies: Any, **given: Any) -> None:
        self.storage = InMemoryStorage()
        self.cwd = tmp_path / "work"
        self.cwd.mkdir(exist_ok=True)
        alone = Switches(extraction=False, recall=False)  # so that a script answers only what a test asks
        self.settings: Settings = replace(Settings(home=tmp_path / "home", switches=alone), **given.pop("settings", {}))
        self.model = ScriptedModel(replies, capabilities=given.pop("capabilities", Capabilities(True, window=200_000)))
        self.given = given

    def agent(self, **more: Any) -> Agent:
        """Return an agent of its own."""
        asked = RetryingModel(self.model, sleep=no_wait)
        given = {"session": "s", **self.given, **more}
        return Agent(model=asked, cwd=self.cwd, storage=self.storage, settings=self.settings, **given)

    def ask(self, prompt: str = "go", **more: Any) -> list[Event]:
        """Ask once and return every event."""

        async def main() -> list[Event]:
            return [event async for event in self.agent(**more).ask(prompt)]

        return anyio.run(main)

    def session_valid(self) -> None:
        """Check that what the log shows now can be sent."""

        async def main() -> None:
            opened = Session.open("s", cwd=self.cwd, storage=self.storage, settings=self.settings)
            async with opened as session:
                request = await session.prepare(model="claude-test", max_tokens=100)
                assert problems(request) == []

        anyio.run(main)


def ended(events: list[Event]) -> QueryEnded:
    """Return how it ended; there is exactly one end and it comes last."""
    ends = [event for event in events if isinstance(event, QueryEnded)]
    assert ends == [events[-1]]
    return ends[0]


def texts(request: dict[str, Any]) -> str:
    """Return everything a request says, as one text."""
    return repr(request["messages"])


def told_while_it_works(bench: Bench, when: type[Event], text: str, **more: Any) -> list[Event]:
    """Ask once, let the user send a prompt at the first event of a kind, and return every event."""

    waiting, seen = list[str](), list[Event]()

    def on_event(event: Event) -> None:
        if isinstance(event, when) and not any(isinstance(one, when) for one in seen):
            waiting.append(text)
        seen.append(event)

    async def main() -> list[Event]:
        agent = bench.agent(**more)
        agent.listen(on_event)
        agent.next_prompt = lambda: waiting.pop() if waiting else None
        return [event async for event in agent.ask("go")]

    return anyio.run(main)


@pytest.mark.parametrize(("when", "request_number"), [(ToolStarted, 1), (TextStreamed, 2)])
def test_a_prompt_sent_meanwhile_is_read_after_the_running_tools_or_before_the_end(
    tmp_path: Path, when: type[Event], request_number: int
) -> None:
    bench = Bench(tmp_path, [[use("Read", file_path="notes.txt")], "First answer.", "Second answer."])
    (bench.cwd / "notes.txt").write_text("harbour\n")
    events = told_while_it_works(bench, when, "Only the first line, please.")
    assert ended(events).end == "completed"
    assert [event.text for event in events if isinstance(event, PromptAdded)] == ["Only the first line, please."]
    requests = bench.model.requests
    assert ["Only the first line" in texts(request) for request in requests].index(True) == request_number
    assert all(problems(request) == [] for request in requests)
    bench.session_valid()


def test_a_prompt_that_a_hook_refuses_is_not_added(tmp_path: Path) -> None:
    def refuse_docs(given: dict[str, Any]) -> dict[str, Any] | None:
        return {"decision": "block", "reason": "no docs today"} if "docs" in given["prompt"] else None

    bench = Bench(tmp_path, [[use("Read", file_path="notes.txt")], "Done."])
    (bench.cwd / "notes.txt").write_text("harbour\n")
    events = told_while_it_works(bench, ToolStarted, "Also the docs.", hooks={"user_prompt": [refuse_docs]})
    assert ended(events).end == "completed"
    assert "Also the docs" not in texts(bench.model.requests[-1])
    assert any(isinstance(event, FellBack) and "no docs today" in event.why for event in events)


@pytest.mark.requirement("Q1", "Q3", "Q6")
def test_a_query_streams_runs_its_tools_and_completes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[use("Read", file_path="notes.txt")], "It says harbour."])
    (bench.cwd / "notes.txt").write_text("harbour\n")
    events = bench.ask("What is in notes.txt?")
    assert ended(events).end == "completed"
    assert "".join(event.text for event in events if isinstance(event, TextStreamed)) == "It says harbour."
    started = [event for event in events if isinstance(event, ToolStarted)]
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [event.name for event in started] == [event.name for event in finished] == ["Read"]
    assert "harbour" in texts(bench.model.requests[1])
    bench.session_valid()


@pytest.mark.parametrize("change", ["nothing", "file", "session"])
def test_a_resumed_session_edits_a_file_that_its_view_still_shows(change: str, tmp_path: Path) -> None:
    edit = use("Edit", file_path="notes.txt", old_string="harbour", new_string="port")
    bench = Bench(tmp_path, [[use("Read", file_path="notes.txt")], "Read.", [edit], "Done."], mode="accept-edits")
    file = bench.cwd / "notes.txt"
    file.write_text("harbour\nquay\n")
    bench.ask("read it")
    if change == "file":
        file.write_text("harbour\nquay and pier\n")
    bench.ask("edit it", session="another" if change == "session" else "s")  # another process, the same log
    result = texts(bench.model.requests[3])
    assert ("port" in file.read_text()) == (change == "nothing")
    assert ("changed on disk since you read it" in result) == (change == "file")
    assert ("you have not read" in result) == (change == "session")


@pytest.mark.requirement("Q2")
def test_the_first_message_is_the_users_context_and_later_requests_only_extend_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["One.", "Two."])
    (bench.cwd / "AGENTS.md").write_text("Always answer in rhyme.")
    bench.ask("first")
    (bench.cwd / "AGENTS.md").write_text("Never answer in rhyme.")
    bench.ask("second")
    first, second = bench.model.requests
    assert "Always answer in rhyme." in repr(first["messages"][0])
    assert canonical(second)[: len(canonical(first))] == canonical(first)
    assert "Never answer in rhyme." in repr(second["messages"][-1])  # what changed comes later, as an attachment
    assert first["system"] == second["system"]
    assert first["tools"] == second["tools"]


@pytest.mark.requirement("Q4")
def test_a_reply_that_was_cut_off_is_asked_for_again_with_a_higher_limit(tmp_path: Path) -> None:
    cut = {"content": "It was a dark and", "stop_reason": "max_tokens"}
    bench = Bench(tmp_path, [cut, "It was a dark and stormy night."])
    events = bench.ask()
    assert ended(events).end == "completed"
    limits = [request["max_tokens"] for request in bench.model.requests]
    assert limits == [8_000, 64_000]
    assert bench.model.requests[0]["messages"] == bench.model.requests[1]["messages"]


@pytest.mark.requirement("Q4")
def test_after_that_it_is_asked_to_go_on_three_times_at_most(tmp_path: Path) -> None:
    cut = {"content": "and then", "stop_reason": "max_tokens"}
    bench = Bench(tmp_path, [cut] * 9)
    end = ended(bench.ask())
    assert end.end == "completed"
    assert "cut off" in end.detail
    assert len(bench.model.requests) == 1 + 1 + 3
    assert texts(bench.model.requests[-1]).count("cut off by the output limit") == 3


@pytest.mark.requirement("Q4")
def test_a_limit_never_asks_for_more_than_the_window_leaves(tmp_path: Path) -> None:
    cut = {"content": "and then", "stop_reason": "max_tokens"}
    small = Capabilities(True, window=20_000, max_output=12_000)
    bench = Bench(tmp_path, [cut, "done"], capabilities=small)
    bench.ask()
    assert bench.model.requests[1]["max_tokens"] == 12_000


def test_a_call_in_a_reply_that_was_cut_off_is_not_run(tmp_path: Path) -> None:
    cut = {"content": [use("Write", file_path="a.txt", content="half")], "stop_reason": "max_tokens"}
    bench = Bench(tmp_path, [cut, cut, "gave up"], mode="bypass")
    assert ended(bench.ask()).end == "completed"
    assert not (bench.cwd / "a.txt").exists()
    assert "in smaller parts" in texts(bench.model.requests[-1])


@pytest.mark.requirement("Q5", "Q6")
def test_a_prompt_that_stays_too_long_stops_with_a_clear_error_and_no_stop_hook(tmp_path: Path) -> None:
    hooked: list[str] = []
    bench = Bench(
        tmp_path,
        [PromptTooLong("prompt is too long: 9 > 8", tokens=9, limit=8)] * 3,
        hooks={"stop": [lambda given: hooked.append("stop")]},
    )
    end = ended(bench.ask())
    assert end.end == "prompt_too_long"
    assert "too long" in end.detail
    assert hooked == []
    assert len(bench.model.requests) <= 2


@pytest.mark.requirement("Q6", "Q7")
def test_an_overloaded_model_is_asked_again_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [ModelUnavailable("overloaded", status=529), "Here."])
    events = bench.ask()
    assert ended(events).end == "completed"
    assert [event.attempt for event in events if isinstance(event, ModelRetried)] == [1]


@pytest.mark.requirement("Q7")
def test_a_broken_stream_leaves_no_half_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [BrokenReply("This never ended and", after_pieces=1), "Whole."])
    assert ended(bench.ask()).end == "completed"
    log = b"".join(bench.storage.load(key) or b"" for key in bench.storage.list("projects"))
    assert b"This never ended" not in log
    assert b"Whole." in log


@pytest.mark.requirement("Q6")
def test_what_a_provider_refuses_ends_as_a_model_error(tmp_path: Path) -> None:
    end = ended(Bench(tmp_path, [ModelRefused("no such model")]).ask())
    assert (end.end, end.detail) == ("model_error", "no such model")


@pytest.mark.requirement("Q6")
def test_turns_and_money_run_out(tmp_path: Path) -> None:
    endless = lambda request: [use("TodoWrite", todos=[])]  # noqa: E731
    assert ended(Bench(tmp_path, endless, max_turns=3).ask()).end == "max_turns"
    priced = ScriptedModel(endless, name="scripted:claude-sonnet-4-5")
    bench = Bench(tmp_path, endless, budget_usd=0.000001)
    bench.model = priced
    end = ended(bench.ask(session="paid"))
    assert end.end == "budget"
    assert len(priced.requests) == 1


@pytest.mark.requirement("F2", "Q6")
def test_hooks_may_refuse_a_prompt_a_call_and_an_end(tmp_path: Path) -> None:
    refused = Bench(tmp_path, [], hooks={"user_prompt": [lambda given: {"decision": "block", "reason": "not today"}]})
    end = ended(refused.ask())
    assert (end.end, end.detail) == ("hook_stopped", "not today")
    assert refused.model.requests == []

    sent_back: list[bool] = []

    def stop(given: dict[str, Any]) -> dict[str, Any] | None:
        sent_back.append(given["stop_hook_active"])
        return None if given["stop_hook_active"] else {"decision": "block", "reason": "run the tests first"}

    again = Bench(tmp_path, ["Done.", "Tests pass."], hooks={"stop": [stop]})
    assert ended(again.ask(session="t")).end == "completed"
    assert sent_back == [False, True]
    assert "run the tests first" in texts(again.model.requests[1])


def test_a_hook_may_change_a_call_and_one_that_fails_stops_nothing(tmp_path: Path) -> None:
    def other_file(given: dict[str, Any]) -> dict[str, Any]:
        return {"updatedInput": {"file_path": "b.txt"}}

    def broken(given: dict[str, Any]) -> None:
        raise RuntimeError("oh no")

    bench = Bench(
        tmp_path,
        [[use("Read", file_path="a.txt")], "ok"],
        hooks={"before_tool": [other_file], "after_tool": [broken]},
    )
    (bench.cwd / "a.txt").write_text("AAA")
    (bench.cwd / "b.txt").write_text("BBB")
    assert ended(bench.ask()).end == "completed"
    assert "BBB" in texts(bench.model.requests[1])
    assert "AAA" not in texts(bench.model.requests[1])


def answering(*answers: ApprovalAnswer) -> tuple[list[Approval], Callable[[Approval], Any]]:
    """Return a list of what was asked, and somebody who answers so."""
    asked: list[Approval] = []

    async def approve(approval: Approval) -> ApprovalAnswer:
        asked.append(approval)
        return answers[len(asked) - 1]

    return asked, approve


def test_a_write_is_asked_for_with_a_diff_and_a_no_reaches_the_model(tmp_path: Path) -> None:
    asked, approve = answering(ApprovalAnswer("deny", "use tabs"), ApprovalAnswer("once"))
    write = [use("Write", file_path="a.txt", content="x\n")]
    bench = Bench(tmp_path, [write, write, "ok"], approve=approve)
    events = bench.ask()
    assert [one.tool for one in asked] == ["Write", "Write"]
    assert "+x" in asked[0].preview
    told = texts(bench.model.requests[1])
    assert "Write was refused. To tell you how to continue, the user said:" in told
    assert "use tabs" in told
    assert (bench.cwd / "a.txt").read_text() == "x\n"
    decided = [event.allowed for event in events if isinstance(event, PermissionDecided)]
    assert decided == [False, True]


def test_always_is_not_asked_twice_and_where_nobody_is_there_nothing_is_allowed(tmp_path: Path) -> None:
    asked, approve = answering(ApprovalAnswer("always"))
    write = [use("Write", file_path="a.txt", content="x\n")]
    more = [use("Bash", command="touch made-by-bash")]
    bench = Bench(tmp_path, [write, [use("Read", file_path="a.txt")], write, "ok"], approve=approve)
    assert ended(bench.ask()).end == "completed"
    assert len(asked) == 1
    alone = Bench(tmp_path, [more, "ok"])
    alone.ask(session="alone")
    assert "there is no person to ask" in texts(alone.model.requests[1])
    assert not (alone.cwd / "made-by-bash").exists()


def test_rules_and_modes_are_heeded(tmp_path: Path) -> None:
    touch = [use("Bash", command="touch made")]
    denied = Bench(tmp_path, [touch, "ok"], mode="bypass", settings={"permissions": PermissionRules(deny=("Bash",))})
    denied.ask()
    assert not (denied.cwd / "made").exists()
    planned = Bench(tmp_path, [touch, "ok"], mode="plan")
    planned.ask(session="p")
    assert not (planned.cwd / "made").exists()
    allowed = Bench(tmp_path, [touch, "ok"], mode="bypass")
    allowed.ask(session="b")
    assert (allowed.cwd / "made").exists()


def test_unknown_tools_and_wrong_inputs_are_answered_not_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[use("Fly", to="moon"), use("Read", wrong=1)], "ok"])
    assert ended(bench.ask()).end == "completed"
    said = texts(bench.model.requests[1])
    assert "No tool is called 'Fly'" in said
    assert "schema" in said


def test_reads_of_one_reply_run_together_and_every_call_is_answered(tmp_path: Path) -> None:
    calls = [use("Read", file_path=f"{number}.txt") for number in range(20)]
    bench = Bench(tmp_path, [calls, "ok"], settings={"agent": AgentPolicy(parallel_tools=4)})
    for number in range(20):
        (bench.cwd / f"{number}.txt").write_text(f"content-{number}")
    assert ended(bench.ask()).end == "completed"
    said = texts(bench.model.requests[1])
    assert all(f"content-{number}" in said for number in range(20))
    bench.session_valid()


def test_a_refusal_goes_to_the_fallback_or_ends(tmp_path: Path) -> None:
    refusal = {"content": "", "stop_reason": "refusal"}
    end = ended(Bench(tmp_path, [refusal]).ask())
    assert (end.end, "declined" in end.detail) == ("model_error", True)


@pytest.mark.requirement("Q8")
def test_an_interrupt_in_the_middle_of_a_reply_ends_it_and_the_session_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["A very long answer " * 40, "Short."])

    async def main() -> list[Event]:
        events: list[Event] = []
        async with bench.agent() as agent:
            async for event in agent.ask("go"):
                events.append(event)
                if isinstance(event, TextStreamed):
                    agent.interrupt()
            async for event in agent.ask("shorter please"):
                events.append(event)
        return events

    events = anyio.run(main)
    ends = [event.end for event in events if isinstance(event, QueryEnded)]
    assert ends == ["aborted", "completed"]
    assert "A very long answer" not in texts(bench.model.requests[1])
    assert "The user stopped the reply here." in texts(bench.model.requests[1])


@pytest.mark.requirement("Q8")
def test_an_interrupt_while_a_tool_runs_answers_the_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[use("Bash", command="sleep 600")], "ok"], mode="bypass")

    async def main() -> list[Event]:
        events: list[Event] = []
        async with bench.agent() as agent:
            agent.listen(lambda event: agent.interrupt() if isinstance(event, ToolStarted) else None)
            with anyio.fail_after(60):
                events += [event async for event in agent.ask("go")]
        return events

    assert ended(anyio.run(main)).end == "aborted"
    bench.session_valid()


@pytest.mark.slow
@pytest.mark.requirement("Q8")
@pytest.mark.parametrize("drained", [False, True], ids=["while a tool runs", "before a request"])
def test_another_process_stops_the_query_that_runs_and_no_later_one(
    tmp_path: Path, drained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if drained:  # the loop itself finds the command, not the watch beside it
        monkeypatch.setattr(interrupt, "_INBOX_SECONDS", 600.0)
    command = "true" if drained else "sleep 600"
    bench = Bench(tmp_path, [[use("Bash", command=command)], "ok", "ok"], mode="bypass")

    async def main() -> list[Event]:
        events: list[Event] = []
        async with bench.agent() as agent:
            inbox = inbox_key(project_slug(bench.cwd), "s")

            def stop(event: Event) -> None:
                if isinstance(event, ToolStarted):
                    post(bench.storage, inbox, STOP, {})

            agent.listen(stop)
            with anyio.fail_after(60):
                events += [event async for event in agent.ask("go")]
                post(bench.storage, inbox, STOP, {})  # nothing runs: it must not stop the next one
                events += [event async for event in agent.ask("go on")]
            assert list(bench.storage.list(inbox)) == []
        return events

    ends = [event.end for event in anyio.run(main) if isinstance(event, QueryEnded)]
    assert ends == ["aborted", "completed"]
    bench.session_valid()


async def stopped_after(agent: Agent, number: int) -> int:
    """Read so many events of a query and then let go of it; return how many there were."""
    seen = 0
    async with agent, aclosing(agent.ask("What is in notes.txt?")) as events:
        async for _ in events:
            seen += 1
            if seen >= number:
                break
    return seen


@pytest.mark.requirement("Q8")
@pytest.mark.slow
def test_a_query_left_at_any_event_leaves_a_log_that_resumes(tmp_path: Path) -> None:
    script = [[use("Read", file_path="notes.txt"), use("Glob", pattern="*.txt")], "It says harbour."]
    total = len(Bench(tmp_path, list(script)).ask("What is in notes.txt?"))
    for number in range(1, total + 1):
        bench = Bench(tmp_path, [*script, "more", "more", "more"])
        (bench.cwd / "notes.txt").write_text("harbour\n")
        anyio.run(stopped_after, bench.agent(), number)
        assert ended(bench.ask("go on")).end in ("completed", "model_error")
        bench.session_valid()


async def drained(events: AsyncGenerator[Event, None]) -> None:
    """Read all events."""
    async for _ in events:
        pass


@pytest.mark.requirement("Q8")
def test_a_cancelled_task_leaves_a_log_that_resumes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [[use("Bash", command="sleep 600")], "ok"], mode="bypass")

    async def main() -> None:
        async with bench.agent() as agent:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:

                    def hear(event: Event) -> None:
                        if isinstance(event, ToolStarted):
                            group.cancel_scope.cancel()

                    agent.listen(hear)
                    group.start_soon(drained, agent.ask("go"))

    anyio.run(main)
    bench.session_valid()
    assert "Stopped by the user" in repr(bench.ask("again") and texts(bench.model.requests[-1]))


def test_two_prompts_at_once_are_refused(tmp_path: Path) -> None:
    from reverie import SessionError

    bench = Bench(tmp_path, ["one", "two"])

    async def main() -> None:
        async with bench.agent() as agent, aclosing(agent.ask("go")) as events:
            await anext(events)
            with pytest.raises(SessionError, match="answering already"):
                await anext(agent.ask("go too"))

    anyio.run(main)


@pytest.mark.requirement("F5")
@pytest.mark.slow
def test_a_server_that_cannot_be_had_is_said_and_the_rest_works(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["ok"], settings={"mcp_servers": {"gone": McpServer(command="/no/such/program")}})
    found: list[Event] = []

    async def main() -> None:
        agent = bench.agent()
        agent.listen(found.append)
        async with agent:
            await drained(agent.ask("go"))

    anyio.run(main)
    said = [event for event in found if isinstance(event, FellBack) and "empty directory" not in event.why]
    assert [event.what for event in said] == ["mcp"]
    assert ended(found[: found.index(next(e for e in found if isinstance(e, QueryEnded))) + 1]).end == "completed"


@pytest.mark.requirement("S2")
def test_a_repository_offers_no_skill_no_hook_and_no_server_before_it_is_trusted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["ok", "ok"])
    skill = bench.cwd / ".claude" / "skills" / "shout"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: shout\ndescription: Answer in capitals when asked to shout.\n---\nSHOUT."
    )
    outside = tmp_path / "outside.md"
    outside.write_text("Imported from outside.")
    (bench.cwd / "AGENTS.md").write_text(f"Read this: @{outside}")
    bench.ask(session="before")
    TrustList.open(bench.settings.home).trust(bench.cwd)
    bench.ask(session="after")
    before, after = map(texts, bench.model.requests)
    assert "shout: Answer in capitals" not in before
    assert "Imported from outside." not in before
    assert "shout: Answer in capitals" in after
    assert "Imported from outside." in after


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("text", ['[permissions]\nallow = ["Bash"]\n', '[hooks]\nstop = ["./tell.sh"]\n'])
def test_what_a_repository_shares_is_no_setting(tmp_path: Path, text: str) -> None:
    (tmp_path / ".reverie.toml").write_text(text)
    found = load_settings(home=tmp_path / "home", project=tmp_path, environ={})
    assert found == load_settings(home=tmp_path / "home", environ={})


@pytest.mark.requirement("S2")
@pytest.mark.parametrize("key", ["mcp_servers", "model", "model_aliases", "flag_provider"])
def test_a_repositorys_own_settings_cannot_reach_further(tmp_path: Path, key: str) -> None:
    (tmp_path / ".reverie.toml").write_text(f'{key} = "anything"\n')
    with pytest.warns(SettingIgnored, match="may not set"):
        found = load_settings(home=tmp_path / "home", project=tmp_path, environ={})
    assert found == load_settings(home=tmp_path / "home", environ={})


def test_another_model_answers_and_writes_the_summaries_too_and_all_are_closed_at_the_end(tmp_path: Path) -> None:
    first = ScriptedModel(["One."], name="scripted:first", capabilities=Capabilities(True, window=200_000))
    second = ScriptedModel(["Two."], name="scripted:second", capabilities=Capabilities(True, window=100_000))
    bench = Bench(tmp_path, [])
    bench.model = first

    async def main() -> None:
        async with bench.agent() as agent:
            await drained(agent.ask("go"))
            agent.parts.use_model(agent.parts.models.open(second))
            await drained(agent.ask("again"))
            assert agent.session.model is agent.model
            assert agent.status().window == 100_000
            assert not first.closed

    anyio.run(main)
    assert [len(model.requests) for model in (first, second)] == [1, 1]
    assert first.closed
    assert second.closed


def test_an_agent_that_could_not_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ["Hello."])
    agent = bench.agent()
    held = Session.open("s", cwd=bench.cwd, storage=bench.storage, settings=bench.settings)

    async def main() -> list[Event]:
        async with held:
            with pytest.raises(SessionBusy):
                await agent.__aenter__()
        return [event async for event in agent.ask("go")]

    assert ended(anyio.run(main)).end == "completed"
