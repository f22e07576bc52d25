"""Content that a compaction keeps: whole call-result pairs, the user's words, exact names; and its loss report."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_script import Script, call, text
from random_logs import random_log
from reverie.conversation.cuts import Item
from reverie.conversation.decisions import Cause, Compacted, Pinned
from reverie.conversation.entries import Entry, encode_entry, reply_id
from reverie.conversation.log import parse_log
from reverie.conversation.tokens.estimate import estimate_text
from reverie.conversation.view import View
from reverie.errors import CompactionError
from reverie.layers.l3_notes import Activity
from reverie.layers.l4_compact import (
    CompactionCause,
    CompactionText,
    CompactPolicy,
    binding_sentences,
    compaction,
    cut_range_before_tail,
    dropped_rounds,
    loss_of,
    loss_text,
    summary_budget,
    summary_of,
    user_words,
)
from reverie.layers.l4_compact.anchors import anchor_list
from reverie.layers.l4_compact.binding_sentences import sentences_of
from reverie.layers.l4_compact.loss import LossReport, LostName
from reverie.layers.l4_compact.summary import directive, notes_text
from reverie.layers.l4_compact.tail import TailPolicy, kept_from, legal_starts, tokens_of
from reverie.layers.l4_compact.user_words import (
    QuotedWords,
    UserMessage,
    UserMessages,
    quoted_words,
    user_messages,
    words_text,
)
from reverie.text.later_sentences import LaterSentences
from reverie.values import replace


def entries_of(items: tuple[Item, ...]) -> list[Entry]:
    return [Entry(one.uuid, None, "", "s", one.kind, {**one.entry.body, "message": one.message}) for one in items]


def blocks(entries: list[Entry], kind: str, key: str) -> set[str]:
    found: set[str] = set()
    for entry in entries:
        content: Any = entry.message["content"] if entry.message else []
        for block in content if isinstance(content, list) else []:
            if isinstance(block, dict) and block.get("type") == kind and isinstance(block.get(key), str):
                found.add(block[key])
    return found


def tail_is_whole(entries: list[Entry], start: int) -> bool:
    kept, lost = entries[start:], entries[:start]
    split = blocks(kept, "tool_result", "tool_use_id") & blocks(lost, "tool_use", "id") - blocks(kept, "tool_use", "id")
    replies = {reply_id(entry) for entry in kept if entry.kind == "assistant"}
    return not split and not any(entry.kind == "assistant" and reply_id(entry) in replies for entry in lost)


@pytest.mark.requirement("L4.3", "K10")
@given(st.integers(0, 10**9))
def test_a_kept_tail_splits_no_pair_and_no_reply(seed: int):
    view = View().fold_all(random_log(Random(seed), entries=40))
    items = view.items_in_view()
    legal = legal_starts(items)
    plain = entries_of(items)
    for at in range(len(items) + 1):
        if legal[at]:
            assert tail_is_whole(plain, at)
    rng = Random(seed)
    policy = TailPolicy(rng.randrange(200), rng.randrange(6), rng.randrange(200, 900), rng.choice((0, 300)))
    cursor = rng.choice((None, rng.randrange(len(items) + 1)))
    start = kept_from(view, items, policy, cursor=cursor)
    assert legal[start] or start == 0
    assert cursor is None or start <= cursor


def test_a_tail_cut_anywhere_would_split_pairs():
    """The known-bad twin: places exist at which a tail may not start."""
    script = Script()
    script.user("go")
    script.reply(call("t1"), id="m")
    script.result("t1")
    assert legal_starts(script.view.items_in_view()) == [True, True, False, True]


@pytest.mark.requirement("L4.3")
def test_a_tail_grows_until_it_has_enough_and_stops_before_it_has_too_much():
    script = Script()
    for n in range(30):
        script.user(f"question {n} " * 20)
        script.reply(text(f"answer {n} " * 20))
    view = script.view
    items = view.items_in_view()
    start = kept_from(view, items, TailPolicy(600, 5, 5_000))
    assert 600 <= sum(tokens_of(view, one) for one in items[start:]) < 900
    assert len(items) - start >= 5
    start = kept_from(view, items, TailPolicy(600, 50, 1_000))
    assert sum(tokens_of(view, one) for one in items[start:]) <= 1_000
    assert kept_from(view, items, TailPolicy(0, 0, 0), cursor=10) == 10  # what follows the cursor is never cut


@pytest.mark.requirement("L4.7")
@given(st.lists(st.text(min_size=1, max_size=400), max_size=30), st.integers(0, 2_000))
def test_the_users_words_are_repeated_newest_first_within_the_budget(texts: list[str], tokens: int):
    said = [UserMessage(f"h{n}", words) for n, words in enumerate(texts)]
    words = quoted_words(said, tokens=tokens, handle_tokens=100, pinned=frozenset())
    handles = [one.handle for one in words.whole]
    assert handles == [one.handle for one in reversed(said)][: len(handles)]
    assert sum(one.tokens for one in words.whole) <= tokens
    assert len(handles) + words.by_handle + (words.short is not None) == len(said)
    written = words_text(words)
    assert all(one.text in written for one in words.whole)


STORY = "I went to the harbour on day {0} and it took {0} hours, which I had not expected at all, can you help me?"


def _spoken(*texts: str) -> list[UserMessage]:
    return [UserMessage(f"h{n}", words) for n, words in enumerate(texts)]


def _old_rule(days: int) -> list[UserMessage]:
    return _spoken("Fine. Never book a boat before I have seen the price.", *(STORY.format(n) for n in range(days)))


@pytest.mark.requirement("W10", "L4.7", "T8")
@given(st.integers(20, 400))
def test_a_sentence_that_binds_is_quoted_however_much_the_user_wrote_since(days: int):
    rule = "Never book a boat before I have seen the price."
    words = quoted_words(_old_rule(days), tokens=500, handle_tokens=100, pinned=frozenset())
    assert rule in words_text(words)
    assert "h0" not in [one.handle for one in words.whole]
    assert sum(map(estimate_text, (*(one.text for one in words.whole), *(one.text for one in words.sentences)))) <= 500


@pytest.mark.requirement("W10")
def test_by_age_alone_an_old_sentence_that_binds_would_be_lost(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(binding_sentences, "LEAST_SCORE", 100.0)
    words = quoted_words(_old_rule(40), tokens=500, handle_tokens=100, pinned=frozenset())
    assert "Never book" not in words_text(words)


@pytest.mark.requirement("W10")
def test_a_sentence_leaves_only_for_one_that_binds_more():
    rules = [f"Never rent boat number {n} without a crew." for n in range(400)]
    chosen: set[str] = set()
    for count in range(50, 400, 50):
        words = quoted_words(_spoken(*rules[:count]), tokens=500, handle_tokens=100, pinned=frozenset())
        now = {one.text for one in words.sentences}
        assert chosen <= now
        chosen = now
    assert rules[0] in chosen


RULE = "Never rent a boat without a crew."


def _quoted(end: str, tokens: int = 500) -> str:
    """Return the quoted words of a user who said a rule, then much else with a message that may end it."""
    said = _spoken(RULE, *(STORY.format(n) for n in range(20)), end, *(STORY.format(n) for n in range(20, 60)))
    return words_text(quoted_words(said, tokens=tokens, handle_tokens=100, pinned=frozenset()))


@pytest.mark.requirement("W10")
@pytest.mark.parametrize("end", ["Boats are fine without a crew after all.", "Now every boat may go without a crew."])
def test_a_sentence_that_a_later_one_touches_names_it_and_stands_before_it(end: str):
    text = _quoted(end)
    assert f"- {RULE} [later: {end[:20]}" in text
    assert 0 < text.find("the later one holds") < text.find(RULE) < text.find(f"- {end}")


@pytest.mark.requirement("W10")
def test_the_twin_that_looks_at_each_sentence_alone_shows_it_as_binding(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LaterSentences, "than", lambda self, number: None)
    text = _quoted("Boats are fine without a crew after all.")
    assert f"- {RULE}\n" in text


@pytest.mark.requirement("W10")
def test_a_sentence_is_not_quoted_without_the_later_one_that_touches_it():
    end = "I asked around, and a boat goes without a crew " + "very well and with ease " * 6
    shown = [(RULE in text, end.strip() in text) for text in (_quoted(end, tokens) for tokens in range(40, 400, 10))]
    assert {(False, False), (True, True)} <= set(shown)
    assert (True, False) not in shown


@pytest.mark.requirement("W10")
def test_a_short_message_that_shares_no_word_with_a_rule_is_quoted_after_it():
    text = _quoted("Home now, do as you like. What was the price?")
    assert 0 < text.find("may still bind or change") < text.find(RULE) < text.find("Home now, do as you like.")


@pytest.mark.requirement("W10")
def test_a_rule_that_is_said_again_after_it_was_taken_back_is_the_last_word():
    end = "Boats are fine without a crew after all."
    said = _spoken(RULE, end, *(STORY.format(n) for n in range(20)), RULE, *(STORY.format(n) for n in range(20, 60)))
    text = words_text(quoted_words(said, tokens=500, handle_tokens=100, pinned=frozenset()))
    assert text.find(end) < text.rfind(RULE)


@pytest.mark.requirement("L4.7")
def test_a_summary_from_notes_is_at_most_12_000_tokens():
    budget = summary_budget(CompactPolicy(), 180_000)
    full = budget.beside([UserMessage("h", "word " * 20_000)])
    assert full.words + full.notes + full.accounts + full.anchors + full.handles <= 12_000
    assert full.notes + full.accounts >= 3_000
    short = budget.beside([UserMessage("h", "yes")] * 200)  # the line of each handle counts too
    assert 200 * 12 + short.notes + short.accounts + short.anchors + short.handles <= 12_000
    alone = budget.beside([])
    assert alone.notes + alone.accounts > 8_000


@pytest.mark.requirement("L4.7")
def test_what_programs_put_into_user_messages_is_not_taken_for_words():
    script = Script()
    script.user("<local-command-stdout>ok</local-command-stdout>")
    script.user([{"type": "tool_result", "tool_use_id": "t", "content": "x"}, text("But keep 42. ")])
    assert [one.text for one in user_messages(script.entries)] == ["But keep 42. "]


@pytest.mark.requirement("L4.6", "L4.5")
def test_the_draft_is_thrown_away_and_instructions_stand_last():
    assert summary_of("<analysis>draft</analysis>\n<summary>kept</summary> more") == "kept"
    assert summary_of("<analysis>cut off in the middle of the dr") == ""
    assert summary_of("no tags at all") == "no tags at all"
    assert summary_of("<analysis>x</analysis><summary>open end") == "open end"
    asked = directive("up_to", quote="What of it?", instructions="Mind the tides.")
    assert asked.endswith("Mind the tides.")
    assert "> What of it?" in asked


@pytest.mark.requirement("L4.6")
@pytest.mark.parametrize("drafts", [False, True])
def test_a_summary_has_nine_sections_and_a_draft_only_where_one_is_asked_for(drafts: bool):
    asked = directive("full", drafts=drafts)
    headings = [line.split(": ")[0] for line in asked.split("\n") if re.match(r"\d\. ", line)]
    assert headings == [
        "1. Primary request and intent",
        "2. Key technical concepts",
        "3. Files and code",
        "4. Errors and fixes",
        "5. Problem solving",
        "6. All user messages",
        "7. Pending tasks",
        "8. Current work",
        "9. Next step",
    ]
    assert "literal quote" in asked
    assert ("<analysis>" in asked) is drafts
    assert "{draft}" not in asked


@pytest.mark.requirement("L4.12")
def test_oldest_rounds_go_until_the_gap_is_covered_and_one_always_stays():
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(10):
        messages += [{"role": "assistant", "content": "word " * 100}, {"role": "user", "content": f"{n}"}]
    fewer = dropped_rounds(messages, 250)
    assert fewer is not None
    assert fewer[0]["role"] == "user"
    assert len(fewer) < len(messages)
    again = dropped_rounds(fewer, None)
    assert again is not None
    assert [one["role"] for one in again[:2]] == ["user", "assistant"]
    assert str(again).count("left out here") == 1
    last = dropped_rounds(messages, 10**9)
    assert last is not None
    assert last[-2:] == messages[-2:]
    assert dropped_rounds(last, 10) is None


@pytest.mark.requirement("B2", "L4.7")
def test_the_loss_report_names_what_is_out_of_view_with_a_way_back():
    script = Script()
    script.user("Use port 48151 and read src/app/tides.py.")
    script.reply(text("Done."), call("t1", "TodoWrite", todos=[{"content": "paint the boat", "status": "pending"}]))
    script.result("t1", "src/lost/harbour.py src/lost/harbour.py 9f8e7d6c5b4a")
    last = script.user("go on")
    before = script.view
    cut = Compacted(
        Cause("compact", "test"), "auto", "full", "It was src/app/tides.py.", 10, None, last, handle="cut-1"
    )
    script.decide(cut)
    loss = loss_of(before, script.view, cut)
    gone = {(one.kind, one.text): one for one in loss.lost}
    assert ("path", "src/lost/harbour.py") in gone
    assert ("path", "src/app/tides.py") not in gone
    assert gone["path", "src/lost/harbour.py"].count == 2
    assert ("open step", "paint the boat") in gone
    assert ("number", "48151") in gone
    known = {entry.uuid for entry in before.history}
    assert all(one.handle in known for one in loss.lost)
    assert 0 < loss.share_kept < 1
    assert "src/lost/harbour.py" in loss_text(loss)


def test_names_that_are_shown_already_are_not_listed_again():
    script = Script()
    script.user("a/b.py a/b.py c/d.py")
    from reverie.layers.l4_compact.anchors import mined

    counts, _ = mined(script.view.items_in_view())
    assert [one.text for one in anchor_list(counts, "see a/b.py", tokens=50)] == ["c/d.py"]


@pytest.mark.requirement("L4.10")
def test_a_boundary_whose_line_is_torn_or_whose_summary_is_empty_changes_nothing():
    script = Script()
    first = script.user("hello")
    script.reply(text("hi"))
    before = script.view.messages()
    whole = b"".join(encode_entry(one) + b"\n" for one in script.entries)
    made = Compacted(Cause("compact", "test"), "auto", "full", "A summary.", 10, first, None)
    script.decide(made)
    line = encode_entry(script.entries[-1]) + b"\n"
    for size in range(0, len(line) - 1, 7):  # cut short anywhere by a crash
        assert View().fold_all(parse_log(whole + line[:size]).entries).messages() == before
    assert View().fold_all(parse_log(whole + line).entries).messages() != before
    empty = Script()
    empty.entries = script.entries[:-1]
    empty.decide(Compacted(Cause("compact", "test"), "auto", "full", " ", 10, first, None))
    assert empty.view.messages() == before


@pytest.mark.requirement("T8")
def test_a_small_window_shrinks_every_budget():
    policy = CompactPolicy()
    large, small = summary_budget(policy, 180_000), summary_budget(policy, 8_000)
    assert (large.tail.tokens, large.tail.max_tokens, large.words) == (10_000, 40_000, 6_000)
    assert (small.tail.tokens, small.tail.max_tokens, small.words) == (480, 2_000, 960)
    long = notes_text({"A": "word " * 5_000, "B": "b"}, section_tokens=100, total_tokens=150)
    assert "rest of this section" in long
    assert "## B" in long


def test_a_taking_never_holds_the_context_a_session_opens_with():
    script = Script()
    script.add("attachment", {"type": "user_context", "message": {"role": "user", "content": "Rules."}})
    script.user("go")
    script.reply(text("went"))
    assert next(one.message["content"] for one in cut_range_before_tail(script.view, TailPolicy(0, 0, 0)).cut) == "go"


@given(st.integers(0, 10**9))
def test_words_followed_as_they_are_said_are_the_words_there_are(seed: int):
    rng, saying, view = Random(seed), UserMessages(), View()
    log = random_log(rng, entries=40)
    for entry in log:
        view = view.fold(entry)
        if rng.random() < 0.3:
            assert saying.follow(view) == judged(user_messages(view.history))
    other = View().fold_all(log[1::2])
    assert saying.follow(other) == judged(user_messages(other.history))  # another view is read anew


def judged(said: list[UserMessage]) -> list[UserMessage]:
    return [replace(one, sentences=sentences_of(one.text)) for one in said]


@pytest.mark.requirement("L4.7")
def test_a_compaction_judges_only_the_messages_since_the_one_before(monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    real = user_words.sentences_of
    monkeypatch.setattr(user_words, "sentences_of", lambda message: read.append(message) or real(message))
    script, saying, counts = Script(), UserMessages(), list[int]()
    for part in range(4):
        for n in range(50):
            script.user(f"Never touch module {part} of part {n}, its owner keeps it as it is.")
        said = saying.follow(script.view)
        kept = quoted_words(said, tokens=400, handle_tokens=100, pinned=frozenset())
        counts.append(len(read))
        plain = [UserMessage(one.handle, one.text) for one in said]
        read.clear()
        assert kept == unjudged(quoted_words(plain, tokens=400, handle_tokens=100, pinned=frozenset()), said)
        assert len(read) == len(said)  # a message without its sentences is judged each time
        read.clear()
    assert counts == [50] * 4


RULED = "Never rent a boat without a crew, whatever the harbour says about it."


def _long_talk(count: int, *, pinned: int = -1) -> tuple[View, UserMessages, QuotedWords]:
    """Return the view of a user who said a rule and then much else, and the words that a summary quotes of it."""
    script, saying = Script(), UserMessages()
    script.user(RULED)
    for n in range(count):
        handle = script.user(STORY.format(n))
        if n == pinned:
            script.decide(Pinned(Cause("trim", "asked"), messages=[handle]))
        if n % 50 == 0:
            saying.follow(script.view)
    view = script.view
    words = quoted_words(
        saying.follow(view), tokens=500, handle_tokens=100, pinned=view.facts.pinned, unheld=saying.unheld
    )
    return view, saying, words


@pytest.mark.requirement("L4.7", "W10")
def test_a_long_session_holds_so_many_messages_and_still_quotes_its_oldest_rule(
    monkeypatch: pytest.MonkeyPatch, steps_of: Callable[..., int]
):
    monkeypatch.setattr(user_words, "_MOST_CHARS", 30_000)
    short, long = (_long_talk(count) for count in (300, 3_000))
    for count, (view, saying, words) in ((301, short), (3_001, long)):
        assert RULED in words_text(words)
        assert len(words.whole) + words.by_handle + (words.short is not None) == count
        assert len(saying.spoken) + saying.unheld == count
        again = UserMessages()
        assert again.follow(view) == saying.spoken  # whether it is read at once or as it is said

    def quote(saying: UserMessages) -> QuotedWords:
        return quoted_words(saying.spoken, tokens=500, handle_tokens=100, pinned=frozenset())

    assert steps_of(lambda: quote(long[1])) <= 1.5 * steps_of(lambda: quote(short[1]))


def test_a_pinned_message_is_held_however_much_follows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(user_words, "_MOST_CHARS", 30_000)
    _, _, words = _long_talk(1_000, pinned=7)
    assert STORY.format(7) in [one.text for one in words.whole]


def test_a_message_that_is_pinned_long_after_it_was_said_is_held_as_after_a_resume(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(user_words, "_MOST_CHARS", 30_000)
    script, saying = Script(), UserMessages()
    handles = [script.user(STORY.format(n)) for n in range(1_000)]
    held = {one.handle for one in saying.follow(script.view)}
    lost = next(one for one in handles if one not in held)
    script.decide(Pinned(Cause("trim", "asked"), messages=[lost]))
    assert lost in [one.handle for one in saying.follow(script.view)]
    assert UserMessages().follow(script.view) == saying.spoken


def unjudged(words: QuotedWords, said: list[UserMessage]) -> QuotedWords:
    by_handle = {one.handle: one for one in said}
    return replace(words, whole=tuple(by_handle[one.handle] for one in words.whole))


@pytest.mark.requirement("L4.7")
def test_names_used_once_are_listed_by_the_compaction_that_cuts_them_and_not_for_ever():
    script = Script()
    room = summary_budget(CompactPolicy(), 180_000)
    summaries: list[str] = []
    for part in range(2):
        for n in range(12):
            script.user("Go on.")
            script.reply(call(f"t{part}_{n}"), id=f"m{part}_{n}")
            script.result(f"t{part}_{n}", f"src/often.py and src/once_{part}_{n}.py " + "the tide came in " * 200)
        view = script.view
        names = Activity().add_all(view.history).named()
        taking = cut_range_before_tail(view, TailPolicy(0, 0, 0))
        made, _ = compaction(
            view, taking, CompactionText("notes", "Work.", names), room, CompactionCause("auto", "", "h")
        )
        summaries.append(made.summary)
        script.decide(made)
    assert all("src/often.py" in one for one in summaries)
    assert "src/once_0_3.py" in summaries[0]
    assert "src/once_1_3.py" in summaries[1]
    assert "src/once_0_3.py" not in summaries[1]


def test_a_loss_report_fits_a_narrow_screen():
    loss = LossReport({"path": 1}, (LostName("path", "a/" * 70 + "b.py", 3, "0" * 36),), 3, 3)
    for width in (80, 120):
        lines = loss_text(loss, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert "0" * 36 in lines[-1]


@given(st.integers(0, 10**9))
def test_whatever_stands_in_a_log_a_compaction_can_be_put_together_or_is_refused(seed: int):
    rng = Random(seed)
    view = View().fold_all(random_log(rng, entries=40))
    room = summary_budget(CompactPolicy(), rng.choice((4_000, 180_000)))
    try:
        taking = cut_range_before_tail(view, rng.choice((room.tail, TailPolicy(0, 0, 0))))
    except CompactionError:
        return
    written = CompactionText("notes", "Work.", Activity().add_all(view.history).named())
    made, _ = compaction(view, taking, written, room, CompactionCause("auto", "", "h"))
    assert made.summary.strip()
    assert made.last_before == taking.cut[-1].uuid
