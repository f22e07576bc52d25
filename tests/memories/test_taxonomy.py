"""Four types, each with its shape; what should not be kept is refused with the reason; vague words are flagged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.memories.rules.taxonomy import (
    TYPES,
    body_for,
    claim_of,
    description_for,
    lint_memory,
    refusal,
    route,
    vagueness,
)
from reverie.memories.store.records import MemoryRecord
from reverie.memories.store.trust import TRUSTS, claimed, worst

KEPT = [
    ("user", "The user is a data scientist who is new to frontend work"),
    ("user", "Prefers short answers without a summary at the end"),
    ("feedback", "Integration tests must hit a real database, not mocks"),
    ("feedback", "One bundled pull request is right for refactorings in this area"),
    ("feedback", "Never commit to main; open a branch first"),
    ("feedback", "Never edit src/vendor/client.py by hand"),
    ("project", "src/billing.py must not use anything newer than Python 3.9"),
    ("user", "我是后端工程师，不熟悉前端"),
    ("feedback", "Run the linter before you say that something is done"),
    ("project", "The auth rewrite is driven by legal, not by technical debt"),
    ("project", "Merge freeze begins on 2026-12-05 for the mobile release"),
    ("project", "Ana owns the migration and wants it done by 2026-12-01"),
    ("project", "The outage of 2026-10-02 came from a config change that nobody reviewed"),
    ("reference", "Pipeline bugs are tracked in the Linear project INGEST"),
    ("reference", "The dashboard at grafana.internal/d/api-latency is what on-call watches"),
    ("project", "The terminal signs its webhooks with Ed25519 over the raw body, and ssh with ed25519"),
    ("project", "The asset tag B01ABCDEF belongs to the shared phone"),
    ("reference", "The decision is explained in commit 3f9a2b1c of the handbook repository"),
]
REFUSED = [
    ("project", "I am currently editing the parser and will run the tests next", "passing"),
    ("project", "Next step is to rename the module", "passing"),
    ("project", "Right at this moment we're debugging the login page", "passing"),
    ("project", "We just fixed the failing test in test_login", "passing"),
    ("project", "Commit 3f9a2b1c moved the parser into its own package", "history"),
    ("project", "PR #412 was merged by Ana", "history"),
    ("project", "Ana merged pull request 412", "history"),
    ("project", "Recent commits include a rewrite of the cache", "history"),
    ("feedback", "The bug was caused by a missing await in handler", "recipe"),
    ("feedback", "The fix was to raise the timeout", "recipe"),
    ("project", "The function parse_log is defined in conversation/log.py", "code"),
    ("project", "settings.py contains the loader of all options", "code"),
    ("project", "The function load in settings.py returns the merged options", "code"),
    ("project", "The architecture is a hexagonal layout with ports in src/ports.py", "code"),
    ("project", "The function parse_date in src/dates.py handles ISO strings", "code"),
    ("feedback", "Dates are parsed by parse_date() and shown in UTC", "code"),
    ("project", "Il modulo src/date.py gestisce le date ISO", "code"),
    ("project", "Die Klasse Leser in src/leser.py liest die Konfiguration", "code"),
    ("project", "Since 3f9a2b1c the parser is a package of its own", "history"),
    ("project", "Beim Import kam KeyError: 'pallets' heraus", "failure"),
    ("project", 'Traceback (most recent call last):\n  File "a.py", line 3, in f', "failure"),
    ("project", "```python\ndef f(x):\n    return x + 1\n```", "code"),
    ("project", "   ", "no text"),
    ("opinion", "Everything is fine with the build", "types are"),
]


@pytest.mark.requirement("M4", "M5")
@pytest.mark.parametrize(("kind", "text"), KEPT)
def test_what_is_worth_keeping_is_kept(kind: str, text: str) -> None:
    assert refusal(text, kind) == ""


@pytest.mark.requirement("M5")
@pytest.mark.parametrize(("kind", "text", "reason"), REFUSED)
def test_what_is_not_is_refused_with_the_reason(kind: str, text: str, reason: str) -> None:
    assert reason in refusal(text, kind)


@pytest.mark.requirement("M5")
def test_what_an_instruction_file_says_is_not_kept_again() -> None:
    rules = ["# Rules\n\n- Always run `make check` before you commit anything.\n- Be kind."]
    said = "Always run make check before you commit anything"
    assert "instruction file" in refusal(said, "feedback", instructions=rules)
    assert refusal(said, "feedback") == ""
    assert refusal("Be kind.", "feedback", instructions=rules) == "", "too short to be the same"
    other = "Before you commit anything, `make check` is always run"
    assert "instruction file" in refusal(other, "feedback", instructions=rules), "in another order"
    assert refusal("Always run the slow tests before you merge anything", "feedback", instructions=rules) == ""
    shorter = refusal("`make check` goes before commits", "feedback", instructions=rules)
    assert "'always run make check before you commit anything'" in shorter, "the refusal quotes the sentence"
    widths = ["Format Python with black, line length 100."]
    assert refusal("Use black with a line length of 100", "feedback", instructions=widths)
    assert refusal("Use black with a line length of 120", "feedback", instructions=widths) == "", "another number"
    for text in ("Do not format Python with black", "Format Python and Markdown with black"):
        assert "speaks of it" in refusal(text, "feedback", instructions=widths)
        assert refusal(text, "feedback", instructions=widths, reason_given=True) == "", "a correction with its reason"
    assert refusal("Format Python with black", "feedback", instructions=widths, reason_given=True), "nothing is new"


@pytest.mark.requirement("M5")
def test_a_statement_about_code_is_kept_with_its_reason() -> None:
    text = "The parser in src/dates.py stays as it is"
    assert "code" in refusal(text, "project")
    assert refusal(text, "project", reason_given=True) == ""
    assert refusal(f"{text}\n\n**Why:** the auditors signed it off", "project") == ""


@pytest.mark.requirement("M3")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("Use pytest_asyncio and test_login_flow", "Use pytest_asyncio and test_login_flow"),
        ("# Names\n**Keep** `a_b` in __init__.py", "Names Keep a_b in __init__.py"),
        ("> C# code: *.cs, never 2 * 3 > 5", "C# code: *.cs, never 2 * 3 > 5"),
    ],
)
def test_a_description_keeps_names_and_loses_markdown(text: str, description: str) -> None:
    assert description_for(text) == description


@pytest.mark.requirement("M4")
def test_the_rule_comes_first_then_why_then_how() -> None:
    assert body_for("Use the real database", "a mock hid a bug", "in every test") == (
        "Use the real database\n\n**Why:** a mock hid a bug\n\n**How to apply:** in every test\n"
    )
    assert body_for("Rule.\n\n**Why:** x", "y") == "Rule.\n\n**Why:** x\n"
    assert set(TYPES) == {"user", "feedback", "project", "reference"}


@pytest.mark.parametrize("label", ["**Why:**", "**Why**:", "**How to apply:**", "**How to apply**:"])
def test_a_claim_and_a_description_end_before_the_reason_however_its_label_is_written(label: str) -> None:
    text = f"Keep the **Why not** page\n\n{label} src/pages.py was fixed by 4f5e6d7"
    assert claim_of(text) == "Keep the **Why not** page"
    assert description_for(text) == "Keep the Why not page"
    assert refusal(text, "feedback") == ""


@pytest.mark.requirement("M3")
@pytest.mark.parametrize(
    "vague",
    ["", "notes", "user preferences", "Important information about the project", "misc stuff to remember", "a" * 400],
)
def test_a_vague_description_is_flagged(vague: str) -> None:
    assert vagueness(vague)


@pytest.mark.requirement("M3")
@pytest.mark.parametrize(("kind", "text"), KEPT)
def test_a_description_with_something_in_it_is_not(kind: str, text: str) -> None:
    assert vagueness(description_for(text)) == ""


@pytest.mark.requirement("M4")
def test_lint_wants_reasons_absolute_dates_and_known_types() -> None:
    found = lint_memory(
        MemoryRecord("x.md", "x", "the release train of the mobile team", "project", body="Ships next week")
    )
    assert any("why" in one for one in found)
    assert any("'next week'" in one for one in found)
    assert any("type 'idea'" in one for one in lint_memory(MemoryRecord("x.md", "x", "a b c d e", "idea")))
    expired = MemoryRecord("x.md", "x", "code freeze of the mobile team", "user", expires="2026-11-01")
    assert any("expired" in one for one in lint_memory(expired, today="2026-11-16"))
    assert lint_memory(expired, today="2026-10-16") == []


@pytest.mark.requirement("M10")
def test_routing_shares_only_what_may_be_shared() -> None:
    assert [route(kind, None, team=True) for kind in TYPES] == ["private", "private", "team", "team"]
    assert [route(kind, "team", team=True) for kind in TYPES] == ["private", "team", "team", "team"]
    assert [route(kind, "team", team=False) for kind in TYPES] == ["private"] * 4


@pytest.mark.requirement("S5")
@given(st.lists(st.sampled_from(TRUSTS), min_size=1), st.text())
def test_trust_is_the_worst_of_the_inputs_and_no_word_makes_it_better(inputs: list[str], word: str) -> None:
    found = worst(inputs)  # type: ignore[arg-type]
    assert all(TRUSTS.index(found) >= TRUSTS.index(one) for one in inputs)  # type: ignore[arg-type]
    assert found in inputs
    if word not in (*TRUSTS, ""):
        assert claimed(word) == "unconfirmed"


@pytest.mark.parametrize(("said", "is_fault"), [("until Thursday", True), ("until Thursday 2026-11-19", False)])
def test_lint_takes_a_weekday_with_its_date_for_a_date(said: str, is_fault: bool) -> None:
    body = f"We freeze merges {said}.\n\n**Why:** the release"
    memory = MemoryRecord("x.md", "merge freeze", "merges are frozen for the release", "project", body=body)
    assert bool(lint_memory(memory)) is is_fault
