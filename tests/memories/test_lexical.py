"""Words as search sees them, and memories found by them: the same for what is kept and what is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.memories.recall.search import Match, MemoryIndex
from reverie.memories.recall.terms import snippet, terms, tokens
from reverie.memories.store.records import MemoryRecord
from reverie.runtime.search.message_scores import differ_by_one
from reverie.text.stems import stem

WORDS = st.sampled_from(["deploy", "server", "staging", "database", "mock", "friday", "tea", "rust", "parser", "queue"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
MEMORIES = st.lists(
    st.tuples(SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=12
).map(lambda rows: [MemoryRecord(f"m{at}.md", *row[:2], body=row[2]) for at, row in enumerate(rows)])  # fmt: skip


@pytest.mark.parametrize("spelled", ["userService", "user_service", "user-service", "src/app/UserService.py"])
def test_an_identifier_is_found_by_its_parts_and_as_a_whole(spelled: str) -> None:
    assert {"user", "servic", stem("userservice")} <= set(tokens(spelled))


def test_numbers_accents_and_scripts_without_spaces_are_read_alike() -> None:
    assert tokens("1,000") == tokens("1000")
    assert tokens("007") == tokens("7")
    assert tokens("the 3rd") == tokens("the 3")
    assert tokens("Café") == tokens("cafe\u0301") == tokens("cafe")
    assert set(tokens("全文検索")) & set(tokens("検索"))


def test_words_of_grammar_are_looked_for_only_where_there_are_no_others() -> None:
    assert terms("What is the deadline?") == [stem("deadline")]
    assert terms("what is it") == ["what", "is", "it"]


@given(st.text(max_size=300))
def test_any_text_has_words_and_none_is_long_or_empty(text: str) -> None:
    found = tokens(text)
    assert all(0 < len(word) <= 64 for word in found)
    assert found == tokens(text)


@given(st.text(max_size=400), st.lists(st.text(max_size=8), max_size=4), st.integers(60, 200))
def test_a_snippet_is_one_line_of_its_text_and_no_longer_than_asked(text: str, wanted: list[str], chars: int) -> None:
    shown = snippet(text, dict.fromkeys(wanted, 1.0), max_chars=chars)
    assert "\n" not in shown
    assert len(shown) <= chars
    assert shown.strip("…") in " ".join(text.split())


def test_a_snippet_shows_the_place_that_has_the_words() -> None:
    text = "filler words here " * 50 + "the staging server restarts on Friday " + "more filler " * 50
    assert "staging server" in snippet(text, dict.fromkeys(terms("staging server"), 1.0))


def test_a_snippet_weighs_rare_words_more_and_reaches_the_end_of_its_text() -> None:
    text = "many common words and many more " * 30 + "the walrus ate the last herring"
    wanted = dict.fromkeys(terms("many common"), 0.1) | dict.fromkeys(terms("walrus"), 3.0)
    assert snippet(text, wanted).endswith("ate the last herring")


@pytest.mark.parametrize(
    ("word", "other", "near"),
    [
        ("educaton", "education", True),
        ("educaiton", "education", True),
        ("servers", "server", True),
        ("server", "sorter", False),
        ("same", "same", False),
    ],
)
def test_one_letter_amiss_is_noticed(word: str, other: str, near: bool) -> None:
    assert differ_by_one(word, other) is near


@given(st.text("abcd", min_size=3, max_size=8), st.integers(0, 7), st.sampled_from("abcd"), st.sampled_from("+-~"))
def test_every_single_slip_is_noticed(word: str, at: int, letter: str, slip: str) -> None:
    at %= len(word)
    made = {
        "+": word[:at] + letter + word[at:],
        "-": word[:at] + word[at + 1 :],
        "~": word[:at] + letter + word[at + 1 :],
    }
    assert differ_by_one(word, made[slip]) is (made[slip] != word)


# -- memories


def files(found: list[Match]) -> list[str]:
    return [match.file for match in found]


def test_a_name_counts_more_than_a_text_and_a_rare_word_more_than_a_common_one() -> None:
    index = MemoryIndex(
        [
            MemoryRecord("a.md", "Deploys", "how deploys run", body="we use the queue"),
            MemoryRecord("b.md", "Queue", "the queue of jobs", body="it is emptied by hand"),
            MemoryRecord("c.md", "Tea", "tea kitchen", body="deploys pause at tea"),
        ]
    )
    assert files(index.search("queue")) == ["b.md", "a.md"]
    assert files(index.search("deploys and the tea kitchen"))[0] == "c.md"
    assert index.search("nothing of the kind xyz") == []


@pytest.mark.requirement("R2", "B5")
def test_between_two_that_fit_alike_the_newer_one_wins() -> None:
    old = MemoryRecord("a.md", "Deploy day", "we deploy on Friday", "project", modified="2024-01-01T00:00:00Z")
    new = MemoryRecord("b.md", "Deploy day", "we deploy on Friday", "project", modified="2026-01-01T00:00:00Z")
    index = MemoryIndex([old, new])
    assert files(index.search("deploy day", now=datetime(2026, 1, 2, tzinfo=UTC))) == ["b.md", "a.md"]
    assert files(index.search("deploy day", without={"b.md"})) == ["a.md"]


@given(MEMORIES, SENTENCES)
def test_search_is_deterministic_whatever_the_order_of_adding(memories: list[MemoryRecord], query: str) -> None:
    one, other = MemoryIndex(memories), MemoryIndex(reversed(memories))
    assert one.search(query, limit=20) == other.search(query, limit=20)


@given(MEMORIES, SENTENCES, SENTENCES)
def test_adding_a_memory_changes_only_the_ranking_of_the_others(
    memories: list[MemoryRecord], added: str, query: str
) -> None:
    index = MemoryIndex(memories)
    before = set(files(index.search(query, limit=50)))
    index.put(MemoryRecord("new.md", added, added))
    after = set(files(index.search(query, limit=50)))
    assert after - {"new.md"} == before


@given(MEMORIES, SENTENCES, SENTENCES, st.data())
def test_an_index_kept_up_to_date_is_the_same_as_a_fresh_one(
    memories: list[MemoryRecord], text: str, query: str, data: st.DataObject
) -> None:
    index = MemoryIndex(memories)
    files_of = [memory.file for memory in memories]
    gone = data.draw(st.sampled_from(files_of))
    changed = data.draw(st.sampled_from(files_of))
    index.put(MemoryRecord(changed, text, text))
    index.drop(gone)
    left = {memory.file: memory for memory in memories} | {changed: MemoryRecord(changed, text, text)}
    left.pop(gone)
    fresh = MemoryIndex(left.values())
    assert index.search(query, limit=50) == fresh.search(query, limit=50)
    assert set(index.files) == set(left)
    assert len(index) == len(left)


class _NeverForgets(MemoryIndex):
    """A known-bad index: what is dropped is still found."""

    def drop(self, file: str) -> bool:
        return False


def test_the_check_above_would_catch_an_index_that_never_forgets() -> None:
    index = _NeverForgets([MemoryRecord("a.md", "deploy", "deploy")])
    index.put(MemoryRecord("a.md", "tea", "tea"))
    assert files(index.search("deploy")) != files(MemoryIndex([MemoryRecord("a.md", "tea", "tea")]).search("deploy"))
