"""Errors of every provider, translated once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import (
    ImageRefused,
    ModelError,
    ModelRefused,
    ModelUnauthorized,
    ModelUnavailable,
    ModelUnknown,
    PromptTooLong,
    ReplyBroken,
    ThinkingRefused,
)
from reverie.models.failures import failure_of_exception, failure_of_status, failure_of_stream, retry_after_seconds


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai(code: str | None, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}}


@pytest.mark.parametrize(
    ("status", "body", "counts"),
    [
        (
            400,
            anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            (210_000, 200_000),
        ),
        (
            400,
            anthropic(
                "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
            ),
            (190_000, 180_000),
        ),
        (413, anthropic("request_too_large", "Request exceeds the maximum size"), (None, None)),
        (413, "<html>413 Request Entity Too Large</html>", (None, None)),
        (
            400,
            openai(
                "context_length_exceeded",
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            ),
            (9_000, 8_192),
        ),
        (400, openai("context_length_exceeded", "Your input exceeds the context window of this model."), (None, None)),
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
                "(4500 in the messages, 500 in the completion).",
                "type": "BadRequestError",
                "code": 400,
            },
            (5_000, 4_096),
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (6031 tokens) exceeds the available context size (4096 tokens)",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 6031,
                    "n_ctx": 4096,
                }
            },
            (6_031, 4_096),
        ),
        (500, {"error": {"message": "the request exceeds the available context size"}}, (None, None)),
        (
            400,
            {"detail": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."},
            (1_200_000, 1_048_576),
        ),
    ],
)
def test_a_prompt_too_long_is_known_in_every_providers_words(
    status: int, body: Any, counts: tuple[int | None, int | None]
) -> None:
    error = failure_of_status("m", status, body)
    assert isinstance(error, PromptTooLong)
    assert (error.tokens, error.limit) == counts


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, anthropic("invalid_request_error", "messages: at least one message is required"), ModelRefused),
        (401, anthropic("authentication_error", "invalid x-api-key"), ModelUnauthorized),
        (403, None, ModelUnauthorized),
        (404, openai("model_not_found", "The model `x` does not exist"), ModelUnknown),
        (429, openai("rate_limit_exceeded", "Rate limit reached"), ModelUnavailable),
        (429, openai("insufficient_quota", "You exceeded your current quota"), ModelRefused),
        (402, anthropic("billing_error", "no credit"), ModelRefused),
        (408, None, ModelUnavailable),
        (500, "oh", ModelUnavailable),
        (501, "", ModelRefused),
        (522, "<html>", ModelUnavailable),
        (529, anthropic("overloaded_error", "Overloaded"), ModelUnavailable),
        (422, {"detail": [{"msg": "field required"}]}, ModelRefused),
    ],
)
def test_a_status_is_one_error(status: int, body: Any, kind: type[ModelError]) -> None:
    error = failure_of_status("anthropic:x", status, body)
    assert type(error) is kind
    assert str(error).startswith("anthropic:x: ")
    assert str(status) in str(error)


BOUND = "messages.7.content.1: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
LARGE = "image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"


@pytest.mark.requirement("V10")
@pytest.mark.parametrize("more", ["", " The system prompt changed."])
def test_a_thinking_block_bound_to_other_content_is_an_error_of_its_own(more: str) -> None:
    error = failure_of_status("m", 400, anthropic("invalid_request_error", BOUND + more))
    assert isinstance(error, ThinkingRefused)
    assert (error.message_index, error.block_index) == (7, 1)


@pytest.mark.requirement("V10")
@pytest.mark.parametrize(
    "message",
    ["messages.7.content.1: Invalid `signature` in `thinking` block", f"said: {BOUND}", BOUND.replace("bound", "cut")],
)
def test_a_damaged_signature_is_an_ordinary_refusal(message: str) -> None:
    assert type(failure_of_status("m", 400, anthropic("invalid_request_error", message))) is ModelRefused


@pytest.mark.requirement("V8")
@pytest.mark.parametrize(
    ("message", "place"),
    [
        (f"messages.7.content.2.{LARGE}", (7, 2, None)),
        (f"messages.3.content.0.tool_result.content.1.{LARGE}", (3, 0, 1)),
    ],
)
def test_a_refused_image_is_named_by_its_place(message: str, place: tuple[int, int, int | None]) -> None:
    error = failure_of_status("m", 400, anthropic("invalid_request_error", message))
    assert isinstance(error, ImageRefused)
    assert (error.message_index, error.block_index, error.part_index) == place


@pytest.mark.requirement("V10")
def test_the_providers_own_code_stays_on_the_error() -> None:
    body = anthropic("overloaded_error", "The summary could not be written")
    body["error"]["details"] = {"error_code": "compaction_unavailable"}
    error = failure_of_status("m", 529, body)
    assert isinstance(error, ModelUnavailable)
    assert error.error_code == "compaction_unavailable"
    body["error"]["details"] = {"error_code": "compaction_block_misplaced"}
    refused = failure_of_status("m", 400, body)
    assert type(refused) is ModelRefused
    assert refused.error_code == "compaction_block_misplaced"
    assert failure_of_status("m", 529, anthropic("overloaded_error", "Overloaded")).error_code == ""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_as_seconds_or_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, now=1_792_567_680.0) == seconds


@given(st.text(max_size=80))
def test_no_header_breaks_the_reader(said: str) -> None:
    seconds = retry_after_seconds({"retry-after": said, "retry-after-ms": said})
    assert seconds is None or seconds >= 0


@given(
    st.integers(400, 599),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=20) | st.binary(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_every_answer_is_an_error_of_ours(status: int, body: Any) -> None:
    assert isinstance(failure_of_status("m", status, body), ModelError)
    assert isinstance(failure_of_stream("m", body), ModelError)


def test_what_happens_to_a_connection_depends_on_whether_a_reply_had_begun() -> None:
    for error in (httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow"), ConnectionResetError("reset")):
        assert isinstance(failure_of_exception("m", error), ModelUnavailable)
        assert isinstance(failure_of_exception("m", error, begun=True), ReplyBroken)
    assert isinstance(failure_of_exception("m", TypeError("a fault of ours")), ModelRefused)


@pytest.mark.parametrize(
    "message",
    [
        "Missing credentials. Please pass an `api_key`",
        "The api_key client option must be set either by passing api_key to the client or by an environment variable",
    ],
)
def test_a_missing_key_is_named_in_the_words_of_every_version_of_the_sdk(message: str) -> None:
    assert isinstance(failure_of_exception("openai:m", ValueError(message)), ModelUnauthorized)
    assert not isinstance(failure_of_exception("openai:m", ValueError("no such option")), ModelUnauthorized)


def test_the_extra_lets_a_user_keep_the_version_that_other_packages_need() -> None:
    from packaging.requirements import Requirement

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    allowed = Requirement(extras["openai"][0]).specifier
    assert {version: version in allowed for version in ("2.15.0", "2.20.0", "2.54.0", "3.51.0")} == {
        "2.15.0": False,  # its `post` takes no bytes
        "2.20.0": True,
        "2.54.0": True,
        "3.51.0": True,
    }
