"""What the local dreamer puts to a person as a contradiction, and what it does not: one subject and two values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reverie.layers.l6_dream.changes import Dreamed
from reverie.layers.l6_dream.local import dream
from reverie.layers.l6_dream.policy import DreamPolicy


def dreamt(kind: str, one: str, other: str) -> Dreamed:
    """Return what a dream makes of two memories whose names say nothing of their subjects."""
    files = {
        f"{name}.md": (
            f'---\nname: Memory {number}\ndescription: ""\ntype: {kind}\ncreated: 2026-05-04T09:00:00Z\n---\n\n{text}\n'
        ).encode()
        for number, (name, text) in enumerate((("a", one), ("b", other)), 41)
    }
    return dream(files, now=datetime(2026, 12, 1, tzinfo=UTC), policy=DreamPolicy())


def is_flagged(dreamed: Dreamed) -> bool:
    return any(question.topic == "contradiction" for question in dreamed.questions)


_CLASSES = {
    "two prohibitions": (
        "feedback",
        ("Loader tests must not fake the network.", "Loader tests must not use timers."),
        ("Loader tests must not fake the network.", "Loader tests should fake the network."),
    ),
    "one rule for two subjects": (
        "feedback",
        ("Never stub the clock in importer checks.", "Never stub the clock in exporter checks."),
        ("Never stub the clock in importer checks.", "Stub the clock in importer checks."),
    ),
    "a rule denied for another subject": (
        "feedback",
        ("Kiosk tests must not fake the network.", "Portal tests should fake the network."),
        ("Kiosk tests must not fake the network.", "Kiosk tests should fake the network."),
    ),
    "one database of two services": (
        "project",
        ("Data of the kiosk service is stored in MariaDB.", "Portal keeps its data in MariaDB."),
        ("Data of the kiosk service is stored in MariaDB.", "Kiosk keeps its data in Cassandra."),
    ),
    "one person with two things": (
        "reference",
        ("Igor is our contact at Telko.", "Igor is our contact at Hydra."),
        ("Igor is our contact at Telko.", "Our contact at Telko is Bianca."),
    ),
    "one ticket of two persons": (
        "reference",
        ("OPS-31 is the ticket Bianca works in.", "Hassan works in the ticket OPS-31."),
        ("OPS-31 is the ticket Bianca works in.", "Bianca works in the ticket OPS-46."),
    ),
    "one date of two things": (
        "project",
        ("The audit of archive begins on 2027-02-01.", "Starting 2027-02-01 there is an audit of cellar."),
        ("The audit of archive begins on 2027-02-01.", "Starting 2027-03-08 there is an audit of archive."),
    ),
    "one count of two things": (
        "project",
        (
            "Broken uploads are repeated 4 times by the cart client.",
            "The portal client repeats a broken upload 4 times.",
        ),
        ("Broken uploads are repeated 4 times by the cart client.", "The cart client repeats a broken upload 6 times."),
    ),
    "another subject and another value": (
        "feedback",
        ("For uploader packages, use yarn.", "Packages of the downloader are managed with pnpm."),
        ("For uploader packages, use yarn.", "Packages of the uploader are managed with pnpm."),
    ),
    "each day has its time": (
        "user",
        ("On Mondays the user leaves at 16:00.", "The user leaves at 14:30 on Fridays."),
        ("On Mondays the user leaves at 16:00.", "The user leaves at 14:30 on Mondays."),
    ),
    "two adjuncts": (
        "feedback",
        ("Write status mails in Italian.", "Write the status mails before running the checks."),
        ("Write status mails in Italian.", "Write the status mails in Dutch."),
    ),
    "what was to be done and was done": (
        "project",
        ("The lease has to be renewed on 2026-09-30.", "We renewed the lease on 2026-09-12."),
        ("The lease has to be renewed on 2026-09-30.", "The lease must be renewed on 2026-11-15."),
    ),
}


@pytest.mark.parametrize("named", _CLASSES)
def test_a_person_is_asked_only_where_two_values_of_one_thing_exclude_each_other(named: str) -> None:
    kind, compatible, contrary = _CLASSES[named]
    apart = dreamt(kind, *compatible)
    assert not is_flagged(apart)
    assert not any(change.act == "merged" for change in apart.changes)
    assert is_flagged(dreamt(kind, *contrary))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("project", "The review at 14:00 is led by Viktor.", "Teresa leads the review at 14:00."),
        ("project", "Backups are kept in Glacier for 90 days.", "Backups are kept in Backblaze for 90 days."),
        ("project", "Billing runs on the first Monday.", "Billing runs on the last Monday."),
        ("user", "The user lives in Ulm with 2 cats.", "The user lives in Trier with 2 cats."),
        ("user", "Elena was born on 9 October.", "Elena was born on 21 July."),
    ],
)
def test_a_value_they_share_does_not_hide_the_one_in_which_they_differ(kind: str, one: str, other: str) -> None:
    assert is_flagged(dreamt(kind, one, other))


def test_what_was_done_is_not_merged_into_what_was_to_be_done_on_that_day() -> None:
    made = dreamt("project", "The lease has to be renewed on 2026-09-12.", "We renewed the lease on 2026-09-12.")
    assert not any(change.act == "merged" for change in made.changes)
    assert not made.questions
