"""The suite with real programs itself: its namespace, its scripted model and its table."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import host_table
from host_table import table
from loopback_namespace import LoopbackNamespace
from scripted_model import chat_items, gemini_items, messages_items, next_call, responses_items

CALL = 'List them.\n@@ Bash {"command": "ls"}'
REACH = "import socket; socket.create_connection(({host!r}, {port}), 5)"


@pytest.mark.slow
@pytest.mark.requirement("H6")
def test_a_program_in_the_namespace_reaches_the_scripted_model_and_nothing_else(tmp_path: Path) -> None:
    if missing := LoopbackNamespace.missing():
        pytest.skip(missing)
    env = {"PATH": os.environ["PATH"]}
    with LoopbackNamespace() as namespace:
        port = int(namespace.url.rpartition(":")[2])
        words = [sys.executable, "-c"]
        near = namespace.run([*words, REACH.format(host="127.0.0.1", port=port)], cwd=tmp_path, env=env)
        far = namespace.run([*words, REACH.format(host="192.0.2.1", port=80)], cwd=tmp_path, env=env)
        shown = namespace.talk(
            ["sh", "-c", "echo ready; read a; echo got $a"], [("ready", "it\r"), ("got it", "")], cwd=tmp_path, env=env
        )
        asked = f"import urllib.request as u; u.urlopen(u.Request('{namespace.url}/v1/messages', b'{{}}'))"
        sent = namespace.run([*words, asked], cwd=tmp_path, env=env)
        assert [path for path, _ in namespace.requests()] == ["/v1/messages"]
    assert (near.code, sent.code, shown.code) == (0, 0, 0)
    assert "unreachable" in far.err


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (messages_items, {"messages": [{"role": "user", "content": CALL}], "tools": [{"name": "Bash"}]}),
        (responses_items, {"input": [{"role": "user", "content": [{"text": CALL}]}], "tools": [{"name": "Bash"}]}),
        (chat_items, {"messages": [{"role": "user", "content": CALL}], "tools": [{"function": {"name": "Bash"}}]}),
        (
            gemini_items,
            {
                "contents": [{"role": "user", "parts": [{"text": CALL}]}],
                "tools": [{"functionDeclarations": [{"name": "Bash"}]}],
            },
        ),
    ],
)
def test_the_model_makes_each_call_of_a_prompt_once_and_only_with_its_tool(
    read: object, body: dict[str, object]
) -> None:
    items, tools = read(body)  # type: ignore[operator]
    made: set[str] = set()
    assert next_call(items, set(), made) is None
    assert next_call(items, tools, made) == ("Bash", {"command": "ls"})
    assert next_call(items, tools, made) is None


def test_the_table_says_which_cells_fail_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [
        ("Claude Code", "2.1 (Claude Code)", "index at start", "yes"),
        ("Claude Code", "2.1 (Claude Code)", "status line", "no: the line does not appear"),
        ("Codex", "codex-cli 0.1", "index at start", "yes"),
        ("Codex", "codex-cli 0.1", "status line", "the host shows only its own items"),
    ]
    written = table(cells)
    assert "| | Claude Code 2.1 | Codex 0.1 |" in written
    assert "| index at start | yes | yes |" in written
    assert "| status line | no [1] | - [2] |" in written
    assert "1. the line does not appear." in written
    guide = tmp_path / "guide.md"
    guide.write_text(f"before\n{host_table.BEGIN}\nold\n{host_table.END}\nafter\n")
    monkeypatch.setattr(host_table, "GUIDE", guide)
    host_table.write(cells)
    assert guide.read_text() == f"before\n{host_table.BEGIN}\n\n{written}\n\n{host_table.END}\nafter\n"


def test_the_guide_has_a_place_for_the_table() -> None:
    text = host_table.GUIDE.read_text()
    assert text.count(host_table.BEGIN) == text.count(host_table.END) == 1
