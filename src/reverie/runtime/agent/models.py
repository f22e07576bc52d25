"""The models of an agent: opened by name, wrapped with retries, closed at the end, and the limits that fit them."""

from __future__ import annotations

from collections.abc import Callable

from ...models import Retry, RetryingModel, open_model
from ...ports import Model
from ...settings import Settings


class Models:
    """Opens models and keeps them open until ``close``, because background work may still use an earlier one."""

    def __init__(self, settings: Settings, on_retry: Callable[[Retry], None]) -> None:
        self._settings = settings
        self._on_retry = on_retry
        self._open: list[Model] = []
        self._small: Model | None = None

    def open(self, asked: str | Model | None) -> Model:
        """Open a model, by name or as given, that retries by itself.

        A model that already retries is used as it is.
        """
        if isinstance(asked, RetryingModel):
            asked.on_retry = self._on_retry
            self._open.append(asked)
            return asked
        aliases = self._settings.model_aliases
        known = self._settings.models
        named = open_model(asked, aliases=aliases, corrections=known) if not isinstance(asked, Model) else asked
        is_replaceable = self._settings.fallback_model is not None
        model = RetryingModel(named, on_retry=self._on_retry, is_replaceable=is_replaceable)
        self._open.append(model)
        return model

    def small(self) -> Model | None:
        """Return the model with the alias ``small``, opened on first use; None if the settings name none."""
        named = self._settings.model_aliases.get("small")
        if self._small is None and named:
            self._small = self.open(named)
        return self._small

    async def close(self) -> None:
        """Close every model that ``open`` returned, also those that were given as objects."""
        for model in self._open:
            await model.aclose()


def fitted_output_limit(max_tokens: int, model: Model) -> int:
    """Return ``max_tokens``, capped at the model's own limit and at a quarter of its window; at least 1."""
    known = model.capabilities
    limits = [max_tokens, known.max_output or max_tokens, (known.window or 4 * max_tokens) // 4]
    return max(1, min(limits))
