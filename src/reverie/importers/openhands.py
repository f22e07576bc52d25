"""OpenHands evaluation output: one JSON line per run, its ``history`` a list of actions and observations."""

from __future__ import annotations

from typing import Any, Final

from ..conversation.decisions import Cause, Collapsed, Snipped
from ..conversation.entries import ASSISTANT, ATTACHMENT, USER
from ..values import object_of, rows_of
from .chat_shape import CallIds, content_of, declared_tools, image_of, reply_of, tool_uses
from .foreign_values import Record, as_list, as_number, as_text, compact_json, first_of
from .import_result import ImportedSession, RecordSource, SessionDraft

NAME: Final = "openhands"

_BOOKKEEPING: Final = frozenset(
    {"recall", "null", "change_agent_state", "agent_state_changed", "condensation_request", "success", "user_rejected"}
)
_RECALLED: Final = ("repo_instructions", "additional_agent_instructions", "custom_secrets_descriptions")


def looks(row: Record) -> bool:
    """Return whether a record is one run of OpenHands."""
    return any("action" in event or "observation" in event for event in _events(row)[:8])


def read(source: RecordSource) -> list[ImportedSession]:
    """Return a list with one session per line; a file without any gives one empty session."""
    out: list[ImportedSession] = []
    strange = 0
    for row in source.rows:
        if not looks(row):
            strange += 1
            continue
        run = _RunReader(SessionDraft(NAME, as_text(row.get("instance_id")), source), row)
        for _ in range(strange if not out else 0):
            run.draft.skip("a line without a history")
        out.append(run.draft.done(source.damage if not out else ()))
    return out or [SessionDraft(NAME, "", source).done(source.damage)]


def _events(row: Record) -> list[Record]:
    """Return a list of a run's events in order; older files keep them as pairs of action and observation."""
    out: list[Record] = []
    for item in as_list(row.get("history")):
        out.extend(rows_of([item] if isinstance(item, dict) else item))
    return out


class _RunReader:
    """Fills a draft from one run, with a message for each reply of the model and for each observation."""

    def __init__(self, draft: SessionDraft, row: Record) -> None:
        self.draft = draft
        self.replies: set[str] = set()
        self.calls = CallIds()
        self.placed: dict[int, str] = {}
        metadata = object_of(row.get("metadata"))
        draft.title = as_text(row.get("instance_id"))
        draft.model = as_text(object_of(metadata.get("llm_config")).get("model"))
        draft.cost_usd = as_number(object_of(row.get("metrics")).get("accumulated_cost"))
        for event in _events(row):
            before = len(draft.entries)
            self._emit(event, as_text(event.get("timestamp")))
            place = event.get("id")
            if len(draft.entries) > before and isinstance(place, int):
                self.placed[place] = draft.entries[-1].uuid

    def _emit(self, event: Record, time: str) -> None:
        draft, action, args = self.draft, as_text(event.get("action")), object_of(event.get("args"))
        called = object_of(event.get("tool_call_metadata"))
        if "observation" in event:
            self._observed(event, called, time)
        elif action == "system":
            draft.system = as_text(args.get("content")) or as_text(event.get("message")) or None
            draft.tools = declared_tools(args.get("tools")) or None
        elif action == "condensation":
            self._condensed(args, time)
        elif action in _BOOKKEEPING:
            draft.skip(f"bookkeeping: {action}")
        elif called:
            self._replied(called, event, time)
        elif event.get("source") == "user" and action == "message":
            self._said(USER, args, time)
        elif action:
            self._acted(action, args, event, time)
        else:
            draft.skip("unknown event")

    def _said(self, kind: str, args: Record, time: str) -> None:
        text = as_text(args.get("content"))
        images = [image_of(url) for url in as_list(args.get("image_urls")) if isinstance(url, str) and url]
        if not text and not images:
            self.draft.skip("message without content")
            return
        words: list[Record] = [{"type": "text", "text": text}] if text else []
        self.draft.say(kind, "user", [*words, *images] if images else text, time)

    def _acted(self, action: str, args: Record, event: Record, time: str) -> None:
        """Add an action without a call: the agent's words, then the command or code."""
        thought = as_text(args.get("thought")) or as_text(args.get("content")) or as_text(event.get("message"))
        doing = as_text(args.get("command")) or as_text(args.get("code"))
        text = "\n\n".join(part for part in (thought, doing) if part) or (f"{action} {compact_json(args)}")
        reply: Record = {"id": f"{self.draft.session_id}-{len(self.draft.entries)}"}
        self.draft.say(ASSISTANT, "assistant", text, time, reply=reply)

    def _replied(self, called: Record, event: Record, time: str) -> None:
        """Add the model's whole reply at the first of its calls; at its other calls do nothing."""
        response = object_of(called.get("model_response"))
        id = as_text(response.get("id")) or f"{self.draft.session_id}-{as_text(called.get('tool_call_id'))}"
        if id in self.replies:
            return
        self.replies.add(id)
        message = object_of(first_of(response.get("choices")).get("message"))
        content = content_of(message.get("content"))
        words: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        uses = self.calls.renamed(tool_uses(message.get("tool_calls")) or _call_of(called, event))
        blocks = [*(content if isinstance(content, list) else words), *uses]
        if not blocks:
            self.draft.skip("message without content")
            return
        self.draft.say(ASSISTANT, "assistant", blocks, time, reply=reply_of(response, id))

    def _observed(self, event: Record, called: Record, time: str) -> None:
        kind, text = as_text(event.get("observation")), as_text(event.get("content"))
        call = as_text(called.get("tool_call_id"))
        if call in self.calls:
            result: Record = {"type": "tool_result", "tool_use_id": self.calls.name_of(call), "content": text}
            if kind == "error":
                result["is_error"] = True
            self.draft.say(USER, "user", [result], time)
        elif kind == "recall" and (recalled := _recalled(object_of(event.get("extras")))):
            self.draft.say(ATTACHMENT, "user", recalled, time, attachment={"type": "recall"})
        elif kind in _BOOKKEEPING:
            self.draft.skip(f"bookkeeping: {kind}")
        elif text:
            self.draft.say(USER, "user", text, time)
        else:
            self.draft.skip("observation without content")

    def _condensed(self, args: Record, time: str) -> None:
        """Add a decision that removes events from the view, with the run's summary in their place, if any."""
        ids = [id for id in as_list(args.get("forgotten_event_ids")) if isinstance(id, int)]
        start, end = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if isinstance(start, int) and isinstance(end, int):
            ids = [id for id in self.placed if start <= id <= end]
        gone = [self.placed[id] for id in sorted(ids) if id in self.placed]
        summary = as_text(args.get("summary"))
        if not gone:
            self.draft.skip("condensation of events that are not here")
        elif summary.strip():
            cause = Cause("collapse", "recorded by OpenHands", moves_prefix=True)
            self.draft.decide(Collapsed(cause, gone[0], gone[-1], summary), time)
        else:
            cause = Cause("snip", "recorded by OpenHands", moves_prefix=True)
            self.draft.decide(Snipped(cause, gone), time)


def _call_of(called: Record, event: Record) -> list[Record]:
    id, name = as_text(called.get("tool_call_id")), as_text(called.get("function_name"))
    return [{"type": "tool_use", "id": id, "name": name, "input": object_of(event.get("args"))}] if id and name else []


def _recalled(extras: Record) -> str:
    said = [as_text(extras.get(name)) for name in _RECALLED]
    said += [as_text(one.get("content")) for one in rows_of(extras.get("microagent_knowledge"))]
    return "\n\n".join(text for text in said if text.strip())
