"""Who answers: models behind one port. A provider's library is loaded when its model is first asked."""

from __future__ import annotations

from .names import open_model
from .retries import Retry, RetryingModel
from .scripted import BrokenReply, ScriptedModel
from .tool_input import malformed_input

__all__ = ["BrokenReply", "Retry", "RetryingModel", "ScriptedModel", "malformed_input", "open_model"]
