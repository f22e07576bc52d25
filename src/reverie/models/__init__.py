"""Adapters for language models behind one port; a provider's library is loaded by the first request."""

from __future__ import annotations

from .content_parts import malformed_input
from .names import open_model
from .retries import Retry, RetryingModel, RetryPolicy
from .scripted_model import BrokenReply, ScriptedModel

__all__ = ["BrokenReply", "Retry", "RetryPolicy", "RetryingModel", "ScriptedModel", "malformed_input", "open_model"]
