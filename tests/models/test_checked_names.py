"""Whether a provider has a model is asked before it is used."""

from __future__ import annotations

import anyio
import pytest

from reverie.errors import ModelUnauthorized, ModelUnavailable, ModelUnknown
from reverie.models.anthropic import AnthropicModel
from reverie.models.names import usable_models
from reverie.models.openai import OpenAIModel
from reverie.models.sdk_client import SdkModel
from reverie.testing.chat_server import ChatServer
from reverie.testing.messages_server import MessagesServer


def check(model: SdkModel) -> None:
    async def steps() -> None:
        try:
            await model.check()
        finally:
            await model.aclose()

    anyio.run(steps)


def test_a_model_that_the_provider_does_not_have_is_refused_with_similar_names() -> None:
    with MessagesServer(["Hello."]) as server:
        check(AnthropicModel("claude-sonnet-5", base_url=server.base_url, api_key="x"))
        check(AnthropicModel("claude-sonnet-5[1m]", base_url=server.base_url, api_key="x"))
        with pytest.raises(ModelUnknown, match="did you mean anthropic:claude-sonnet-5"):
            check(AnthropicModel("claude-sonet-5", base_url=server.base_url, api_key="x"))


def test_a_server_with_only_a_list_is_asked_for_that() -> None:
    with ChatServer(["Hello."], models=["small-1", "large-1"]) as server:
        check(OpenAIModel("small-1", base_url=server.base_url))
        with pytest.raises(ModelUnknown, match="has no model smal-1; did you mean openai:small-1"):
            check(OpenAIModel("smal-1", base_url=server.base_url))
        with pytest.raises(ModelUnknown, match="has 2 models"):
            check(OpenAIModel("default", base_url=server.base_url))


def test_a_missing_key_and_a_missing_server_are_said() -> None:
    with pytest.raises(ModelUnauthorized, match="OPENAI_API_KEY"):
        check(OpenAIModel("gpt-99", environ={}))
    with pytest.raises(ModelUnavailable):
        check(OpenAIModel("gpt-99", base_url="http://127.0.0.1:9"))


def test_the_models_to_choose_from_are_aliases_and_those_of_providers_that_are_set_up() -> None:
    with MessagesServer(["Hello."]) as server:
        environ = {"ANTHROPIC_BASE_URL": server.base_url, "OPENAI_BASE_URL": "http://127.0.0.1:9"}
        found = anyio.run(lambda: usable_models({"small": "claude-haiku-4-5"}, environ))
    assert found[0] == "small"
    assert "anthropic:claude-sonnet-5" in found
    assert not any(name.startswith("openai:") for name in found)
