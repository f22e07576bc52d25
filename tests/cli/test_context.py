"""``reverie context`` shows the context usage of any session, and the figures add up."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from log_script import Script, call, text
from reverie.cli.costs.context import window_bar
from reverie.conversation.decisions import Cause, ContextSaid, SaidItem, ToolsDeferred, ToolsFound
from reverie.conversation.entries import encode_entry

from .conftest import Asked, Reverie, on_a_screen

CATEGORIES = {"human", "context", "assistant", "local_command", "tool_requests", "tool_results", "other"}


@pytest.mark.requirement("T3")
def test_the_sample_is_accounted_for(asked: Asked, sample: Path) -> None:
    report = asked("context", sample)
    assert set(report["by_category"]) == CATEGORIES
    assert sum(report["by_category"].values()) == report["total_tokens"] > 0
    assert report["by_category"]["tool_results"] > report["total_tokens"] / 2
    assert report["by_category"]["local_command"] > 0
    (read,) = report["duplicate_reads"]
    assert (read["reads"], read["wasted_tokens"]) == (2, read["tokens"] // 2)
    assert read["path"].endswith("tables.py")
    assert {row["tool"] for row in report["tools"]} == {"Bash", "Edit", "Grep", "Read"}
    assert report["format"] == "claude-code"
    assert report["skipped"] == {"bookkeeping: file-history-snapshot": 1}


@pytest.mark.requirement("T1", "T6")
def test_the_window_has_its_thresholds_and_the_way_to_each(asked: Asked, sample: Path) -> None:
    report = asked("context", sample)
    window = report["window"]
    assert [window[name] for name in ("window_tokens", "effective", "auto_compact", "blocking", "warning")] == [
        200_000,
        180_000,
        167_000,
        177_000,
        147_000,
    ]
    assert window["used"] == report["count"] > report["total_tokens"]
    assert window["percent_left"] == round((167_000 - window["used"]) / 167_000 * 100)
    assert window["distance"] == {name: window[name] - window["used"] for name in window["distance"]}
    assert window["level"] == "fine"


@pytest.mark.requirement("T5", "T7")
@pytest.mark.parametrize(
    ("options", "tokens", "source"),
    [
        ([], 200_000, "facts"),
        (["--model", "claude-sonnet-4-5[1m]"], 1_000_000, "suffix"),
        (["--model", "gpt-4o"], 128_000, "prices"),
        (["--model", "openai/gpt-4o"], 128_000, "prices"),
        (["--model", "nobody-knows-it"], 200_000, "strict"),
        (["--window", "50000"], 50_000, "facts"),
        (["--window", "900000"], 200_000, "facts"),
    ],
)
def test_the_window_is_the_models_and_can_only_be_made_smaller(
    asked: Asked, sample: Path, options: list[str], tokens: int, source: str
) -> None:
    window = asked("context", sample, *options)["window"]
    assert (window["window_tokens"], window["source"]) == (tokens, source)


def test_settings_lower_the_window_and_turn_compaction_off(
    reverie: Reverie, asked: Asked, sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_WINDOW_TOKENS", "100000")
    monkeypatch.setenv("DISABLE_AUTO_COMPACT", "1")
    window = asked("context", sample)["window"]
    assert (window["window_tokens"], window["auto_compact_on"]) == (100_000, False)
    assert window["percent_left"] == round((window["effective"] - window["used"]) / window["effective"] * 100)
    assert "auto-compact (off)" in reverie("context", sample)[1]


def test_after_a_compaction_only_what_is_in_view_counts_unless_the_whole_is_asked_for(
    asked: Asked, stocked: str
) -> None:
    now, whole = asked("context", stocked), asked("context", stocked, "--whole")
    assert (now["compactions"], now["whole"], whole["whole"]) == (1, False, True)
    assert now["by_category"]["tool_results"] == 0
    assert whole["by_category"]["tool_results"] > 100
    assert whole["window"]["used"] > now["window"]["used"]
    assert sum(whole["by_category"].values()) == whole["total_tokens"]


@pytest.mark.requirement("T3")
@pytest.mark.slow
def test_every_file_of_the_corpus_has_totals_by_category(asked: Asked, corpus: Path) -> None:
    files = [path for path in sorted(corpus.rglob("*")) if path.is_file() and path.name != "README.md"]
    assert files
    for path in files:
        report = asked("context", path)
        assert set(report["by_category"]) == CATEGORIES
        assert sum(report["by_category"].values()) == report["total_tokens"] > 0
        assert {"duplicate_reads", "window", "count", "messages", "skipped", "session", "format"} <= set(report)
        assert report["total_tokens"] == sum(one["total_tokens"] for one in report["sessions"])


def test_a_file_with_several_sessions_is_summed_and_each_is_listed(
    asked: Asked, reverie: Reverie, tmp_path: Path
) -> None:
    import json

    def row(name: str) -> str:
        history = [
            {"source": "user", "action": "message", "args": {"content": f"Fix {name}"}, "message": "x"},
            {"source": "agent", "action": "message", "args": {"content": "Done. " * 20}, "message": "x"},
        ]
        return json.dumps(
            {"instance_id": name, "history": history, "instruction": "Fix", "metadata": {}, "test_result": {}}
        )

    path = tmp_path / "output.jsonl"
    path.write_text(row("one") + "\n" + row("two") + "\n")
    report = asked("context", path)
    assert [one["session"] for one in report["sessions"]] == ["one", "two"]
    assert report["total_tokens"] == sum(one["total_tokens"] for one in report["sessions"]) > 0
    assert report["messages"] == sum(one["messages"] for one in report["sessions"])
    assert report["window"]["used"] == max(one["window"]["used"] for one in report["sessions"])
    assert sum(report["by_category"].values()) == report["total_tokens"]
    assert reverie("context", path)[1].count("auto-compact") >= 4


def test_people_see_a_bar_a_table_and_thresholds(reverie: Reverie, sample: Path) -> None:
    code, out, err = reverie("context", sample)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert set(lines[3]) <= set("HALqROS.")
    assert lines[4].startswith("21,870 of 200,000 tokens; 87% left before auto-compact")
    for word in ("R tool results", "all messages", "read more than once", "blocking", "tokens left", "Skipped: 1 x"):
        assert word in out
    assert "\x1b" not in out


@pytest.mark.parametrize("tokens", [0, 1, 99_999, 200_000, 5_000_000])
def test_the_bar_is_as_long_as_the_screen_whatever_fills_it(tokens: int) -> None:
    pieces = window_bar({"human": tokens, "assistant": 1, "beside": 0}, 200_000)
    assert len("".join(text for text, _ in pieces)) == 100 + 1


@pytest.mark.requirement("S7")
def test_paths_and_titles_that_would_drive_a_terminal_do_not(reverie: Reverie, tmp_path: Path) -> None:

    script = Script()
    script.add("meta", {"schema": 1, "title": "t\x1b[31m"})
    script.user("x")
    for number in range(2):
        script.reply(text("y"), call(f"t{number}", "Read", file_path="/a\x1b]0;b\x07\u202e.py"))
        script.result(f"t{number}", "z" * 100)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(encode_entry(entry) + b"\n" for entry in script.entries))
    _, out, _ = reverie("context", path)
    assert "/a" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


@pytest.mark.parametrize("columns", [60, 120])
def test_on_a_terminal_there_are_colours_and_no_line_is_wider_than_the_screen(sample: Path, columns: int) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    shown = on_a_screen("context", str(sample), columns=columns)
    assert "\x1b[3" in shown
    assert "█" in shown
    assert max(cell_len(Text.from_ansi(line).plain) for line in shown.split("\r\n")) <= columns


def test_no_color_is_respected_and_the_bar_can_still_be_read(sample: Path) -> None:
    shown = on_a_screen("context", str(sample), columns=80, NO_COLOR="1")
    assert "\x1b[3" not in shown
    assert "R tool results" in shown
    assert "qRSS" in shown


def test_any_damage_to_a_recording_gives_figures_or_one_line(
    reverie: Reverie, sample: Path, tmp_path: Path, seed: int
) -> None:
    drawn, whole = random.Random(seed), sample.read_bytes()
    path = tmp_path / "damaged.jsonl"
    codes: list[int] = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(drawn.randrange(1, 30)):
            at = drawn.randrange(len(data))
            match drawn.randrange(3):
                case 0:
                    data[at] = drawn.randrange(256)
                case 1:
                    del data[at : at + drawn.randrange(2_000)]
                case _:
                    data[at:at] = drawn.choice([b"null", b"[", b'"', b"\0", b"{}", b"\n", b"\xff", b"1e999"])
        path.write_bytes(data)
        code, out, err = reverie("context", path, "--json")
        codes.append(code)
        assert (code, err) == (0, "") or (code == 2 and out == "" and err.count("\n") == 1)
        assert reverie("show", path)[0] == code
    assert codes.count(0) > 50


@pytest.mark.parametrize("found", [[], ["mcp__mail__send"]])
def test_the_tokens_that_deferred_tools_save_are_shown(
    asked: Asked, reverie: Reverie, tmp_path: Path, found: list[str]
) -> None:
    script = Script()
    script.user("x")
    script.decide(ToolsDeferred(Cause("tools", "changed"), {"mcp__mail__send": 300, "mcp__mail__list": 1_200}))
    script.decide(ToolsFound(Cause("tools", "found"), [*found, "of an earlier server"]))
    path = _written(script, tmp_path)
    saved = 1_200 if found else 1_500
    assert asked("context", path)["deferred_tools"] == {"tools": 2, "found": len(found), "saved_tokens": saved}
    _, out, _ = reverie("context", path)
    assert f"2 deferred tools, {len(found)} found: about {saved:,} tokens of definitions are not sent." in out


@pytest.mark.requirement("T3", "W1")
def test_standing_context_is_not_counted_as_words_of_the_user(asked: Asked, tmp_path: Path) -> None:
    script = Script()
    script.user("x")
    before = asked("context", _written(script, tmp_path))["by_category"]
    item = SaidItem("date", "date", "the date", "Today is Tuesday, 2026-11-17. " * 20)
    script.decide(ContextSaid(Cause("context", "new"), [item]))
    after = asked("context", _written(script, tmp_path))["by_category"]
    assert (before["context"], after["human"]) == (0, before["human"])
    assert after["context"] > 100


def _written(script: Script, tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(encode_entry(entry) + b"\n" for entry in script.entries))
    return path
