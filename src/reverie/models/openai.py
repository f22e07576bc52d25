"""Models behind chat completions: OpenAI's, and every server with the same API, called through the official SDK.

vLLM, Ollama, llama.cpp, LM Studio and others take the same requests at ``OPENAI_BASE_URL``. ``chat_request`` and
``chat_reply`` translate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..cache.prices import listed_window
from ..errors import ModelUnknown
from ..ports import Capabilities
from .chat_reply import ChatAssembly
from .chat_request import chat_request, used_ids
from .failures import failure_of_exception
from .sdk_client import SdkModel
from .wire import ReplyAssembly, body_bytes

if TYPE_CHECKING:
    import httpx2

__all__ = ["DEFAULT", "OpenAIModel"]

DEFAULT: Final = "default"
"""The id that means the only model of a server."""


class OpenAIModel(SdkModel):
    """A model of OpenAI, or of a server at ``base_url`` that speaks its chat completions.

    The key is ``api_key``, else ``OPENAI_API_KEY``; a server of your own may need none. The address is ``base_url``,
    else ``OPENAI_BASE_URL``, else OpenAI's. ``window`` is for models that are not in the installed table.
    """

    vendor = "openai"
    _only_model: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The window, as given or from the installed table; the provider caches prefixes without marks."""
        return Capabilities(window=self._window or listed_window(self._id))

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        limit_field = "max_completion_tokens" if _is_openai(self._base_url) else "max_tokens"
        body = chat_request(request, limit_field=limit_field)
        if body["model"] == DEFAULT:
            body["model"] = await self._single_model()
        headers: Mapping[str, str] = request.get("extra_headers") or {}
        response = await self._client.post("/chat/completions", body_bytes(body), headers)
        return response, ChatAssembly(self.name, used_ids(request))

    async def _single_model(self) -> str:
        """Return the id of the server's only model, asking the server once.

        Raise ``ModelUnknown`` if the server has none or several.
        """
        if self._only_model is None:
            try:
                client, _ = await self._client.open()
                found = [str(model.id) async for model in client.models.list()]
            except Exception as error:
                raise failure_of_exception(self.name, error) from error
            if len(found) != 1:
                names = ", ".join(f"openai:{name}" for name in found[:10]) or "none"
                raise ModelUnknown(f"the server at {self._base_url} has {len(found)} models, name one of: {names}")
            self._only_model = found[0]
        return self._only_model

    def _connect(self, sdk: Any) -> Any:
        key = self._api_key or (None if _is_openai(self._base_url) else "none")
        return sdk.AsyncOpenAI(api_key=key, **self._connection_options(sdk))

    def _load(self) -> Any:
        try:
            import openai
        except ImportError as error:
            raise ModelUnknown("OpenAI's SDK is not installed: pip install 'reverie[openai]'") from error
        return openai


def _is_openai(base_url: str | None) -> bool:
    return base_url is None or (urlsplit(base_url).hostname or "").endswith("openai.com")
