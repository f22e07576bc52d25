"""A reply that quotes removed content is detected, and nothing else is."""

from __future__ import annotations

from log_script import Script, call, text
from reverie.replay.needs import NeededResults

LINE = "    return compute_the_total_of_all_invoices(depot)"
OTHER = "    raise UnknownDepotError(depot, searched=places)"


def after(removed: bool = True, said: str = "") -> tuple[NeededResults, Script]:
    script = Script()
    script.user(said or "look at it")
    script.reply(call("t1", file_path="/a.py"))
    script.result("t1", f"1\t{LINE}\n2\t{OTHER}\n")
    needs = NeededResults()
    for entry in script.entries:
        needs.add(entry)
    if removed:
        needs.removed("t1", 900)
    return needs, script


def edit(old: str) -> Script:
    script = Script()
    script.reply({"type": "tool_use", "id": "e1", "name": "Edit", "input": {"old_string": old, "new_string": "x"}})
    return script


def test_an_edit_that_quotes_a_removed_read_needs_it_once():
    needs, _ = after()
    assert needs.wanted(tuple(edit(LINE).entries)) == [("t1", 900)]
    assert needs.wanted(tuple(edit(OTHER).entries)) == [], "it was read back a moment ago"


def test_what_is_still_in_view_or_was_said_since_is_not_needed():
    assert after(removed=False)[0].wanted(tuple(edit(LINE).entries)) == []
    needs, _ = after(said=f"why does it say\n{LINE}\n?")
    assert needs.wanted(tuple(edit(LINE).entries)) == []
    needs, _ = after()
    needs.shown(LINE)
    assert needs.wanted(tuple(edit(LINE).entries)) == []


def test_short_lines_prove_nothing():
    needs, _ = after()
    assert needs.wanted(tuple(edit("return x").entries)) == []


def test_reading_the_file_again_is_noticed_and_makes_up_for_it():
    needs, _ = after()
    again = Script()
    again.reply(call("t2", file_path="/a.py"))
    again.result("t2", f"1\t{LINE}\n")
    found = [called for entry in again.entries for called in needs.add(entry)]
    assert found == ["t1"]
    assert needs.wanted(tuple(edit(LINE).entries)) == []


def test_a_line_two_results_hold_is_needed_only_when_both_are_gone():
    needs, _ = after()
    other = Script()
    other.reply(call("t3", file_path="/b.py"))
    other.result("t3", LINE)
    for entry in other.entries:
        needs.add(entry)
    assert needs.wanted(tuple(edit(LINE).entries)) == []
    needs.removed("t3", 50)
    assert needs.wanted((*edit(LINE).entries, *[])) == [("t3", 50)]


def test_plain_text_counts_as_quoting_too():
    needs, _ = after()
    script = Script()
    script.reply(text(f"The culprit is:\n{LINE}\n"))
    assert needs.wanted(tuple(script.entries)) == [("t1", 900)]
