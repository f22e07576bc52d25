"""Convert a session into readable text: a sequence of (text, style) pieces."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ...conversation.entries import ASSISTANT, ATTACHMENT, DECISION, META, SYSTEM, USER, Entry
from ...text.counts import counted

Piece = tuple[str, str]
Record = dict[str, Any]

HEAD: Final = {USER: "bold cyan", ASSISTANT: "bold green", ATTACHMENT: "bold", SYSTEM: "bold"}
DIM: Final = "dim"
RESULT_LINES: Final = 6
LINE_CHARS: Final = 160
INPUT_CHARS: Final = 60
THOUGHT_CHARS: Final = 240
BOOKKEEPING: Final = frozenset({"results_kept", "context_said", "cursor_moved", "message_queued", "window_learned"})
"""Decisions that change nothing that a reader sees."""
ACTS: Final = {
    "agent_finished": "an agent ended",
    "agent_spawned": "an agent started",
    "call_recorded": "a request to the model",
    "cache_edits": "old results cleared in the cache",
    "compacted": "old messages replaced with a summary",
    "compaction_failed": "a compaction failed",
    "compaction_undone": "a compaction undone",
    "images_dropped": "old images removed",
    "memories_extracted": "memories saved",
    "memories_surfaced": "memories recalled",
    "prefix_rendered": "system prompt and tools sent anew",
    "result_offloaded": "a large result moved to disk",
    "results_cleared": "old results cleared",
    "results_cleared_by_provider": "old results cleared by the provider",
    "results_restored": "cleared results restored",
}
"""Decisions in plain words."""
MEDIA: Final = ("image", "document")


def of_entries(entries: Iterable[Entry]) -> Iterator[Piece]:
    """Yield pieces for all messages and decisions of a log, in order."""
    names: dict[str, str] = {}
    for entry in entries:
        if entry.kind == DECISION:
            if not is_bookkeeping(entry):
                yield decision_line(entry), DIM
        elif entry.message is not None:
            kind = str(entry.body.get("type") or "") if entry.kind == ATTACHMENT else ""
            yield from of_message(entry.message, names, entry.kind, kind, entry.time)
        elif entry.kind != META:
            yield f"· {entry.kind}\n", DIM


def of_messages(messages: Iterable[Mapping[str, Any]], cleared: Container[str] = ()) -> Iterator[Piece]:
    """Yield pieces for the messages of a request; ``cleared`` are the results that the provider left out."""
    names: dict[str, str] = {}
    for message in messages:
        yield from of_message(without_content(message, cleared), names, str(message.get("role") or "user"))


def without_content(message: Mapping[str, Any], cleared: Container[str]) -> Mapping[str, Any]:
    """Return a message that shows a line with the handle instead of each of these results."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_without_content(block, cleared) for block in cast("list[Any]", content)]}


def _without_content(block: Any, cleared: Container[str]) -> Any:
    found = cast(Record, block) if isinstance(block, dict) else {}
    handle = found.get("tool_use_id")
    if not isinstance(handle, str) or handle not in cleared:
        return cast(Any, block)
    return {**found, "content": f"[cleared by the provider] handle: {handle}"}


def of_message(
    message: Mapping[str, Any], names: dict[str, str], who: str, kind: str = "", time: str = ""
) -> Iterator[Piece]:
    """Yield pieces for one message: speaker, time and blocks; ``names`` collects tool names by call id."""
    content = message.get("content")
    if not only_results(content):
        yield f"\n{who}{f' ({kind})' if kind else ''}", HEAD.get(who, "bold")
        yield (f"  {time[:19].replace('T', ' ')}" if time else "") + "\n", DIM
    if not isinstance(content, list):
        yield f"{as_text(content)}\n", ""
        return
    for block in cast("list[Any]", content):
        yield from of_block(cast(Record, block) if isinstance(block, dict) else {"type": "text", "text": block}, names)


def only_results(content: Any) -> bool:
    """Return whether a message has only tool results; these get no heading, so that they follow their calls."""
    if not isinstance(content, list) or not content:
        return False
    blocks = cast("list[Any]", content)
    return all(isinstance(block, dict) and cast(Record, block).get("type") == "tool_result" for block in blocks)


