"""The data of the inspector: every request as it was sent, and a bill that agrees with the ledger and with replay."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from coding_session import coding_session
from filmed_requests import request_at
from played_sessions import ForgetfulProvider, played
from random_logs import random_log
from reverie import load_settings
from reverie.cache.prices import prices_for
from reverie.conversation.authorship import strings_of
from reverie.conversation.entries import ASSISTANT, DECISION, USER, Entry, encode_entry, iso
from reverie.errors import InputError
from reverie.importers import find_sessions, read_session
from reverie.importers.import_result import ImportedSession
from reverie.replay.compare import compare
from reverie.replay.recording import recording_of
from reverie.replay.report import RECORDED, lost_by_reason
from reverie.runtime.session.ledger import LedgerStore
from reverie.servers.inspector.film import line_numbers, page_data, session_data
from reverie.servers.inspector.page import SCRIPTS, STYLE, page
from reverie.servers.inspector.redaction import filler, redacted
from reverie.servers.inspector.tables import joined, spliced
from reverie.values import object_of, replace

ASSETS = Path(__file__).resolve().parents[2] / "src" / "reverie" / "servers" / "inspector" / "assets"
QUICK = ("psf__requests-1142.traj.json", "django__django-16263.traj.json", "109540__i_got_id_demo.traj")


def shown(session: ImportedSession) -> list[str]:
    """Return the requests that the page shows, from its data after a way through JSON."""
    data = msgspec.json.decode(msgspec.json.encode(session_data(session)))
    return [json.dumps(request_at(data, number)) for number in range(len(data["requests"]))]


@pytest.fixture(scope="module")
def worked() -> tuple[ImportedSession, list[str]]:
    """Return a played session in which layers act, and its requests."""
    return played(coding_session(7, 160_000, compact_at=90_000))


@pytest.mark.requirement("I4")
def test_the_request_at_every_turn_equals_the_one_that_prepare_made_byte_for_byte(
    worked: tuple[ImportedSession, list[str]],
) -> None:
    session, sent = worked
    assert len(sent) > 30
    assert any("cache_control" in one for one in sent)
    assert shown(session) == sent


def test_a_log_without_one_of_its_decisions_shows_other_requests(worked: tuple[ImportedSession, list[str]]) -> None:
    session, sent = worked
    moving = [one for one in session.entries if one.kind == DECISION and one.body.get("moves_prefix") is True]
    entries = tuple(one for one in session.entries if one is not moving[0])
    assert shown(replace(session, entries=entries)) != sent


@pytest.mark.slow
@pytest.mark.requirement("I4")
def test_so_does_the_corpus_played_through_a_session(corpus: Path, torture: bool) -> None:
    turns = 0
    for path in sorted(find_sessions(corpus)):
        for recording in read_session(path) if torture or path.name in QUICK else []:
            session, sent = played(recording.entries, system=recording.system, tools=recording.tools)
            assert shown(session) == sent, path.name
            turns += len(sent)
    assert turns > 150


def test_a_message_that_came_while_the_reply_was_on_its_way_is_in_the_next_request(
    worked: tuple[ImportedSession, list[str]],
) -> None:
    session, sent = worked
    at = next(k for k, one in enumerate(session.entries) if one.kind == ASSISTANT)
    later = iso(session.entries[at].at + 30)
    late = Entry("late", session.entries[at - 1].uuid, later, "played", USER, {"message": _says("wait")})
    entries = (*session.entries[:at], late, *session.entries[at:])
    found = shown(replace(session, entries=entries))
    assert found[0] == sent[0]
    assert '"wait"' in found[1]


def _says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


@pytest.mark.requirement("I4")
def test_the_losses_by_cause_equal_those_of_the_ledger_to_the_cent() -> None:
    session, _ = played(coding_session(3, 90_000, compact_at=None), stored=True, provider=ForgetfulProvider(9))
    with LedgerStore(load_settings().home) as store:
        rows = store.calls(session="played")
    bill = session_data(session)["bill"]
    lost = sum(row.lost_usd for row in rows)
    assert lost > 0.05
    assert sum(one["usd"] for one in bill["causes"]) == pytest.approx(lost, abs=0.005)
    assert bill["lost_usd"] == pytest.approx(lost, abs=0.005)
    assert bill["usd"] == pytest.approx(sum(row.usd or 0.0 for row in rows), abs=0.005)
    assert bill["named_share"] == 1.0
    assert {one["reason"] for one in session_data(session)["breaks"] if not one["announced"]} == {
        row.broke for row in rows if row.broke
    }


@pytest.mark.requirement("I4")
def test_the_losses_of_a_recording_equal_those_of_its_replay_to_the_cent(corpus: Path, torture: bool) -> None:
    for name in ("claude-code/04_44df7d08.jsonl", *(("pi/before-compaction.jsonl",) if torture else ())):
        session = read_session(corpus / name)[0]
        report = compare([recording_of(session, name)], policies=[RECORDED])
        data = session_data(session)
        lost = sum(usd for _, usd in lost_by_reason(report))
        assert lost > 1
        assert data["bill"]["lost_usd"] == pytest.approx(lost, abs=0.005)
        assert sum(one["usd"] for one in data["bill"]["causes"]) == pytest.approx(lost, abs=0.005)


def test_the_categories_of_each_window_add_up_to_its_bill(worked: tuple[ImportedSession, list[str]]) -> None:
    data = session_data(worked[0])
    for row in data["requests"]:
        assert sum(row["window"]) == sum(row["usage"][:4])
        assert min(row["window"]) >= 0
    assert all(sum(row["window"][k] for row in data["requests"]) for k in (1, 3, 5, 6))


@pytest.mark.requirement("I3")
def test_every_decision_is_an_act_with_its_line_its_reason_and_what_left(
    worked: tuple[ImportedSession, list[str]],
) -> None:
    session = worked[0]
    log = b"".join(encode_entry(entry) + b"\n" for entry in session.entries)
    data = session_data(session, lines=line_numbers(log), name="played")
    decided = [one for one in session.entries if one.kind == DECISION and one.body["decision"] != "call_recorded"]
    assert len(data["acts"]) == len(decided)
    for act, entry in zip(data["acts"], decided, strict=True):
        assert json.loads(log.split(b"\n")[act["line"] - 1])["uuid"] == entry.uuid
        assert (act["layer"], act["reason"]) == (entry.body["layer"], entry.body["reason"])
    compacted = next(act for act in data["acts"] if act["name"] == "compacted")
    summary = next(one.body["summary"] for one in decided if one.body["decision"] == "compacted")
    assert len(compacted["went"]) > 10
    assert any(summary[:40] in json.dumps(data["blocks"][ref], ensure_ascii=False) for ref in compacted["stands"])
    last = [act for act in data["acts"] if act["name"] == "compacted"][-1]
    assert last["command"] == "reverie compact --undo played"


@pytest.mark.requirement("I3")
def test_an_act_has_about_what_it_costs_once_and_saves_at_each_later_request(
    worked: tuple[ImportedSession, list[str]],
) -> None:
    data = session_data(worked[0])
    act = next(act for act in data["acts"] if act["name"] == "compacted")
    row, prices = data["requests"][act["n"]], prices_for(data["requests"][act["n"]]["model"])
    assert prices is not None
    went, stands = (sum(data["tokens"][ref] for ref in act[side]) for side in ("went", "stands"))
    assert act["once_usd"] == pytest.approx(stands * prices.cache_write_5m / 1e6)
    assert act["each_usd"] == pytest.approx((stands - went) * prices.cache_read / 1e6)
    assert act["each_usd"] < -0.01
    [again] = [one for one in data["breaks"] if one["n"] == act["n"]]
    assert again["announced"]
    assert again["again_usd"] == pytest.approx(again["tokens"] * (prices.cache_write_5m - prices.cache_read) / 1e6)
    assert row["usd"] > again["again_usd"]
    assert all(act["each_usd"] is None for act in data["acts"] if not act["went"] and not act["stands"])


@pytest.mark.requirement("I5")
def test_a_compaction_has_the_names_that_it_removed(worked: tuple[ImportedSession, list[str]]) -> None:
    found = session_data(worked[0])["compactions"]
    assert found
    assert found[0]["lost_count"] >= len(found[0]["lost"]) > 0
    assert found[0]["before"] > found[0]["after"]


def test_a_recording_of_another_program_says_what_it_does_not_hold(corpus: Path) -> None:
    session = read_session(corpus / "claude-code" / "04_44df7d08.jsonl")[0]
    data = session_data(session)
    assert "Another program recorded this session" in data["notes"][0]
    assert all(row["marks"] is None for row in data["requests"])
    assert "tools" not in dict(data["heads"][0])


def test_every_possible_log_opens_and_can_be_shared(seed: int, torture: bool) -> None:
    for number in range(1_000 if torture else 40):
        entries = random_log(Random(f"{seed}-{number}"))
        data = session_data(ImportedSession("reverie", "any", "", "", "", tuple(entries)), name="any")
        for at in range(len(data["requests"])):
            request_at(data, at)
        assert len(redacted(data, 1)["blocks"]) == len(data["blocks"])


def test_an_entry_of_another_kind_may_hold_anything() -> None:
    odd = Entry("odd", None, iso(1_800_000_000), "long", "telemetry", {"message": {"role": "user", "content": 7}})
    session = long_session(2)
    assert len(session_data(replace(session, entries=(odd, *session.entries)))["requests"]) == 2


# -- size


def long_session(turns: int) -> ImportedSession:
    """Return a session in which a model reads files: two messages a turn, about 600 tokens each."""
    entries: list[Entry] = []

    def add(kind: str, content: list[dict[str, Any]], **more: Any) -> None:
        number = len(entries)
        body = {"message": {"role": "assistant" if kind == ASSISTANT else "user", "content": content}, **more}
        entries.append(Entry(f"e{number}", f"e{number - 1}", iso(1_800_000_000 + number), "long", kind, body))

    add(USER, [{"type": "text", "text": "read everything"}])
    for turn in range(turns):
        use = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"path": f"/src/file{turn}.py"}}
        usage = {"input_tokens": 10, "cache_read_input_tokens": 600 * turn, "output_tokens": 40}
        add(ASSISTANT, [use], reply={"id": f"m{turn}", "model": "claude-sonnet-4-5", "usage": usage})
        text = "\n".join(f"{turn * 7919 % 104729:x} line {line} of {turn}" for line in range(90))
        add(USER, [{"type": "tool_result", "tool_use_id": f"t{turn}", "content": text}])
    return ImportedSession("reverie", "long", "A long session", "", "claude-sonnet-4-5", tuple(entries))


@pytest.mark.requirement("I6")
def test_a_page_grows_with_its_log_and_not_with_the_square_of_it() -> None:
    def written(turns: int) -> tuple[int, int]:
        session = long_session(turns)
        log = b"".join(encode_entry(entry) + b"\n" for entry in session.entries)
        return len(page(page_data([session_data(session)], version="1"))), len(gzip.compress(log))

    (small, _), (large, packed) = written(100), written(400)
    assert large < 4.5 * small
    assert large < 3 * packed + 150_000


def test_building_takes_time_in_proportion_to_the_messages(is_linear: Callable[..., bool]) -> None:
    assert is_linear(lambda turns: session_data(long_session(turns)), 60)


def test_our_own_code_and_styles_are_small() -> None:
    assert sum((ASSETS / name).stat().st_size for name in (*SCRIPTS, STYLE)) < 150_000
    assert {path.name for path in ASSETS.iterdir()} == {*SCRIPTS, STYLE}


@pytest.mark.parametrize(
    ("before", "after"),
    [([], []), ([1], [1]), ([1, 2, 3], [1, 4, 3]), ([1, 1], [1]), ([1], [1, 1]), ([1, 2], [3]), ([], [1, 2])],
)
def test_a_splice_leads_from_one_list_to_the_next(before: list[int], after: list[int]) -> None:
    assert joined(before, spliced(before, after)) == after


# -- redaction


def test_a_redacted_film_has_the_figures_and_none_of_the_texts(worked: tuple[ImportedSession, list[str]]) -> None:
    data = session_data(worked[0], name="played")
    clean = redacted(data, 1)
    text = json.dumps(clean)
    texts = [text for block in data["blocks"] for text in strings_of(object_of(block).get("input", block))]
    words = {word for text in texts for word in text.split() if len(word) > 12 and word.isalpha()}
    assert len(words) > 10
    assert [word for word in words if word in text] == []
    assert [row["window"] for row in clean["requests"]] == [row["window"] for row in data["requests"]]
    assert clean["bill"]["usd"] == data["bill"]["usd"]
    for before, after in zip(data["blocks"], clean["blocks"], strict=True):
        if isinstance(before, dict) and "text" in before:
            assert len(after["text"]) == len(before["text"])
            assert after.get("type") == before.get("type")


def test_a_redacted_film_has_no_secret_in_any_place(worked: tuple[ImportedSession, list[str]]) -> None:
    secret = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "-AA"
    entry = worked[0].entries[-1]
    told = Entry("told", entry.uuid, entry.time, "played", USER, {"message": _says(f"use {secret}")})
    session = replace(worked[0], title=f"with {secret}", cwd=f"/{secret}", entries=(*worked[0].entries, told))
    assert secret not in json.dumps(redacted(session_data(session), 1))
    with pytest.raises(InputError, match="looks like a secret"):
        redacted({**session_data(session), "model": secret}, 1)


def test_filler_keeps_length_and_lines() -> None:
    assert filler("a b\n\u202ec") == "xxx\nxx"
