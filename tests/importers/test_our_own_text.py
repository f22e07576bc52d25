"""Text that Reverie itself put into a session of another program is kept out of search, notes and extraction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from reverie.conversation.authorship import own_words, utterances
from reverie.conversation.entries import encode_entry, marked_imported
from reverie.importers import ImportedSession
from reverie.memories.recall.fence import fenced
from reverie.memories.rules.guidance import fenced_index
from reverie.memories.store.records import read_record
from reverie.runtime.search.log_text import messages_in

pytestmark = pytest.mark.requirement("A4")

INDEX = fenced_index("- zanzibar rule", path="m", tag="1a2b3c4d")
ESCAPED = INDEX.replace("<", "&lt;").replace(">", "&gt;")


def session(recordings: Any, tool: str) -> ImportedSession:
    said = "Error: the file src/zanzibar/quokka.py is missing"
    result = {"type": "tool_result", "tool_use_id": "t1", "content": said, "is_error": True}
    use = {"type": "tool_use", "id": "t1", "name": tool, "input": {"query": "where"}}
    rows = [
        recordings.line(0, "user", None, f"<hook_context>{ESCAPED}</hook_context>\n\nfix the tests"),
        recordings.line(1, "attachment", 0, attachment={"type": "hook_additional_context", "content": [INDEX]}),
        recordings.line(2, "assistant", 1, [use]),
        recordings.line(3, "user", 2, [result]),
        recordings.line(4, "assistant", 3, [recordings.text("done with the pelican")]),
    ]
    [found] = recordings.import_rows(rows)
    return found


def hits(found: ImportedSession, word: str) -> int:
    """Return in how many messages the search index holds a word."""
    data = b"".join(encode_entry(entry) + b"\n" for entry in marked_imported(found.entries, "s1"))
    return sum(word in message.text for message in messages_in(data, 0))


def said_in(found: ImportedSession) -> str:
    """Return all that notes and extraction read: the parts of every message by their speaker."""
    return "\n".join(one.text for entry in found.entries for one in utterances(entry))


@pytest.mark.parametrize("tool", ["mcp__reverie__search_sessions", "mcp_reverie_recall", "reverie_read_back"])
def test_our_index_and_our_results_are_no_content(tool: str, recordings: Any) -> None:
    found = session(recordings, tool)
    assert hits(found, "zanzibar") == 0
    assert hits(found, "pelican") == 1
    assert "zanzibar" not in said_in(found)
    assert own_words(found.entries[1]) == "fix the tests"
    assert found.title == "fix the tests"


def test_the_same_words_of_another_tool_are_found(recordings: Any) -> None:
    found = session(recordings, "mcp__files__search")
    assert hits(found, "zanzibar") == 1
    assert "zanzibar" in said_in(found)


def test_a_recalled_memory_and_a_slash_command_are_not_the_person_s_words(recordings: Any) -> None:
    memory = read_record("m.md", b"---\nname: m\n---\nzanzibar is closed\n")
    shown = fenced(memory, tag="0123456789abcdef", now=datetime(2026, 11, 17, tzinfo=UTC))
    command = "<command-name>/compact</command-name>\n<command-message>compact</command-message>"
    rows = [recordings.line(0, "user", None, f"{shown}\nwhere to?"), recordings.line(1, "user", 0, command)]
    [found] = recordings.import_rows(rows)
    assert [own_words(entry) for entry in found.entries[1:]] == ["where to?", "/compact"]
