"""The result of a check, and the model, API version and limits by which a request is judged."""

from __future__ import annotations

from ...model_facts import ModelFacts
from ...values import record

LATEST_VERSION = "2026-10-21"
"""The API version that removed sampling options, documents in replies and citations in a user's text."""


@record
class Limits:
    """The provider's limits, and its features beyond the public API; None takes the model's own limit."""

    max_body_bytes: int | None = None
    max_images: int | None = None
    max_breakpoints: int = 4
    cache_edits: bool = False


@record
class Problem:
    """One reason why a provider would reject the request, with its HTTP status, error type and error code."""

    path: str
    message: str
    status: int = 400
    kind: str = "invalid_request_error"
    code: str = ""

    @property
    def text(self) -> str:
        """The message in the provider's format, path first."""
        return f"{self.path}: {self.message}" if self.path else self.message


@record
class RequestRules:
    """The rules for one request: those of its model, of the API version (empty if unknown) and the limits."""

    facts: ModelFacts
    version: str = ""
    limits: Limits = Limits()

    @property
    def known(self) -> bool:
        """Whether the model is in the table of facts; of another one, only the shape of a request is checked."""
        return self.facts.name.startswith("claude")

    @property
    def is_latest(self) -> bool:
        """Whether the API version is 2026-10-21 or later."""
        return self.version >= LATEST_VERSION
