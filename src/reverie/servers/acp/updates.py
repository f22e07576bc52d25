"""Events of an agent, and messages of its log, as updates for an editor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp.helpers import (
    ToolCallContentVariant,
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    Cost,
    CurrentModeUpdate,
    PlanEntryStatus,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UsageUpdate,
    UserMessageChunk,
)

from ...conversation.authorship import text_of
from ...conversation.decisions import CallRecorded
from ...conversation.entries import ASSISTANT, USER, Entry
from ...events import (
    CompactionEnded,
    DecisionMade,
    Event,
    FellBack,
    ModelRetried,
    PermissionDecided,
    PromptAdded,
    QueryEnded,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
    UserMessaged,
)
from ...runtime.agent.status import Status
from ...tools.context import Todo
from ...values import object_of, rows_of

Update: TypeAlias = (
    AgentMessageChunk
    | AgentPlanUpdate
    | AgentThoughtChunk
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ToolCallProgress
    | ToolCallStart
    | UsageUpdate
    | UserMessageChunk
)
CallTitle: TypeAlias = Callable[[str, Mapping[str, Any], Path], str]
"""A tool call, by its name, input and directory, in one line."""
KINDS: Final[Mapping[str, ToolKind]] = {
    "Read": "read", "Edit": "edit", "Write": "edit", "Bash": "execute", "BashOutput": "execute", "KillShell": "execute",
    "Grep": "search", "Glob": "search", "ToolSearch": "search", "WebFetch": "fetch", "TodoWrite": "think",
    "Plan": "think",
}  # fmt: skip
STEPS: Final = "TodoWrite"
_TOLD: Final = frozenset({"images", "instructions", "mcp", "memory", "model"})
"""The fallbacks that a user can do something about."""
_MOST_DIFF_BYTES: Final = 1_000_000
_MOST_RESULT_CHARS: Final = 8_000


class Updates:
    """Turns the events of one agent into updates, in order."""

    def __init__(
        self,
        name: str,
        cwd: Path,
        *,
        title: CallTitle,
        status: Callable[[], Status],
        steps: Callable[[], Sequence[Todo]],
    ) -> None:
        self._name = name
        self._cwd = cwd
        self._title = title
        self._status = status
        self._steps = steps
        self._calls: dict[str, bool] = {}
        """The calls that the editor knows and that have not ended, and whether they show a diff."""

    def of(self, event: Event) -> list[Update]:
        """Return the updates that an event of this agent causes."""
        if getattr(event, "session", self._name) != self._name:
            return []
        match event:
            case TextStreamed():
                return [update_agent_message_text(event.text)]
            case ThinkingStreamed():
                return [update_agent_thought_text(event.text)]
            case PromptAdded():
                return [update_user_message_text(event.text)]
            case UserMessaged():
                return [update_agent_message_text(f"{event.sender}: {event.text}\n\n")]
            case ToolStarted() | ToolFinished() | PermissionDecided():
                return self._of_call(event)
            case DecisionMade(decision=CallRecorded()):
                return [self.usage()]
            case _:
                return _of_notice(event)

    def _of_call(self, event: ToolStarted | ToolFinished | PermissionDecided) -> list[Update]:
        match event:
            case ToolStarted():
                if event.id in self._calls:
                    return [update_tool_call(event.id, status="in_progress")]
                return [self.started_call(event.id, event.name, event.input)]
            case PermissionDecided():
                if event.allowed or not event.id:
                    return []
                known = event.id in self._calls
                begun = [] if known else [self.started_call(event.id, event.tool, event.input)]
                self._calls.pop(event.id, None)
                reason = tool_content(text_block(event.reason or "refused by the user"))
                return [*begun, update_tool_call(event.id, status="failed", content=[reason])]
            case ToolFinished():
                has_diff = self._calls.pop(event.id, False)
                text = event.text if not event.end else f"{event.text}\n…\n{event.end}"
                content = None if has_diff and not event.is_error else [tool_content(text_block(text))]
                state = "failed" if event.is_error else "completed"
                ended = update_tool_call(event.id, status=state, content=content)
                return [ended, self.plan()] if event.name == STEPS and not event.is_error else [ended]

    def started_call(
        self, id: str, name: str, given: Mapping[str, Any], *, is_waiting: bool = False, is_past: bool = False
    ) -> ToolCallStart:
        """Return the update that shows a call for the first time, with its diff if it changes a file."""
        content = self._diff(name, given, is_past=is_past)
        self._calls[id] = bool(content)
        return start_tool_call(
            id,
            self._title(name, given, self._cwd),
            kind=KINDS.get(name, "other"),
            status="pending" if is_waiting else "in_progress",
            content=content or None,
            locations=self._locations(given),
            raw_input=dict(given),
        )

    def _locations(self, given: Mapping[str, Any]) -> list[ToolCallLocation] | None:
        path, line = given.get("file_path") or given.get("path"), given.get("offset")
        if not isinstance(path, str):
            return None
        is_line = isinstance(line, int) and line > 0
        return [ToolCallLocation(path=self._absolute(path), line=line if is_line else None)]

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._cwd, os.path.expanduser(path)))

    def _diff(self, name: str, given: Mapping[str, Any], *, is_past: bool) -> list[ToolCallContentVariant]:
        """Return the change of a file that a call makes: for Edit the passage, for Write the whole file."""
        path, old, new = given.get("file_path"), given.get("old_string"), given.get("new_string")
        if name == "Write":
            new = given.get("content")
            old = text_of_file(self._absolute(path)) if isinstance(path, str) and not is_past else None
        if name not in ("Edit", "Write") or not isinstance(path, str) or not isinstance(new, str):
            return []
        return [tool_diff_content(self._absolute(path), new, old if isinstance(old, str) else None)]

    def usage(self) -> UsageUpdate:
        """Return the tokens in the window, its size, and the cost of the session so far."""
        status = self._status()
        cost = None if status.cost_usd is None else Cost(amount=status.cost_usd, currency="USD")
        return UsageUpdate(session_update="usage_update", used=status.tokens, size=status.window, cost=cost)

    def plan(self) -> AgentPlanUpdate:
        """Return the agent's list of steps."""
        return update_plan(plan_entry(step.content, status=_step_status(step.status)) for step in self._steps())

    def of_history(self, entries: Iterable[Entry]) -> Iterator[Update]:
        """Yield the conversation so far: prompts, replies, and tool calls with their results."""
        for entry in entries:
            content: Any = object_of(entry.message).get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else rows_of(content)
            for block in blocks:
                yield from self._of_block(entry.kind, block)

    def _of_block(self, kind: str, block: Mapping[str, Any]) -> Iterator[Update]:
        text = str(block.get("text") or block.get("thinking") or "")
        match block.get("type"):
            case "text" if text and kind in (USER, ASSISTANT):
                yield update_user_message_text(text) if kind == USER else update_agent_message_text(text)
            case "thinking" if text:
                yield update_agent_thought_text(text)
            case "tool_use":
                given = object_of(block.get("input"))
                yield self.started_call(str(block.get("id")), str(block.get("name")), given, is_past=True)
            case "tool_result":
                yield self._of_result(block)
            case _:
                pass

    def _of_result(self, block: Mapping[str, Any]) -> Update:
        id, text = str(block.get("tool_use_id")), text_of(block)
        is_error, has_diff = block.get("is_error") is True, self._calls.pop(id, False)
        shown = None if has_diff and not is_error else [tool_content(text_block(text[:_MOST_RESULT_CHARS]))]
        return update_tool_call(id, status="failed" if is_error else "completed", content=shown)


def _of_notice(event: Event) -> list[Update]:
    """Return the updates of an event about the work of Reverie itself."""
    match event:
        case ModelRetried():
            return [update_agent_thought_text(f"{event.why}; retrying (attempt {event.attempt})\n")]
        case CompactionEnded():
            sizes = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return [update_agent_thought_text(f"The conversation was compacted: {sizes}. /uncompact undoes it.\n")]
        case FellBack() if event.what in _TOLD:
            return [update_agent_thought_text(f"{event.what}: {event.why}\n")]
        case QueryEnded() if event.end not in ("completed", "aborted", "model_error"):
            return [update_agent_message_text(f"\n\nStopped ({event.end}): {event.detail}")]
        case _:
            return []


def _step_status(status: str) -> PlanEntryStatus:
    return "completed" if status == "completed" else "in_progress" if status == "in_progress" else "pending"


def text_of_file(path: str) -> str | None:
    """Return the text of a file, or None if it is missing, no text, or too big to compare."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MOST_DIFF_BYTES:
            return None
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
