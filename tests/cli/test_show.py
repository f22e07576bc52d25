"""A session is shown as a person reads it, as the model sees it, and whole."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script
from reverie.cli.sessions.transcript import of_entries, of_messages
from reverie.conversation.decisions import CallRecorded, Cause, ContextSaid, CursorMoved, ResultsKept
from reverie.conversation.entries import Entry
from reverie.conversation.wire.request import build_request

from .conftest import Asked, Reverie


def test_people_see_roles_calls_results_and_decisions(reverie: Reverie, stocked: str) -> None:
    code, out, err = reverie("show", stocked)
    assert (code, err) == (0, "")
    assert "\nuser  2026-01-01 00:00:02\nPlease mend the fence" in out
    assert "\n-> Read file_path=/repo/fence.py note=xxxx" in out
    assert "x" * 100 not in out
    assert "\n<- Read\n   line 0\n" in out
    assert "   ... 34 more lines\n" in out
    assert (
        "· old messages replaced with a summary: window is full (frees 4,321 tokens, the cache is written anew)\n"
        in out
    )
    assert out.index("The fence stands.") < out.index("· old messages") < out.index("And the gate?")


def test_lines_that_every_turn_has_are_left_out_and_thinking_without_text_is_named() -> None:
    script = Script()
    script.user("Go on.")
    script.decide(ResultsKept(Cause("offload", "seen and left whole"), ["t1"]))
    script.decide(CallRecorded(Cause("model", "reply"), "m", {}))
    script.decide(CallRecorded(Cause("extract", "extract"), "m", {}))
    script.decide(CursorMoved(Cause("extract", "looked through"), "extract", ""))
    script.decide(ContextSaid(Cause("context", "the session opens"), []))
    script.decide(CallRecorded(Cause("model", "tools[1] added"), "m", {}))
    script.reply({"type": "thinking", "thinking": "", "signature": "s"}, id="m1")
    shown = "".join(text for text, _ in of_entries(script.entries))
    assert "results kept" not in shown
    assert "reply" not in shown
    assert "· a request to the model: tools[1] added" in shown
    assert "cursor" not in shown
    assert "the session opens" not in shown
    assert "(thinking, returned without its text)" in shown


SAMPLE = Path(__file__).parents[2] / "examples" / "sessions" / "sample.jsonl"


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("how", [[], ["--view"], ["--raw"], ["--raw", "--view"], ["--json"]], ids=" ".join)
def test_nothing_shown_can_drive_a_terminal(reverie: Reverie, stocked: str, how: list[str]) -> None:
    code, out, _ = reverie("show", stocked, *how)
    assert code == 0
    assert [letter for letter in out if unicodedata.category(letter) == "Cc" and letter not in "\n\t"] == []
    assert "\u202e" not in out


def test_the_view_is_what_the_model_is_shown_now(reverie: Reverie, asked: Asked, stocked: str, script: Script) -> None:
    _, out, _ = reverie("show", stocked, "--view")
    assert "They mended a fence." in out
    assert "The fence stands." not in out
    report = asked("show", stocked, "--view")
    assert report["request"] == json.loads(json.dumps(build_request(script.view)))
    assert report["count"] == script.view.token_count.tokens
    assert "Reverie adds the last message, 'Continue.'" in reverie("show", SAMPLE, "--view")[1]


def test_json_has_every_entry_whole(asked: Asked, stocked: str, script: Script) -> None:
    report = asked("show", stocked)
    assert [entry["uuid"] for entry in report["entries"]] == [entry.uuid for entry in script.entries]
    assert [entry["body"] for entry in report["entries"]] == [entry.body for entry in script.entries]
    assert report["session"] == stocked


def test_raw_is_a_line_an_entry(reverie: Reverie, stocked: str, script: Script) -> None:
    _, out, _ = reverie("show", stocked, "--raw")
    assert [json.loads(line)["uuid"] for line in out.splitlines()] == [entry.uuid for entry in script.entries]


def test_a_file_of_another_agent_is_shown_without_importing_it(reverie: Reverie, sample: Path, home: Path) -> None:
    code, out, _ = reverie("show", sample)
    assert code == 0
    assert "All 9 tests pass" in out
    assert list(home.iterdir()) == []


def test_damage_is_named_on_stderr(reverie: Reverie, stocked: str, home: Path) -> None:
    (log,) = home.rglob("fence-1.jsonl")
    log.write_bytes(b"{ damaged\n" + log.read_bytes() + b'{"torn')
    code, out, err = reverie("show", stocked)
    assert code == 0
    assert "The fence stands." in out
    assert "skipped line 1" in err
    assert "skipped line 9: an incomplete last line" in err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "input", "name", "id", "tool_use_id"]), inner)
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(["user", "assistant", "attachment", "system", "decision", "meta", "odd"])


@given(
    st.lists(
        st.tuples(
            KINDS, st.dictionaries(st.sampled_from(["message", "type", "decision", "layer", "reason", "frees"]), JSON)
        )
    )
)
@pytest.mark.slow
def test_any_entries_at_all_can_be_shown(drawn: list[tuple[str, dict[str, object]]]) -> None:
    entries = [Entry(str(at), None, "", "s", kind, body) for at, (kind, body) in enumerate(drawn)]
    assert all(isinstance(text, str) for text, _ in of_entries(entries))
    messages = [body["message"] for _, body in drawn if isinstance(body.get("message"), dict)]
    assert all(isinstance(text, str) for text, _ in of_messages(messages))  # type: ignore[arg-type]


@pytest.mark.requirement("U4")
@pytest.mark.parametrize("command", ["show", "context", "export", "notes", "loss", "rules"])
def test_without_a_session_the_newest_of_the_project_is_taken(
    reverie: Reverie, stocked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = reverie(command)
    named = reverie(command, stocked)
    assert (code, out) == named[:2]
    assert f"the session that was written last in this project is {stocked}" in err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, out, err = reverie(command)
    assert (code, out) == (2, "")
    assert "this project has no session" in err
