"""Every feature can be switched off: in settings, by environment, and by a flag provider during a session."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, Session, Settings, load_settings
from reverie.events import CompactionEnded, DecisionMade, Event, NotesWritten, ResultsTrimmed, event_body
from reverie.settings.records import SWITCHES

# What the specification asks to have a switch of its own, and what it is called here.
ASKED_FOR = {
    "offload": "offload",
    "idle trim": "idle_trim",
    "cache edit": "cache_edit",
    "budget trim": "budget_trim",
    "snip": "snip",
    "notes": "notes",
    "compaction from notes": "compact_from_notes",
    "collapse": "collapse",
    "extraction": "extraction",
    "recall": "recall",
    "dream": "dream",
    "relay": "relay",
    "memories, agent memory and past-session search together": "memory",
}
TOOLS: list[dict[str, Any]] = [{"name": "Grep", "input_schema": {"type": "object"}}]
ABLE = frozenset({"cache_edits"})
MODEL = "claude-sonnet-4-5"  # it does not check its thinking, so results may be cleared here


@dataclass
class Life:
    """A session whose model searches once a turn."""

    settings: Settings
    capabilities: frozenset[str] = frozenset()
    now: float = 1_767_225_600.0
    events: list[Event] = field(default_factory=list[Event])
    turns: int = 0

    def open(self, folder: Path) -> Session:
        session = Session.open(
            "s",
            cwd=folder,
            storage=InMemoryStorage(),
            settings=self.settings,
            clock=lambda: self.now,
            capabilities=self.capabilities,
        )
        session.listen(self.events.append)
        return session

    async def turn(self, session: Session, lines: int = 12) -> None:
        """Ask, and give a result of so many lines that no other result has."""
        self.now += 10
        self.turns += 1
        output = "".join(f"file {self.turns}, line {line}: some text that matches\n" for line in range(lines))
        request = await session.prepare(model=MODEL, max_tokens=500, system="Be brief.", tools=TOOLS)
        tokens = len(str(request)) // 4
        use = {"type": "tool_use", "id": f"t{self.turns}", "name": "Grep", "input": {"pattern": f"{self.turns}"}}
        said = {"type": "text", "text": f"Searching for {self.turns}."}
        usage = {"input_tokens": tokens, "output_tokens": 30}
        reply = {"id": f"m{self.turns}", "role": "assistant", "model": MODEL, "content": [said, use]}
        await session.observe({**reply, "usage": usage, "stop_reason": "tool_use"})
        await session.result(f"t{self.turns}", output)

    def decided(self, name: str) -> bool:
        """Say whether a decision of this kind was made."""
        return any(event_body(e)["decision"]["decision"] == name for e in self.events if isinstance(e, DecisionMade))

    def trimmed(self, *triggers: str) -> bool:
        return any(isinstance(event, ResultsTrimmed) and event.trigger in triggers for event in self.events)


Act = Callable[[Life, Session], Awaitable[bool]]


async def offloads(life: Life, session: Session) -> bool:
    await life.turn(session, 1_000)
    return life.decided("result_offloaded")


async def trims_when_idle(life: Life, session: Session) -> bool:
    life.now += 7_200
    await life.turn(session)
    return life.trimmed("idle")


async def trims_to_its_budget(life: Life, session: Session) -> bool:
    await life.turn(session)
    return life.trimmed("budget")


async def trims_when_it_pays_or_must(life: Life, session: Session) -> bool:
    for _ in range(14):
        await life.turn(session, 60)
    return life.trimmed("priced", "window")


async def edits_the_cache(life: Life, session: Session) -> bool:
    await life.turn(session)
    await life.turn(session)
    return life.decided("cache_edits")


async def takes_notes(life: Life, session: Session) -> bool:
    for _ in range(3):
        await life.turn(session, 40)
        await session.parts.notes.wait(60)
    return any(isinstance(event, NotesWritten) for event in life.events)


async def compacts_by_itself(life: Life, session: Session) -> bool:
    for _ in range(14):
        await life.turn(session, 60)
    return any(isinstance(event, CompactionEnded) for event in life.events)


async def collapses(life: Life, session: Session) -> bool:
    for number in range(20):
        if number % 4 == 0:
            await session.say(f"Now part {number}.")
        await life.turn(session, 60)
    return life.decided("collapsed")


async def snips(life: Life, session: Session) -> bool:
    for _ in range(14):
        await life.turn(session, 60)
    return life.decided("snipped")


@dataclass
class Mechanism:
    """What must be set for a mechanism to act, how long before, and the act itself."""

    act: Act
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    others_off: tuple[str, ...] = ()
    turns: int = 1
    capabilities: frozenset[str] = frozenset()


ROOM = {"window_tokens": 12_000}
UNTRIMMED = ("idle_trim", "priced_trim")
MECHANISMS = {
    "offload": Mechanism(offloads),
    "idle_trim": Mechanism(trims_when_idle, turns=9),
    "budget_trim": Mechanism(trims_to_its_budget, {"trim": {"budget_tokens": 200}}, turns=9),
    "priced_trim": Mechanism(trims_when_it_pays_or_must, {**ROOM, "preset": "thrifty"}, ("compact",), turns=3),
    "cache_edit": Mechanism(edits_the_cache, {"trim": {"mode": "cache_edit"}}, turns=20, capabilities=ABLE),
    "notes": Mechanism(takes_notes, {"notes": {"start_tokens": 1_000, "step_tokens": 200}}, turns=1),
    "compact": Mechanism(compacts_by_itself, ROOM, UNTRIMMED, turns=3),
    "auto_compact": Mechanism(compacts_by_itself, ROOM, UNTRIMMED, turns=3),
    "compact_from_notes": Mechanism(compacts_by_itself, ROOM, UNTRIMMED, turns=3),
    "collapse": Mechanism(collapses, ROOM, UNTRIMMED, turns=3),
    "snip": Mechanism(snips, ROOM, UNTRIMMED, turns=3),
}
# Shown elsewhere: an agent's memory (tests/runtime/test_remembering.py), dreams (tests/cli/test_dream.py), the relay
# (tests/runtime/test_spawning.py).
ELSEWHERE = {"extraction", "recall", "dream", "relay", "memory"}

PROVIDER = """
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider.in_memory_provider import InMemoryProvider

