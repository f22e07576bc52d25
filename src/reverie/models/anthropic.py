"""Models behind the Messages API, called through the official SDK.

The SDK handles keys, addresses, proxies and versions. The request body is sent byte for byte, and the reply is
assembled here from the raw events, so that no schema of the SDK changes either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from ..conversation.tokens.window import MILLION
from ..conversation.wire.betas import beta_needs
from ..conversation.wire.carried_items import without_carried
from ..conversation.wire.fields import SDK_ARGUMENTS
from ..model_facts import bare_model, facts_of
from ..ports import Capabilities
from .failures import failure_of_exception
from .messages_stream import MessageAssembly
from .sdk_client import SdkModel
from .wire import ReplyAssembly, body_bytes, is_loopback

if TYPE_CHECKING:
    import httpx2

_MILLION_BETA: Final = "context-1m-2025-08-07"
_DIAGNOSIS_BETA: Final = "cache-diagnosis-2026-04-07"
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_SAMPLING_VERSION: Final = "2023-06-01"  # later ones, which the SDK sends by itself, refuse sampling options


class AnthropicModel(SdkModel):
    """A model of Anthropic, or of any server that speaks its Messages API.

    The key is ``api_key``, else ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``, else the one the SDK finds; a
    server on this machine needs none. The address is ``base_url``, else ``ANTHROPIC_BASE_URL``, else Anthropic's.
    """

    vendor = "anthropic"
    _max_output: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The features Anthropic offers for this model, and its window as given or as known for this name."""
        window, max_output = self._limits()
        return Capabilities(
            caching=True,
            context_management=True,
            diagnostics=True,
            compaction=self._facts.compaction,
            window=window,
            max_output=self._max_output or max_output,
        )

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        body, headers = wire_request(request)
        path = "/v1/messages?beta=true" if "anthropic-beta" in headers else "/v1/messages"
        return await self._post(path, body_bytes(body), headers), MessageAssembly(self.name)

    async def ask_limits(self) -> int | None:
        """Ask the provider's list of models for the window and the largest output, and return the window.

        Return None where the list does not name them; raise ``ModelError`` where it cannot be asked. A name with the
        suffix for a million tokens keeps that window.
        """
        try:
            client, _ = await self._opened()
            found: Any = await client.get(f"/v1/models/{quote(bare_model(self._id), safe='')}", cast_to=object)
        except Exception as error:
            raise failure_of_exception(self.name, error) from error
        window, output = (_tokens(found, name) for name in ("max_input_tokens", "max_tokens"))
        if bare_model(self._id) == self._id:
            self._window = window or self._window
        self._max_output = output
        return window

    def _connect(self, sdk: Any) -> Any:
        token = None if self._api_key else self._environ.get("ANTHROPIC_AUTH_TOKEN") or None
        key = self._api_key or ("none" if is_loopback(self._base_url or "") and not token else None)
        # Our own telemetry reports the call.
        return sdk.AsyncAnthropic(api_key=key, auth_token=token, open_telemetry=False, **self._connection_options(sdk))


def _tokens(row: Any, name: str) -> int | None:
    value: Any = cast("Mapping[str, Any]", row).get(name) if isinstance(row, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def wire_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body to send for a request, and its headers with every beta that its fields need.

    A request with ``max_tokens`` 0 only fills the cache, and the provider refuses to stream it.
    """
    body = {key: value for key, value in request.items() if key not in SDK_ARGUMENTS}
    if "messages" in body:
        body["messages"] = without_carried(body["messages"])
    extra: Any = request.get("extra_body")
    body.update(extra or {})
    if body.get("max_tokens") != 0:
        body["stream"] = True
    given: Mapping[str, Any] = request.get("extra_headers") or {}
    headers = {str(key).lower(): str(value) for key, value in given.items()}
    model = str(body.get("model", ""))
    betas = [part.strip() for part in headers.pop("anthropic-beta", "").split(",") if part.strip()]
    named: Any = request.get("betas")
    betas += [str(beta) for beta in named or ()]
    betas += [need.betas[0] for need in beta_needs(body) if not set(need.betas) & set(betas)]
    if body.get("diagnostics") is not None:
        betas.append(_DIAGNOSIS_BETA)
    if bare_model(model) != model:
        body["model"] = bare_model(model)
        if facts_of(model).window_tokens < MILLION:
            betas.append(_MILLION_BETA)
    if betas:
        headers["anthropic-beta"] = ",".join(dict.fromkeys(betas))
    if any(body.get(name) is not None for name in _SAMPLING):
        headers.setdefault("anthropic-version", _SAMPLING_VERSION)
    return body, headers
