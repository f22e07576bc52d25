"""The answers of the MCP tools as text, for clients that show a model only text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Answer = Mapping[str, Any]


def answer_text(tool: str, answer: Answer) -> str:
    """Return the answer of the named tool as text for a model."""
    return _WORDS[tool](answer)


def _recall(answer: Answer) -> str:
    texts = [memory["text"] for memory in answer["memories"]]
    return "\n\n".join([*texts, *_more(answer)]) or "Nothing is remembered about this."


def _remember(answer: Answer) -> str:
    if not answer["changed"]:
        return f"{answer['file']} already says this; nothing was changed."
    waits = " It waits for the user's approval." if answer["waits_for_review"] else ""
    notes = "".join(f" Note: {one}." for one in answer["warnings"])
    return f"Saved as {answer['file']} (change {answer['change']}; '{answer['undo']}' undoes it).{waits}{notes}"


def _forget(answer: Answer) -> str:
    files, restored = answer["files"], answer["restored"]
    if not files and not restored:
        return "There is nothing to forget."
    verb = "Would forget" if answer["dry_run"] else "Forgot"
    parts = [f"{verb} {', '.join(files)}."] if files else []
    if restored:
        parts.append(
            f"{'Would bring' if answer['dry_run'] else 'Brought'} back the earlier version: {', '.join(restored)}."
        )
    if answer["undo"]:
        parts.append(f"'{answer['undo']}' undoes it.")
    if answer["links"]:
        parts.append(f"These still point to it: {', '.join(answer['links'])}.")
    if answer["copies_in_sessions"]:
        parts.append(f"Copies are in the logs of {', '.join(answer['copies_in_sessions'])}.")
    return " ".join(parts)


def _search(answer: Answer) -> str:
    if not answer["messages"]:
        return f"Nothing found in {answer['scope']}. Try other words: names, identifiers, parts of a path."
    lines = [answer["note"]]
    for one in answer["messages"]:
        who = one["speaker"] or one["kind"]
        lines.append(f"\n{one['project']}/{one['session']}  {one['time'][:16]}  {who}  handle {one['handle']}")
        lines.append(one["snippet"])
    return "\n".join([*lines, *_more(answer)])


def _read_back(answer: Answer) -> str:
    head = (
        f"{answer['note']} Session {answer['session']}, {answer['handle']}: {answer['total_chars']} characters, "
        f"{answer['total_lines']} lines."
    )
    more = "".join(f"\n{line}" for line in _more(answer))
    if answer["matches"]:
        return "\n".join([head, *(f"{one['line']}: {one['text']}" for one in answer["matches"])]) + more
    if not answer["text"]:
        return f"{head} Nothing there from {answer['offset']} on."
    return f"{head} From {answer['offset']}:\n{answer['text']}{more}"


def _more(answer: Answer) -> list[str]:
    return [f"[More: call again with offset {answer['next_offset']}]"] if "next_offset" in answer else []


def _status(answer: Answer) -> str:
    off = [name for name, on in answer["switches"].items() if not on]
    today = answer["today"]
    lines = [
        f"Project {answer['project']} ({answer['directory']})",
        f"Memories: {answer['memories']} in {answer['memory_directory']}, index lines: {answer['index_lines']}, "
        f"waiting for review: {answer['pending_reviews']}"
        if answer["memory_on"]
        else "Memories are switched off.",
        f"Last dream: {answer['last_dream'] or 'never'}",
        f"Sessions: {answer['sessions']}, last touched: {answer['last_session'] or 'never'}",
        f"Today ({today['day']}, all projects): {today['calls']} calls, ${today['usd']:.4f}",
        f"Switched off: {', '.join(off) or 'nothing'}",
    ]
    return "\n".join([*lines, *([answer["index_warning"]] if answer["index_warning"] else [])])


_WORDS: Final[Mapping[str, Callable[[Answer], str]]] = {
    "recall": _recall,
    "remember": _remember,
    "forget": _forget,
    "search_sessions": _search,
    "read_back": _read_back,
    "status": _status,
}
