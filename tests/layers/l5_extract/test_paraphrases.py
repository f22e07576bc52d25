"""Vectors find a wish that is repeated in other words: both wordings are of one kind, and near to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import pytest

from reverie.layers.l5_extract import PastSayings, TypedMessage, paraphrases
from reverie.layers.l5_extract.prompts import ReferenceSentences, reference_sentences
from reverie.layers.l5_extract.repetition import RepeatedWish

SVG, PNG = "Figures must be vector graphics in the paper.", "png again, export everything as svg"
CAPTION = "Captions of the plots stay below them."
REFERENCES = ReferenceSentences((("vector graphics", "as svg"), ("captions",)), ("rename it", "run it", "fix it"))
KINDS = {"vector graphics": (1, 0, 0), "as svg": (1, 0, 0), "captions": (0, 1, 0)}
TASKS = dict.fromkeys(REFERENCES.tasks, (0, 0, 1))
Places = Mapping[str, tuple[float, ...]]


def embedding(places: Places) -> paraphrases.Embed:
    def embed(texts: Sequence[str]) -> list[list[float]]:
        found = [{**KINDS, **TASKS, **places}.get(text, ()) for text in texts]
        return [[value / sqrt(sum(part * part for part in one)) for value in one] for one in found]

    return embed


def repeated(
    places: Places,
    earlier: Sequence[str],
    now: str,
    *,
    opens: bool = False,
    references: ReferenceSentences = REFERENCES,
) -> list[RepeatedWish]:
    before = [TypedMessage("before", f"b{number}", text, 1.0, opens) for number, text in enumerate(earlier)]
    past = PastSayings(before, embed=embedding(places), references=references)
    return past.repeated([TypedMessage("now", "n", now, 2.0, opens)])


@pytest.mark.requirement("L5.0")
def test_two_wordings_of_one_kind_of_wish_are_found() -> None:
    wishes: Places = {SVG: (1, 0, 0.2), PNG: (1, 0.2, 0)}
    (found,) = repeated(wishes, [SVG], PNG)
    assert [quote.text for quote in found.quotes] == [SVG, PNG]
    assert PastSayings([TypedMessage("before", "b", SVG)]).repeated([TypedMessage("now", "n", PNG)]) == [], "by words"


@pytest.mark.requirement("L5.0")
def test_talk_about_tasks_and_wishes_of_two_kinds_are_not_found() -> None:
    assert repeated({SVG: (0.2, 0, 1), PNG: (0.1, 0, 1)}, [SVG], PNG) == [], "both are tasks"
    kinds: Places = {SVG: (1, 0.2, 0), CAPTION: (0.2, 1, 0)}
    assert repeated(kinds, [SVG], CAPTION) == [], "both are wishes"
    one_kind = ReferenceSentences((("vector graphics", "as svg", "captions"),), REFERENCES.tasks)
    assert len(repeated(kinds, [SVG], CAPTION, references=one_kind)) == 1, "the known-bad twin: one kind of wish"


@pytest.mark.requirement("L5.0")
def test_nothing_is_found_where_other_messages_are_nearly_as_near() -> None:
    others = [f"Plot number {number} needs a frame." for number in range(3)]
    places: Places = {SVG: (1, 0, 0.5), PNG: (1, 0, -0.5)}
    near: Places = {**places, **dict.fromkeys(others, (1, 0, 0))}
    found = paraphrases.Paraphrases(embedding(near), REFERENCES)
    found.add(paraphrases.Sentence(text, text, f"of {text}", opens=False) for text in (SVG, *others))
    asked = paraphrases.Sentence(PNG, PNG, "now", opens=False)
    assert 0 not in [place for _, _, place in found.same_wishes([asked])]
    assert len(repeated(places, [SVG], PNG)) == 1, "the twin: without the others"


@pytest.mark.requirement("L5.0")
def test_the_first_message_of_a_session_states_a_task_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    places: Places = {SVG: (1, 0, 0.5), PNG: (1, 0.5, 0)}
    monkeypatch.setattr(paraphrases, "_LEAST_CERTAINTY", 5.0)
    assert len(repeated(places, [SVG], PNG)) == 1
    assert repeated(places, [SVG], PNG, opens=True) == []
    monkeypatch.setattr(paraphrases, "_OPENING", 0.0)
    assert len(repeated(places, [SVG], PNG, opens=True)) == 1, "the known-bad twin"


@pytest.mark.requirement("L5.0")
def test_a_message_of_questions_alone_is_no_wish_in_other_words() -> None:
    asked = "In which format are the figures of the paper?"
    places: Places = {SVG: (1, 0, 0), asked: (1, 0, 0), f"{asked} {PNG}": (1, 0, 0), PNG: (1, 0, 0)}
    assert repeated(places, [SVG], asked) == []
    assert len(repeated(places, [SVG], f"{asked} {PNG}")) == 1, "the twin: with a statement"


@pytest.mark.requirement("L5.0")
def test_a_sentence_counts_with_its_message() -> None:
    sentence, rest = "Not like that please.", "These figures are pixels."
    message = f"{sentence} {rest}"
    places: Places = {SVG: (1, 0, 0), sentence: (0.3, 0, 1), rest: (0, 0, 1), message: (1, 0, 0)}
    assert len(repeated(places, [SVG], message)) == 1
    assert repeated({**places, message: (0, 0, 1)}, [SVG], message) == [], "the twin: a message about a task"


@pytest.mark.requirement("L5.0")
def test_the_wording_that_is_most_certainly_a_wish_is_proposed() -> None:
    complaint = "This one is a png, and it blurs."
    places: Places = {SVG: (1, 0, 0.1), complaint: (1, 0, 0.9)}
    assert [wish.text for wish in repeated(places, [SVG], complaint)] == [SVG]
    assert [wish.text for wish in repeated(places, [complaint], SVG)] == [SVG]


@pytest.mark.requirement("R10", "L5.0")
def test_without_vectors_of_its_own_words_decide_and_both_wordings_are_rules() -> None:
    task = ("Never mind, skip the linter for now, I mend it.", "Skip the linter for now, I mend it later.")
    wish = ("Never skip the linter on the main branch.", "You must never skip the linter on main.")
    for (first, second), by_words, beside_vectors in ((task, 1, 0), (wish, 1, 1)):
        said = [TypedMessage("now", "n", second)]
        assert len(PastSayings([TypedMessage("before", "b", first)]).repeated(said)) == by_words
        assert len(repeated({}, [first], second)) == beside_vectors, "the embedder gives no vectors"


def test_reference_sentences_are_kinds_of_wishes_and_tasks_without_repetition() -> None:
    found = reference_sentences()
    wordings = [text for kind in found.wishes for text in kind]
    assert min(len(found.wishes), len(found.tasks)) > 100
    assert len({*wordings, *found.tasks}) == len(wordings) + len(found.tasks)
    assert all(text.strip() == text and text for text in (*wordings, *found.tasks))
