"""Recalled memories and the memory index as standing context: over cuts, resumes, changes and deletions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_home import Home, Talk, text_of
from reverie.conversation.decisions import Cause, Snipped
from reverie.conversation.standing_context import StandingItem, StandingRow
from reverie.errors import StorageError
from reverie.memories.recall.policy import RecallPolicy
from reverie.runtime.memory.recall import surfaced_in
from reverie.runtime.memory.standing_memories import RecalledMemories
from reverie.values import replace

PROMPT = "how do we run integration tests against the database?"
RULE = "Integration tests use the real Postgres database, never mocks"
WHY = "a mock hid a migration"

# -- recalled memories


@pytest.mark.requirement("W6", "W4", "R5")
def test_a_recalled_memory_is_in_view_again_after_a_compaction_exactly_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    saved = home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        assert (await talk.ask(PROMPT)).count(WHY) == 1
        await talk.cut()
        after = await talk.ask("hello again")
        assert after.count(WHY) == 1
        assert 'trust="user' in after, "the fence is rendered again"
        assert (await talk.ask(PROMPT)).count(WHY) == 1, "it is in view, so it is not recalled"
        assert surfaced_in(talk.session.view).files == {saved.file}

    home.run(act)
    assert home.recalled() == [saved.file]


@pytest.mark.requirement("W6")
def test_twin_a_session_without_the_source_keeps_what_the_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the source the logged text is said again, even of a memory that was erased: the test would see it."""
    home = Home(tmp_path)
    saved = home.memory.save(RULE, type="feedback", why=WHY)
    monkeypatch.setattr(RecalledMemories, "_item", lambda _, __, row: as_said(row))

    async def act(talk: Talk) -> None:
        await talk.ask(PROMPT)
        await talk.cut()
        home.memory.forget(saved.file, erase=True)
        assert WHY in await talk.ask("hello again")

    home.run(act)


def as_said(row: StandingRow) -> Any:
    """Return the item of a row as the log has it."""
    said = row.item
    return StandingItem(said.key, said.source, said.name, said.value, said.digest, budget=said.budget)


