"""Prompts and requests of ours: every request comes from the one builder, and no prompt asks for a model's thinking."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "reverie"
# Providers refuse prompts that ask a model to write down its thinking.
ASKS_FOR_THINKING = re.compile(
    r"<analysis>|<thinking>|<reasoning>|think[^.\n]{0,20}step[- ]by[- ]step|chain of thought|scratchpad"
    r"|think(?:ing)? (?:aloud|out loud)"
    r"|(?:show|explain|write down|describe|spell out|share)\s+(?:all\s+)?your\s+(?:thinking|thoughts|reasoning|work\b)"
    r"|your\s+(?:reasoning|thoughts|thought process)\b",
    re.IGNORECASE,
)
# The draft is asked of models that do not think (L4.6); the parser of summaries knows its tag.
MAY_NAME_A_DRAFT = {"layers/l4_compact/prompts/draft.md", "layers/l4_compact/summary.py"}
# The modules that call a model, and where each of their requests is built.
BUILT_BY = {
    "runtime/session/notes/skill_writer.py": "side_request(",
    "memories/recall/selection.py": "side_request",
    "models/retries.py": "",  # models pass a request on
    "models/scripted_model.py": "",
    "models/wire.py": "",
    "runtime/agent/idle_cache.py": "session.warming_request",
    "runtime/agent/loop.py": "session.prepare",
    "runtime/agent/team/progress.py": "side_request",
    "runtime/dream/model_run.py": "build_request",
    "runtime/memory/queries.py": "",  # it sends the request that selection.py built
    "runtime/session/compact/provider.py": "self._thinking.side_request",
    "runtime/session/compact/summary.py": "plain_request",
    "runtime/session/forks.py": "forked.request",
}
# The packages whose own job is to write or read the format of a request.
WIRE = ("conversation/wire/", "models/", "testing/", "integrations/", "replay/", "importers/", "servers/")


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")


def prompts() -> Iterator[tuple[str, str]]:
    """Yield each prompt file, and each text of a module that a model may see: every string but docstrings."""
    for path in sorted(SOURCE.rglob("*.md")):
        if path.name != "README.md":
            yield path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")
    for name, text in modules():
        nodes = list(ast.walk(ast.parse(text)))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        notes = {ast.get_docstring(node, clean=False) for node in nodes if isinstance(node, documented)}
        strings = [node.value for node in nodes if isinstance(node, ast.Constant)]
        yield name, "\n".join(one for one in strings if isinstance(one, str) and one not in notes)


def asking_for_thinking(found: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{name}: {match.group()}" for name, text in found for match in ASKS_FOR_THINKING.finditer(text)]


@pytest.mark.requirement("L4.6")
def test_no_prompt_asks_a_model_to_write_its_thinking_down() -> None:
    assert [one for one in asking_for_thinking(prompts()) if one.split(":")[0] not in MAY_NAME_A_DRAFT] == []
    asked = "Think step by step.\nFirst <analysis>.\nExplain your reasoning."
    assert len(asking_for_thinking(iter([("bad.md", asked)]))) >= 3


@pytest.mark.requirement("V9")
def test_every_caller_of_a_model_names_the_builder_of_its_requests() -> None:
    calls = re.compile(
        r"\bmodel(?:_run)?\.(?:stream|complete)\(|\b_?(?:small|model)\.(?:stream|complete)\(|self\.stream\("
    )
    found = {name for name, text in modules() if calls.search(text)}
    assert found == set(BUILT_BY)
    for name, builder in BUILT_BY.items():
        assert builder in (SOURCE / name).read_text("utf-8")


@pytest.mark.requirement("V9")
def test_nobody_else_writes_a_request_by_hand() -> None:
    def by_hand(text: str) -> bool:
        if "max_tokens" not in text:
            return False
        displays = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict) and None not in node.keys)
        keys = ({key.value for key in one.keys if isinstance(key, ast.Constant)} for one in displays)
        return any({"messages", "max_tokens"} <= names for names in keys)

    assert [name for name, text in modules() if not name.startswith(WIRE) and by_hand(text)] == []
    assert by_hand('request = {"model": "m", "max_tokens": 9, "messages": []}')
