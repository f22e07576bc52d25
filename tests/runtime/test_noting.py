"""Layer 3 in a session: the log first, then the file, a person's edit before both, one update at a time."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from marks import without_marks
from reverie import InMemoryStorage, Session, load_settings
from reverie.cache.usage import Usage
from reverie.conversation.log import parse_log
from reverie.errors import ModelError, StorageError
from reverie.events import BackgroundChanged, Event, FellBack, NotesWritten
from reverie.layers.l3_notes.sections import CURRENT, HEADINGS, TASK, WORKFLOW, WORKLOG, parse_notes, parse_template
from reverie.models.scripted_model import ScriptedModel
from reverie.ports import Document
from reverie.runtime.places.projects import project_slug
from reverie.runtime.session.forks import ForkReply
from reverie.runtime.session.notes.keeper import DAMAGED, NOTES_FILE
from reverie.runtime.session.parts import SessionOptions
from reverie.storage.files import FileStorage
from reverie.values import replace

MODEL = "claude-sonnet-4-5"
TEMPLATE = parse_template(
    (Path(__file__).resolve().parents[2] / "src/reverie/layers/l3_notes/template.md").read_text("utf-8")
)


class Answers:
    """Somebody to ask: answers in turn, raises what is an exception, or waits for a gate first."""

    def __init__(self, *said: str | Exception | ForkReply, gate: anyio.Event | None = None) -> None:
        self.said = list(said)
        self.gate = gate
        self.asked: list[tuple[str, str, int]] = []

    async def ask(self, directive: str, *, source: str, max_tokens: int) -> Any:
        self.asked.append((directive, source, max_tokens))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ForkReply) else ForkReply(answer, [], Usage(), 0.0, None)


class Desk:
    """A session in a store of files, its notes, and what was told."""

    def __init__(self, session: Session, folder: Path) -> None:
        self.session = session
        self.noting = session.parts.notes
        self.file = folder / NOTES_FILE
        self.damaged = folder / DAMAGED
        self.events: list[Event] = []
        session.listen(self.events.append)

    async def turn(self, words: str, tokens: int, *, calls: int = 0) -> None:
        """Let the user say something and the model answer at this count, with so many calls before."""
        serial = len(self.session.view.history)
        await self.session.say(words)
        for number in range(calls):
            called = f"t{serial}_{number}"
            use = {"type": "tool_use", "id": called, "name": "Bash", "input": {"command": f"make {called}"}}
            await self.session.observe(reply(use, id=f"m{called}", tokens=tokens // 2))
            await self.session.result(called, "done")
        await self.session.observe(reply({"type": "text", "text": f"Did: {words}"}, id=f"m{serial}", tokens=tokens))

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


def reply(*blocks: dict[str, Any], id: str, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens - 50, "output_tokens": 50}
    return {"id": id, "type": "message", "role": "assistant", "model": MODEL, "content": list(blocks), "usage": usage}


def with_desk(
    tmp_path: Path, steps: Callable[[Desk], Awaitable[None]], *, asks: Answers | None = None, **options: Any
) -> None:
    async def run() -> None:
        settings = load_settings()
        storage = FileStorage(settings.home)
        project = project_slug(tmp_path)
        try:
            switches = replace(settings.switches, **options)
            settings = replace(settings, switches=switches)
            async with Session(SessionOptions("work", storage=storage, project=project, settings=settings)) as session:
                session.parts.notes.forks = asks
                await steps(Desk(session, settings.home / f"projects/{project}/work"))
        finally:
            storage.close()

    anyio.run(run)


@pytest.mark.requirement("L3.1", "L3.3", "L3.4", "D1")
def test_notes_are_logged_then_written_with_nobody_elses_eyes(tmp_path: Path) -> None:
    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 9_000)
        assert not desk.file.exists()
        await desk.turn("And the gate in /farm/gate.py", 10_500)
        facts = desk.session.view.facts
        assert "And the gate" in facts.notes[CURRENT]
        assert facts.notes_covered == desk.session.view.history[-1].uuid
        assert (desk.of(NotesWritten)[0].by, desk.of(NotesWritten)[0].covered) == ("local", facts.notes_covered)
        assert parse_notes(desk.file.read_text(), TEMPLATE).sections == dict(facts.notes)
        assert os.stat(desk.file).st_mode & 0o777 == 0o600
        assert os.stat(desk.file.parent).st_mode & 0o777 == 0o700
        await desk.turn("More", 12_000)
        assert len(desk.of(NotesWritten)) == 1, "not grown by a step"
        await desk.turn("Still more", 15_600)
        assert len(desk.of(NotesWritten)) == 2

    with_desk(tmp_path, steps)


@pytest.mark.requirement("L3.1")
def test_what_a_person_changed_in_the_file_is_logged_first_and_stays(tmp_path: Path) -> None:
    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        text = desk.file.read_text()
        about = TEMPLATE.sections[HEADINGS.index(WORKLOG)].about
        desk.file.write_text(text.replace(about, f"{about}\n\nThe fence is Ann's; ask her."))
        await desk.turn("And the gate", 17_000)
        by = [(event.by, event.sections) for event in desk.of(NotesWritten)]
        assert by[1] == ("person", [WORKLOG])
        assert by[2][0] == "local"
        assert "The fence is Ann's; ask her." in desk.session.view.facts.notes[WORKLOG]
        assert "The fence is Ann's; ask her." in desk.file.read_text()
        reasons = [entry["reason"] for entry in decisions(desk.session) if entry.get("by") == "person"]
        assert reasons == ["edited by a person"]
        await desk.turn("And the roof", 23_000)
        assert [event.by for event in desk.of(NotesWritten)] == ["local", "person", "local", "local"]
        assert "The fence is Ann's; ask her." in desk.session.view.facts.notes[WORKLOG]

    with_desk(tmp_path, steps)


def decisions(session: Session) -> list[dict[str, Any]]:
    storage: FileStorage = session.parts.storage  # type: ignore[assignment]
    loaded = parse_log(storage.load(session.log._writer.key) or b"")
    return [entry.body for entry in loaded.entries if entry.body.get("decision") == "notes_updated"]


@pytest.mark.requirement("L3.5")
def test_an_edit_that_lost_its_headings_is_kept_aside_and_the_notes_restored(tmp_path: Path) -> None:
    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        desk.file.write_text("my own words\n")
        await desk.turn("And the gate", 17_000)
        assert desk.damaged.read_text() == "my own words\n"
        assert parse_notes(desk.file.read_text(), TEMPLATE).sections == dict(desk.session.view.facts.notes)
        assert "damaged" in desk.of(FellBack)[0].why

    with_desk(tmp_path, steps)


@pytest.mark.requirement("L3.1")
def test_a_crash_between_log_and_file_is_no_persons_edit(tmp_path: Path) -> None:
    """The log wins; the file is an earlier projection of it, not something anybody wrote."""

    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        old = desk.file.read_text()
        await desk.turn("And the gate", 17_000)
        desk.file.write_text(old)  # as if the second write had never come
        await desk.turn("And the roof", 23_000)
        assert [event.by for event in desk.of(NotesWritten)] == ["local"] * 3
        assert "And the roof" in desk.file.read_text()
        desk.file.unlink()
        await desk.noting.update(manual=True)
        assert "And the roof" in desk.file.read_text()

    with_desk(tmp_path, steps)


@pytest.mark.requirement("L3.4", "L3.5")
def test_a_model_edits_sections_and_is_asked_under_its_own_source(tmp_path: Path) -> None:
    answers = Answers(
        '<section name="Current State">\nmending\n</section>\n<section name="Workflow">\nmake\n</section>'
    )

    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        event, filled = desk.of(NotesWritten)
        assert (event.by, event.sections) == ("model", [CURRENT, WORKFLOW])
        assert filled.by == "local"
        notes = desk.session.view.facts.notes
        assert (notes[CURRENT], notes[WORKFLOW]) == ("mending", "make")
        directive, source, max_tokens = answers.asked[0]
        assert source == "session_memory"
        assert max_tokens == 14_000
        assert str(desk.file) in directive
        assert "# Worklog" in directive

    with_desk(tmp_path, steps, asks=answers)


@pytest.mark.requirement("L3.4", "L3.8", "L7.1")
def test_the_fork_that_writes_notes_reads_the_warm_prefix_and_takes_no_notes_itself(tmp_path: Path) -> None:
    edits = '<section name="Current State">\nmending\n</section>'

    def answer(request: dict[str, Any]) -> str:
        return edits if "This is the program that keeps" in str(request["messages"][-1]) else "The fence stands."

    async def run() -> None:
        model = ScriptedModel(answer)
        settings = load_settings()
        async with Session(
            SessionOptions("w", storage=InMemoryStorage(), project="p", settings=settings, model=model)
        ) as session:
            desk = Desk(session, tmp_path)
            await session.say("Mend the fence " * 4_000)
            request = await session.prepare(model=model.model_id, max_tokens=500, system="Be brief.")
            await session.observe((await model.complete(request)).body)
            with anyio.fail_after(60):
                assert await desk.noting.wait(20.0)
            assert [event.by for event in desk.of(NotesWritten)] == ["model", "local"]
            assert session.view.facts.notes[CURRENT] == "mending"
            assert session.view.facts.notes_foreign == {CURRENT}
            main, fork = model.requests
            assert without_marks(fork["messages"][0]) == without_marks(main["messages"][0]), "the parent's prefix"
            assert without_marks([fork["system"], fork["model"]]) == without_marks([main["system"], main["model"]])
            assert [event.state for event in desk.of(BackgroundChanged)] == ["started", "completed"]

    anyio.run(run)


@pytest.mark.requirement("L3.4")
def test_local_text_stays_where_a_model_writes_nothing_and_names_that_it_invents_are_struck(tmp_path: Path) -> None:
    said = "The gate in /repo/gate.py is mended, next is /repo/session-memory/x.py."
    edits = f'<section name="Current State">\n{said}\n</section>'

    async def steps(desk: Desk) -> None:
        await desk.turn("Please mend the gate in /repo/gate.py before the winter comes", 11_000)
        notes = desk.session.view.facts.notes
        assert notes[CURRENT] == "The gate in /repo/gate.py is mended, next is [a name that is not in the log]."
        assert notes[TASK].startswith("Please mend the gate")
        assert desk.session.view.facts.notes_foreign == {CURRENT}
        assert any("1 names of the model are not in the log" in event.why for event in desk.of(FellBack))

    with_desk(tmp_path, steps, asks=Answers(edits))


@pytest.mark.requirement("L3.5")
def test_current_state_is_fresh_even_where_a_model_leaves_it_out(tmp_path: Path) -> None:
    answers = Answers('<section name="Worklog">\n- began\n</section>')

    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        assert "Asked last: Mend the fence" in desk.session.view.facts.notes[CURRENT]

    with_desk(tmp_path, steps, asks=answers)


REFUSED = ForkReply(
    '<section name="Current State">\nhalf of it', [], Usage(), 0.0, None, stop_reason="refusal", problem="it declined"
)


@pytest.mark.requirement("L3.4", "L3.5", "B5", "F5", "V9")
@pytest.mark.parametrize(
    "answer",
    [
        *(ModelError("overloaded"), "", "no sections", '<section name="Nope">\nx\n</section>', RuntimeError("boom")),
        *(REFUSED, replace(REFUSED, stop_reason="max_tokens", text="")),
    ],
)
def test_a_model_that_fails_leaves_the_notes_to_the_local_twin(tmp_path: Path, answer: Any) -> None:
    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000)
        assert [event.by for event in desk.of(NotesWritten)] == ["local"]
        assert "written without a model" in desk.of(FellBack)[0].why
        assert parse_notes(desk.file.read_text(), TEMPLATE)[CURRENT]

    with_desk(tmp_path, steps, asks=Answers(answer))


@pytest.mark.requirement("L3.4")
def test_an_update_runs_beside_the_conversation_one_at_a_time(tmp_path: Path) -> None:
    async def steps(desk: Desk) -> None:
        gate = anyio.Event()
        said = '<section name="Current State">\nmending\n</section>'
        answers = Answers(said, said, gate=gate)
        desk.noting.forks = answers
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                desk.noting.tasks = tasks
                await desk.turn("Mend the fence", 11_000)
                covered = desk.session.view.history[-1].uuid
                while not answers.asked:  # the update reads the log in a thread first
                    await anyio.sleep(0.001)
                await desk.turn("And the gate", 17_000)
                await anyio.wait_all_tasks_blocked()
                assert len(answers.asked) == 1, "one at a time"
                assert not await desk.noting.wait(0.0)
                gate.set()
                assert await desk.noting.wait(10.0)
        assert desk.session.view.facts.notes_covered == covered, "it covers what it was asked about"
        assert [event.state for event in desk.of(BackgroundChanged)] == ["started", "completed"]

    with_desk(tmp_path, steps)


@pytest.mark.requirement("L4.2")
def test_an_update_that_hangs_counts_as_dead_and_lets_the_next_one_in(tmp_path: Path) -> None:
    async def steps(desk: Desk) -> None:
        now = [0.0]
        desk.noting._clock = lambda: now[0]  # type: ignore[method-assign]
        desk.noting.forks = Answers("x", gate=anyio.Event())
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                desk.noting.tasks = tasks
                await desk.turn("Mend the fence", 11_000)
                await anyio.wait_all_tasks_blocked()
                now[0] = 61.0
                assert not await desk.noting.wait(10.0)
                made = await desk.noting.update(local=True)
                assert made is not None
                assert made.by == "local"
                assert await desk.noting.wait(0.0)
                tasks.cancel_scope.cancel()
        assert desk.of(BackgroundChanged)[-1].state == "killed"

    with_desk(tmp_path, steps)


@pytest.mark.requirement("L3.8", "F1")
@pytest.mark.parametrize("switch", ["notes", "auto_compact", "compact"])
def test_nothing_is_done_where_it_is_switched_off_but_on_demand_it_is(tmp_path: Path, switch: str) -> None:
    async def steps(desk: Desk) -> None:
        await desk.turn("Mend the fence", 50_000)
        assert desk.events
        assert desk.of(NotesWritten) == []
        assert await desk.noting.update(manual=True) is not None
        assert desk.file.exists()

    with_desk(tmp_path, steps, **{switch: False})


@pytest.mark.requirement("L3.1", "K11")
def test_a_resumed_session_goes_on_from_its_log(tmp_path: Path) -> None:
    async def first(desk: Desk) -> None:
        await desk.turn("Mend the fence", 11_000, calls=2)

    async def second(desk: Desk) -> None:
        facts = desk.session.view.facts
        assert (facts.notes_tokens, facts.notes_calls) == (11_000, 2)
        assert not desk.noting.due()
        await desk.turn("And the gate", 17_000)
        assert "Mend the fence" in desk.session.view.facts.notes["Worklog"]
        assert [event.by for event in desk.of(NotesWritten)] == ["local"]

    with_desk(tmp_path, first)
    with_desk(tmp_path, second)


@pytest.mark.requirement("L3.1", "F5")
def test_a_file_that_cannot_be_written_costs_nothing_but_the_file(tmp_path: Path) -> None:
    class Full(InMemoryStorage):
        def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
            if key.endswith(NOTES_FILE):
                raise StorageError("no space left", path=key)
            return super().write(key, data, expect=expect, create=create)

    async def run() -> None:
        storage, settings = Full(), load_settings()
        async with Session(SessionOptions("work", storage=storage, project="p", settings=settings)) as session:
            desk = Desk(session, tmp_path)
            await desk.turn("Mend the fence", 11_000)
            assert "Mend the fence" in session.view.facts.notes[CURRENT]
            assert "no space left" in desk.of(FellBack)[0].why

    anyio.run(run)


@pytest.mark.requirement("L3.1")
def test_an_edit_that_comes_between_reading_and_writing_is_not_lost(tmp_path: Path) -> None:
    class Raced(InMemoryStorage):
        """Lets a person save the file right after it was read."""

        edits: list[Callable[[str], str]]

        def read(self, key: str) -> Document | None:
            found = super().read(key)
            if key.endswith(NOTES_FILE) and self.edits and found is not None:
                super().write(key, self.edits.pop()(found.data.decode()).encode())
            return found

    async def run() -> None:
        storage, settings = Raced(), load_settings()
        storage.edits = []
        async with Session(SessionOptions("work", storage=storage, project="p", settings=settings)) as session:
            desk = Desk(session, tmp_path)
            await desk.turn("Mend the fence", 11_000)
            about = TEMPLATE.sections[HEADINGS.index(WORKLOG)].about
            storage.edits.append(lambda text: text.replace(about, f"{about}\nAnn's."))
            await desk.turn("And the gate", 17_000)
            document = storage.read(f"projects/p/work/{NOTES_FILE}")
            assert document is not None
            assert "Ann's." in document.data.decode()
            assert "Ann's." in session.view.facts.notes[WORKLOG]

    anyio.run(run)


class Failing(InMemoryStorage):
    """Fails at the Nth operation, once, before or after it was done."""

    left = -1
    after = False

    def _fails(self, act: Callable[[], Any], key: str) -> Any:
        self.left -= 1
        if self.left != 0:
            return act()
        if self.after:
            act()
        raise StorageError("injected", path=key)

    def read(self, key: str) -> Document | None:
        return self._fails(lambda: super(Failing, self).read(key), key)

    def write(self, key: str, data: bytes, *, expect: str | None = None, create: bool = False) -> str:
        return self._fails(lambda: super(Failing, self).write(key, data, expect=expect, create=create), key)

    def append(self, key: str, line: bytes, *, expect: int | None = None) -> None:
        self._fails(lambda: super(Failing, self).append(key, line, expect=expect), key)


@pytest.mark.requirement("L3.1")
@pytest.mark.parametrize("after", [False, True])
def test_a_fault_at_any_step_leaves_a_log_that_resumes_and_a_file_that_follows(tmp_path: Path, after: bool) -> None:
    async def at_step(step: int) -> bool:
        """Let this operation of an update fail, resume, update again; say whether there was such an operation."""
        storage, settings = Failing(), load_settings()
        storage.after = after
        async with Session(SessionOptions("work", storage=storage, project="p", settings=settings)) as session:
            await Desk(session, tmp_path).turn("Mend the fence", 11_000)
            await session.say("And the gate")
            storage.left = step
            with suppress(StorageError):
                await session.parts.notes.update(manual=True)
            reached = storage.left <= 0
            storage.left = -1
        async with Session(SessionOptions("work", storage=storage, project="p", settings=settings)) as session:
            desk = Desk(session, tmp_path)
            await session.parts.notes.update(manual=True)
            assert "person" not in [event.by for event in desk.of(NotesWritten)]
            assert "And the gate" in session.view.facts.notes[CURRENT]
            document = storage.read(f"projects/p/work/{NOTES_FILE}")
            assert document is not None
            assert parse_notes(document.data.decode(), TEMPLATE).sections == dict(session.view.facts.notes)
        return reached

    steps = 1
    while anyio.run(at_step, steps):
        steps += 1
    assert steps > 3, "an update reads the file, appends to the log and writes the file"


@pytest.mark.slow
def test_what_the_log_holds_of_notes_stays_small_beside_the_session(tmp_path: Path) -> None:
    """The local notes can be written again at any time, so most updates log little of them."""

    async def steps(desk: Desk) -> None:
        for number in range(60):
            call = {
                "type": "tool_use",
                "id": f"t{number}",
                "name": "Read",
                "input": {"file_path": f"/repo/m{number}.py"},
            }
            await desk.session.say(f"Look at module {number} and say what it does")
            await desk.session.observe(reply(call, id=f"a{number}", tokens=10_000 + number * 2_500))
            await desk.session.result(f"t{number}", f"def function_{number}(): return {number}\n" * 250)
            said = {"type": "text", "text": f"Module {number} returns its number."}
            await desk.session.observe(reply(said, id=f"b{number}", tokens=11_000 + number * 2_500))
        storage: FileStorage = desk.session.parts.storage  # type: ignore[assignment]
        whole = len(storage.load(desk.session.log._writer.key) or b"")
        notes = sum(len(str(body)) for body in decisions(desk.session))
        assert len(decisions(desk.session)) >= 20
        assert notes < 0.15 * whole, f"{notes:,} of {whole:,} bytes"

    with_desk(tmp_path, steps)
