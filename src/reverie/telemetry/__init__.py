"""Listeners that turn the events of a session into lines, spans and metrics.

Pass one to ``session.listen(...)``. Events carry names, counts and reasons; the words of a conversation stay in the
log, with one exception: ``JsonLines`` writes decisions whole, with the text they put into the view.
"""

from __future__ import annotations

from .jsonl import JsonLines
from .otel import OpenTelemetry

__all__ = ["JsonLines", "OpenTelemetry"]
