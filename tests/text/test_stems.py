"""Stems: the forms of a word are found by each other, different words are not."""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.text.stems import stem, stems


@pytest.mark.parametrize(
    "forms",
    [
        ("add", "added", "adds", "adding"),
        ("apply", "applies", "applied"),
        ("live", "lives", "living"),
        ("test", "tests", "testing"),
        ("deployment", "deployments"),
        ("family", "families"),
    ],
)
def test_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len(set(stems(forms))) == 1


@pytest.mark.parametrize(("one", "other"), [("app", "apply"), ("ad", "added"), ("port", "portal"), ("bus", "but")])
def test_different_words_keep_different_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@given(st.text(string.ascii_lowercase, min_size=1, max_size=80))
def test_a_stem_is_never_empty_and_never_longer_by_more_than_a_letter(word: str) -> None:
    assert 0 < len(stem(word)) <= len(word) + 1


@pytest.mark.parametrize("word", ["検索", "поиск", "größe", "2026"])
def test_a_word_that_is_not_plain_english_stays_as_it_is(word: str) -> None:
    assert stem(word) == word


def test_threads_share_the_stemmer() -> None:
    words = [f"{letter}{number}ing" for letter in string.ascii_lowercase for number in range(200)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: stems(words), range(4)))
    assert found == [stems(words)] * 4
