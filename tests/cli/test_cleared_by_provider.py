"""Commands and the terminal tell which results the provider cleared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from log_script import Script, call
from reverie.cli.terminal.footer import footer_parts
from reverie.conversation.decisions import Cause, PrefixRendered
from reverie.layers.l2_trim import provider_clearing
from reverie.runtime.agent.status import Status
from reverie.runtime.library import Library
from reverie.runtime.places.projects import log_key, project_slug
from reverie.storage.files import FileStorage

from .conftest import Asked, Reverie

RULE = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 10_000}}
RULE["keep"] = {"type": "tool_uses", "value": 2}


@pytest.fixture
def cleared(home: Path, tmp_path: Path) -> str:
    """Put a session into the library whose last reply reports three cleared results, and return its name."""
    script = Script()
    options = {"max_tokens": 100, "context_management": {"edits": [RULE]}}
    script.decide(PrefixRendered(Cause("request", "first"), "claude-opus-5-5", None, [], options))
    script.user("Read all five.")
    for number in range(5):
        script.reply(call(f"toolu_{number}", "Read", file_path=f"/{number}.txt"), id=f"m{number}")
        script.result(f"toolu_{number}", f"content of {number} " * 500)
    edit = {"type": RULE["type"], "cleared_tool_uses": 3, "cleared_input_tokens": 5_000}
    reply: dict[str, Any] = {
        "usage": {"input_tokens": 6_000, "output_tokens": 9},
        "context_management": {"applied_edits": [edit]},
    }
    message = {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}
    script.add("assistant", {"message": message, "reply": {"id": "m9", "model": "claude-opus-5-5", **reply}})
    decision = provider_clearing(script.view, reply)
    assert decision is not None
    script.decide(decision)
    storage = FileStorage(home)
    Library(storage).store(log_key(project_slug(tmp_path), "five"), script.entries)
    storage.close()
    return "five"


@pytest.mark.requirement("V3", "L2.4")
def test_context_counts_the_bill_and_tells_the_cleared_results(reverie: Reverie, asked: Asked, cleared: str) -> None:
    report = asked("context", cleared)
    assert report["cleared_by_provider"] == {
        "tokens": 5_000,
        "results": 3,
        "handles": ["toolu_0", "toolu_1", "toolu_2"],
    }
    assert 6_000 < report["count"] < 6_200
    whole = asked("context", cleared, "--whole")
    assert whole["count"] - report["count"] == pytest.approx(5_000, abs=10)
    assert whole["cleared_by_provider"]["results"] == 0
    _, out, _ = reverie("context", cleared)
    assert "The provider cleared 3 results (5,000 tokens, not billed)." in out
    assert "HANDLE':\n  toolu_0\n  toolu_1\n  toolu_2\n" in out


@pytest.mark.requirement("V3")
def test_show_names_the_handles_and_its_view_hides_the_cleared_content(
    reverie: Reverie, asked: Asked, cleared: str
) -> None:
    _, out, _ = reverie("show", cleared)
    assert "· old results cleared by the provider: the provider left 3 results out of the request, 3 of them new" in out
    assert "; handles: toolu_0, toolu_1, toolu_2\n" in out
    _, out, _ = reverie("show", cleared, "--view")
    assert "[cleared by the provider] handle: toolu_1" in out
    assert "content of 1" not in out
    assert "content of 4" in out
    assert "The provider cleared 3 results: 5,000 tokens, not billed." in out
    report = asked("show", cleared, "--view")
    assert report["cleared_by_provider"] == {"tokens": 5_000, "handles": ["toolu_0", "toolu_1", "toolu_2"]}
    assert "content of 1" in str(report["request"])


@pytest.mark.requirement("V3", "L2.4")
def test_a_cleared_result_is_read_back_by_its_handle(reverie: Reverie, cleared: str) -> None:
    code, out, _ = reverie("read", cleared, "toolu_1")
    assert (code, out) == (0, "content of 1 " * 500)


@pytest.mark.requirement("V3")
@pytest.mark.parametrize("tokens", [0, 5_000])
def test_the_footer_tells_the_cleared_tokens(tokens: int) -> None:
    status = Status("m", "default", 0, 1, 0, 0, None, None, (), cleared=tokens)
    told = [text for _, text in footer_parts(status) if "cleared" in text]
    assert told == (["5k cleared by the provider"] if tokens else [])


@pytest.mark.requirement("V3", "L4.13")
def test_a_compaction_is_measured_by_the_size_before_the_provider_cleared(asked: Asked, cleared: str) -> None:
    asked("compact", cleared, "--yes")
    [[made]] = [one["compactions"] for one in asked("loss", cleared)]
    assert made["tokens_before"] > 11_000, "6,000 billed and 5,000 cleared"
