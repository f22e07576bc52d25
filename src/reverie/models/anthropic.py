"""Models behind the Messages API, called through the official SDK.

The SDK handles keys, addresses, proxies and versions. The request body is sent byte for byte, and the reply is
assembled here from the raw events, so that no schema of the SDK changes either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ..cache.prices import limits_of_model
from ..conversation.tokens.window import MILLION, MILLION_SUFFIX
from ..errors import ModelUnknown
from ..ports import Capabilities
from .messages_stream import MessageAssembly
from .sdk_client import SdkModel
from .wire import ReplyAssembly, body_bytes, is_loopback

if TYPE_CHECKING:
    import httpx2

__all__ = ["AnthropicModel", "wire_request"]

_MILLION_BETA: Final = "context-1m-2025-08-07"
_EDITING_BETA: Final = "context-management-2025-06-27"
_DIAGNOSIS_BETA: Final = "cache-diagnosis-2026-04-07"
_COMPACT_BETAS: Final = {"compact_20260112": "compact-2026-01-12", "compact_20260904": "compact-2026-09-04"}
# The SDK's own arguments, which are not part of the body.
_SDK_ARGUMENTS: Final = frozenset({"betas", "extra_body", "extra_headers", "extra_query", "stream", "timeout"})
_MAX_OUTPUT: Final = (
    ("claude-3-5", 8_192),
    ("claude-3-7", 64_000),
    ("claude-3", 4_096),
    ("claude-opus-4-0", 32_000),
    ("claude-opus-4-1", 32_000),
    ("claude-opus-4-2", 32_000),  # claude-opus-4-20250514
    ("claude-", 64_000),
)


class AnthropicModel(SdkModel):
    """A model of Anthropic, or of any server that speaks its Messages API.

    The key is ``api_key``, else ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``, else the one the SDK finds; a
    server on this machine needs none. The address is ``base_url``, else ``ANTHROPIC_BASE_URL``, else Anthropic's.
    ``window`` is for models that are not in the installed table.
    """

    vendor = "anthropic"

    @property
    def capabilities(self) -> Capabilities:
        """The features Anthropic offers for this model, and its window as given or as known for this name."""
        bare = bare_model(self._id)
        known = limits_of_model(bare)
        window = self._window or (MILLION if bare != self._id else known.window_tokens if known else None)
        output = next((tokens for start, tokens in _MAX_OUTPUT if bare.startswith(start)), None)
        return Capabilities(caching=True, context_management=True, diagnostics=True, window=window, max_output=output)

    async def _send(self, request: Mapping[str, Any]) -> tuple[httpx2.Response, ReplyAssembly]:
        body, headers = wire_request(request)
        path = "/v1/messages?beta=true" if "anthropic-beta" in headers else "/v1/messages"
        return await self._client.post(path, body_bytes(body), headers), MessageAssembly(self.name)

    def _load(self) -> Any:
        try:
            import anthropic
        except ImportError as error:
            raise ModelUnknown("Anthropic's SDK is not installed: pip install 'reverie[anthropic]'") from error
        return anthropic

    def _connect(self, sdk: Any) -> Any:
        token = None if self._api_key else self._environ.get("ANTHROPIC_AUTH_TOKEN") or None
        key = self._api_key or ("none" if is_loopback(self._base_url or "") and not token else None)
        # Our own telemetry reports the call.
        return sdk.AsyncAnthropic(api_key=key, auth_token=token, open_telemetry=False, **self._connection_options(sdk))


def bare_model(model: str) -> str:
    """Return a model's id without the suffix that asks for a window of a million tokens."""
    return model[: -len(MILLION_SUFFIX)].rstrip() if model.lower().endswith(MILLION_SUFFIX) else model


def wire_request(request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body to send for a request, and its headers with every beta that its fields need."""
    body = {key: value for key, value in request.items() if key not in _SDK_ARGUMENTS}
    extra: Any = request.get("extra_body")
    body.update(extra or {})
    body["stream"] = True
    given: Mapping[str, Any] = request.get("extra_headers") or {}
    headers = {str(key).lower(): str(value) for key, value in given.items()}
    model = str(body.get("model", ""))
    betas = [part.strip() for part in headers.pop("anthropic-beta", "").split(",") if part.strip()]
    named: Any = request.get("betas")
    betas += [str(beta) for beta in named or ()]
    betas += _needed_betas(body)
    if bare_model(model) != model:
        body["model"] = bare_model(model)
        betas.append(_MILLION_BETA)
    if betas:
        headers["anthropic-beta"] = ",".join(dict.fromkeys(betas))
    return body, headers


def _needed_betas(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the betas without which the provider would refuse fields of this body."""
    management: Any = body.get("context_management")
    if management is not None:
        yield _EDITING_BETA
        for edit in cast("list[dict[str, Any]]", management.get("edits") or ()):
            beta = _COMPACT_BETAS.get(str(edit.get("type")))
            if beta is not None:
                yield beta
    if body.get("diagnostics") is not None:
        yield _DIAGNOSIS_BETA
