"""The local dreamer on sentences as other people write them: four styles of notes, none from the planted memories."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest

from reverie.layers.l6_dream.changes import Dreamed
from reverie.layers.l6_dream.dates import redated
from reverie.layers.l6_dream.local import dream
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.layers.l6_dream.standing import missing
from reverie.layers.l6_dream.statements import statements_of

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DAY = date(2026, 4, 15)
"""A Wednesday."""


def dreamt(kind: str, one: str, other: str, names: tuple[str, str] = ("Memory 004", "Memory 005")) -> Dreamed:
    """Return what a dream makes of two memories whose names say nothing."""
    head = 'description: ""\ntype: {}\ncreated: 2026-05-04T09:00:00Z\n'.format
    files = {
        f"{file}.md": f"---\nname: {name}\n{head(kind)}---\n\n{text}\n".encode()
        for file, name, text in zip("ab", names, (one, other), strict=True)
    }
    return dream(files, now=NOW, policy=DreamPolicy())


def is_merged(dreamed: Dreamed) -> bool:
    return any(change.act == "merged" for change in dreamed.changes)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("user", "She wants explanations with examples.", "The user wants explanations with examples. He said so."),
        ("user", "The user's wife, Ana, is a paediatrician.", "The user's wife Ana is a pediatrician."),
        ("user", "He goes to the gym twice a week.", "He goes to the gym two times a week."),
        ("feedback", "Ask before deleting files.", "Please ask first before deleting any files."),
        ("feedback", "Never answer with just a link.", "Don't ever answer with only a link."),
        ("project", "Experiment 42 reached an accuracy of 91.3 %.", "Experiment 42 achieved 91.3% accuracy."),
        ("project", "The survey has three waves.", "The survey consists of 3 waves."),
        ("project", "The database holds 3 million records.", "There are 3,000,000 records in the database."),
        ("project", "The job fails if a file is larger than 2 GB.", "If a file exceeds 2 GB, the job fails."),
        ("project", "The sync runs every second Monday at 10 am.", "Every other Monday at 10:00 the sync runs."),
        ("project", "The shop is shut from Christmas to New Year.", "From Christmas to New Year the shop is closed."),
        ("project", "The genomics group is led by Dr. Okafor.", "Dr. Okafor leads the genomics group."),
        ("project", "The mailer service is written in Elixir.", "Elixir is the language of the mailer service."),
        ("project", "2026-07-11 is the deadline for migrating it.", "It must be migrated by 2026-07-11."),
        ("reference", "Raw data are stored in the bucket `s3://raw`.", "The bucket `s3://raw` holds the raw data."),
    ],
)
def test_one_fact_in_other_words_becomes_one_memory(kind: str, one: str, other: str) -> None:
    assert is_merged(dreamt(kind, one, other))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("project", "Tom owns the billing service.", "Tom owns the invoicing service."),
        ("project", "Model A outperforms model B.", "Model B outperforms model A."),
        ("project", "The sensor reads -5 degrees.", "The sensor reads 5 degrees."),
        ("project", "The team used to deploy by hand.", "The team deploys by hand."),
        ("project", "The valve opens to the left.", "The valve opens to the right."),
        ("project", "The upgrade takes two and a half hours.", "The upgrade takes two hours."),
        ("project", "More than 10 users are affected.", "Fewer than 10 users are affected."),
        ("project", "The release is stable.", "The release is unstable."),
        ("project", "Backups run nightly.", "Backups run weekly."),
        ("user", "Her birthday is on 14 June.", "His birthday is on 14 June."),
        ("user", "The user owes Paul 50 euros.", "Paul owes the user 50 euros."),
        ("user", "The user takes 20 mg of the drug.", "The user takes 200 mg of the drug."),
    ],
)
def test_another_fact_in_the_same_words_is_never_merged(kind: str, one: str, other: str) -> None:
    assert not is_merged(dreamt(kind, one, other))
    assert not is_merged(dreamt(kind, other, one))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("user", "The user prefers tabs.", "The user prefers spaces."),
        ("user", "The user works at a hospital.", "The user works at a bank."),
        ("user", "Her favourite food is sushi.", "Her favourite food is pizza."),
        ("user", "The user's car is a Nissan Leaf.", "The user's car is a Renault Zoe."),
        ("project", "Feature flags are enabled by default.", "Feature flags are disabled by default."),
        ("project", "The dataset is public.", "The dataset is private."),
        ("project", "The paper was accepted.", "The paper was rejected."),
        ("project", "The cluster runs in eu-west-1.", "The cluster is in us-east-1."),
        ("project", "The mailer stores its data in Redis.", "MySQL is the database of the mailer."),
        ("feedback", "Comments in code are welcome.", "Do not write comments in code."),
        ("feedback", "Show the diff before applying it.", "Apply changes without showing the diff."),
    ],
)
def test_what_cannot_both_be_true_is_put_to_a_person(kind: str, one: str, other: str) -> None:
    dreamed = dreamt(kind, one, other)
    assert not is_merged(dreamed)
    assert [question.topic for question in dreamed.questions] == ["contradiction"]


def test_a_number_in_a_name_is_a_fact_only_where_it_names_something() -> None:
    said = ("Deploys happen on Fridays.", "We deploy every Friday.")
    assert is_merged(dreamt("project", *said, names=("Memory 12", "Memory 13")))
    assert is_merged(dreamt("project", *said, names=("deploys-happen-17", "deploy-friday-203")))
    same = ("It failed after an hour of training.", "It failed after an hour of training.")
    assert not is_merged(dreamt("project", *same, names=("Experiment 42", "Experiment 43")))


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("It died half a year ago.", "It died on 2025-10-15 (Wednesday)."),
        ("We met a month and a half ago.", "We met on 2026-02-28 (Saturday)."),
        ("We deployed over the weekend.", "We deployed on the weekend of 2026-04-11."),
        ("They met the night before last.", "They met in the night of 2026-04-13."),
        ("He left Monday.", "He left on 2026-04-13 (Monday)."),
        ("In a week's time we ship.", "On 2026-04-22 (Wednesday) we ship."),
        ("We ship by month's end.", "We ship by 2026-04-30 (Thursday)."),
        ("He returns in 2-3 weeks.", "He returns between 2026-04-29 (Wednesday) and 2026-05-06 (Wednesday)."),
        ("He returns in twenty-one days.", "He returns on 2026-05-06 (Wednesday)."),
        ("This coming Friday it rains.", "On 2026-04-17 (Friday) it rains."),
        ("The party is on Friday next week.", "The party is on 2026-04-24 (Friday)."),
        ("Last week was quiet.", "The week of 2026-04-06 was quiet."),
        ("She watches the Today show.", "She watches the Today show."),
        ("The film The Last Week in June is his favourite.", "The film The Last Week in June is his favourite."),
    ],
)
def test_a_day_by_its_distance_becomes_a_date_and_a_name_stays(said: str, written: str) -> None:
    assert redated(said, DAY).text == written


def growth(way: Callable[[str], object], piece: str) -> float:
    """Return how many times longer a way takes for a text eight times as long."""

    def least(chars: int) -> float:
        taken: list[float] = []
        for turn in range(3):
            text = (piece * chars)[: chars + turn]  # another text each time: nothing is remembered
            start = time.process_time()
            way(text)
            taken.append(time.process_time() - start)
        return min(taken)

    least(100)
    return least(4_000) / max(least(500), 1e-5)


@pytest.mark.parametrize("piece", ["a ", "[", " ", "a-", "\n", "<!--"])
def test_a_long_line_takes_no_more_than_its_length(piece: str) -> None:
    def all_of_it(text: str) -> None:
        statements_of(text)
        redated(text, DAY)
        missing(text[:500], text)

    assert growth(all_of_it, piece) < 30


def test_a_pattern_that_begins_anew_at_every_bracket_fails_that_measure() -> None:
    bad = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)")
    assert growth(lambda text: bad.sub("", text), "[") > 30
