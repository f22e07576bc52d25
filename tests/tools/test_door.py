"""The standard tools: the same ones in the same order, each with a valid schema, cheap to import."""

from __future__ import annotations

import subprocess
import sys
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from reverie.conversation.wire.schemas import input_problem
from reverie.settings import AgentPolicy
from reverie.tools import ToolContext, standard_tools

NAMES = ["Read", "Write", "Edit", "Glob", "Grep", "Bash", "BashOutput", "KillShell", "TodoWrite", "Skill", "Plan"]


def declared() -> list[dict[str, Any]]:
    tools = standard_tools(AgentPolicy())
    return [{"name": each.name, "description": each.description, "input_schema": each.input_schema} for each in tools]


def test_the_order_is_stable_and_so_is_every_byte_that_a_cache_would_see() -> None:
    assert [each["name"] for each in declared()] == NAMES
    assert dumps(declared()) == dumps(declared())
    policy = AgentPolicy(web_fetch=True)
    assert [tool.name for tool in standard_tools(policy)] == [*NAMES, "WebFetch"]


@pytest.mark.parametrize("name", NAMES)
def test_descriptions_are_short_and_say_when_to_use_what(name: str) -> None:
    tool = next(each for each in standard_tools(AgentPolicy()) if each.name == name)
    assert 40 < len(tool.description) < 900
    assert tool.input_schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "input", "fits"),
    [
        ("Read", {"file_path": "a"}, True),
        ("Read", {"file_path": "a", "offset": 0, "limit": 3}, True),
        ("Read", {"path": "a"}, False),
        ("Read", {"file_path": "a", "limit": 0}, False),
        ("Edit", {"file_path": "a", "old_string": "", "new_string": "b"}, False),
        ("Grep", {"pattern": "x", "-i": True, "output_mode": "content", "-C": 2}, True),
        ("Grep", {"pattern": "x", "type": "cobol"}, False),
        ("Bash", {"command": "ls", "timeout_seconds": 0}, False),
        ("TodoWrite", {"todos": [{"content": "x", "status": "done"}]}, False),
        ("TodoWrite", {"todos": []}, True),
        ("Plan", {"action": "approve"}, False),
        ("Plan", {"action": "done"}, True),
    ],
)
def test_schemas_take_what_fits_and_refuse_what_does_not(name: str, input: dict[str, Any], fits: bool) -> None:
    assert (input_problem(declared(), name, input) is None) == fits


@pytest.mark.parametrize("value", ["", "\0", "\ud800", "x" * 100_000, "/", "~", "a\nb", "../.."])
def test_saying_what_a_call_would_touch_never_fails(tmp_path: Path, value: str) -> None:
    context = ToolContext(cwd=tmp_path)
    for tool in standard_tools(AgentPolicy(web_fetch=True)):
        text_fields = [key for key, field in tool.input_schema["properties"].items() if field.get("type") == "string"]
        assert tool.access(dict.fromkeys(text_fields, value), context).kind
        assert tool.access({}, context).kind


def test_naming_the_tools_loads_none_of_them() -> None:
    program = (
        "import sys, reverie.tools\n"
        "heavy = {'anyio', 'httpx2', 'mcp', 'tree_sitter', 'reverie.tools.bash', 'reverie.tools.read'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
