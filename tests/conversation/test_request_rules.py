"""Every public rule of a request, by model: requests that it refuses, and requests that it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from request_rules import ALL, RULES, Case, Rule, request_of
from reverie.conversation.wire.betas import beta_needs
from reverie.conversation.wire.validate import problems
from reverie.model_facts import facts_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "request-rules.md"
CASES = [(rule, case) for rule in RULES for case in rule.cases]


def named(pair: tuple[Rule, Case]) -> str:
    rule, case = pair
    return f"{rule.id} {rule.cases.index(case)}"


def judged(model: str, case: Case) -> list[tuple[str, str]]:
    found = problems(request_of(model, case.fields), version=case.version, betas=case.betas)
    return [(problem.text, problem.code) for problem in found]


@pytest.mark.requirement("V10")
@pytest.mark.parametrize("pair", CASES, ids=named)
def test_each_model_refuses_and_accepts_as_its_page_says(pair: tuple[Rule, Case]) -> None:
    _, case = pair
    for model in case.refused:
        found = judged(model, case)
        assert any(text.startswith(case.says) and code == case.code for text, code in found), (model, found)
    for model in case.accepted:
        assert judged(model, case) == [], model


@pytest.mark.requirement("V10")
def test_the_plain_request_passes_on_every_model() -> None:
    """The known-good twin of every refusal: the same request without the changed fields."""
    for model in ALL:
        for version in ("", "2023-06-01", "2026-10-21"):
            assert problems(request_of(model, {}), version=version, betas=()) == []


@pytest.mark.requirement("V10")
def test_every_case_that_checks_betas_passes_once_its_betas_are_named() -> None:
    for _, case in CASES:
        if case.betas is not None:
            for model in case.refused:
                request = request_of(model, case.fields)
                betas = [need.betas[0] for need in beta_needs(request)]
                found = problems(request, version=case.version, betas=betas)
                assert not any(problem.text.startswith(case.says) for problem in found), (model, found)


@pytest.mark.requirement("V10")
def test_no_rule_is_without_a_refusal_or_an_acceptance_and_the_counts_are_printed() -> None:
    refused = sum(len(case.refused) for _, case in CASES)
    accepted = sum(len(case.accepted) for _, case in CASES)
    pages = {rule.page for rule in RULES}
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.cases for rule in RULES)
    print(f"\n{len(RULES)} rules of {len(pages)} pages: {refused} refused and {accepted} accepted requests")
    assert refused > 1_000
    assert accepted > 800


@pytest.mark.requirement("V10")
@pytest.mark.parametrize("rule", ["sampling", "thinking-enabled", "prefill", "forced-tool", "effort", "max-tokens"])
def test_with_the_facts_of_another_model_a_rule_misses_what_its_own_model_refuses(rule: str) -> None:
    """The known-bad twin: a validator that does not know the model."""
    blind = facts_of("some-other-model")
    cases = [case for one, case in CASES if one.id == rule and case.refused and case.accepted]
    assert cases
    for case in cases:
        for model in case.refused:
            assert problems(request_of(model, case.fields)) != problems(request_of(model, case.fields), facts=blind)


def table() -> Iterator[str]:
    """Yield the lines of the documented table."""
    yield "| rule | page | cases |"
    yield "|---|---|---|"
    for rule in RULES:
        yield f"| <a id='{rule.id}'></a>{rule.sentence} | {rule.page} | {len(rule.cases)} |"


@pytest.mark.requirement("V10")
def test_the_page_lists_every_rule_with_its_source() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "\n".join(table()) in page
    pages = {rule.page for rule in RULES}
    assert f"{len(RULES)} rules of {len(pages)} pages with {len(CASES)} cases" in page
