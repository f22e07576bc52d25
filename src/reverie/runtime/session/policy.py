"""The settings in force in a session: flags applied, and the window of the model in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from anyio import to_thread

from ...conversation.tokens.window import Thresholds, Window
from ...events import FellBack
from ...model_facts import ModelFacts, facts_of
from ...ports import Model
from ...settings import PRESETS, Preset, Settings, limits_by, open_flags, switched_by
from ...values import replace
from .limits import DEFAULT_MODEL, reported_window, thresholds_for, window_of
from .log import SessionLog
from .prefix import RequestOptions


class SessionPolicy:
    """Holds the settings in force and the model, betas and extra arguments of the last request."""

    def __init__(self, settings: Settings) -> None:
        """Start from given settings; the flag provider they name may switch layers off later."""
        self.settings = settings
        self.model_name = DEFAULT_MODEL
        self.request_extras: Mapping[str, Any] = {}
        self.flags = open_flags(settings)
        self.messages_only = False
        """Whether a host takes over only messages, system prompt and tools of a request, and declares tools itself."""
        self.facts: ModelFacts = self._facts_of(DEFAULT_MODEL)
        """The rules and limits of the model in use, with the corrections in the settings."""
        self._betas: tuple[str, ...] = ()
        self._window: Window = window_of(DEFAULT_MODEL, settings)
        self._reported: tuple[str, int | None] = (DEFAULT_MODEL, None)
        self._learned: dict[str, int] = {}
        self._switches, self._limits = settings.switches, settings.offload_limits
        self._reported_failure = False

    @property
    def thresholds(self) -> Thresholds:
        """The token thresholds of the window of the model in use."""
        return thresholds_for(self._window, self.settings, self._learned.get(self.model_name))

    def thresholds_of(self, model: str) -> Thresholds:
        """Return the token thresholds that hold for requests to a model."""
        return thresholds_for(self._window_of(model, ()), self.settings, self._learned.get(model))

    @property
    def window_tokens(self) -> int:
        """The window of the model in use, or a smaller one by the settings or by a refusal."""
        return self.thresholds.window

    def learn_window(self, model: str, tokens: int) -> None:
        """Lower the window of a model to a limit that a refusal taught."""
        self._learned[model] = min(tokens, self._learned.get(model, tokens))

    def apply_flags(self, log: SessionLog) -> bool:
        """Apply the provider's switches and limits, report its first failure; return False if there is no provider."""
        if self.flags is None:
            return False

        def report(why: str) -> None:
            if not self._reported_failure:
                log.emit(FellBack(log.name, "flags", why))
            self._reported_failure = True

        switches = switched_by(self.flags, self._switches, failed=report)
        limits = limits_by(self.flags, self._limits)
        self.settings = replace(self.settings, switches=switches, offload_limits=limits)
        return True

    def use_preset(self, name: object) -> None:
        """Adopt a preset by its name; any other value changes nothing."""
        if name in PRESETS:
            self.settings = replace(self.settings, preset=cast("Preset", name))

    async def use(self, asked: RequestOptions) -> None:
        """Adopt the model, betas and extra arguments of the next request."""
        self.request_extras = asked.extras
        if (asked.model, asked.betas) != (self.model_name, self._betas):
            # The first look-up loads a table of models.
            await to_thread.run_sync(lambda: self.use_name(asked.model, asked.betas))

    def use_name(self, model: str, betas: tuple[str, ...] = ()) -> None:
        """Adopt the facts and the window of a model by its name; the first look-up loads a table of models."""
        self._window = self._window_of(model, betas)
        self.facts = self._facts_of(model)
        self.model_name, self._betas = model, betas

    def use_messages_only(self) -> None:
        """Use no feature of a provider that needs a beta, an option, or a message of a role that hosts do not know."""
        self.messages_only = True
        self.facts = self._facts_of(self.model_name)

    def _facts_of(self, model: str) -> ModelFacts:
        facts = facts_of(model, self.settings.models)
        if not self.messages_only:
            return facts
        return replace(facts, system_messages=False, tool_changes=False, compaction=False, context_editing=False)

    def _window_of(self, model: str, betas: tuple[str, ...]) -> Window:
        named, reported = self._reported
        window = window_of(model, self.settings, betas, reported if model in (named, DEFAULT_MODEL) else None)
        if window.source == "strict" and reported is not None:  # a name that no source knows
            return window_of(model, self.settings, betas, reported)
        return window

    def use_model(self, model: Model) -> None:
        """Take the window that a model reports, for requests to it or to a name whose window is unknown."""
        self._reported = model.model_id, reported_window(model)
        self.use_name(self.model_name, self._betas)

    @property
    def betas(self) -> tuple[str, ...]:
        """The beta features that the last request asked for."""
        return self._betas
