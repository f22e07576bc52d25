"""Every public case of a request, by model, over HTTP: the test server refuses and accepts as the validator does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest

from request_rules import RULES, Case, Rule, request_of
from reverie.conversation.wire.betas import beta_needs
from reverie.testing.messages_server import MessagesServer, provider

pytestmark = [pytest.mark.requirement("V10"), pytest.mark.slow]


class Line:
    """One connection to the server."""

    def __init__(self, server: MessagesServer) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, case: Case, model: str) -> tuple[int, str]:
        """Return the status of a case on a model, and the words of a refusal."""
        body = request_of(model, case.fields)
        betas = case.betas if case.betas is not None else [beta for need in beta_needs(body) for beta in need.betas]
        headers = {"x-api-key": "any", "anthropic-version": case.version or "2023-06-01"}
        self._connection.request(
            "POST", "/v1/messages", json.dumps(body), {**headers, "anthropic-beta": ",".join(betas)}
        )
        answer = self._connection.getresponse()
        said = answer.read()
        return answer.status, "" if answer.status == 200 else json.loads(said)["error"]["message"]


def disagreements(rules: Iterable[Rule]) -> tuple[list[tuple[str, int, str, str]], int]:
    """Return the cases that the server judges unlike their page, and the number that it judged."""
    wrong: list[tuple[str, int, str, str]] = []
    judged = 0
    # Signatures in the cases are made up: the server's own are tested elsewhere.
    with MessagesServer(lambda request: "ok", checks_thinking=False) as server, Line(server) as line:
        for rule in rules:
            for number, case in enumerate(rule.cases):
                for model in (*case.refused, *case.accepted):
                    status, words = line.send(case, model)
                    judged += 1
                    if (status == 200) != (model in case.accepted):
                        wrong.append((rule.id, number, model, words))
        assert server.errors == []
    return wrong, judged


def test_the_server_refuses_and_accepts_every_public_case() -> None:
    wrong, judged = disagreements(RULES)
    pages = {rule.page for rule in RULES}
    print(f"\n{judged} requests of {len(RULES)} rules and {len(pages)} pages judged")
    assert wrong == []
    assert judged > 2_500


def test_a_server_without_the_rules_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "check_request", lambda *given: None)
    rules = [rule for rule in RULES if rule.id in ("sampling", "prefill", "effort")]
    refused = sum(len(case.refused) for rule in rules for case in rule.cases)
    assert len(disagreements(rules)[0]) == refused > 50
