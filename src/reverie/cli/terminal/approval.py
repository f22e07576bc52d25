"""Ask the user on the screen whether a tool may run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..output import counted, printable
from .calls import call_title, one_line
from .colours import Paint
from .plan import ask_about_plan
from .questions import Option
from .screen import Screen
from .transcript import Transcript

if TYPE_CHECKING:
    from ...runtime.guard.permissions import Approval, ApprovalAnswer

__all__ = ["ScreenApprover", "preview_lines"]

HEADS: Final = ("--- ", "+++ ")
DIFF_LINES: Final = 80
TEXT_LINES: Final = 20
NO_REASON: Final = "refused by the user"


def preview_lines(approval: Approval, paint: Paint) -> list[str]:
    """Return a preview of a tool call as lines, cut if long: its diff, command or URL, or its input as JSON."""
    if approval.preview:
        shown = [
            line for line in _plain(approval.preview) if not line.startswith(HEADS)
        ]  # the title already names the file
        return _cut([_diff_line(line, paint) for line in shown], DIFF_LINES, paint)
    if approval.access.kind in ("run", "fetch") and approval.access.target:
        return _cut([f"  {line}" for line in _plain(approval.access.target)], TEXT_LINES, paint)
    given = json.dumps(dict(approval.input), indent=2, ensure_ascii=False, default=str)
    return _cut([f"  {line}" for line in _plain(given)], TEXT_LINES, paint)


def _plain(text: str) -> list[str]:
    return printable(text).expandtabs(4).splitlines()


def _diff_line(line: str, paint: Paint) -> str:
    meaning = {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "dim")
    return "  " + paint(line, meaning)


def _cut(lines: Sequence[str], limit: int, paint: Paint) -> list[str]:
    if len(lines) <= limit:
        return list(lines)
    return [*lines[:limit], paint(f"  … {counted(len(lines) - limit, 'more line')}", "dim")]


class ScreenApprover:
    """Asks the user on the screen whether a tool call may run."""

    def __init__(self, screen: Screen, transcript: Transcript, *, paint: Paint, cwd: Path) -> None:
        self._screen = screen
        self._transcript = transcript
        self._paint = paint
        self._cwd = cwd

    async def __call__(self, approval: Approval) -> ApprovalAnswer:
        """Show a preview of the call, ask the user, and return the answer; show a refusal as a denied call."""
        from ...runtime.guard.permissions import ApprovalAnswer

        if approval.is_plan:
            return await ask_about_plan(self._screen, self._transcript, approval)
        title = call_title(approval.tool, approval.input, self._cwd)
        head = f"{self._paint('?', 'busy')} {title} {self._paint(one_line(approval.reason), 'dim')}"
        self._transcript.put("approval", [head, *preview_lines(approval, self._paint)])
        options = [Option("y", "yes, once", "once")]
        if approval.suggestion:
            options.append(
                Option("a", f"yes, always allow {one_line(approval.suggestion, 60)} in this session", "always")
            )
        options += [Option("n", "no", "no"), Option("t", "no, and tell the model why", "why")]
        match await self._screen.choose(f"Allow {one_line(approval.tool)}?", options):
            case "once":
                return ApprovalAnswer("once")
            case "always":
                return ApprovalAnswer("always")
            case "why":
                why = (await self._screen.ask_line("why? ")).strip()
                self._transcript.denied(title, why or NO_REASON)
                return ApprovalAnswer("deny", why)
            case _:
                self._transcript.denied(title, NO_REASON)
                return ApprovalAnswer("deny")
