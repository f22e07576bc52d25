"""The local dreamer: it merges equal words, asks about similar ones, dates what is certain and leaves the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.layers.l6_dream.changes import DreamFacts, DreamProposal
from reverie.layers.l6_dream.findings import findings_in
from reverie.layers.l6_dream.local import dream
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.layers.l6_dream.validate import validation
from reverie.memories.store.records import new_text, read_record
from reverie.values import replace

NOW = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
POLICY = DreamPolicy()


def memory(text: str, *, kind: str = "project", day: str = "2026-11-02", name: str = "A note", **fields: str) -> bytes:
    """Return a memory file."""
    head = {"name": name, "description": text.split("\n")[0][:140], "type": kind, "source": "s1 m1", "trust": "agent"}
    return new_text(
        {**head, **fields, "created": f"{day}T08:00:00Z", "modified": f"{day}T08:00:00Z"}, f"{text}\n"
    ).encode()


def applied(files: Mapping[str, bytes], dreamed: DreamProposal) -> dict[str, bytes]:
    after = dict(files)
    for change in dreamed.changes:
        assert change.before == files.get(change.file)
        if change.after is None:
            del after[change.file]
        else:
            after[change.file] = change.after
    return after


def dreamt(files: Mapping[str, bytes], facts: DreamFacts | None = None) -> tuple[DreamProposal, dict[str, bytes]]:
    dreamed = dream(files, now=NOW, policy=POLICY, facts=facts)
    return dreamed, applied(files, dreamed)


# -- merging


@pytest.mark.requirement("L6.4", "L6.11", "B5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging DB listens on port 5433.", "the staging DB  listens on port 5433"),
        ("Never commit to **main**!", "Never commit to main."),
        ("Use tabs.\n\n**Why:** the linter wants it.", "Use tabs.\n\n**Why:** The linter wants it"),
        ("Niemals am Freitag ausliefern.", "niemals am Freitag ausliefern"),
        ("我喜欢茶。", "我喜欢茶"),
    ],
)
def test_memories_with_equal_words_become_one(one: str, other: str) -> None:
    files = {"a.md": memory(one, description="A fact"), "b.md": memory(other, description="A fact", source="s2 m2")}
    dreamed, after = dreamt(files)
    assert [change.act for change in dreamed.changes if change.after is None] == ["merged"]
    [left] = after.values()
    assert set(read_record("x.md", left).source) == {"s1 m1", "s2 m2"}
    assert dreamed.questions == ()


DIFFERENT = [
    ("The staging DB listens on port 5433.", "The staging DB listens on port 5434."),
    ("The staging DB listens on port 5433.", "The production DB listens on port 5433."),
    ("Never commit to main.", "Always commit to main."),
    ("Never commit to main.", "Commit to main."),
    ("Never push to main.", "Never push to develop."),
    ("Prefer tabs over spaces.", "Prefer spaces over tabs."),
    ("Maria owns billing and Tom owns search.", "Maria owns search and Tom owns billing."),
    ("The wiki moved from Confluence to Notion.", "The wiki moved from Notion to Confluence."),
    ("The importer is written in C.", "The importer is written in C++."),
    ("Nie am Freitag ausliefern.", "Immer am Freitag ausliefern."),
    ("我喜欢茶。", "我不喜欢茶。"),
    ("模型在A100上训练。", "模型在H100上训练。"),
    ("Wei Lin leads the autumn release of the planner.", "Ines Moreau leads the autumn release of the planner."),
]


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_a_differing_number_name_or_negation_is_a_question_and_never_a_merge(one: str, other: str) -> None:
    files = {"a.md": memory(one), "b.md": memory(other, day="2026-11-03")}
    dreamed, after = dreamt(files)
    assert after == files
    [question] = dreamed.questions
    assert (question.topic, question.files) == ("similar", ("a.md", "b.md"))
    assert one in question.text
    assert other in question.text
    assert "b.md is the newest" in question.text


def test_a_dreamer_by_shared_words_would_merge_what_differs() -> None:
    """The known-bad twin: most words in common, and another fact."""

    def share(one: str, other: str) -> float:
        left, right = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
        return len(left & right) / min(len(left), len(right))

    assert sum(share(*pair) >= POLICY.similar for pair in DIFFERENT) >= 5


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging DB listens on port 5433.", "Staging database is reachable on port 5433."),
        ("Never commit to main.", "Commits to main are forbidden."),
        ("The falcon team sits in room 101.", "The garnet team sits in room 102."),
        ("Use pnpm.", "Use npm."),
    ],
)
def test_what_is_said_in_other_words_is_left_alone(one: str, other: str) -> None:
    files = {"a.md": memory(one), "b.md": memory(other)}
    dreamed, after = dreamt(files)
    assert after == files
    assert dreamed.questions == ()


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Write to both calendars until 2026-11-10.", True),
        ("Der Import ist bis zum 10.11.2026 gesperrt.", True),
        ("临时频率使用到2026年11月10日为止。", True),
        ("The freeze holds until the end of October 2026.", False),
        ("Die Sperre gilt bis zum 10. November 2026.", True),
        ("Die Tablets liegen bis Ende Oktober 2026 im Schrank.", False),
        ("The freeze holds until November 10th, 2026, for all.", True),
        ("Write to both calendars until 2027-01-31.", False),
        ("Winter rules hold from 2026-11-10 until 2027-03-15.", False),
        ("The pager broke on 2026-10-30.", False),
        ("The pager uses version 2026-11.", False),
        ('Write dates as "10 Nov 2026" in the app.', False),
        ("Write dates as 10 Nov 2026 in the app.", True),
    ],
)
def test_a_last_date_that_has_passed_since_it_was_written_is_a_question(said: str, asked: bool) -> None:
    files = {"a.md": memory(said)}
    dreamed, after = dreamt(files)
    assert after == files
    assert [question.topic for question in dreamed.questions] == (["ended"] if asked else [])


def test_a_superseded_memory_is_neither_changed_nor_asked_about() -> None:
    old = memory("Deploy on Mondays.", superseded_by="b.md", ended="2026-11-10", expires="2026-11-01")
    files = {"a.md": old, "b.md": memory("Deploy on Thursdays.")}
    dreamed, after = dreamt(files)
    assert after == files
    assert dreamed.questions == ()


def test_a_name_or_description_that_says_more_keeps_equal_bodies_apart() -> None:
    one = memory("It listens on port 5432.", name="Staging")
    other = memory("It listens on port 5432.", name="Production")
    dreamed, after = dreamt({"a.md": one, "b.md": other})
    assert len(after) == 2
    assert [question.topic for question in dreamed.questions] == ["similar"]
    named = memory("It listens on port 5432.", name="It listens", description="It listens on port")
    assert len(dreamt({"a.md": named, "b.md": memory("It listens on port 5432.", name="port 5432")})[1]) == 1


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize(
    ("one", "other", "asked"),
    [
        (
            "The hub database is dumped at 2 every day, always.",
            "The lock database is dumped at 3 every day, always.",
            0,
        ),
        (
            "The serial console of the hub board runs at 921600 baud.",
            "The serial console of the lock board runs at 115200 baud.",
            0,
        ),
        ("The hub database is dumped at 02:30 every day.", "The hub database is dumped at 03:10 every day.", 1),
        (
            "The serial console of the hub board runs at 921600 baud.",
            "The serial console of the hub board runs at 115200 baud.",
            1,
        ),
    ],
)
def test_other_values_of_another_thing_are_no_contradiction(one: str, other: str, asked: int) -> None:
    assert len(dreamt({"a.md": memory(one), "b.md": memory(other)})[0].questions) == asked


def test_many_memories_of_one_pattern_are_one_question() -> None:
    files = {f"{word}.md": memory(f"The {word} team reports on Slack.") for word in _WORDS[:9]}
    dreamed, after = dreamt(files)
    assert after == files
    [question] = dreamed.questions
    assert sorted(question.files) == sorted(files)


def test_reasons_that_memories_share_do_not_make_them_similar() -> None:
    why = "\n\n**Why:** the user said so in the first week and said it again in the second."
    files = {"a.md": memory(f"Lena leads growth.{why}"), "b.md": memory(f"Invoices go to Oslo.{why}")}
    assert dreamt(files)[0].questions == ()


def test_equal_memories_of_different_trust_are_a_question() -> None:
    text = "The billing service listens on port 8081.\n\n**Why:** the proxy of Lena needs it."
    files = {"copy.md": memory(text, trust="agent"), "mine.md": memory(text, trust="user")}
    dreamed, after = dreamt(files)
    assert after == files  # a copy by a program would lower the trust of the user's memory
    assert [set(question.files) for question in dreamed.questions] == [{"copy.md", "mine.md"}]
    assert "Both have the same words." in dreamed.questions[0].text


def test_a_merge_unites_sources_and_keeps_every_field() -> None:
    text = "The billing service listens on port 8081.\n\n**Why:** the proxy of Lena needs it."
    one = memory(text, day="2026-10-05", trust="unconfirmed")
    other = memory(text.replace("The", "the"), day="2026-10-11", trust="unconfirmed", source="s9 m4", colour="blue")
    dreamed, after = dreamt({"a.md": one, "b.md": other})
    [(file, data)] = after.items()
    left = read_record(file, data)
    assert left.source == ("s1 m1", "s9 m4")
    assert left.trust == "unconfirmed"
    assert (left.created[:10], left.modified[:10]) == ("2026-10-05", "2026-10-11")
    assert left.extra["colour"] == "blue"
    [gone] = [change for change in dreamed.changes if change.act == "merged"]
    assert gone.into == file


def test_equal_words_of_two_types_are_a_question_and_team_files_are_left_alone() -> None:
    text = "The billing service listens on port 8081."
    files = {"a.md": memory(text), "b.md": memory(text, kind="reference"), "c.md": memory(text, scope="team")}
    files["team/d.md"] = memory(text)
    dreamed, after = dreamt(files)
    assert dreamed.changes == ()
    assert after == files
    assert [one.files for one in dreamed.questions] == [("a.md", "b.md")]
    files["b.md"] = memory("The billing service listens on port 8082.", kind="reference")
    assert dreamt(files)[0].questions == (), "of two types, other words are left alone"


# -- dates


@pytest.mark.requirement("L6.4", "L6.11")
def test_the_day_is_that_of_the_file_and_without_one_a_person_is_asked() -> None:
    dated, undated = (
        memory("The demo is tomorrow.", day="2026-03-01"),
        b"---\nname: X\ndescription: a demo of the thing\n",
    )
    undated += b"type: project\n---\nThe demo is tomorrow.\n"
    dreamed, after = dreamt({"a.md": dated, "b.md": undated})
    assert b"2026-03-02" in after["a.md"]
    assert after["b.md"] == undated
    assert [one.files for one in dreamed.questions if one.topic == "vague"] == [("b.md",)]
    _, after = dreamt({"b.md": undated}, DreamFacts(modified={"b.md": datetime(2026, 5, 1, tzinfo=UTC).timestamp()}))
    assert b"2026-05-02" in after["b.md"]


@pytest.mark.requirement("L6.6")
def test_dates_counted_from_a_files_own_time_are_no_deletions() -> None:
    head = "---\nname: {0}\ndescription: when {0} is done\ntype: project\n---\n"
    files = {f"{word}.md": (head.format(word) + f"The {word} of it is due tomorrow.\n").encode() for word in _WORDS[:9]}
    facts = DreamFacts(modified=dict.fromkeys(files, datetime(2026, 5, 1, tzinfo=UTC).timestamp()))
    dreamed = dream(files, now=NOW, policy=POLICY, facts=facts)
    checked = validation(files, [dreamed], POLICY)
    assert len(checked.kept) == 9
    assert (checked.refused, checked.deletions) == ((), ())
    unknown = validation(files, [replace(dreamed, written_on={})], POLICY)
    assert len(unknown.refused) == 9, "the known-bad twin: a check that cannot count from the day"


@pytest.mark.requirement("L6.11")
@pytest.mark.parametrize("text", ["Das Treffen ist morgen.", "会议是明天。", "Never deploy on Friday."])
def test_dates_it_cannot_read_are_left_alone(text: str) -> None:
    files = {"a.md": memory(text)}
    assert dreamt(files)[1] == files


# -- links, expiry, hooks, what cannot be read


def test_links_follow_merged_memories_and_dead_ones_become_text_with_the_reason() -> None:
    files = {
        "a.md": memory("The billing service listens on port 8081."),
        "b.md": memory("The billing service listens on port 8081"),
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
    (alone,) = dreamt({"e0.md": memory("The offer ends.", expires="2026-01-01")})[0].questions
    assert "Expired: 1 memory; a dream may delete 0." in alone.text


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
            "twin.md": memory("the billing service listens on port 8081", source="log 2026-11-01"),
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
    assert findings_in(files, now=NOW, policy=POLICY).total == len(files)


def test_findings_name_each_file_with_its_reasons() -> None:
    files = {
        "a.md": memory("The billing service listens on port 8081.\n\n**Why:** so."),
        "b.md": memory("the billing service listens on port 8081\n\n**Why:** so"),
        "c.md": memory("The demo is tomorrow.\n\n**Why:** so."),
        "d.md": memory("Lena leads the growth team.\n\n**Why:** so."),
        "e.md": memory("Invoices go to Oslo by courier.\n\n**Why:** so.", source="gone m1"),
    }
    found = findings_in(files, now=NOW, policy=POLICY, facts=DreamFacts(gone_sessions=frozenset({"gone"})))
    assert found.count("duplicate") == found.count("unsupported") == found.count("stale") == 1
    assert "d.md" not in found.files
    assert found.rate == 0.6
