"""Models behind chat completions: OpenAI's, and every server with the same API, called through the official SDK.

vLLM, Ollama, llama.cpp, LM Studio and others take the same requests at ``OPENAI_BASE_URL``. ``chat_request`` and
``chat_reply`` translate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..errors import ModelUnknown
from ..model_facts import ModelFacts, facts_of
from ..ports import Capabilities
from .chat_reply import ChatAssembly
from .chat_request import chat_body, limit_field_of, used_ids
from .sdk_client import SdkModel
from .wire import ReplyAssembly, body_bytes

if TYPE_CHECKING:
    import httpx2

DEFAULT: Final = "default"
"""The id that means the only model of a server."""


class OpenAIModel(SdkModel):
    """A model of OpenAI, or of a server at ``base_url`` that speaks its chat completions.

    The key is ``api_key``, else ``OPENAI_API_KEY``; a server of your own may need none. The address is ``base_url``,
    else ``OPENAI_BASE_URL``, else OpenAI's.
    """

    vendor = "openai"
    provider = "openai-chat"
    _only_model: str | None = None

    @property
    def name(self) -> str:
        """The name a user gives the model; it names the API where the model's default is the other one."""
        responses = self._facts.api == "responses" and is_openai(self._base_url)
        default = "openai-responses" if responses else "openai-chat"
        return f"{self.vendor if default == self.provider else self.provider}:{self._id}"

    @property
    def capabilities(self) -> Capabilities:
        """The window, as given or from the installed table; the provider caches prefixes without marks."""
        window, max_output = self._limits()
        return Capabilities(window=window, max_output=max_output)

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        request, facts = await self._named(request)
        limit_field = "max_completion_tokens" if is_openai(self._base_url) else limit_field_of(facts)
        extra: Mapping[str, Any] = request.get("extra_body") or {}
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        body = {**chat_body(request, limit_field=limit_field, facts=facts), **extra, **streamed}
        headers: Mapping[str, str] = request.get("extra_headers") or {}
        response = await self._post("/chat/completions", body_bytes(body), headers)
        return response, ChatAssembly(self.name, used_ids(request), model=str(request.get("model") or ""))

    async def _named(self, request: Mapping[str, Any]) -> tuple[Mapping[str, Any], ModelFacts]:
        """Return a request that names its model, and the facts of that model; ask the server for its only one."""
        if request.get("model") != DEFAULT:
            return request, self._facts
        name = await self._single_model()
        return {**request, "model": name}, facts_of(name)

    async def _single_model(self) -> str:
        """Return the id of the server's only model, asked once; raise ``ModelUnknown`` if it has none or several."""
        if self._only_model is None:
            found = await self.listed()
            if len(found) != 1:
                names = ", ".join(f"openai:{name}" for name in found[:10]) or "none"
                raise ModelUnknown(f"the server at {self._base_url} has {len(found)} models, name one of: {names}")
            self._only_model = found[0]
        return self._only_model

    async def check(self) -> None:
        """Raise ``ModelError`` if the server does not have this model; ``default`` means its only one."""
        await (self._single_model() if self._id == DEFAULT else super().check())

    def _connect(self, sdk: Any) -> Any:
        key = self._api_key or (None if is_openai(self._base_url) else "none")
        return sdk.AsyncOpenAI(api_key=key, **self._connection_options(sdk))


def is_openai(base_url: str | None) -> bool:
    """Say whether an address is OpenAI's own; None means that no other one was given."""
    return base_url is None or (urlsplit(base_url).hostname or "").endswith("openai.com")
