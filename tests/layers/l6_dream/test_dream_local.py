"""The local dreamer: what it merges, what it never merges, what it makes absolute and what it asks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.layers.l6_dream.changes import Dreamed
from reverie.layers.l6_dream.dates import redated
from reverie.layers.l6_dream.facts import DreamFacts
from reverie.layers.l6_dream.findings import findings
from reverie.layers.l6_dream.local import dream
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.memories.store.records import new_text, read_record
from reverie.testing.planted_memories import planted_memories

NOW = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
POLICY = DreamPolicy()


def memory(text: str, *, kind: str = "project", day: str = "2026-11-02", name: str = "A note", **fields: str) -> bytes:
    """Return a memory file."""
    head = {"name": name, "description": text.split("\n")[0][:140], "type": kind, "source": "s1 m1", "trust": "agent"}
    return new_text(
        {**head, **fields, "created": f"{day}T08:00:00Z", "modified": f"{day}T08:00:00Z"}, f"{text}\n"
    ).encode()


def applied(files: Mapping[str, bytes], dreamed: Dreamed) -> dict[str, bytes]:
    after = dict(files)
    for change in dreamed.changes:
        assert change.before == files.get(change.file)
        if change.after is None:
            del after[change.file]
        else:
            after[change.file] = change.after
    return after


def dreamt(files: Mapping[str, bytes], facts: DreamFacts | None = None) -> tuple[Dreamed, dict[str, bytes]]:
    dreamed = dream(files, now=NOW, policy=POLICY, facts=facts)
    return dreamed, applied(files, dreamed)


# -- merging


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging DB listens on port 5433.", "Staging database is reachable on port 5433."),
        ("Never commit to main.", "Commits to main are forbidden."),
        ("We chose Kafka over RabbitMQ for the event bus.", "Kafka was picked instead of RabbitMQ for the event bus."),
        ("Standup is at 9:30 in the blue room.", "Our daily stand-up takes place at 9.30 am."),
        ("The colour palette is defined in theme/colours.ts.", "theme/colours.ts defines the color palette."),
        ("Because the CI is slow, run tests locally.", "Run tests locally, because the CI is slow."),
        ("The contract ends on 31 March 2027.", "Contract ends 2027-03-31!"),
        ("Maria owns billing and Tom owns search.", "Tom owns search and Maria owns billing."),
        ("Uploads may be at most 25 MB.", "Max upload size is 25 MB."),
    ],
)
def test_two_wordings_of_one_fact_become_one_memory(one: str, other: str) -> None:
    dreamed, after = dreamt({"a.md": memory(one), "b.md": memory(other, source="s2 m2")})
    assert [change.act for change in dreamed.changes if change.after is None] == ["merged"]
    [left] = after.values()
    assert set(read_record("x.md", left).source) == {"s1 m1", "s2 m2"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging DB listens on port 5433.", "The staging DB listens on port 5434."),
        ("The staging DB listens on port 5433.", "The production DB listens on port 5433."),
        ("Never commit to main.", "Always commit to main."),
        ("Never push to main.", "Never push to develop."),
        ("Use pnpm, never npm.", "Use npm, never pnpm."),
        ("Prefer tabs over spaces.", "Prefer spaces over tabs."),
        ("Maria owns billing and Tom owns search.", "Maria owns search and Tom owns billing."),
        ("Deploys happen on Tuesdays.", "Deploys happen on Tuesdays and Thursdays."),
        ("The cache lives for 30 seconds.", "The cache lives for 30 minutes."),
        ("Requests are logged before login.", "Requests are logged after login."),
        ("Upload limit is at least 10 MB.", "Upload limit is at most 10 MB."),
        ("Keep old branches.", "Delete old branches."),
        ("Retries are enabled for GET requests.", "Retries are enabled for POST requests."),
        ("The wiki moved from Confluence to Notion.", "The wiki moved from Notion to Confluence."),
        ("All services are written in Go.", "All services are written in Java."),
        ("The importer is switched off in May.", "The importer is switched on in May."),
        ("Code reviews need two approvals.", "Code reviews need one approval."),
        ("Coffee with milk and sugar.", "Coffee with milk, without sugar."),
        ("The see-through door is in docs/a.md.", "The see-through door is in docs/b.md."),
    ],
)
def test_what_differs_in_a_fact_is_never_merged(one: str, other: str) -> None:
    dreamed, after = dreamt({"a.md": memory(one), "b.md": memory(other)})
    assert len(after) == 2, dreamed.changes


def test_a_merge_unites_sources_takes_the_worst_trust_and_keeps_every_fact() -> None:
    one = memory(
        "The billing service listens on port 8081.\n\n**Why:** the proxy of Lena needs it.",
        day="2026-10-05",
        trust="user",
    )
    other = memory(
        "Billing service is reachable on port 8081. Ravi opened it on 2026-10-09.\n\n**Why:** ticket NET-77.",
        day="2026-10-11",
        trust="unconfirmed",
        source="s9 m4",
        colour="blue",
    )
    dreamed, after = dreamt({"a.md": one, "b.md": other})
    [(file, data)] = after.items()
    left = read_record(file, data)
    assert left.source == ("s9 m4", "s1 m1") or left.source == ("s1 m1", "s9 m4")
    assert left.trust == "unconfirmed"
    assert (left.created[:10], left.modified[:10]) == ("2026-10-05", "2026-10-11")
    assert left.extra["colour"] == "blue"
    for fact in ("8081", "Ravi", "2026-10-09", "Lena", "NET-77"):
        assert fact in data.decode()
    [gone] = [change for change in dreamed.changes if change.act == "merged"]
    assert gone.into == file


def test_types_keep_memories_apart_and_team_files_are_left_alone() -> None:
    text = "The billing service listens on port 8081."
    files = {"a.md": memory(text), "b.md": memory(text, kind="reference"), "c.md": memory(text, scope="team")}
    files["team/d.md"] = memory(text)
    dreamed, after = dreamt(files)
    assert dreamed.changes == ()
    assert after == files


# -- contradictions


@pytest.mark.requirement("L6.4", "B5")
def test_a_contradiction_is_asked_with_both_statements_and_the_newer_file() -> None:
    files = {
        "old.md": memory("Standup is at 9:30 every day.", day="2026-01-02"),
        "new.md": memory("Daily standup takes place at 10:00.", day="2026-09-02"),
    }
    dreamed, _ = dreamt(files)
    [question] = dreamed.questions
    assert (question.topic, set(question.files)) == ("contradiction", {"old.md", "new.md"})
    for part in ("9:30", "10:00", "new.md is newer", "2026-01-02"):
        assert part in question.text
    assert dreamed.changes == ()


def test_two_subjects_with_values_of_their_own_contradict_nothing() -> None:
    files = {
        "a.md": memory("The staging database listens on port 5432."),
        "b.md": memory("The production database listens on port 6543."),
        "c.md": memory("Logs of billing are kept for 30 days."),
        "d.md": memory("Logs of search are kept for 90 days."),
    }
    assert dreamt(files)[0].questions == ()


def test_what_an_embedding_finds_alike_is_asked_about_and_never_merged() -> None:
    files = {"a.md": memory("Never push to main."), "b.md": memory("Never push to develop.")}
    assert dream(files, now=NOW, policy=POLICY).questions == ()
    dreamed = dream(files, now=NOW, policy=POLICY, similar=lambda _one, _other: 0.99)
    assert [one.topic for one in dreamed.questions] == ["duplicate"]
    assert dreamed.changes == ()


# -- dates


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("The demo is tomorrow.", "The demo is on 2026-11-17 (Tuesday)."),
        ("We ship by Friday.", "We ship by 2026-11-20 (Friday)."),
        ("In two weeks the certificate expires.", "On 2026-11-30 (Monday) the certificate expires."),
        ("It was decided yesterday.", "It was decided on 2026-11-15 (Sunday)."),
        ("We moved last month.", "We moved in 2026-10 (October)."),
        ("Done by the end of the week.", "Done by 2026-11-20 (Friday)."),
        ("Starts next week.", "Starts in the week of 2026-11-23."),
        ("Due the day after tomorrow.", "Due 2026-11-18 (Wednesday)."),
        ("Lena left three days ago.", "Lena left on 2026-11-13 (Friday)."),
        ("The audit is on Thursday.", "The audit is on 2026-11-19 (Thursday)."),
        ("The audit is next Monday.", "The audit is on 2026-11-23 (Monday)."),
        ("The audit is next Friday.", "The audit is on 2026-11-20 or 2026-11-27 (Friday)."),
        ("The audit is this Friday.", "The audit is on 2026-11-20 (Friday)."),
    ],
)
def test_a_relative_date_is_that_of_the_day_it_was_written(said: str, written: str) -> None:
    assert redated(said, date(2026, 11, 16)).text == written


@pytest.mark.parametrize(
    "text",
    [
        "The rota changes every Monday.",
        "Never deploy on Friday.",
        "Today's standard is higher.",
        "Ask for the last name in the next step.",
        'The banner says "tomorrow is another day".',
        "The filter is `last_week`.",
        "Support is there Monday to Friday.",
        "Due Friday (2026-11-20).",
        "See https://example.net/next/week for more.",
    ],
)
def test_words_that_are_no_dates_stay(text: str) -> None:
    assert redated(text, date(2026, 11, 16)).text == text


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_dates_once_made_absolute_stay_as_they_are(day: date, noise: str) -> None:
    said = f"The demo is tomorrow. {noise} By Friday, in two weeks, last month, next March, at the end of the week."
    once = redated(said, day).text
    assert redated(once, day).text == once


def test_the_day_is_that_of_the_file_and_without_one_a_person_is_asked() -> None:
    dated, undated = (
        memory("The demo is tomorrow.", day="2026-03-01"),
        b"---\nname: X\ndescription: a demo of the thing\n",
    )
    undated += b"type: project\n---\nThe demo is tomorrow.\n"
    dreamed, after = dreamt({"a.md": dated, "b.md": undated})
    assert b"2026-03-02" in after["a.md"]
    assert after["b.md"] == undated
    assert [(one.topic, one.files) for one in dreamed.questions] == [("vague", ("b.md",))]
    _, after = dreamt({"b.md": undated}, DreamFacts(modified={"b.md": datetime(2026, 5, 1, tzinfo=UTC).timestamp()}))
    assert b"2026-05-02" in after["b.md"]


# -- links, expiry, hooks, what cannot be read


def test_links_follow_merged_memories_and_dead_ones_become_text_with_the_reason() -> None:
    files = {
        "a.md": memory("The billing service listens on port 8081. Firewall rule 12 lets it through."),
        "b.md": memory("Billing service is reachable on port 8081."),
        "c.md": memory("Ports are listed in [the note](b.md) and [another](gone.md), see [code](src/x.py)."),
    }
    _, after = dreamt(files, DreamFacts(missing_paths=frozenset({"src/x.py"})))
    text = after["c.md"].decode()
    assert "[the note](a.md)" in text
    assert "another (gone.md, a memory that is no longer there)" in text
    assert "code (src/x.py, a file that is no longer there)" in text


def test_expired_memories_go_within_the_caps_and_are_asked_about_beyond_them() -> None:
    plain = {f"p{number}.md": memory(f"Fact number {number} of the {word}.") for number, word in enumerate(_WORDS)}
    few = {
        f"e{number}.md": memory(f"Offer {word} ends.", expires="2026-01-01") for number, word in enumerate(_WORDS[:2])
    }
    many = {
        f"e{number}.md": memory(f"Offer {word} ends.", expires="2026-01-01") for number, word in enumerate(_WORDS[:4])
    }
    dreamed, after = dreamt(plain | few)
    assert sorted(change.file for change in dreamed.changes if change.act == "removed") == sorted(few)
    assert after.keys() == plain.keys()
    dreamed, after = dreamt(plain | many)
    assert dreamed.changes == ()
    assert sorted(one.files[0] for one in dreamed.questions if one.topic == "expired") == sorted(many)


_WORDS = re.findall(
    r"\w+",
    "anvil birch cedar dune ember fjord grove heron islet jetty knoll larch maple nettle otter pine quartz reed sorrel "
    "tulip umber violet willow yarrow zinc",
)


def test_a_long_description_is_shortened_and_its_detail_moves_into_the_body() -> None:
    long = (
        "The invoices of the northern region are sent by courier on the second Tuesday, since the printer in Oslo "
        "jams on glossy paper, and copies go to Ravi, room 4711, before noon"
    )
    dreamed, after = dreamt({"a.md": memory("Invoices go by courier.", description=long)})
    made = read_record("a.md", after["a.md"])
    assert len(made.description) <= 150
    assert "4711" in made.body
    assert dreamed.changes[0].act == "changed"


def test_a_file_that_cannot_be_read_is_asked_about_and_never_touched() -> None:
    files = {"a.md": b"---\nname: [\n---\nThe demo is tomorrow.\n", "b.md": b"\xff\xfe tomorrow"}
    dreamed, after = dreamt(files)
    assert after == files
    assert [one.topic for one in dreamed.questions] == ["unreadable", "unreadable"]


def test_drafts_are_added_once_and_merged_where_a_memory_says_it_already() -> None:
    files = {"a.md": memory("The billing service listens on port 8081.")}
    facts = DreamFacts(
        drafts={
            "new.md": memory("Lena leads the growth team.", source="log 2026-11-01"),
            "twin.md": memory("Billing service is reachable on port 8081.", source="log 2026-11-01"),
        }
    )
    dreamed, after = dreamt(files, facts)
    assert sorted(after) == ["a.md", "new.md"]
    assert "log 2026-11-01" in read_record("a.md", after["a.md"]).source
    assert [change.act for change in dreamed.changes] == ["changed", "added"]
    assert dream(after, now=NOW, policy=POLICY, facts=facts).changes == ()


# -- as a whole

_PIECES = st.sampled_from(
    [
        "---\n",
        "name: x\n",
        "tomorrow ",
        "[a](b.md) ",
        "**Why:** ",
        "not ",
        "`",
        '"',
        "expires: 2020-01-01\n",
        "\r\n",
        "port 5 ",
    ]
)


@given(
    st.dictionaries(
        st.sampled_from(["a.md", "b.md", "sub/c.md", "team/d.md"]),
        st.one_of(
            st.binary(max_size=80),
            st.lists(_PIECES | st.text(max_size=12), max_size=12).map(
                lambda parts: "".join(parts).encode("utf-8", "ignore")
            ),
            st.text(max_size=60).map(lambda text: memory(f"The demo is tomorrow. {text}")),
        ),
        max_size=4,
    )
)
@settings(max_examples=50, deadline=None)
def test_it_takes_any_files_and_a_second_dream_changes_nothing(files: dict[str, bytes]) -> None:
    dreamed, after = dreamt(files)
    removed = [change for change in dreamed.changes if change.act == "removed"]
    assert len(removed) <= min(POLICY.max_deleted_files, POLICY.max_deleted_share * len(files))
    assert dream(after, now=NOW, policy=POLICY).changes == ()
    assert findings(files, now=NOW, policy=POLICY).total == len(files)


@pytest.mark.requirement("L6.4", "B5")
def test_planted_faults_are_found(torture: bool) -> None:
    merged = duplicates = flagged = contradictions = 0
    for seed in range(40, 60 if torture else 41):
        planted = planted_memories(300 if torture else 90, seed, now=NOW)
        dreamed, after = dreamt(planted.files)
        into = {change.file: change.into for change in dreamed.changes if change.act == "merged"}
        for file, target in into.items():
            assert any({file, target} <= group for group in planted.duplicates), (seed, file, target)
        merged += len(into)
        duplicates += sum(len(group) - 1 for group in planted.duplicates)
        asked = {frozenset(one.files) for one in dreamed.questions if one.topic == "contradiction"}
        flagged += len(asked & set(planted.contradictions))
        contradictions += len(planted.contradictions)
        for one in planted.dates:
            text = after[into.get(one.file, one.file)].decode()
            assert any(day in text for day in one.accepted), (seed, one)
            assert one.phrase.lower() not in text.split("\n---\n", 1)[1].lower(), (seed, one)
        assert dream(after, now=NOW, policy=POLICY).changes == ()
        assert findings(after, now=NOW, policy=POLICY).rate < findings(planted.files, now=NOW, policy=POLICY).rate
    assert merged >= 0.95 * duplicates
    assert flagged >= 0.9 * contradictions


def test_a_dreamer_by_similarity_alone_would_merge_what_differs() -> None:
    """The known-bad twin: shared words without a look at the facts."""
    planted = planted_memories(80, 40, now=NOW)

    def words(file: str) -> set[str]:
        return set(re.findall(r"\w+", read_record(file, planted.files[file]).body.lower()))

    alike = [
        (one, other)
        for one, other in planted.apart
        if len(words(one) & words(other)) >= POLICY.similar * min(len(words(one)), len(words(other)))
    ]
    assert alike
    dreamed = dream(planted.files, now=NOW, policy=POLICY)
    into = {change.file: change.into for change in dreamed.changes if change.act == "merged"}
    assert not any(into.get(one) == other or into.get(other) == one for one, other in alike)


def test_findings_name_each_file_with_its_reasons() -> None:
    files = {
        "a.md": memory("The billing service listens on port 8081.\n\n**Why:** so."),
        "b.md": memory("Billing service is reachable on port 8081.\n\n**Why:** so."),
        "c.md": memory("The demo is tomorrow.\n\n**Why:** so."),
        "d.md": memory("Lena leads the growth team.\n\n**Why:** so."),
        "e.md": memory("Invoices go to Oslo by courier.\n\n**Why:** so.", source="gone m1"),
    }
    found = findings(files, now=NOW, policy=POLICY, facts=DreamFacts(gone_sessions=frozenset({"gone"})))
    assert found.count("duplicate") == found.count("unsupported") == found.count("stale") == 1
    assert "d.md" not in found.files
    assert found.rate == 0.6
