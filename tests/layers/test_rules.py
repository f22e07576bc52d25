"""Rules of the user in a model's answer: only the user's own words make, replace or end a rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.conversation.causes import SaidItem
from reverie.conversation.rules import Rule, ended_rules, next_rule_id, rules_in
from reverie.conversation.standing_context import StandingRow
from reverie.layers.l3_notes.rules import FoundRule, rule_changes, rules_prompt

SAID = [
    ("m1", "Please plan the trip.\nNever book a boat  before\nI have seen the price."),
    ("m2", "And no emojis."),
    ("m3", "Boats are fine now, and use emojis only in titles."),
]
VISIBLE = {"m1", "m2", "m3", "m4"}
BOAT = Rule("1", "Never book a boat before I have seen the price.", "m1")
EMOJI = Rule("2", "no emojis", "m2")


def _table(*rules: Rule, state: str = "said") -> dict[str, StandingRow]:
    said = [
        SaidItem(rule.key, "rules", rule.name, rule.value if state == "said" else "", state=state) for rule in rules
    ]
    return {item.key: StandingRow(item, "entry") for item in said}


@pytest.mark.requirement("W10")
def test_a_rule_is_found_with_its_message_and_as_the_user_wrote_it():
    answer = "<rule>Never book a boat before I have seen the price.</rule>"
    (rule,) = rule_changes(answer, SAID, [], [], visible=VISIBLE).found
    assert rule == FoundRule("Never book a boat  before\nI have seen the price.", "m1")


@pytest.mark.requirement("W10")
@pytest.mark.parametrize("quote", ["Never book a hotel.", "", "no", "never book a boat before i have seen"])
def test_a_quote_that_no_message_of_the_user_has_makes_no_rule(quote: str):
    changes = rule_changes(f"<rule>{quote}</rule>", SAID, [], [], visible=VISIBLE)
    assert (changes.found, changes.refused) == ((), 1)


@pytest.mark.requirement("W10")
def test_a_rule_ends_and_is_replaced_only_by_later_words_of_the_user():
    answer = (
        '<rule_ended id="1">Boats are fine now</rule_ended>\n'
        '<rule replaces="2">use emojis only in titles</rule>\n'
        '<rule_ended id="2">Please plan the trip.</rule_ended>\n'  # said before the rule
        '<rule_ended id="1">You may book boats.</rule_ended>'  # never said
    )
    changes = rule_changes(answer, SAID, [BOAT, EMOJI], [], visible=VISIBLE)
    assert changes.ended == ("1",)
    assert changes.found == (FoundRule("use emojis only in titles", "m3", "2"),)
    assert changes.refused == 2


@pytest.mark.requirement("W10")
def test_only_words_after_a_rule_that_was_set_by_hand_end_it():
    by_hand = Rule("1", "No boats.", added_after="m2")
    ends = [f'<rule_ended id="1">{words}</rule_ended>' for words in ("And no emojis.", "Boats are fine now")]
    assert [rule_changes(one, SAID, [by_hand], [], visible=VISIBLE).ended for one in ends] == [(), ("1",)]


@pytest.mark.requirement("W10")
def test_a_message_that_only_a_summary_quotes_makes_no_new_rule():
    assert rule_changes("<rule>no emojis</rule>", SAID, [], [], visible={"m3"}).found == ()
    assert rule_changes("<rule>no emojis</rule>", SAID, [], [], visible={"m2", "m3"}).found != ()


@pytest.mark.requirement("W10")
def test_a_rule_that_was_dropped_comes_back_only_if_the_user_says_it_again():
    (dropped,) = ended_rules(_table(EMOJI, state="ended"))
    assert rule_changes("<rule>no emojis</rule>", SAID, [], [dropped], visible=VISIBLE).found == ()
    again = [*SAID, ("m4", "Really: no emojis.")]
    assert rule_changes("<rule>no emojis</rule>", again, [], [dropped], visible=VISIBLE).found == (
        FoundRule("no emojis", "m4"),
    )
    assert rule_changes("<rule>no emojis</rule>", again, [EMOJI], [], visible=VISIBLE).found == ()  # it holds already


@pytest.mark.requirement("W10")
@given(st.text(min_size=1, max_size=300).filter(str.strip), st.sampled_from(["", "3f2a-81cc-4e00"]))
def test_a_rule_is_read_from_the_standing_context_as_it_was_written(text: str, message: str):
    rule = Rule("7", text, message)
    by_hand = Rule("8", text, added_after=message)
    assert rules_in(_table(rule, by_hand)) == [rule, by_hand]
    (ended,) = ended_rules(_table(rule, state="ended"))
    assert ended.equals(rule)
    assert next_rule_id(_table(rule)) == "8"


def test_the_prompt_lists_the_rules_with_their_ids():
    assert "1: Never book a boat before" in rules_prompt([BOAT])
    assert "(none)" in rules_prompt([])
