"""The models an agent asks: opened by name, tried again, let go of at the end, and what fits into them."""

from __future__ import annotations

from collections.abc import Callable

from ...models import Retry, RetryingModel, open_model
from ...ports import Model
from ...settings import Settings
from ...values import replace

__all__ = ["Models", "fitted", "fitting"]


class Models:
    """Opens models, and closes all of them: work behind the conversation may still ask an old one."""

    def __init__(self, settings: Settings, retried: Callable[[Retry], None]) -> None:
        self._settings = settings
        self._retried = retried
        self._open: list[Model] = []

    def opened(self, asked: str | Model | None) -> Model:
        """Return a model that tries again by itself, and another one where that does not help."""
        if isinstance(asked, RetryingModel):
            asked.on_retry = self._retried
            self._open.append(asked)
            return asked
        aliases = self._settings.model_aliases
        named = open_model(asked, aliases=aliases) if not isinstance(asked, Model) else asked
        spare = self._settings.fallback_model
        fallback = open_model(spare, aliases=aliases) if spare else None
        model = RetryingModel(named, fallback=fallback, on_retry=self._retried)
        self._open.append(model)
        return model

    async def close(self) -> None:
        """Let go of all of them."""
        for model in self._open:
            await model.aclose()


def fitted(settings: Settings, model: Model) -> Settings:
    """Return the settings with a window no larger than the model's own, where its provider says how large it is."""
    given, wanted = model.capabilities.window, settings.window_tokens
    if given is None:
        return settings
    return replace(settings, window_tokens=given if wanted is None else min(given, wanted))


def fitting(max_tokens: int, model: Model) -> int:
    """Return an output limit that the model and a quarter of its window allow."""
    known = model.capabilities
    limits = [max_tokens, known.max_output or max_tokens, (known.window or 4 * max_tokens) // 4]
    return max(1, min(limits))
