"""An agent of any type is told only of tools that it has: in its system prompt, its tools and its first message."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_stage import Stage, plays
from reverie.runtime.agent.agent import Agent
from reverie.settings import Switches
from reverie.tools import relay_tools, standard_tools
from reverie.tools.tool import Tool, declaration
from reverie.values import replace

ALONE = "AgentStop|Bash|BashOutput|Glob|Grep|KillShell|SendMessage|TodoWrite|ToolSearch|WebFetch"
"""Names that are no ordinary words."""
WORDS = "Agent|Edit|Memory|Plan|Read|Skill|Write"
TOLD = re.compile(
    rf"(?<![\w`.-])({ALONE})(?![\w-])|(?:\b[Uu]se|\b[Ww]ith|\bof|\band|\bthe|,) ({WORDS})(?![\w-])|\b({WORDS}) tool\b"
)
SKILLS = "Skills you can load"


def told_tools(text: str) -> set[str]:
    """Return the tools that a prompt tells of."""
    found = {name for groups in TOLD.findall(text) for name in groups if name}
    return found | ({"Skill"} if SKILLS in text else set())


def untold(request: dict[str, Any]) -> set[str]:
    """Return the tools that a request tells of and does not declare."""
    declared = {tool["name"] for tool in request["tools"]}
    said = [request["system"], request["tools"], request["messages"]]
    return told_tools("\n".join(json.dumps(one, ensure_ascii=False) for one in said)) - declared


def type_file(stage: Stage, name: str, **fields: str) -> str:
    """Write a type of agents and return its name."""
    folder = stage.home / "agent-types"
    folder.mkdir(parents=True, exist_ok=True)
    head = "\n".join(f"{key}: {value}" for key, value in {"description": "A type.", **fields}.items())
    (folder / f"{name}.md").write_text(f"---\n{head}\n---\nROLE {name} Do your work.\n")
    return name


TYPES: list[dict[str, str]] = [
    {"tools": "Read"},
    {"tools": "Read, Edit"},
    {"tools": "Bash"},
    {"tools": "Grep, Glob, Write"},
    {"tools": "Agent, SendMessage"},
    {"tools": "Skill, TodoWrite"},
    {"tools": "Read, Grep", "memory": "user"},
    {"tools": "Read, Memory", "memory": "user"},
    {"disallowedTools": "Agent, Memory", "memory": "user"},
]


@pytest.mark.requirement("L7.4")
def test_every_type_of_agents_is_told_only_of_its_own_tools(tmp_path: Path) -> None:
    roles = {f"t{number}": plays("Done.") for number in range(len(TYPES))}
    stage = Stage(tmp_path, {"main": plays("Done."), "general": plays("Done."), "explore": plays("Done."), **roles})
    skill = stage.home / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy.\n---\nPush.\n")
    kinds = [type_file(stage, f"t{number}", **fields) for number, fields in enumerate(TYPES)]

    async def steps(agent: Agent) -> None:
        for kind in ("general", "explore", *kinds):
            assert (await agent.spawn("Look.", kind=kind)).status == "completed"

    stage.run(steps, system=None)
    for role in ("general", "explore", *kinds):
        (request,) = stage.requests(role)
        assert untold(request) == set(), role
    told = {role: told_tools(json.dumps(stage.requests(role)[0])) for role in ("general", "explore", "t5", "t7")}
    assert {"Agent", "Skill", "BashOutput"} <= told["general"]  # the rule leaves out nothing that is there
    assert "BashOutput" in told["explore"]
    assert "Skill" in told["t5"]
    assert "Memory" in told["t7"]


@pytest.mark.requirement("W9")
def test_an_agent_that_only_reads_is_not_asked_for_a_plan(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"main": plays("Done."), "explore": plays("Found it.")})
    stage.run(lambda agent: agent.spawn("Find it.", kind="explore"))
    (request,) = stage.requests("explore")
    assert "Plan mode" not in str(request["messages"])
    assert "You may only read" in str(request["messages"])


@pytest.mark.parametrize(
    ("names", "switches"),
    [
        ([], Switches()),
        (["Read"], Switches()),
        (["Bash"], Switches()),
        (["Read", "Grep", "Glob", "Edit", "Write"], Switches()),
        (None, Switches(memory=False)),
        (None, Switches(relay=False)),
        (None, Switches()),
    ],
)
@pytest.mark.requirement("L7.4")
def test_a_main_agent_is_told_only_of_its_own_tools(
    tmp_path: Path, names: Sequence[str] | None, switches: Switches
) -> None:
    quiet = replace(switches, extraction=False, recall=False, dream=False)
    stage = Stage(tmp_path, {"general": plays("Done.")}, switches=quiet)
    tools = None if names is None else [tool for tool in all_tools(stage) if tool.name in names]
    stage.ask(system=None, tools=tools)
    assert untold({"tools": [], **stage.model.requests[0]}) == set()


@pytest.mark.parametrize("window", [4_096, 16_384])
def test_a_small_window_tells_only_of_its_few_tools(tmp_path: Path, window: int) -> None:
    stage = Stage(tmp_path, {"general": plays("Done.")})
    stage.settings = replace(stage.settings, window_tokens=window)
    stage.ask(system=None)
    request = stage.model.requests[0]
    assert "BashOutput" not in str(request["tools"])
    assert "run_in_background" not in str(request["tools"])
    assert untold(request) == set()


def all_tools(stage: Stage) -> list[Tool]:
    return [*standard_tools(stage.settings.agent), *relay_tools()]


def test_a_prompt_that_tells_of_a_missing_tool_is_found() -> None:
    bad = {
        "system": "Keep a list of steps with TodoWrite. Save it with the Memory tool. Make new files with Write.",
        "tools": [{"name": "Read", "description": "Read a file. To search many files use Grep."}],
        "messages": [{"role": "user", "content": "Types of agents you can start with the Agent tool:\n- explore"}],
    }
    assert untold(bad) == {"TodoWrite", "Memory", "Write", "Grep", "Agent"}


def test_a_sentence_about_another_tool_stands_only_beside_that_tool(tmp_path: Path) -> None:
    read = next(tool for tool in all_tools(Stage(tmp_path, {})) if tool.name == "Read")
    assert "use Grep" in declaration(read, ["Read", "Grep"])["description"]
    assert "use Glob" not in declaration(read, ["Read", "Grep"])["description"]
