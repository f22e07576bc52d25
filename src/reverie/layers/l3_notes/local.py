"""The local note-taker: notes from a session's activity, without a model. Pure and deterministic.

It is used if there is no model or the model fails, and for the sections that a model left empty.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final
from unicodedata import category

from ...conversation.entries import Entry
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...values import record
from .accounts import account_lines, failure_line, request_words, short_paths
from .activity import Activity
from .sections import (
    CODEBASE,
    CURRENT,
    ERRORS,
    FILES,
    LEARNINGS,
    RESULTS,
    TASK,
    TITLE,
    WORKFLOW,
    WORKLOG,
    Notes,
    clean_content,
    cut_text,
    fit_notes,
)
from .tool_effects import one_line, only_looks

_STEPS: Final = ("- In progress: ", "- Pending: ")
_ASKED, _SAID, _RAN = "- Asked last: ", "- The agent said last: ", "- Ran last: "
_CHANGED: Final = ": changed "
_TITLE_WORDS: Final = (5, 10)
_GREETING_WORDS: Final = 3  # "hi" and "hello there" are no title if more follows
_TELLING_CHARS: Final = 16  # "ok" and "go on" are not requests
_CLAUSE: Final = re.compile(r"(?<=[,;.!?])\s+|(?<=[，；。！？])|\s+[–—-]+\s+")
_TOLD_ELSEWHERE: Final = (TASK, WORKFLOW, ERRORS, CODEBASE, LEARNINGS, RESULTS, WORKLOG)
_SHARES: Final = {
    TITLE: 0.01,
    CURRENT: 0.12,
    TASK: 0.13,
    FILES: 0.16,
    WORKFLOW: 0.12,
    ERRORS: 0.14,
    CODEBASE: 0.03,
    LEARNINGS: 0.07,
    RESULTS: 0.10,
    WORKLOG: 0.12,
}
_KEY: Final = re.compile(r"- `([^`]+)`|- (The user: .{0,60})|([A-Z][a-z ]+): |- (.{0,80})")


@record
class NotesBudget:
    """The size limits of the notes in tokens, for each section and in total."""

    section_tokens: int = 2_000
    total_tokens: int = 12_000


def take_notes(
    source: View | Iterable[Entry] | Activity, previous: Notes | None = None, *, budget: NotesBudget | None = None
) -> Notes:
    """Return the notes of a session, made without a model, merged into ``previous`` if given, cut to the budget.

    Pass the session's ``Activity`` so that an update reads only new entries.
    """
    budget = budget or NotesBudget()
    if isinstance(source, Activity):
        activity = source
    else:
        activity = Activity().follow(source) if isinstance(source, View) else Activity().add_all(source)
    rooms = {name: min(budget.section_tokens, int(budget.total_tokens * part)) for name, part in _SHARES.items()}
    written = _written(activity, rooms)
    if previous is not None and not previous.empty:
        written = merge_notes(previous, written, rooms)
    return fit_notes(written, budget.section_tokens, budget.total_tokens)


def without_told(sections: Mapping[str, str], foreign: Container[str], *, shows_last: bool = False) -> dict[str, str]:
    """Return notes without the parts that a summary says elsewhere: open steps, the account of each request.

    Sections in ``foreign``, which a person or a model wrote, stay as they are; ``shows_last`` says that the agent's
    last words stay in view.
    """
    kept = {name: text for name, text in sections.items() if name in foreign or name not in _TOLD_ELSEWHERE}
    told = (*_STEPS, _ASKED, _RAN, *((_SAID,) if shows_last else ()))
    for name in {CURRENT, FILES} & kept.keys() - {name for name in kept if name in foreign}:
        lines = (line for line in kept[name].splitlines() if not line.startswith(told))
        kept[name] = "\n".join(line for line in lines if name == CURRENT or _CHANGED in line)
    return kept


def _written(activity: Activity, rooms: dict[str, int]) -> Notes:
    """Return notes with every section within its token budget in ``rooms``."""
    lines: dict[str, Iterable[str]] = {
        TITLE: [session_title(activity.first.text if activity.first else "")],
        CURRENT: _current(activity),
        TASK: _task(activity, rooms[TASK]),
        FILES: _files(activity),
        WORKFLOW: _workflow(activity),
        ERRORS: _errors(activity),
        CODEBASE: _documents(activity),
        LEARNINGS: _learnings(activity, rooms[LEARNINGS]),
        RESULTS: _results(activity, rooms[RESULTS]),
    }
    out = {name: "\n".join(_within(found, rooms[name])) for name, found in lines.items()}
    out[WORKLOG] = "\n".join(reversed(_within(_worklog(activity), rooms[WORKLOG])))
    contents = ((name, clean_content(content)) for name, content in out.items())
    return Notes({name: content for name, content in contents if content.strip()})


def session_title(request: str) -> str:
    """Return the first sentence of a request, or its first clauses, as a title of at most ten words."""
    lines = (" ".join(line.strip().strip("#*_ ").split()) for line in request[:4_000].splitlines())
    told = [line for line in lines if line and not line.startswith(("<", "---", "```")) and not line.endswith(":")]
    line = next((line for line in told if _word_count(line) >= _GREETING_WORDS), told[0] if told else "")
    parts = (line[: end.start()] for end in _CLAUSE.finditer(line))
    words = next((part for part in parts if _word_count(part) >= _TITLE_WORDS[0]), line).split(" ")
    title = " ".join(words[: _TITLE_WORDS[1]]).rstrip(",;.:。，；") + ("…" if len(words) > _TITLE_WORDS[1] else "")
    return title[:1].upper() + one_line(title, 120)[1:]


def _word_count(line: str) -> float:
    """Return the number of words; two letters of a script without capitals, such as Chinese, count as one too."""
    return max(len(line.split(" ")), sum(category(letter) == "Lo" for letter in line) / 2)


def _within(lines: Iterable[str], tokens: int) -> list[str]:
    """Return the lines, in order, that fit into so many tokens; a longer line is skipped."""
    out: list[str] = []
    left = tokens
    for line in lines:
        cost = estimate_text(line) + 1
        if cost > left:
            if left < 12:
                break
            continue
        left -= cost
        out.append(line)
    return out


def _current(activity: Activity) -> Iterator[str]:
    if activity.requests:
        yield f"{_ASKED}{one_line(activity.requests[-1].text, 400)}"
    doing = [text for text, state in activity.todos if state in ("in_progress", "active")]
    pending = [text for text, state in activity.todos if state in ("pending", "todo", "open", "")]
    if doing:
        yield f"{_STEPS[0]}{'; '.join(doing)}"
    if pending:
        yield f"{_STEPS[1]}{'; '.join(pending)}"
    waiting = [act.command or act.path or act.tool for act in activity.open_calls.values() if act.tool]
    if waiting:
        yield f"- Running: {'; '.join(f'`{one_line(one, 160)}`' for one in waiting[-3:])}"
    if activity.last_reply:
        yield f"{_SAID}{one_line(activity.last_reply, 900)}"
    latest = max(activity.commands.items(), key=lambda item: item[1].at, default=None)
    if latest is not None:
        yield f"{_RAN}`{latest[0]}`: {latest[1].said}"


def _task(activity: Activity, room: int) -> Iterator[str]:
    first = activity.first
    if first is None:
        return
    yield cut_text(first.text, room // 2)
    later = [asked for asked in activity.requests if asked is not first and len(asked.text) >= _TELLING_CHARS]
    newest = _within((f"- then: {one_line(asked.text, 260)}" for asked in reversed(later)), room - room // 2 - 8)
    yield from reversed(newest)  # of two that disagree, the later one holds


def _files(activity: Activity) -> Iterator[str]:
    """Yield the changed files with the names changed in them, then the files that were only read."""
    ranked = sorted(activity.files.items(), key=lambda item: (not item[1].edits, -item[1].weight, item[0]))
    for path, file in ranked:
        did = [f"changed {file.edits}x" * bool(file.edits), f"read {file.reads}x" * bool(file.reads)]
        names = ", ".join(list(file.symbols)[-8:])
        yield f"- `{path}`: {', '.join(filter(None, did))}{f'; {names}' if names else ''}"


def _documents(activity: Activity) -> Iterator[str]:
    documents = [path for path in activity.files if path.lower().endswith((".md", ".rst", ".txt"))]
    if documents:
        yield "- Documents: " + ", ".join(f"`{path}`" for path in documents[-12:])


def _workflow(activity: Activity) -> Iterator[str]:
    ranked = sorted(activity.commands.items(), key=lambda item: (only_looks(item[0]), -item[1].weight, item[0]))
    for text, command in ranked:
        how = f"{command.runs}x" + (f", failed {command.failed}x" if command.failed else "")
        yield f"- `{text}` ({how}): {command.said}"


def _errors(activity: Activity) -> Iterator[str]:
    for asked in reversed(activity.requests):
        if asked.refused:
            yield f"- The user refused {asked.refused}: {one_line(asked.text, 300)}"
    names = short_paths(activity.files)
    ranked = sorted(activity.failures.items(), key=lambda item: (-item[1].weight, item[0]))
    for line, failure in ranked:
        yield f"- {failure_line(line, failure, names)}"


def _learnings(activity: Activity, room: int) -> Iterator[str]:
    """Yield the most telling sentences of the agent, oldest first, without its last reply."""
    for sentences in request_words(activity, room).values():
        yield from (f"- {one.text}" for one in sentences)


def _results(activity: Activity, room: int) -> Iterator[str]:
    for asked in reversed(activity.requests):
        yield from (f"- commit {step.text}" for step in reversed(asked.steps) if step.kind == "commit")
    answers = [reply.text for reply in reversed(activity.replies) if reply.is_last]
    for answer in answers[:3]:
        yield cut_text(answer, room // 3)


def _worklog(activity: Activity) -> Iterator[str]:
    """Yield one line per user request with the work that followed it, newest first."""
    names = short_paths(activity.files)
    for asked in reversed(activity.requests):
        lines = sorted((at, line) for rank, at, line in account_lines(activity, asked, names) if 1 < rank < 5)
        done = "; ".join(line.removeprefix("agent ") for _, line in lines)
        work = f"{asked.calls} calls; {done}" if asked.calls else done
        yield f"- {one_line(asked.text, 90)}{f' => {one_line(work, 300)}' if work else ''}"


def merge_notes(previous: Notes, written: Notes, rooms: dict[str, int]) -> Notes:
    """Return new notes: the previous ones with the new lines added; ``rooms`` has each section's token budget.

    Current State is always replaced. In other sections earlier text stays, except lines of the local note-taker about
    the same thing, which are replaced; new lines are added while they fit.
    """
    out: dict[str, str] = dict(previous.sections)
    for heading, content in written.sections.items():
        before = previous[heading]
        if heading == CURRENT or not before.strip():
            out[heading] = content
        elif heading in rooms:
            out[heading] = _joined(before, content, rooms[heading], newest_last=heading == WORKLOG)
    return Notes(out)


def _joined(before: str, after: str, room: int, *, newest_last: bool) -> str:
    fresh = {_key(line): line for line in after.split("\n") if line.strip()}
    lines = [fresh.pop(_key(line), line) if _is_ours(line) else line for line in before.split("\n")]
    said = "\n".join(lines)
    left = room - estimate_text(said)
    added: list[str] = []
    candidates = list(fresh.values())
    for line in reversed(candidates) if newest_last else candidates:
        cost = estimate_text(line) + 1
        if line in said or cost > left or not _is_ours(line):
            continue
        left -= cost
        added.append(line)
    return "\n".join([*lines, *(reversed(added) if newest_last else added)])


def _is_ours(line: str) -> bool:
    """Say whether the local note-taker may have written the line: it is a bullet or a list of names."""
    return line.startswith("- ") or re.match(r"[A-Z][a-z ]+: ", line) is not None


def _key(line: str) -> str:
    found = _KEY.match(line)
    return next((part for part in found.groups() if part), line) if found else line
