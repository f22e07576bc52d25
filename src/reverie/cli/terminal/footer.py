"""The footer: context usage, tokens to compaction, cache hits, cost, model, mode and background work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..output import counted, dollars
from .calls import one_line

if TYPE_CHECKING:
    from ...runtime.agent.status import Status

Part = tuple[str, str]
"""A style's name and a text."""
SEPARATOR: Final = " · "
WORK_NAMES: Final = {
    "extraction": "saving memories",
    "notes": "writing notes",
    "dream": "consolidating memories",
    "keep_warm": "keeping the cache warm",
}
PLAN_STATES: Final = {"proposed": "plan waits", "approved": "plan approved"}
MODE_STYLES: Final = {"default": "footer", "accept-edits": "edits", "plan": "plan", "bypass": "danger"}
BYPASS_MEANS: Final = (
    "! bypass mode: calls that would be asked about run at once, also commands and changes outside the project; only "
    "rules that deny still hold · Shift-Tab or /mode default ends it"
)


def footer_parts(status: Status) -> list[Part]:
    """Return the footer's parts about an agent's status, most important first."""
    percent = status.window_percent
    full = {"fine": "footer", "warning": "warning"}.get(status.level, "danger")
    left = f"{thousands(status.to_compaction)} to compaction"
    cache = "cache –" if status.cache_share is None else f"cache {status.cache_share:.0%}"
    parts: list[Part] = [
        (full, f"window {percent:.0f}%"),
        ("footer", left),
        ("footer", cache),
        ("footer", dollars(status.cost_usd)),
        ("footer", one_line(status.model.split(":", 1)[-1], 28)),
        (MODE_STYLES.get(status.mode, "footer"), f"{status.mode} mode" if status.mode == "default" else status.mode),
    ]
    if status.plan in PLAN_STATES:
        parts.append(("plan", PLAN_STATES[status.plan]))
    if status.cleared:
        parts.append(("footer", f"{thousands(status.cleared)} cleared by the provider"))
    if status.agents:
        parts.append(("background", counted(status.agents, "agent")))
    if status.background:
        running = one_line(", ".join(WORK_NAMES.get(name, name) for name in status.background), 40)
        parts.append(("background", f"in background: {running}"))
    return parts


def footer_lines(parts: Sequence[Part], columns: int) -> list[list[Part]]:
    """Return the parts, with separators between them, as lines that fit into so many columns."""
    lines: list[list[Part]] = [[]]
    used = 0
    for style, text in parts:
        wanted = len(text) + (len(SEPARATOR) if lines[-1] else 0)
        if lines[-1] and used + wanted > columns - 1:
            lines.append([])
            used, wanted = 0, len(text)
        if lines[-1]:
            lines[-1].append(("footer", SEPARATOR))
        lines[-1].append((style, text[: max(1, columns - 1)]))
        used += wanted
    return lines


def thousands(count: int) -> str:
    """Return a number of tokens in short form, such as 12k or 1.5M."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"
