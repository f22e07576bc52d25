"""Side queries: requests beside the conversation, with options that fit their model, and the answers in their replies.

A side query never forces a tool. Thinking counts towards the output limit, so a model that thinks gets room for it
beside the answer; a query of its own turns thinking off where the model allows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ..model_facts import ModelFacts
from .decisions import Cause, PrefixRendered, body_of
from .entries import ASSISTANT, DECISION, USER, Entry, Message
from .view import View
from .wire.options import refused_options
from .wire.request import build_request

REFUSAL: Final = "refusal"
"""The stop reason of a reply that the provider's safety system ended; such a reply is never used."""
CUT: Final = ("max_tokens", "model_context_window_exceeded")
"""The stop reasons of a reply that reached a limit before its end."""
THINKING_ROOM: Final = 8_000
"""The output tokens added for the thinking of a model that decides itself how much it thinks."""
_SAMPLING: Final = ("temperature", "top_p", "top_k")
_OFF: Final = ("disabled", "between_tools")
_EDITING: Final = ("context_management", "thinking")  # an edit of thinking needs thinking
_FORCED: Final = ("any", "tool")


def side_request(
    facts: ModelFacts,
    messages: Iterable[Message],
    *,
    model: str,
    answer_tokens: int,
    system: str = "",
    tools: Iterable[dict[str, Any]] = (),
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a request of its own with these messages, built from a view of them, for a model with these facts."""
    fields = {**(options or {}), "max_tokens": answer_tokens}
    prefix = PrefixRendered(Cause("request", "a side query"), model, system, list(tools), fields)
    entries = [Entry("prefix", None, "", "", DECISION, body_of(prefix))]
    for number, message in enumerate(messages):
        kind = ASSISTANT if message["role"] == ASSISTANT else USER
        entries.append(Entry(f"message-{number}", entries[-1].uuid, "", "", kind, {"message": message}))
    request = build_request(View().fold_all(entries))
    return adapted(_quiet(request, facts), facts, answer_tokens=answer_tokens)


def adapted(request: Mapping[str, Any], facts: ModelFacts, *, answer_tokens: int) -> dict[str, Any]:
    """Return a side query with the options that a model with these facts accepts, and room for ``answer_tokens``."""
    out = {key: value for key, value in request.items() if facts.sampling or key not in _SAMPLING}
    if _kind(out.get("tool_choice")) in _FORCED:
        del out["tool_choice"]
    if "thinking" in out and _kind(out["thinking"]) not in facts.thinking:
        del out["thinking"]
    if "context_management" in refused_options({key: out[key] for key in _EDITING if key in out}, [], facts):
        del out["context_management"]
    effort, is_off = _fields(out.get("output_config")).get("effort"), _kind(out.get("thinking")) in _OFF
    if effort is not None and (effort not in facts.efforts or (is_off and effort in facts.efforts_with_thinking)):
        out["output_config"] = {key: value for key, value in out["output_config"].items() if key != "effort"}
    out["max_tokens"] = max(1, min(answer_tokens + _thinking_room(out, facts), facts.max_output_tokens))
    return out


def thinks(request: Mapping[str, Any], facts: ModelFacts) -> bool:
    """Say whether a model with these facts thinks before it answers this request."""
    given = request.get("thinking")
    return facts.thinking_by_default if given is None else _kind(given) not in _OFF


def answer_text(content: Any) -> str:
    """Return the text of a reply's content; content of any other shape has none."""
    if isinstance(content, str):
        return content
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    texts = (cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, Mapping))
    said = (block.get("text") for block in texts if block.get("type") == "text")
    return "".join(text for text in said if isinstance(text, str))


def answer_problem(reply: Mapping[str, Any], text: str) -> str:
    """Return the reason why a reply holds no answer, or an empty string; ``text`` is the text of the reply."""
    stopped = reply.get("stop_reason")
    if stopped == REFUSAL:
        details: Any = reply.get("stop_details")
        kind: Any = cast("Mapping[str, Any]", details).get("category") if isinstance(details, Mapping) else None
        return f"the model declined to answer ({kind})" if isinstance(kind, str) else "the model declined to answer"
    if text.strip():
        return ""
    if stopped in CUT:
        return "the reply reached its limit before it had any text"
    return "the model called a tool instead of answering" if stopped == "tool_use" else "the reply has no text"


def _thinking_room(request: Mapping[str, Any], facts: ModelFacts) -> int:
    """Return the output tokens that a model with these facts may use for thinking before it answers."""
    may_ignore = facts.thinking_by_default and facts.api != "messages"  # other providers have no such option
    if not (thinks(request, facts) or may_ignore):
        return 0
    budget: Any = _fields(request.get("thinking")).get("budget_tokens")
    return budget if isinstance(budget, int) else THINKING_ROOM


def _quiet(request: dict[str, Any], facts: ModelFacts) -> dict[str, Any]:
    """Return the request with thinking off, if the model would think and accepts that."""
    off = next((kind for kind in _OFF if kind in facts.thinking), None)
    return {**request, "thinking": {"type": off}} if off is not None and thinks(request, facts) else request


def _fields(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _kind(value: Any) -> str:
    return str(_fields(value).get("type") or "")
