"""How a session is watched: listeners that turn its events into lines, spans and metrics.

``session.listen(...)`` is the door. Events carry names, counts and reasons; what was said stays in the log, with one
exception: a decision is written to the lines of ``JsonLines`` whole, with the text it puts into the view.
"""

from __future__ import annotations

from .jsonl import JsonLines
from .otel import OpenTelemetry

__all__ = ["JsonLines", "OpenTelemetry"]
