"""Retry only where it may help, then use the fallback model."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError, ModelError, ModelRefused, ModelUnavailable, PromptTooLong, ReplyBroken
from reverie.models import BrokenReply, Retry, RetryingModel, RetryPolicy, ScriptedModel, open_model
from reverie.ports import Capabilities, Reply, ReplyDelta

Run = Callable[[Coroutine[Any, Any, Any]], Any]
ASKED = {"model": "model", "max_tokens": 10_000, "messages": [{"role": "user", "content": "Hello?"}]}
AWAY = ModelUnavailable("away", status=529)


class Clock:
    """Remembers how long was slept and sleeps not at all."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def retrying(*said: Any, told: list[Retry] | None = None, **more: Any) -> tuple[RetryingModel, ScriptedModel, Clock]:
    model, clock = ScriptedModel(list(said)), Clock()
    on_retry = told.append if told is not None else None
    return RetryingModel(model, sleep=clock.sleep, on_retry=on_retry, **more), model, clock


@pytest.mark.requirement("Q7")
def test_it_waits_longer_each_time_and_at_least_as_long_as_told(run: Run) -> None:
    said = [AWAY, AWAY, ModelUnavailable("slow down", status=429, retry_after=20), AWAY, "Hello."]
    model, _, clock = retrying(*said, jitter=lambda: 1.0, policy=RetryPolicy(first_delay_seconds=1.0))
    assert run(model.complete(ASKED)).body["content"][0]["text"] == "Hello."
    assert clock.slept == [1.0, 2.0, 20.0, 8.0]