OFF = set()


class Live(InMemoryProvider):
    def resolve_boolean_details(self, flag_key, default_value, evaluation_context=None):
        return FlagResolutionDetails(default_value and flag_key not in OFF)


def make():
    return Live({})
"""


def acts(folder: Path, settings: Settings, mechanism: Mechanism, before: Callable[[], object] = lambda: None) -> bool:
    """Say whether a mechanism acts in a session that has gone on for a while, ``before`` having happened then."""
    life = Life(settings, mechanism.capabilities)

    async def live() -> bool:
        with anyio.fail_after(60):
            async with life.open(folder) as session:
                await session.say("Look at every file.")
                for _ in range(mechanism.turns):
                    await life.turn(session)
                before()
                life.events.clear()
                try:
                    return await mechanism.act(life, session)
                except Exception as error:
                    if type(error).__name__ == "WindowFull":  # what follows where nothing makes room
                        return False
                    raise

    return anyio.run(live)


def chosen(switch: str, *, on: bool = True, **more: Any) -> Settings:
    mechanism = MECHANISMS[switch]
    table = {switch: on} if on else {}
    switches = {**dict.fromkeys(mechanism.others_off, False), **table}
    return load_settings(arguments={**mechanism.settings, "switches": switches, **more})


@pytest.mark.requirement("F1")
def test_everything_the_specification_names_has_a_switch_of_its_own() -> None:
    assert set(ASKED_FOR.values()) <= set(SWITCHES)
    assert len(set(ASKED_FOR.values())) == len(ASKED_FOR)
    assert set(SWITCHES) == MECHANISMS.keys() | ELSEWHERE, "a new switch needs a mechanism here that it turns off"


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", MECHANISMS)
def test_a_mechanism_acts_where_nobody_turned_it_off(tmp_path: Path, switch: str) -> None:
    assert acts(tmp_path, chosen(switch), MECHANISMS[switch])


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", MECHANISMS)
def test_settings_turn_a_mechanism_off(tmp_path: Path, home: Path, switch: str) -> None:
    (home / "config.toml").write_text(f"[switches]\n{switch} = false\n")
    assert not acts(tmp_path, chosen(switch, on=False), MECHANISMS[switch])


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", MECHANISMS)
def test_the_environment_turns_a_mechanism_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv(f"REVERIE_SWITCH_{switch.upper()}", "off")
    assert not acts(tmp_path, chosen(switch, on=False), MECHANISMS[switch])


@pytest.mark.requirement("F1")
@pytest.mark.parametrize("switch", MECHANISMS)
def test_a_flag_provider_turns_a_mechanism_off_while_the_session_runs(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    pytest.importorskip("openfeature")
    (home / "live_flags.py").write_text(PROVIDER)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.delitem(sys.modules, "live_flags", raising=False)
    settings = chosen(switch, flag_provider="live_flags:make")
    assert acts(tmp_path / "on", settings, MECHANISMS[switch])

    def turn_off() -> None:
        sys.modules["live_flags"].OFF.add(f"reverie.{switch}")

    assert not acts(tmp_path / "off", settings, MECHANISMS[switch], turn_off)


@pytest.mark.requirement("F1")
def test_the_limit_of_one_tool_is_set_in_settings_and_by_environment(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = MECHANISMS["offload"]
    assert acts(tmp_path, load_settings(arguments={"offload_limits": {"Bash": 1}}), mechanism)
    (home / "config.toml").write_text("[offload_limits]\nGrep = 1_000_000\n")
    assert not acts(tmp_path, load_settings(), Mechanism(offloads))
    (home / "config.toml").write_text("")
    monkeypatch.setenv("REVERIE_OFFLOAD_LIMITS", "Grep=1000000")
    assert not acts(tmp_path, load_settings(), Mechanism(offloads))
