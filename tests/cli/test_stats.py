"""``reverie stats``: cost and quality of the last days, from ledger, logs and memories."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from log_script import Script, call, text
from reverie.cache.ledger import LedgerCall, layer_of
from reverie.cache.usage import Usage
from reverie.cli.costs.stats import command
from reverie.conversation.entries import encode_entry
from reverie.runtime.dream.dreams import Dreams
from reverie.runtime.memory.memory import Memory
from reverie.runtime.session.ledger import LedgerStore
from reverie.settings import load_settings

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions" / "sample.jsonl"


def enter(home: Path, days_ago: int, source: str, usd: float, **usage: int) -> None:
    """Enter a call of some days ago."""
    at = (datetime.now(UTC) - timedelta(days=days_ago)).timestamp()
    used = Usage(**usage)
    name = f"{source}-{days_ago}-{usd}"
    call = LedgerCall(f"s{days_ago}", "p-1", at, "m", source, layer_of(source), source, used, used, usd, usd, "", name)
    with LedgerStore(home) as store:
        assert store.enter(call)


@pytest.mark.requirement("B7", "L5.0")
def test_money_and_tokens_are_summed_by_layer_day_project_and_session() -> None:
    home = Path(os.environ["REVERIE_HOME"])
    enter(home, 0, "main", 0.50, read=9_000, uncached=1_000, output=500)
    enter(home, 1, "main", 0.25, read=500, uncached=500, output=100)
    enter(home, 0, "extract", 0.10, read=1_000, uncached=100, output=50)
    enter(home, 40, "main", 9.0, uncached=10)
    found = json.loads(CliRunner().invoke(command, ["--days", "7", "--json"], catch_exceptions=False).output)
    assert found["total"]["usd"] == pytest.approx(0.85)
    assert found["total"]["calls"] == 3
    assert found["total"]["hit_rate"] == pytest.approx(10_500 / 12_100)
    assert found["background_usd"] == pytest.approx(0.10)
    assert {name: row["calls"] for name, row in found["by_layer"].items()} == {"model": 2, "extract": 1}
    assert len(found["by_day"]) == 2
    assert {name: row["calls"] for name, row in found["by_session"].items()} == {"s0": 2, "s1": 1}
    budgets = {one["what"]: one for one in found["budgets"]}
    assert budgets["extraction"]["usd"] == pytest.approx(0.10)
    assert budgets["extraction"]["of_usd"] == load_settings().extract.daily_usd
    drawn = CliRunner().invoke(command, ["--days", "7"], catch_exceptions=False).output
    assert drawn.startswith("In the last 7 days you paid $0.8500 for 3 calls of 2 sessions, at list prices.")
    assert (found["conversation_usd"], found["extraction_usd"]) == (pytest.approx(0.75), pytest.approx(0.10))
    assert re.search(r"extraction of memories +\$0\.1000 +13\.3% of the \$0\.7500 of the conversations", drawn)
    for word in (
        "cache hits",
        "cost a day  ▄█  ",
        "by layer",
        "by session, agent and dream",
        "compactions per session",
        "█",
    ):
        assert word in drawn
    assert "$0.1000 of $2.00" in drawn


@pytest.mark.requirement("U5")
def test_an_imported_session_counts_by_its_own_days_and_costs_what_replay_says(
    reverie: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    old = tmp_path / "old.jsonl"
    old.write_text(SAMPLE.read_text().replace('"timestamp":"2026-', '"timestamp":"2025-'))
    assert reverie("import", old)[0] == 0
    assert json.loads(reverie("stats", "--days", 7, "--json")[1])["total"]["calls"] == 0
    assert "The newest session ended on 2025-11-12: try --days " in reverie("stats", "--days", 7)[1]
    found = json.loads(reverie("stats", "--days", 36500, "--json")[1])
    billed = json.loads(reverie("replay", old, "--policy", "recorded", "--json")[1])["policies"]["recorded"]
    usd = pytest.approx(billed["input_usd"] + billed["output_usd"])
    assert found["total"]["calls"] == billed["requests"]
    assert found["total"]["usd"] == usd
    for axis in ("day", "session", "project", "layer"):
        assert sum(one["usd"] for one in found[f"by_{axis}"].values()) == usd
    assert list(found["by_day"]) == ["2025-11-12"]


def restarted_session(folder: Path) -> Path:
    """Write a recording whose whole prefix is lost at prompts, as by restarts, and once by a new level of thinking."""
    script = Script()
    script.add("meta", {"schema": 1})
    for number in range(40):
        if number % 8 == 0:
            script.user("Go on.")
        else:
            script.result(f"t{number - 1}")
        used = {"cache_read_input_tokens": 99_000, "cache_creation_input_tokens": 1_000, "input_tokens": 0}
        if number in (8, 24, 27):
            used = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 100_000, "input_tokens": 0}
        reply = {"id": f"m{number}", "model": "claude-sonnet-4-5", "usage": {**used, "output_tokens": 9}}
        level = {"thinking_level": "high"} if number >= 27 else {}
        content = [call(f"t{number}") if number % 8 < 7 else text("Done.")]
        script.add("assistant", {"message": {"role": "assistant", "content": content}, "reply": {**reply, **level}})
    path = folder / "restarted.jsonl"
    path.write_bytes(b"".join(encode_entry(entry) + b"\n" for entry in script.entries))
    return path


@pytest.mark.requirement("U5")
@pytest.mark.parametrize("name", ["claude-code/04_44df7d08.jsonl", "pi/before-compaction.jsonl"])
def test_stats_and_replay_name_the_same_losses(
    reverie: Callable[..., tuple[int, str, str]], corpus: Path, name: str
) -> None:
    recorded = corpus / name
    if not recorded.exists():
        pytest.skip("this session is not in the corpus")
    assert reverie("import", recorded)[0] == 0
    lost = json.loads(reverie("stats", "--days", 36500, "--json")[1])["total"]["lost_by_reason"]
    found = json.loads(reverie("replay", recorded, "--policy", "recorded", "--json")[1])["policies"]["recorded"]
    causes = {reason: one["usd"] for reason, one in found["breaks_by_reason"].items() if one["usd"]}
    assert len(lost) > 1
    assert lost == pytest.approx(causes)


def test_stats_and_replay_word_the_causes_of_losses_alike(
    reverie: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    recorded = restarted_session(tmp_path)
    assert reverie("import", recorded)[0] == 0
    by_stats = reverie("stats", "--days", 36500)[1]
    table = reverie("replay", recorded, "--policy", "recorded")[1].split("Cache breaks")[1]
    for cause in ("the system prompt or tools changed between two prompts", "an option of the request changed"):
        assert cause in by_stats
        assert cause in table


def test_the_past_of_a_forked_session_counts_once_and_a_bad_time_is_no_error(
    reverie: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    name = "5a3d7f0e"
    text = SAMPLE.read_text()
    ids = set(re.findall(r'"sessionId":"([^"]*)"', text))
    for number, body in enumerate((text, text.replace(next(iter(ids)), name))):
        (tmp_path / f"{number}.jsonl").write_text(body)
        assert reverie("import", tmp_path / f"{number}.jsonl")[0] == 0
    found = json.loads(reverie("stats", "--days", 36500, "--json")[1])
    assert (found["total"]["calls"], found["measures"]["sessions"]) == (12, 2)
    (tmp_path / "bad.jsonl").write_text(text.replace(next(iter(ids)), "bad-time").replace('"2026-11-', '"2026-00-'))
    assert reverie("import", tmp_path / "bad.jsonl")[0] == 0
    assert reverie("stats", "--days", 1)[0] == 0


@pytest.mark.requirement("B7")
def test_named_recordings_are_measured(reverie: Callable[..., tuple[int, str, str]]) -> None:
    found = json.loads(reverie("stats", SAMPLE, "--json")[1])
    assert 0 < found["total"]["cache_hit_rate"] <= 1
    assert found["total"]["sessions"] == len(found["sessions"]) >= 1
    drawn = reverie("stats", SAMPLE)[1]
    for name in (
        "cost",
        "cache hits",
        "compactions per session",
        "names kept by summaries",
        "background work",
        "unused memories",
    ):
        assert name in drawn


@pytest.mark.requirement("B7", "B3")
def test_the_pollution_of_memories_is_told_before_and_after_a_dream(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    memory = Memory.open(project)
    why = "support was overrun once"
    rule = "Deploy the billing service only after two approvals from payments"
    memory.save(rule, type="feedback", why=why)
    memory.save(f"{rule}.", type="feedback", name="two approvals from payments", why=f"{why}.")
    memory.save("The staging database is reset every night at two", type="reference")
    settings = load_settings()
    first = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).output)["memories"]
    assert (first["memories"], first["before"], first["after"]) == (3, None, None)
    assert first["reasons"].get("duplicate") == 1
    report = anyio.run(lambda: Dreams(memory, settings, project=project).run())
    assert report.state == "completed"
    later = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).output)["memories"]
    assert later["memories"] == 2
    assert later["before"] > later["after"] == 0.0
    assert "before" in CliRunner().invoke(command, [], catch_exceptions=False).output


@pytest.mark.requirement("B7")
def test_the_compactions_in_a_file_of_another_program_are_said_to_be_its_own(
    reverie: Callable[..., tuple[int, str, str]],
) -> None:
    sample = Path(__file__).resolve().parents[1] / "importers" / "samples" / "claude-code-compacted.jsonl"
    total = json.loads(reverie("stats", sample, "--json")[1])["total"]
    assert total["compactions_imported"] == total["compactions"] > 0
    assert f"{total['compactions']} of {total['compactions']} compaction" in reverie("stats", sample)[1]


@pytest.mark.requirement("B7")
def test_a_good_memory_is_not_useless_for_its_weekday_or_a_missing_reason(tmp_path: Path) -> None:
    memory = Memory.open(tmp_path)
    memory.save("We meet on Monday mornings in the large room", type="project", why="the team agreed")
    memory.save("We deploy on Thursdays only, because the warehouse counts stock on Friday", type="project")
    memory.save("Run pytest with -n 4 on the shared runner", type="feedback")
    long = "The billing export of the Oslo office goes to the tax adviser by courier " + "and by registered mail " * 5
    memory.save(long, type="reference")
    told = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).output)["memories"]
    assert (told["memories"], told["wrong"], told["files"]) == (4, 0, {})


@pytest.mark.requirement("B7")
def test_useless_memories_of_other_projects_are_named_with_their_reason(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        memory = Memory.open(tmp_path / name)
        for number, place in enumerate(("Bergen", "Oslo")):
            text = f"The {place} office moves in three weeks to a place near the harbour"
            memory.save(text, type="project", why="rent", name=f"move {number}")
    told = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).output)["memories"]
    assert len(told["files"]) == told["wrong"] == 4
    assert all("in three weeks" in reasons[0] for reasons in told["files"].values())
    shown = CliRunner().invoke(command, [], catch_exceptions=False).output
    assert sum(file in shown for file in told["files"]) == 3
    assert "and 1 more; 'reverie stats --json' names them all" in shown


@pytest.mark.requirement("B7")
def test_a_memory_whose_session_is_gone_counts_as_unsupported(tmp_path: Path) -> None:
    memory = Memory.open(tmp_path)
    memory.save("Ask Ines before a release of the billing service", type="feedback", why="fines", source="gone m1")
    memory.save("Releases of the shop need no approval at all", type="feedback", why="they are small")
    told = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).output)["memories"]
    assert told["reasons"] == {"unsupported": 1}


def test_with_nothing_to_tell_it_says_what_to_do() -> None:
    assert "reverie demo" in CliRunner().invoke(command, [], catch_exceptions=False).output
    assert CliRunner().invoke(command, ["--project", "/nowhere"]).exit_code != 0


def test_on_a_narrow_screen_no_figure_of_a_table_is_broken(
    reverie: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["REVERIE_HOME"])
    enter(home, 0, "main", 17.5, read=22_577_493, write_5m=732_319, uncached=17_148, output=63_160)
    enter(home, 1, "main", 2.5, read=500, output=100)
    monkeypatch.setenv("COLUMNS", "80")
    rows = reverie("stats", "--by", "day")[1].split("\n\n")[0].splitlines()
    assert [len(row.split()) for row in rows] == [9, 9, 9, 9]
    assert max(map(len, rows)) <= 80
    assert "22.6M" in rows[-1]
    monkeypatch.setenv("COLUMNS", "120")
    assert "22,577,493" in reverie("stats", "--by", "day")[1]