def test_jitter_never_takes_more_than_half_and_the_wait_has_a_top(run: Run) -> None:
    policy = RetryPolicy(first_delay_seconds=10, max_delay_seconds=30)
    model, _, clock = retrying(*[AWAY] * 5, "x", jitter=lambda: 0.0, policy=policy)
    run(model.complete(ASKED))
    assert clock.slept == [5.0, 10.0, 15.0, 15.0, 15.0]


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_an_address_at_which_nothing_listens_is_tried_twice_and_named(run: Run, name: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://localhost:{unused.getsockname()[1]}"
        keys = {f"{name.upper()}_BASE_URL": url, f"{name.upper()}_API_KEY": "key"}
        clock = Clock()
        model = RetryingModel(open_model(name, environ=keys), sleep=clock.sleep)
        with pytest.raises(ModelUnavailable, match="nothing listens at this address: start the server"):
            run(model.complete(ASKED))
        assert len(clock.slept) == 1


@pytest.mark.parametrize("error", [ModelRefused("no"), PromptTooLong("long"), ModelError("?"), ValueError("a bug")])
def test_what_was_refused_is_not_asked_again(run: Run, error: Exception) -> None:
    model, asked, clock = retrying(error, "never", fallback=ScriptedModel(["never"]))
    with pytest.raises(type(error)):
        run(model.complete(ASKED))
    assert len(asked.requests) == 1
    assert clock.slept == []


@pytest.mark.requirement("Q7")
def test_a_stream_that_broke_is_asked_again_whole_and_the_reader_told_what_to_forget(run: Run) -> None:
    told: list[Retry] = []
    model, asked, _ = retrying(BrokenReply("A long enough first answer that breaks.", 1), "Hello.", told=told)

    async def steps() -> list[ReplyDelta | Reply]:
        return [part async for part in model.stream(ASKED)]

    parts = run(steps())
    assert [type(part) for part in parts] == [ReplyDelta, ReplyDelta, Reply]
    assert [retry.pieces for retry in told] == [1]
    assert isinstance(told[0].error, ReplyBroken)
    assert asked.requests[0] == asked.requests[1]


def test_after_the_last_try_the_error_is_the_models_own(run: Run) -> None:
    model, asked, clock = retrying(*[AWAY] * 9, policy=RetryPolicy(attempts=3))
    with pytest.raises(ModelUnavailable, match="away"):
        run(model.complete(ASKED))
    assert len(asked.requests) == 3
    assert len(clock.slept) == 2


def test_a_wait_nobody_would_sit_through_is_not_begun(run: Run) -> None:
    model, asked, clock = retrying(ModelUnavailable("come back tomorrow", status=429, retry_after=86_400))
    with pytest.raises(ModelUnavailable):
        run(model.complete(ASKED))
    assert clock.slept == []
    assert len(asked.requests) == 1


def test_the_fallback_is_asked_as_itself_and_only_for_what_it_can_do(run: Run) -> None:
    told: list[Retry] = []
    other = ScriptedModel(
        ["Hello from me.", "Me again."], name="scripted:other", capabilities=Capabilities(window=9_000, max_output=500)
    )
    twice = RetryPolicy(attempts=2)
    model, asked, clock = retrying(AWAY, AWAY, AWAY, AWAY, "I am back.", told=told, fallback=other, policy=twice)
    extra = {"context_management": {"edits": []}, "diagnostics": {"previous_message_id": "m"}, "betas": ["x"]}
    assert run(model.complete({**ASKED, **extra})).body["model"] == "other"
    assert other.requests == [{**ASKED, "model": "other", "max_tokens": 500}]
    assert [retry.model for retry in told] == ["scripted:model", "scripted:other"]
    assert len(clock.slept) == 1
    # Its absence was waited out once: now it gets one try a request, until it answers.
    assert run(model.complete(ASKED)).body["model"] == "other"
    assert len(asked.requests) == 3
    assert len(clock.slept) == 1


def test_a_model_that_is_back_is_given_every_try_again(run: Run) -> None:
    other = ScriptedModel(["other"])
    model, asked, _ = retrying(AWAY, AWAY, "back", AWAY, "still here", fallback=other, policy=RetryPolicy(attempts=2))

    async def steps() -> list[str]:
        return [(await model.complete(ASKED)).body["content"][0]["text"] for _ in range(3)]

    assert run(steps()) == ["other", "back", "still here"]
    assert len(asked.requests) == 5


def test_both_models_are_closed(run: Run) -> None:
    first, second = ScriptedModel([]), ScriptedModel([])
    run(RetryingModel(first, fallback=second).aclose())
    assert first.closed
    assert second.closed


def test_no_attempts_at_all_is_refused() -> None:
    with pytest.raises(InputError):
        RetryingModel(ScriptedModel([]), policy=RetryPolicy(attempts=0))


OUTCOMES = st.sampled_from(["away", "broken", "whole", "refused"])


@given(st.lists(OUTCOMES, max_size=8), st.lists(OUTCOMES, max_size=8), st.integers(1, 4))
def test_whatever_fails_there_is_one_whole_reply_or_one_error(
    run: Run, first: list[str], second: list[str], attempts: int
) -> None:
    def said(name: str) -> Any:
        errors = {"away": AWAY, "refused": ModelRefused("no")}
        return errors.get(name) or (BrokenReply("broken " * 20, 2) if name == "broken" else "whole")

    other = ScriptedModel([said(name) for name in second])
    model, asked, _ = retrying(*map(said, first), fallback=other, policy=RetryPolicy(attempts=attempts))

    async def steps() -> list[ReplyDelta | Reply]:
        return [part async for part in model.stream(ASKED)]

    try:
        parts = run(steps())
    except ModelError:
        parts = []
    else:
        assert [isinstance(part, Reply) for part in parts] == [*[False] * (len(parts) - 1), True]
        assert parts[-1].body["content"][0]["text"] == "whole"
    assert len(asked.requests) <= attempts
    assert len(other.requests) <= attempts


@pytest.mark.requirement("V10")
def test_a_fallback_model_gets_no_option_that_it_refuses(run: Run) -> None:
    asked = {**ASKED, "temperature": 0.5, "thinking": {"type": "disabled"}, "stop_sequences": ["END"]}
    sent: dict[str, dict[str, Any]] = {}
    for name in ("claude-opus-5-5", "claude-haiku-4-5"):
        other = ScriptedModel(["Hello."], name=f"scripted:{name}")
        model, _, _ = retrying(AWAY, fallback=other, policy=RetryPolicy(attempts=1))
        run(model.complete(asked))
        sent[name] = dict(other.requests[-1])
    assert sent["claude-opus-5-5"].keys() & asked.keys() == {*ASKED, "stop_sequences"}
    assert sent["claude-haiku-4-5"].keys() >= asked.keys()
