"""Authorship of messages: separate a person's own words, tool output and the agent's words, in every log format.

Some agents use no tool blocks: the reply holds a fenced command and the next user message its output. Both formats
give the same utterances.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ..values import record
from .entries import ASSISTANT, USER, Entry, Message
from .wire.blocks import as_blocks

_FENCED: Final = re.compile(r"```([\w+-]*)[^\n`]*\n(.*?)```", re.DOTALL)
_SHELLS: Final = frozenset({"bash", "sh", "shell", "zsh", "console", "mswea_bash_command"})
# Texts that programs put into user messages around or instead of a person's words.
_OBSERVED: Final = re.compile(
    r"\s*(?:<(?:returncode|output|observation|task-notification|local-command-stdout|local-command-stderr"
    r"|bash-stdout|bash-stderr|tool_result|function_results|system-notification|teammate-message)\b"
    r"|OBSERVATION:|EXECUTION RESULT|\[File: |Observation: |\(Open file: |diff --git a/|The user ran `[^`\n]*`:"
    r"|Please always provide EXACTLY ONE action)"
)
_PROMPTED: Final = re.compile(r"\(Current directory: [^\n]*\)\s*\n?bash-\$\s*\Z")
_ASKED: Final = re.compile(r"^(?:ISSUE|INSTRUCTIONS|TASK|Here is|We're|Please|You)\b", re.MULTILINE)
_WRAPPED: Final = re.compile(
    r"<(system-reminder|local-command-caveat|local-command-stdout|local-command-stderr|ide_opened_file|ide_selection"
    r"|environment_context|command-contents|hook_context)>.*?</\1>",
    re.DOTALL,
)
# The index, recalled memories and notes that Reverie's own hooks and tools put into a session, raw or escaped.
_OURS: Final = re.compile(
    r"(?:<|&lt;)((?:memory|memory-index|session-notes)-[0-9a-f]{8,64})\b.*?(?:</|&lt;/)\1(?:>|&gt;)\n?", re.DOTALL
)
_OUR_TOOLS: Final = re.compile(r"(?:mcp_+)?reverie_+\w+")
OUR_RESULTS: Final = "reverie_results"
"""The field of an imported message whose results all come from Reverie's own tools."""
# A host puts the words with which a person refused a call into its failed result, after a sentence of its own.
_REFUSED: Final = re.compile(
    r"(?:The user doesn't want to proceed with this tool use\.|\S+ was refused\.)[^\n]*"
    r"(?: the user said:[ \t]*\n(.+))?\Z",
    re.DOTALL,
)
_INTERRUPTED: Final = re.compile(r"\s*\[Request interrupted by user[^\]\n]*\]\s*\Z")
_COMMAND: Final = re.compile(r"<command-(?:name|args)>(.*?)</command-(?:name|args)>", re.DOTALL)
_DEPTH: Final = 8


@record
class Utterance:
    """One part of a message; its kind is ``said`` (by a person), ``told`` (by the agent), ``call`` or ``result``.

    The kind ``refused`` is for the words, if any, with which a person refused the call of this id. A tool can forge
    them, so they are no instructions to remember: ``own_words`` leaves them out.
    """

    kind: str
    text: str
    tool: str = ""
    id: str = ""
    input: Any = None
    failed: bool = False


def utterances(entry: Entry) -> Iterator[Utterance]:
    """Yield the utterances of a user or assistant entry in order, without thinking, images and unknown blocks."""
    message = entry.message
    if message is None or entry.kind not in (USER, ASSISTANT):
        return
    content = message.get("content")
    blocks = [_fields(one) for one in cast("list[Any]", content)] if isinstance(content, list) else [_fields(content)]
    structured = any(block.get("type") == "tool_use" for block in blocks)
    for block in blocks:
        text = block.get("text")
        match block.get("type"):
            case "text" if isinstance(text, str):
                yield from _told(text, structured) if entry.kind == ASSISTANT else _said(entry, text)
            case "tool_use":
                yield Utterance(
                    "call", "", str(block.get("name") or ""), str(block.get("id") or ""), block.get("input")
                )
            case "tool_result" if not entry.body.get(OUR_RESULTS):
                yield from _returned(block)
            case _:
                pass


def is_prompt(entry: Entry) -> bool:
    """Return whether an entry is a user message with more than results of tools."""
    if entry.kind != USER or entry.message is None:
        return False
    return any(block["type"] != "tool_result" for block in as_blocks(entry.message))


def own_words(entry: Entry) -> str:
    """Return the words a person wrote in this entry, without text added by programs; empty if there are none."""
    return "\n\n".join(one.text for one in utterances(entry) if one.kind == "said")


def without_our_text(text: str) -> str:
    """Return a text without the memories, index and notes that Reverie itself added to a session."""
    return _OURS.sub("", text) if "memory-" in text or "session-notes-" in text else text


def is_our_tool(name: str) -> bool:
    """Return whether a tool, by the name that a host gives it, is one of Reverie's MCP server."""
    return _OUR_TOOLS.fullmatch(name) is not None


def text_of(block: Mapping[str, Any]) -> str:
    """Return the text of a message or a tool result, its parts joined by newlines; empty if it has no text."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [_fields(part).get("text") for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))


def strings_of(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield every string inside a JSON value except the keys of objects, down to eight levels of nesting."""
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH and isinstance(value, dict):
        for inner in cast("Message", value).values():
            yield from strings_of(inner, depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from strings_of(inner, depth + 1)


def _returned(block: Message) -> Iterator[Utterance]:
    """Yield the result of a call, or the words with which a person refused it, which may be empty."""
    id, text, failed = str(block.get("tool_use_id") or ""), text_of(block), block.get("is_error") is True
    refused = _REFUSED.match(text) if failed else None
    if refused is None:
        yield Utterance("result", text, id=id, failed=failed)
    else:
        yield Utterance("refused", (refused.group(1) or "").strip(), id=id)


def _said(entry: Entry, text: str) -> Iterator[Utterance]:
    if not text.strip() or _INTERRUPTED.match(text):
        return
    if _OBSERVED.match(text) or (_PROMPTED.search(text[-400:]) and not _ASKED.search(text[:2_000])):
        yield Utterance("result", text)
        return
    if entry.body.get("meta") or entry.body.get("demo") or entry.body.get("summary"):
        return
    kept = without_our_text(_WRAPPED.sub("", text))
    if "<command-name>" in kept:
        kept = " ".join(dict.fromkeys(part.strip() for part in _COMMAND.findall(kept) if part.strip()))
    if kept.strip():
        yield Utterance("said", kept.strip())


def _told(text: str, structured: bool) -> Iterator[Utterance]:
    """Yield an agent's text and, unless its message has tool calls (``structured``), the fenced command in it."""
    if text.strip():
        yield Utterance("told", text)
    if structured:
        return
    command = _fenced_command(text)
    if command:
        yield Utterance("call", "", "bash", "", {"command": command})


def _fenced_command(text: str) -> str:
    """Return the last fenced shell block of a reply, else its last fenced block without a language, else ''."""
    if "```" not in text:
        return ""
    blocks = [(name.lower(), body.strip()) for name, body in _FENCED.findall(text)]
    marked = [body for name, body in blocks if name in _SHELLS]
    plain = [body for name, body in blocks if not name]
    return next((body for body in reversed(marked or plain) if body), "")


def _fields(block: Any) -> Message:
    if isinstance(block, dict):
        return cast("Message", block)
    return {"type": "text", "text": block} if isinstance(block, str) else {}
