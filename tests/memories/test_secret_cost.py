"""A scan for secrets costs time in proportion to the text, and its shortcuts leave out nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from more_token_generators import FORMATS as MORE_FORMATS
from more_token_generators import FORMS as MORE_FORMS
from reverie.memories.rules import secret_forms, secret_values, secrets
from reverie.memories.rules.secret_values import is_chosen, is_name, is_password, is_random
from reverie.memories.rules.secrets import SecretFinding, find_secrets
from token_generators import FORMATS, FORMS

TEXT_UNITS = [
    "key= token: secret_ AKIA ghp_ eyJ sk- ://a:b@",
    "a1" * 16,
    "0" * 31 + "-us",
    "-eyJ" * 8,
    "sk-ant-+ASt",
    "password of the curl -u login x password ",
    "cookie: a=b; ",
    "seed phrase: word -----BEGIN PRIVATE KEY-----\n",
    'variable "password" { default "x" ',
    "define('A_KEY', 'net use \\\\a securestring ?key=",
]
VALUE_UNITS = ["qwertyuiop", "QwErty", "ABC", "Word", "aB", "ab-", "a_B.", "a1", "a/b", "x=y&", "W0rd-"]


@pytest.mark.requirement("M10")
@pytest.mark.parametrize("unit", TEXT_UNITS)
def test_the_cost_of_a_scan_grows_with_the_text(unit: str, is_linear: Callable[..., bool]) -> None:
    """The time itself is in ``benchmarks/memories.py``."""
    assert is_linear(lambda count: find_secrets(unit * count), 500)


@pytest.mark.requirement("M10")
@pytest.mark.parametrize("unit", VALUE_UNITS)
def test_the_cost_of_judging_a_value_grows_with_the_value(unit: str, is_linear: Callable[..., bool]) -> None:
    for judge in (is_password, is_random, is_chosen, is_name):
        assert is_linear(lambda count: judge(unit * count + "9!x"), 200), judge  # noqa: B023


PLAIN_WORDS = r"(?:(?:[A-Z][a-z]+|[a-z]{2,}|[A-Z]{2,})(?:[^\w\s]|_)?)+"
"""The pattern for words as one would write it: it tries a letter in two words, so each more letter costs 1.6 times."""
GREEDY_WORDS = r"(?:(?>[A-Z][a-z]+|[a-z]{2,}|[A-Z]{2,})(?>[^\w\s]|_)?+)++"
"""The same without second tries: it takes the capital of the next word."""


def test_a_pattern_that_tries_a_letter_in_two_words_is_noticed(
    is_linear: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(count: int) -> bool:
        return is_chosen("q" * (10 + count) + "9!x")

    assert is_linear(judge, 1)
    monkeypatch.setattr(secret_values, "_WORDS", re.compile(PLAIN_WORDS))
    assert not is_linear(judge, 1)


def test_the_quick_pattern_for_words_accepts_the_same_texts_as_the_plain_one() -> None:
    texts = ["".join(letters) for size in range(8) for letters in product("aA_9", repeat=size)]

    def accepted(pattern: re.Pattern[str]) -> set[str]:
        return {text for text in texts if pattern.fullmatch(text)}

    plain = accepted(re.compile(PLAIN_WORDS))
    assert accepted(secret_values._WORDS) == plain
    assert accepted(re.compile(GREEDY_WORDS)) != plain


@pytest.mark.requirement("M10")
def test_leaving_out_short_words_and_rules_without_their_literal_part_finds_the_same(
    seed: int, torture: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    makers = [*FORMATS.values(), *FORMS.values(), *MORE_FORMATS.values(), *MORE_FORMS.values()]
    pieces = [made if isinstance(made := make(chance), str) else made[0] for make in makers]
    # Cut anywhere and joined by anything, so that rules also meet tokens that are torn or run into each other.
    texts = [
        chance.choice(["", " ", "\n", "\t", "=", ": ", '"', "/", "\u00a0"]).join(
            piece[chance.choice([0, 0, 0, chance.randrange(len(piece))]) :] for piece in chance.sample(pieces, 3)
        )
        for _ in range(10_000 if torture else 150)
    ]

    def found(minimum: int) -> list[list[SecretFinding]]:
        monkeypatch.setattr(secrets, "_MIN_CHARS", minimum)
        monkeypatch.setattr(secrets, "_LONG_WORD", re.compile(rf"(?<!\S)\S{{{minimum},}}"))
        return [find_secrets(text) for text in texts]

    own = [find_secrets(text) for text in texts]
    assert sum(map(bool, own)) >= 0.9 * len(texts)
    assert own == found(1)
    assert own != found(40)
    monkeypatch.setattr(secrets, "of_forms", every_form)
    assert own == found(1)
    monkeypatch.setattr(secret_forms, "_FORMS", secret_forms._FORMS[1::2])
    assert own != found(1)


def every_form(text: str) -> Iterator[tuple[int, int, str]]:
    """Try every form at every place of its literal part, without a look at the whole text first."""
    lowered = text.replace("\u0130", "I").lower()
    for name, needle, pattern in secret_forms._FORMS:
        at = 0
        for place in range(len(text)):
            if place < at or not lowered.startswith(needle, place):
                continue
            found = secret_forms._form(pattern).match(text, place)
            if found and (span := secret_forms._secret(found)):
                yield *span, name
            at = max(place + len(needle), found.end() if found else 0)
    yield from secret_forms._beside_keywords(text, lowered)
