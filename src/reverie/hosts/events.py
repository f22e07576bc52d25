"""The payload of a host's hook as one record; a payload of any shape gives one. Pure.

Each host names its events and fields differently. Reverie acts on eight kinds of event and ignores all others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..values import cast, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Literal, TypeAlias

    Host: TypeAlias = Literal["claude-code", "codex", "gemini", "qwen", "cursor", "opencode"]
    HookKind: TypeAlias = Literal[
        "session_start",
        "user_prompt",
        "before_tool",
        "after_tool",
        "before_compact",
        "after_compact",
        "stop",
        "session_end",
        "other",
    ]
else:
    Host = HookKind = str
    Any = object

__all__ = ["EVENTS", "HOSTS", "HookEvent", "HookKind", "Host", "read_hook_event"]

HOSTS: Final[tuple[Host, ...]] = ("claude-code", "codex", "gemini", "qwen", "cursor", "opencode")

_CLAUDE: Final[dict[str, HookKind]] = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "user_prompt",
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PreCompact": "before_compact",
    "PostCompact": "after_compact",
    "Stop": "stop",
    "SessionEnd": "session_end",
}
EVENTS: Final[dict[Host, dict[str, HookKind]]] = {
    "claude-code": _CLAUDE,
    "codex": _CLAUDE,
    "qwen": {name: kind for name, kind in _CLAUDE.items() if kind != "before_tool"},  # it drops text before a tool
    "gemini": {
        "SessionStart": "session_start",
        "BeforeAgent": "user_prompt",
        "PreCompress": "before_compact",
        "AfterAgent": "stop",
        "SessionEnd": "session_end",
    },
    "cursor": {
        "sessionStart": "session_start",
        "beforeSubmitPrompt": "user_prompt",
        "postToolUse": "after_tool",
        "preCompact": "before_compact",
        "stop": "stop",
        "sessionEnd": "session_end",
    },
    # By our plugin, in the words of Claude Code.
    "opencode": {name: _CLAUDE[name] for name in ("SessionStart", "UserPromptSubmit", "PostCompact", "Stop")},
}
"""The events of each host that Reverie answers: the host's own event name to our kind.

Gemini CLI lets a hook replace an output only as an error, so its outputs are left alone.
"""
_PROJECT: Final[dict[Host, str]] = {
    "claude-code": "CLAUDE_PROJECT_DIR",
    "gemini": "GEMINI_PROJECT_DIR",
    "qwen": "QWEN_PROJECT_DIR",
    "cursor": "CURSOR_PROJECT_DIR",
}
"""The variable in which a host names its project; its working directory follows the ``cd`` of an agent."""
_OWN_CONTEXT: Final = "<hook_context>", "</hook_context>"

_MAX_NAME: Final = 120
_NO_VARIABLES: Final[Mapping[str, str]] = {}


@record
class HookEvent:
    """One call of a hook: the host, the event in the host's words and in ours, and the fields of its payload."""

    host: Host
    name: str
    kind: HookKind
    session: str = ""
    cwd: str = ""
    transcript: str = ""
    source: str = ""
    """Why a session starts, ends or is compacted, in the host's words: ``startup``, ``resume``, ``compact``, ..."""
    prompt: str = ""
    reply: str = ""
    """The last reply of the model, where the host sends it with a stop event."""
    tool: str = ""
    tool_use_id: str = ""
    input: Any = None
    """The arguments of a tool that is about to run."""
    output: Any = None
    """The output of a tool, in the host's own shape."""


def read_hook_event(host: Host, event: str, payload: object, environ: Mapping[str, str] = _NO_VARIABLES) -> HookEvent:
    """Return a hook's payload as an event; fields that are missing or of the wrong type are empty.

    ``event`` is the name of the event; if it is empty, the payload names it. ``environ`` may name the project.
    """
    given: Mapping[str, Any] = cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {}
    name, kind = _event(host, event or _text(given, "hook_event_name"))
    return HookEvent(
        host=host,
        name=name,
        kind=kind,
        session=_session(_text(given, "session_id", "conversation_id")),
        cwd=_cwd(given, environ.get(_PROJECT.get(host, ""), "")),
        transcript=_text(given, "transcript_path"),
        source=_text(given, "source", "trigger", "reason"),
        prompt=_words(host, _text(given, "prompt")) if kind == "user_prompt" else "",
        reply=_text(given, "prompt_response", "last_assistant_message") if kind == "stop" else "",
        tool=_text(given, "tool_name"),
        tool_use_id=_session(_text(given, "tool_use_id", "tool_call_id")),
        input=given.get("tool_input") if kind == "before_tool" else None,
        output=_output(given) if kind == "after_tool" else None,
    )


def _event(host: Host, given: str) -> tuple[str, HookKind]:
    """Return an event's name in the host's own spelling, which answers repeat, and our kind, by default ``other``."""
    folded = given.replace("_", "").replace("-", "").lower()
    for name, kind in EVENTS[host].items():
        if folded == name.lower():
            return name, kind
    return given, "other"


def _text(given: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _session(text: str) -> str:
    """Return a text as a safe file name; an empty string if no character of it is safe."""
    kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "-" for sign in text[:_MAX_NAME])
    return kept.lstrip("._-").removesuffix(".jsonl")


def _words(host: Host, prompt: str) -> str:
    """Return the user's words of a prompt, without the text of hooks that Gemini CLI puts in front of them."""
    opening, end = _OWN_CONTEXT
    while host == "gemini" and prompt.startswith(opening) and end in prompt:
        prompt = prompt.partition(end)[2].lstrip()
    return prompt


def _cwd(given: Mapping[str, Any], project: str) -> str:
    """Return the first absolute path of the project and the working directories; an empty string if there is none."""
    roots: Any = given.get("workspace_roots")
    listed = [one for one in cast("list[Any]", roots) if isinstance(one, str)] if isinstance(roots, list) else []
    for path in (project, _text(given, "cwd"), *listed):
        if path and os.path.isabs(path) and "\0" not in path:
            return path
    return ""


def _output(given: Mapping[str, Any]) -> Any:
    for name in ("tool_response", "tool_output", "tool_result"):
        if given.get(name) is not None:
            return given[name]
    return None
