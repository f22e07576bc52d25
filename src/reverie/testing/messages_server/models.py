"""The rows of the Models API, from the model facts.

Page: about-claude/models/overview; shapes: api/models.
"""

from __future__ import annotations

from typing import Any

from ...model_facts import ModelFacts, known_facts
from .compaction import COMPACTION_BETA

_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def served_models() -> tuple[str, ...]:
    """Return the names of all models whose provider has this API."""
    rows = [row for row in known_facts() if row.context_editing]
    return tuple(name for row in rows for name in row.match if "*" not in name)


def model_row(name: str, facts: ModelFacts, *, window: int, betas: frozenset[str]) -> dict[str, Any]:
    """Return a model as the Models API lists it; compaction is listed under its beta only."""
    capabilities: dict[str, Any] = {
        "batch": _supported(True),
        "citations": _supported(True),
        "code_execution": _supported(True),
        "context_management": {
            "supported": facts.context_editing,
            "clear_thinking_20251015": _supported(facts.context_editing),
            "clear_tool_uses_20250919": _supported(facts.context_editing),
            "compact_20260112": _supported(facts.compaction),
        },
        "effort": {"supported": bool(facts.default_effort)}
        | {level: _supported(bool(facts.default_effort)) for level in _EFFORTS},
        "image_input": _supported(True),
        "pdf_input": _supported(True),
        "server_tools": {"supported": False, "code_execution": _supported(False), "web_search": _supported(False)},
        "structured_outputs": _supported(facts.strict_output),
        "thinking": {
            "supported": bool(facts.thinking),
            "types": {
                kind: _supported(kind in facts.thinking)
                for kind in ("adaptive", "between_tools", "disabled", "enabled")
            },
        },
    }
    if COMPACTION_BETA in betas:
        capabilities["compaction"] = {"supported": facts.compaction, "summarize": _supported(facts.compaction)}
    return {
        "type": "model",
        "id": name,
        "display_name": name.replace("-", " ").title(),
        "created_at": "2025-01-01T00:00:00Z",
        "lifecycle": "active",
        "line": name.split("-")[1],
        "max_input_tokens": window,
        "max_tokens": facts.max_output_tokens,
        "capabilities": capabilities,
    }


def _supported(value: bool) -> dict[str, bool]:
    return {"supported": value}