@pytest.mark.requirement("W6")
def test_the_index_of_a_session_marks_an_expired_memory_and_its_file_does_not(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.memory.save("Deploy on Tuesdays, ops is there", type="project", expires="2020-01-01")
    home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        said = await talk.ask("hello")
        (line,) = (line for line in said.split("\n") if line.endswith(" (expired)"))
        assert "Deploy on Tuesdays" in line
        assert "Lines marked (expired) no longer hold." in said

    home.run(act)
    assert "(expired)" not in home.memory.index().text


@pytest.mark.requirement("W6", "M3")
@pytest.mark.parametrize("erase", [False, True])
def test_a_memory_that_was_removed_is_never_said_again(tmp_path: Path, erase: bool) -> None:
    home = Home(tmp_path)
    saved = home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        await talk.ask(PROMPT)
        home.memory.forget(saved.file, erase=erase)
        told = await talk.ask("what now?")
        assert f"This no longer holds: the memory {saved.file}" in told
        await talk.cut()
        after = await talk.ask("hello again")
        assert WHY not in after
        assert WHY not in await talk.ask(PROMPT)

    home.run(act)
    home.run(lambda talk: nothing(talk, WHY))


async def nothing(talk: Talk, text: str) -> None:
    """See that a resumed session does not say a text."""
    assert text not in await talk.ask("and now?")


@pytest.mark.requirement("W6", "W3", "W5")
def test_a_memory_that_changed_is_said_as_changed_in_the_session_and_after_a_resume(tmp_path: Path) -> None:
    home = Home(tmp_path)
    saved = home.memory.save(RULE, type="feedback", why=WHY)

    async def first(talk: Talk) -> None:
        await talk.ask(PROMPT)
        home.memory.update(saved.file, f"{RULE} (port 5433)", why=WHY)
        told = await talk.ask("go on")
        assert f"This replaces the earlier text about the memory {saved.file}." in told
        assert told.count("(port 5433)") >= 1
        again = await talk.ask("go on")
        assert again.count(f"This replaces the earlier text about the memory {saved.file}.") == 1, "once"

    async def second(talk: Talk) -> None:
        told = await talk.ask("go on")
        assert "port 6000" in told.rpartition("This replaces the earlier text about the memory")[2]

    home.run(first)
    home.memory.update(saved.file, f"{RULE} (port 6000)", why=WHY)
    home.run(second)


@pytest.mark.requirement("R6")
def test_the_age_of_a_memory_is_that_of_when_it_was_said_and_no_change_by_itself(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        assert 'written="today"' in await talk.ask(PROMPT)
        assert talk.agent.parts.memory is not None
        talk.agent.parts.memory.recall.source._clock = lambda: datetime.now(UTC) + timedelta(days=40)
        later = await talk.ask("go on")
        assert "40 days ago" not in later
        assert 'written="today"' in later, "a text that was sent never changes"
        await talk.cut()
        assert 'written="40 days ago"' in await talk.ask("hello again")

    home.run(act)


# -- the limit


def big(home: Home, count: int) -> None:
    """Save memories of four thousand bytes."""
    for number in range(count):
        home.memory.save(
            f"The harbour pipeline number {number} deploys service s{number}. " * 75,
            type="reference",
            name=f"harbour pipeline {number}",
            description=f"The harbour pipeline of service number {number}",
        )


@pytest.mark.slow
@pytest.mark.requirement("W6", "R4", "F5")
def test_a_full_budget_is_told_each_time_and_a_compaction_gives_it_back(tmp_path: Path) -> None:
    home = Home(tmp_path)
    big(home, 24)

    async def act(talk: Talk) -> None:
        for number in range(24):
            await talk.ask(f"what does the harbour pipeline of service number {number} deploy?")
            assert surfaced_in(talk.session.view).bytes <= 61_440
        shown = len(home.recalled())
        assert 12 <= shown < 24
        told = home.fallbacks()
        assert told
        assert "61,440 bytes for memories in view (recall.session_bytes)" in told[-1]
        left = sorted(one.file for one in home.memory.list() if one.file not in home.recalled())
        await talk.cut()
        await talk.ask("hello again")
        view = surfaced_in(talk.session.view)
        assert 0 < view.bytes < 61_440, "the newest that fit are said again"
        number = left[0].removesuffix(".md").rpartition("_")[2]
        await talk.ask(f"what does the harbour pipeline of service number {number} deploy?")
        assert left[0] in home.recalled(), "recall works again"

    home.run(act)


@pytest.mark.requirement("W6", "F5")
def test_an_event_says_once_for_each_prompt_that_the_limit_stops_recall(tmp_path: Path) -> None:
    home = Home(tmp_path, recall=RecallPolicy(session_bytes=3_000, most=1, file_bytes=2_500))
    big(home, 3)

    async def act(talk: Talk) -> None:
        read = [{"type": "tool_use", "name": "Glob", "input": {"pattern": "*.none"}}]
        for number in range(3):
            await talk.ask(f"what does the harbour pipeline of service number {number} deploy?", read, read, "Done.")

    home.run(act)
    assert len(home.recalled()) == 1
    assert len(home.fallbacks()) == 2


@pytest.mark.requirement("W6", "W4")
def test_after_a_cut_the_newest_memories_that_fit_are_said_and_others_are_named_and_recalled_again(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, window=40_000, recall=RecallPolicy(most=1))
    big(home, 6)

    async def act(talk: Talk) -> None:
        for number in range(6):
            await talk.ask(f"what does the harbour pipeline of service number {number} deploy?")
        assert len(home.recalled()) == 6
        await talk.cut()
        after = await talk.ask("hello again")
        shown = surfaced_in(talk.session.view).files
        assert 0 < len(shown) < 6
        assert home.recalled()[-1] in shown, "the newest first"
        named = [file for file in home.recalled() if file not in shown]
        for file in named:
            assert f"Left out here to save room: the memory {file} (" in after
        number = named[0].removesuffix(".md").rpartition("_")[2]
        again = await talk.ask(f"what does the harbour pipeline of service number {number} deploy?")
        assert named[0] in home.recalled()[6:]
        assert f"harbour pipeline number {number} deploys service s{number}" in again

    home.run(act)


@pytest.mark.requirement("W6")
def test_the_table_is_asked_and_not_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    saved = home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        await talk.ask(PROMPT)
        view = talk.session.view
        with monkeypatch.context() as patched:
            patched.setattr(type(view), "history", property(lambda _: pytest.fail("the history was read")))
            assert surfaced_in(view).files == {saved.file}

    home.run(act)


def test_a_memory_that_cannot_be_read_stays_as_it_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.memory.save(RULE, type="feedback", why=WHY)

    async def act(talk: Talk) -> None:
        await talk.ask(PROMPT)

        def broken(_: str) -> Any:
            raise StorageError("disk", path="x")

        assert talk.agent.parts.memory is not None
        monkeypatch.setattr(talk.agent.parts.memory.recall.source, "_read", broken)
        await talk.cut()
        assert (await talk.ask("hello again")).count(WHY) == 1

    home.run(act)


# -- the index


@pytest.mark.requirement("Q2", "W2", "W5")
def test_a_memory_added_elsewhere_is_said_in_the_session_and_after_a_resume(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def first(talk: Talk) -> None:
        assert "(no memories yet)" in await talk.ask("hello")
        home.memory.save(RULE, type="feedback", why=WHY, name="Real database")
        told = await talk.ask("go on")
        assert "[Real database](" in told.rpartition("(no memories yet)")[2]
        assert (await talk.ask("go on")).count("[Real database](") == 1

    async def second(talk: Talk) -> None:
        opening = home.requests[0]["messages"][0]
        told = await talk.ask("go on")
        assert "[Launch](" in told
        assert home.requests[-1]["messages"][0]["content"][0] == opening["content"][0], "never rewritten"

    home.run(first)
    home.memory.save("The launch is on 2026-04-01", type="project", why="a fair", name="Launch")
    home.run(second)


def listed(home: Home, count: int) -> None:
    """Save many memories, so that the index is long."""
    for number in range(count):
        home.memory.save(
            f"The depot number {number} opens at {number} o'clock", type="project", why="asked", name=f"Depot {number}"
        )


@pytest.mark.requirement("Q2", "W3")
def test_a_long_index_is_followed_by_its_changes_only_and_removed_lines_are_only_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    listed(home, 20)

    async def act(talk: Talk) -> None:
        await talk.ask("hello")
        home.memory.save(RULE, type="feedback", why=WHY, name="Real database")
        told = await talk.ask("go on")
        assert told.count("[Depot 3](") == 1
        assert told.count("[Real database](") == 1
        gone = home.memory.get("Depot 3").file
        home.memory.forget("Depot 3")
        told = (await talk.ask("go on")).rpartition("This replaces the earlier text about")[2]
        assert f"No longer in it: {gone}" in told
        assert "[Real database](" in told
        assert "[Depot 3](" not in told
        await talk.cut()
        after = await talk.ask("hello again")
        assert after.count("[Real database](") == 1, "the changes are said again, the opening is still there"
        assert after.count("[Depot 5](") == 1

    home.run(act)


@pytest.mark.requirement("Q2")
def test_the_index_is_not_said_at_every_turn_while_the_agent_saves(tmp_path: Path) -> None:
    home = Home(tmp_path)
    listed(home, 10)

    def save(text: str) -> list[dict[str, Any]]:
        given = {"action": "save", "type": "feedback", "text": text, "why": "asked"}
        return [{"type": "tool_use", "name": "Memory", "input": given}]

    async def act(talk: Talk) -> None:
        await talk.ask("hello")
        start = len(home.requests)
        texts = ["Never push on Fridays.", "Reviews need two people.", "Ask before a release."]
        await talk.ask("Remember three rules.", *map(save, texts), "Kept.")
        within = [text_of(request) for request in home.requests[start:]]
        assert len(within) == 4
        assert not any("Changes to the memory index" in text for text in within)
        told = await talk.ask("go on")
        assert told.count("Changes to the memory index") == 1

    home.run(act)


@pytest.mark.requirement("M10", "Q2")
def test_the_index_of_the_team_has_a_key_of_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.settings = replace(home.settings, team_memory=tmp_path / "shared")

    async def act(talk: Talk) -> None:
        await talk.ask("hello")
        home.memory.save("Tickets are in Linear under HARBOUR", type="reference", name="tickets")
        assert "[tickets](reference_tickets.md)" in await talk.ask("go on")
        rows = [key for key in talk.session.view.facts.standing if key.startswith("index:")]
        assert sorted(rows)[:2] == ["index:private", "index:team"]

    home.run(act)


@pytest.mark.requirement("Q2", "W4")
def test_an_index_whose_first_message_is_gone_is_said_whole(tmp_path: Path) -> None:
    home = Home(tmp_path)
    listed(home, 20)

    async def act(talk: Talk) -> None:
        await talk.ask("hello")
        home.memory.save(RULE, type="feedback", why=WHY, name="Real database")
        await talk.ask("go on")
        view = talk.session.view
        every = [piece.uuid for group in view.groups for piece in group.pieces]
        await talk.session.log.decide(Snipped(Cause("test", "all of it leaves", moves_prefix=True), every))
        after = await talk.ask("hello again")
        assert after.count("[Depot 3](") == 1
        assert after.count("[Real database](") == 1
        assert "Changes to the memory index" not in after

    home.run(act)
