"""Options that the model of a session would refuse: the caller learns it before the request leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from reverie import InMemoryStorage, InputError, Session
from reverie.conversation.wire.validate import problems
from reverie.settings import Settings

READ: dict[str, Any] = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}


def prepared(model: str, settings: Settings | None = None, **options: Any) -> dict[str, Any]:
    """Return the first request of a session with these options."""

    async def steps() -> dict[str, Any]:
        async with Session.open("s", storage=InMemoryStorage(), settings=settings) as session:
            await session.say("go")
            return await session.prepare(model=model, tools=[READ], **{"max_tokens": 100, **options})

    return anyio.run(steps)


@pytest.mark.requirement("V10", "K8")
@pytest.mark.parametrize(
    ("model", "options", "advice"),
    [
        ("claude-opus-5-5", {"temperature": 0.5}, "leave it out"),
        ("claude-opus-5-5", {"tool_choice": {"type": "any"}}, "use auto with a strict tool"),
        ("claude-opus-5-5", {"thinking": {"type": "disabled"}}, "model takes: adaptive"),
        ("claude-sonnet-5-5", {"thinking": {"type": "disabled"}}, "model takes: adaptive, between_tools"),
        ("claude-sonnet-5", {"thinking": {"type": "enabled", "budget_tokens": 1_024}, "max_tokens": 2_000}, "adaptive"),
        ("claude-sonnet-4-5", {"thinking": {"type": "adaptive"}}, "model takes: enabled, disabled"),
        ("claude-sonnet-4-5", {"output_config": {"effort": "low"}}, "none"),
        ("claude-opus-4-6", {"output_config": {"effort": "xhigh"}}, "low, medium, high, max"),
        ("claude-haiku-4-5", {"max_tokens": 64_001}, "64000, which is the maximum"),
        ("claude-opus-5", {"max_tokens": 0, "stream": True}, "0 is not supported with stream"),
        ("claude-opus-5", {"stop_sequences": [" "]}, "non-whitespace"),
    ],
)
def test_the_error_names_option_model_and_alternative(model: str, options: dict[str, Any], advice: str) -> None:
    with pytest.raises(InputError) as caught:
        prepared(model, **options)
    assert model in str(caught.value)
    assert advice in str(caught.value)
    assert any(f"option {name}=" in str(caught.value) for name in options)


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("claude-opus-5-5", {"max_tokens": 0}),
        ("claude-opus-5-5", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}),
        ("claude-opus-5-5", {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}),
        ("claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-4-5", {"temperature": 0.5, "tool_choice": {"type": "any"}}),
        ("claude-opus-5-5", {"compaction": {"type": "summarize", "instructions": "Keep the names."}}),
        ("some-other-model", {"temperature": 0.5, "thinking": {"type": "disabled"}, "tool_choice": {"type": "any"}}),
    ],
)
def test_an_option_that_the_model_takes_leaves_unchanged(model: str, options: dict[str, Any]) -> None:
    """The twin of the test above."""
    request = prepared(model, **options)
    assert {name: request[name] for name in options} == options
    assert problems(request) == []


@pytest.mark.requirement("V10", "V1")
def test_a_corrected_fact_decides_and_its_option_is_not_dropped_later() -> None:
    corrected = Settings(Path("/nowhere"), models={"claude-next": {"sampling": True, "thinking_by_default": False}})
    assert prepared("claude-next", corrected, temperature=0.5)["temperature"] == 0.5
    with pytest.raises(InputError, match="claude-next"):
        prepared("claude-next", temperature=0.5)


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("Temperature", "temperature"),
        ("maxTokens", "max_tokens"),
        ("thinkign", "thinking"),
        ("stop_sequence", "stop_sequences"),
        ("tool", "tools"),
        ("sytem", "system"),
        ("extra_header", "extra_headers"),
        ("shap", "shape"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not a known option: did you mean {meant}[?].*extra_body"):
        prepared("claude-haiku-4-5", **{name: 3})


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    "name",
    ["top_a", "min_p", "seed", "models", "billing_policy", "workspace_id", "container_id", "thread_id", "fallbacks"],
)
def test_an_option_that_a_provider_may_have_added_passes(name: str) -> None:
    """The twin of the test above."""
    assert prepared("claude-haiku-4-5", **{name: 3})[name] == 3
    assert prepared("claude-haiku-4-5", extra_body={"temprature": 3})["extra_body"] == {"temprature": 3}
