"""Forbidden changes of a dream, by any author: each rule with a change that breaks only this rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.layers.l6_dream.changes import DreamProposal, FileChange
from reverie.layers.l6_dream.policy import DreamPolicy
from reverie.layers.l6_dream.validate import Validation, validation
from reverie.memories.store.names import is_memory
from reverie.memories.store.records import read_record
from reverie.memories.store.trust import TRUSTS, Trust

POLICY = DreamPolicy(max_file_bytes=4_000, max_added_files=3)


def text(body: str, **fields: str) -> bytes:
    """Return a memory file."""
    head = {"name": "a name", "description": "the port of the login service is 4001", "type": "reference", **fields}
    lines = "".join(f"{key}: {value}\n" for key, value in head.items() if value)
    return f"---\n{lines}---\n{body}\n".encode()


def memory(number: int, **fields: str) -> bytes:
    body = f"Service number {number} listens on port {4000 + number} and never on 80"
    usual = {"source": f"s{number} m{number}", "created": "2026-11-01T00:00:00Z", "trust": "agent"}
    return text(body, **{**usual, **fields})


FILES = {f"reference_{number}.md": memory(number) for number in range(40)}
FILES["reference_39.md"] = memory(39, trust="unconfirmed", own="kept")
FILES["reference_38.md"] = text("See [[reference_37]] for more.", source="s38 m38", trust="user")
BOTH = text(
    "Service number 1 listens on port 4001 and never on 80. Service number 2 listens on port 4002 and never on 80.",
    source="[s1 m1, s2 m2]",
    created="2026-11-01T00:00:00Z",
    trust="agent",
)


def to(file: str, data: bytes | None, *, into: str = "") -> FileChange:
    before = FILES.get(file)
    act = "merged" if into else "removed" if data is None else "changed" if before is not None else "added"
    return FileChange(file, before, data, act, "because", into)


def judged(*changes: FileChange, by: str = "model", confirmed: bool = False, **trusts: Trust) -> Validation:
    known: dict[str, Trust] = {f"{file}.md": trust for file, trust in trusts.items()}
    return validation(FILES, [DreamProposal(changes, by=by)], POLICY, trusts=known, confirmed=confirmed)


SECRET = "gh" + "p_" + "a1b2c3d4e5" * 3 + "f6g7h8"
SOUND = {
    "a merge": [to("reference_1.md", BOTH), to("reference_2.md", None, into="reference_1.md")],
    "a removal": [to("reference_3.md", None)],
    "a new memory": [to("project_new.md", text("The rollout of the parser begins on 2026-12-01", type="project"))],
    "other words": [to("reference_4.md", memory(4).replace(b"listens on", b"listens always on"))],
    "less trust": [to("reference_4.md", memory(4, trust="unconfirmed"))],
}
UNSOUND = {
    "a name that leads outside": [to("../out.md", text("out of here it goes"))],
    "a hidden name": [to(".journal/x.md", text("out of here it goes"))],
    "the team's folder": [to("team/x.md", text("shared with all of them"))],
    "the index": [to("MEMORY.md", text("nothing"))],
    "a name that is nearly there": [to("Reference_1.md", text("Service 1 is another one"))],
    "nothing to remove": [to("reference_99.md", None)],
    "another before": [FileChange("reference_1.md", b"other", None, "removed", "")],
    "too large": [to("reference_5.md", memory(5) + b"x" * 5_000)],
    "no front matter that can be read": [to("reference_5.md", b"---\nname: [\n---\n" + memory(5))],
    "no such type": [to("reference_5.md", memory(5, type="order"))],
    "no text": [to("reference_5.md", text("", source="s5 m5", created="2026-11-01T00:00:00Z"))],
    "no description": [to("reference_5.md", memory(5, description=""))],
    "a vague description": [to("reference_5.md", memory(5, description="some notes about stuff"))],
    "more trust": [to("reference_39.md", memory(39, trust="user", own="kept"))],
    "a lost source": [to("reference_5.md", memory(5, source="elsewhere"))],
    "a lost field": [to("reference_39.md", memory(39, trust="unconfirmed"))],
    "another birth": [to("reference_5.md", memory(5, created="2026-11-02T00:00:00Z"))],
    "an early end": [to("reference_5.md", memory(5, expires="2026-11-02"))],
    "the team's word": [to("reference_5.md", memory(5, scope="team"))],
    "a secret": [to("reference_5.md", memory(5) + f"The key is {SECRET}\n".encode())],
    "what is not kept": [to("project_now.md", text("I am currently editing line 12 of main.py", type="project"))],
    "a link to nothing": [to("reference_5.md", memory(5) + b"See [[reference_99]]\n")],
    "a link left behind": [to("reference_37.md", None)],
}


@pytest.mark.requirement("L6.6")
@pytest.mark.parametrize("what", SOUND)
def test_a_sound_change_is_kept(what: str) -> None:
    found = judged(*SOUND[what])
    assert found.refused == ()
    assert len(found.kept) == len(SOUND[what])


@pytest.mark.requirement("L6.6", "L6.9", "S1", "S5")
@pytest.mark.parametrize("what", UNSOUND)
def test_a_change_that_breaks_a_rule_is_left_out_and_the_others_stay(what: str) -> None:
    found = judged(*UNSOUND[what], *SOUND["other words"])
    assert [change.file for change in found.kept] == ["reference_4.md"], found
    assert all(one.why for one in found.refused)


def test_what_the_journal_vouches_for_counts_and_not_what_a_file_claims() -> None:
    raised = to("reference_6.md", memory(6).replace(b"listens on", b"listens always on"))
    assert judged(raised).kept
    assert not judged(raised, reference_6="unconfirmed").kept


@pytest.mark.requirement("L6.6")
def test_a_merge_needs_facts_provenance_and_no_more_trust_in_its_target() -> None:
    lost = BOTH.replace(b"4002", b"4003")
    unsourced = BOTH.replace(b", s2 m2", b"")
    gone = to("reference_2.md", None, into="reference_1.md")
    assert judged(to("reference_1.md", lost), gone).deletions == ("reference_2.md",)
    assert {one.file for one in judged(to("reference_1.md", unsourced), gone).refused} == {"reference_2.md"}
    assert "reference_2.md" in {one.file for one in judged(*SOUND["a merge"], reference_2="unconfirmed").refused}


def test_what_leans_on_a_change_that_falls_falls_with_it() -> None:
    broken = to("reference_1.md", BOTH + f"\n{SECRET}\n".encode())
    found = judged(broken, to("reference_2.md", None, into="reference_1.md"))
    assert found.kept == ()
    assert len(found.refused) == 2


@pytest.mark.requirement("L6.6")
@pytest.mark.parametrize(("many", "left"), [(1, 1), (3, 3), (4, 0), (30, 0)])
def test_a_model_that_would_delete_too_much_deletes_nothing(many: int, left: int) -> None:
    found = judged(*(to(f"reference_{number}.md", None) for number in range(many)))
    assert len(found.kept) == left
    assert len(judged(*(to(f"reference_{number}.md", None) for number in range(many)), confirmed=True).kept) == many


def test_a_rewriting_that_drops_what_was_said_counts_as_a_deletion() -> None:
    gutted = [
        to(f"reference_{number}.md", memory(number).rsplit(b"---\n", 1)[0] + b"---\nNothing of note here\n")
        for number in range(9)
    ]
    assert judged(*gutted).kept == ()
    assert len(judged(*gutted[:3]).kept) == 3
    assert judged(*gutted[:3]).deletions == tuple(one.file for one in gutted[:3])


@pytest.mark.requirement("L6.6", "L6.11")
def test_a_merge_in_other_words_counts_as_a_deletion() -> None:
    def paraphrase(number: int) -> list[FileChange]:
        target, gone = f"reference_{2 * number}.md", f"reference_{2 * number + 1}.md"
        port = 4001 + 2 * number
        more = f"Port {port} is that of service number {2 * number + 1}, and 80 never is".encode()
        source = f"source: [s{2 * number} m{2 * number}, s{2 * number + 1} m{2 * number + 1}]".encode()
        data = FILES[target].replace(f"source: s{2 * number} m{2 * number}".encode(), source) + more + b"\n"
        return [to(target, data), to(gone, None, into=target)]

    few = judged(*(change for number in range(3) for change in paraphrase(number)))
    assert few.deletions == ("reference_1.md", "reference_3.md", "reference_5.md")
    many = judged(*(change for number in range(4) for change in paraphrase(number)))
    assert all(change.after is not None for change in many.kept)
    assert many.deletions == ()


def test_what_the_local_dreamer_lets_go_is_not_held_against_a_model() -> None:
    own = DreamProposal((to("reference_0.md", None), to("reference_1.md", None)), by="local")
    two = DreamProposal((to("reference_2.md", None), to("reference_3.md", None)), by="model")
    found = validation(FILES, [own, two], POLICY)
    assert [change.file for change in found.kept] == ["reference_0.md", "reference_1.md"]


def test_one_dream_adds_few_memories() -> None:
    many = [
        to(f"project_{number}.md", text(f"The rollout of part {number} begins later", type="project"))
        for number in range(9)
    ]
    assert len(judged(*many).kept) == 3


bodies = st.sampled_from(
    ["", "Nothing here", "Service number 1 listens on port 4001 and never on 80", SECRET, "[[gone]]"]
)
changes = st.builds(
    lambda number, body, trust, drop, into: to(
        f"reference_{number}.md",
        None if drop else text(body, source=f"s{number} m{number}", trust=trust, created="2026-11-01T00:00:00Z"),
        into=into if drop else "",
    ),
    st.integers(0, 45),
    bodies,
    st.sampled_from(TRUSTS),
    st.booleans(),
    st.sampled_from(["", "reference_1.md", "reference_77.md"]),
)


def sound(found: Validation) -> None:
    """Say again, in other words than the check itself, what must hold of what is kept."""
    after = {**FILES, **{change.file: change.after for change in found.kept if change.after is not None}}
    for change in found.kept:
        if change.after is None:
            after.pop(change.file)
    lost = [file for file in FILES if file not in after and not any(one.into for one in found.kept if one.file == file)]
    assert len(lost) <= min(3, len(FILES) // 10)
    for file, data in after.items():
        new = read_record(file, data)
        assert is_memory(file)
        assert not new.problem
        assert SECRET.encode() not in data
        if file in FILES:
            old = read_record(file, FILES[file])
            assert TRUSTS.index(new.trust) >= TRUSTS.index(old.trust)
            assert set(old.source) <= set(new.source)


@pytest.mark.requirement("L6.6", "B3")
@given(st.lists(changes, max_size=30, unique_by=lambda change: change.file))
def test_whatever_is_proposed_what_is_kept_is_sound(proposed: list[FileChange]) -> None:
    found = judged(*proposed)
    assert len(found.kept) + len(found.refused) == len(proposed)
    sound(found)


def test_a_check_that_lets_everything_through_is_caught() -> None:
    proposed = [to(f"reference_{number}.md", None) for number in range(20)]
    with pytest.raises(AssertionError):
        sound(Validation(tuple(proposed)))