def of_block(block: Record, names: dict[str, str]) -> Iterator[Piece]:
    """Yield pieces for one content block; a call adds its tool's name to ``names``, a result looks it up there."""
    kind = block.get("type")
    if kind == "text":
        yield f"{as_text(block.get('text'))}\n", ""
    elif kind == "thinking":
        thought = one_line(as_text(block.get("thinking")), THOUGHT_CHARS)
        yield f"(thinking) {thought}\n" if thought else "(thinking, returned without its text)\n", "dim italic"
    elif kind in MEDIA:
        yield f"[{kind}]\n", DIM
    elif isinstance(kind, str) and kind.endswith("tool_use"):
        name = as_text(block.get("name")) or "?"
        names[str(block.get("id"))] = name
        yield f"-> {name}", "bold yellow"
        yield f" {short_input(block.get('input'))}\n", "yellow"
    elif isinstance(kind, str) and kind.endswith("tool_result"):
        failed = block.get("is_error") is True
        name = names.get(str(block.get("tool_use_id")), "?")
        label = f"<- {name}{' failed' if failed else ''}\n"
        yield label, "bold red" if failed else "bold blue"
        yield f"{shortened(result_text(block.get('content')), RESULT_LINES, '   ')}\n", "red" if failed else DIM
    else:
        yield f"[{kind}]\n", DIM


def is_bookkeeping(entry: Entry) -> bool:
    """Return whether a decision only records a call, a result or the program's own state, as one does in every turn."""
    decision, reason = as_text(entry.body.get("decision")), as_text(entry.body.get("reason"))
    if decision == "call_recorded":
        return entry.body.get("layer") != "model" or reason == "reply"
    if decision == "memories_extracted":
        return not entry.body.get("names")
    return decision in BOOKKEEPING or (decision == "prefix_rendered" and entry.body.get("moves_prefix") is not True)


def decision_line(entry: Entry) -> str:
    """Return a decision as one line in plain words: the act, its reason, freed tokens, and a cache that is lost."""
    body = entry.body
    frees, moves = body.get("frees"), body.get("moves_prefix")
    effects = [f"frees {frees:,} tokens"] if isinstance(frees, int) and frees > 0 else []
    if moves is True:
        effects.append("the cache is written anew")
    name = as_text(body.get("decision"))
    tail = f" ({', '.join(effects)})" if effects else ""
    if name == "results_cleared_by_provider" and body.get("tool_use_ids"):
        tail += f"; handles: {', '.join(body['tool_use_ids'])}"
    act = ACTS.get(name, name.replace("_", " "))
    return f"· {act or '?'}: {one_line(as_text(body.get('reason')))}{tail}\n"


def short_input(given: Any) -> str:
    """Return a tool's input as one line of names and shortened values."""
    if not isinstance(given, dict):
        return one_line(as_text(given))
    fields = cast(Record, given)
    parts = [f"{name}={one_line(as_text(value), INPUT_CHARS)}" for name, value in fields.items()]
    return one_line(" ".join(parts))


def result_text(content: Any) -> str:
    """Return a tool result as text, with a placeholder such as [image] for other content."""
    if not isinstance(content, list):
        return as_text(content)
    parts: list[str] = []
    for part in cast("list[Any]", content):
        block = cast(Record, part) if isinstance(part, dict) else {"type": "text", "text": part}
        parts.append(as_text(block.get("text")) if block.get("type") == "text" else f"[{block.get('type')}]")
    return "\n".join(parts)


def shortened(text: str, lines: int, margin: str) -> str:
    """Return the first lines of a text, each shortened, after a margin, and a line that counts all others."""
    found = text.strip("\n").split("\n")
    shown = [margin + one_line(line, LINE_CHARS, keep=True) for line in found[:lines]]
    left = len(found) - lines
    if left > 0:
        shown.append(f"{margin}... {counted(left, 'more line')}")
    return "\n".join(shown)


def one_line(text: str, limit: int = LINE_CHARS, *, keep: bool = False) -> str:
    """Return a text as one line of ``limit`` characters at most; ``keep`` preserves its spaces."""
    line = text[: limit * 4] if keep else " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def as_text(value: Any) -> str:
    """Return a string unchanged, None as an empty string, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
