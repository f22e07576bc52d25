"""The local note-taker: notes from a session's activity, without a model. Pure and deterministic.

It is used if there is no model or the model fails, and as exact facts beside a model's prose. Its lines contain exact
names, most used and most recent first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...conversation.entries import Entry
from ...conversation.identifiers import Identifier, Kind, best_identifiers
from ...conversation.tokens.estimate import estimate_text
from ...conversation.view import View
from ...text.later_sentences import LaterSentences
from ...values import record
from .activity import CORRECTION_CHARS, Activity, UserRequest
from .merge import merge_notes
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

__all__ = ["NotesBudget", "session_title", "take_notes", "without_steps"]

_FILLERS: Final = (
    "a an and are as at be but by can could do does for from get give go have help how i if in into is it its just let "
    "like make me my need now of off ok okay on or our out please should so some that the their them then there these "
    "this to up us want was we what when where which will with would you your alright hi hello hey here following "
    "consider currently solving within issue description"
)
_FILLER: Final = frozenset(_FILLERS.split())
_WORD: Final = re.compile(r"[^\s;!?\"'`()\[\]{}<>]+")
_STEPS: Final = ("- In progress: ", "- Pending: ")
_TELLING_CHARS: Final = 16  # "ok" and "go on" are not requests
_SHARES: Final = {
    TITLE: 0.01,
    CURRENT: 0.09,
    TASK: 0.13,
    FILES: 0.19,
    WORKFLOW: 0.09,
    ERRORS: 0.13,
    CODEBASE: 0.13,
    LEARNINGS: 0.05,
    RESULTS: 0.11,
    WORKLOG: 0.07,
}


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


def without_steps(sections: Mapping[str, str]) -> dict[str, str]:
    """Return sections that the local note-taker wrote, without the open steps, which standing context says."""
    lines = (line for line in sections.get(CURRENT, "").splitlines() if not line.startswith(_STEPS))
    return {**sections, CURRENT: "\n".join(lines)} if CURRENT in sections else dict(sections)


def _written(activity: Activity, rooms: dict[str, int]) -> Notes:
    """Return notes with every section within its token budget in ``rooms``; no name list repeats a name."""
    out: dict[str, str] = {
        TITLE: session_title(activity.first.text if activity.first else ""),
        CURRENT: "\n".join(_within(_current(activity), rooms[CURRENT])),
        TASK: "\n".join(_within(_task(activity, rooms[TASK]), rooms[TASK])),
        WORKFLOW: "\n".join(_within(_workflow(activity), rooms[WORKFLOW])),
        ERRORS: "\n".join(_within(_errors(activity), rooms[ERRORS])),
        LEARNINGS: "\n".join(_within(_learnings(activity), rooms[LEARNINGS])),
        RESULTS: "\n".join(_within(_results(activity, rooms[RESULTS]), rooms[RESULTS])),
        WORKLOG: "\n".join(reversed(_within(_worklog(activity), rooms[WORKLOG]))),
    }
    lines = _within(_files(activity), rooms[FILES] * 3 // 5)
    out[FILES] = _with_names(lines, activity, rooms[FILES], out, "Also in use", ("path",))
    lines = _within(_places(activity), rooms[CODEBASE] // 3)
    out[CODEBASE] = _with_names(
        lines, activity, rooms[CODEBASE], out, "Exact names", ("test", "sha", "id", "url", "symbol")
    )
    contents = ((name, clean_content(content)) for name, content in out.items())
    return Notes({name: content for name, content in contents if content.strip()})


def session_title(request: str) -> str:
    """Return a title of at most ten content words from the start of the first request; empty if it has none."""
    words: list[str] = []
    for line in request[:4_000].splitlines():
        line = line.strip().strip("#*_ ")
        if not line or line.startswith(("<", "---", "```")) or (line.endswith(":") and len(line) > 20):
            continue
        found = [word.strip(".,:-") for word in _WORD.findall(line)]
        if len(found) == 1 and not words and "/" in line:
            continue
        words += [word for word in found if word and word.lower() not in _FILLER and len(word) <= 60]
        if len(words) >= 5:
            break
    return " ".join(words[:10])


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


def _with_names(
    lines: list[str], activity: Activity, room: int, written: dict[str, str], label: str, kinds: tuple[Kind, ...]
) -> str:
    """Return the lines as a text, followed by names of these kinds that neither they nor ``written`` contain."""
    present = "\n".join((*lines, *written.values()))
    left = room - sum(estimate_text(line) + 1 for line in lines) - 8 * len(kinds)
    span = max(1, activity.at)
    weights: dict[Identifier, float] = {}
    for name, count in activity.names.items():
        if name.kind in kinds:
            rare = 0.35 if name.kind == "symbol" else 1.0  # most symbols can be found again in the code
            weights[name] = count * rare * (1 + activity.seen[name] / span)
    found = best_identifiers(weights, left, present=present)
    for kind in kinds:
        names = [name.text for name in found if name.kind == kind]
        if names:
            lines = [*lines, f"{_LABELS.get(kind, label)}: {' '.join(names)}"]
    return "\n".join(lines)


_LABELS: Final[dict[str, str]] = {
    "test": "Tests",
    "sha": "Commits and hashes",
    "id": "Ids",
    "url": "Links",
    "symbol": "Names in the code",
}


def _current(activity: Activity) -> Iterator[str]:
    if activity.requests:
        yield f"- Asked last: {one_line(activity.requests[-1].text, 400)}"
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
        yield f"- The agent said last: {one_line(activity.last_reply, 900)}"
        yield f"- Next, in its words: {one_line(_last_sentence(activity.last_reply), 300)}"
    latest = max(activity.commands.items(), key=lambda item: item[1].at, default=None)
    if latest is not None:
        said = latest[1].said or ("failed" if latest[1].broken else "ok")
        yield f"- Ran last: `{latest[0]}`: {said}"
    edited = sorted((item for item in activity.files.items() if item[1].edits), key=lambda item: -item[1].at)[:5]
    if edited:
        yield f"- Changed last: {', '.join(f'`{path}`' for path, _ in edited)}"


def _last_sentence(text: str) -> str:
    parts = [part for part in re.split(r"(?<=[.!?:])\s+|\n+", text[-1_200:].strip()) if part.strip(" `*-")]
    return parts[-1] if parts else text[-300:]


def _task(activity: Activity, room: int) -> Iterator[str]:
    first = activity.first
    if first is None:
        return
    yield cut_text(first.text, room // 2)
    later = [asked for asked in activity.requests if asked is not first and len(asked.text) >= _TELLING_CHARS]
    newest = _within((f"- then: {one_line(asked.text, 260)}" for asked in reversed(later)), room - room // 2 - 8)
    yield from reversed(newest)  # of two that disagree, the later one holds


def _files(activity: Activity) -> Iterator[str]:
    ranked = sorted(activity.files.items(), key=lambda item: (-item[1].weight, item[0]))
    for path, file in ranked:
        did = ", ".join(
            part
            for part in (f"changed {file.edits}x" * bool(file.edits), f"read {file.reads}x" * bool(file.reads))
            if part
        )
        names = ", ".join(list(file.symbols)[-8:])
        yield f"- `{path}`: {did}{f'; {names}' if names else ''}"


def _places(activity: Activity) -> Iterator[str]:
    """Yield at most two lines: the folders most in use, and the last documents read or changed."""
    places: Counter[str] = Counter()
    for path, file in activity.files.items():
        places[path.rpartition("/")[0]] += file.reads + 3 * file.edits
    common = [(place, count) for place, count in places.most_common(10) if place]
    if common:
        yield "- Where the work is: " + ", ".join(f"`{place}` ({count})" for place, count in common)
    documents = [path for path in activity.files if path.lower().endswith((".md", ".rst", ".txt"))]
    if documents:
        yield "- Documents: " + ", ".join(f"`{path}`" for path in documents[-12:])


def _workflow(activity: Activity) -> Iterator[str]:
    ranked = sorted(activity.commands.items(), key=lambda item: (only_looks(item[0]), -item[1].weight, item[0]))
    for text, command in ranked:
        how = f"{command.runs}x" + (f", failed {command.failed}x" if command.failed else "")
        yield f"- `{text}` ({how}){f': {command.said}' if command.said else ''}"


def _errors(activity: Activity) -> Iterator[str]:
    yield from _corrections(activity)
    ranked = sorted(activity.failures.items(), key=lambda item: (-item[1].weight, item[0]))
    for line, failure in ranked:
        after = f" after `{one_line(failure.after, 80)}`" if failure.after else ""
        often = f" ({failure.count}x)" if failure.count > 1 else ""
        yield f"- {line}{often}{after}{f' -> {failure.fixed}' if failure.fixed else ' -> not seen fixed'}"


def _corrections(activity: Activity) -> Iterator[str]:
    """Yield the user's corrections, newest first, each with a later request about the same thing."""
    said = [one_line(asked.text, CORRECTION_CHARS) for asked in activity.requests]
    later = LaterSentences(said if activity.corrections else ())
    for words in reversed(activity.corrections):
        changed = later.than(said.index(words)) if words in said else None
        yield f"- The user: {words}" + (f" Later: {said[changed]}" if changed is not None else "")


def _learnings(activity: Activity) -> Iterator[str]:
    for line in reversed(activity.insights):
        yield f"- {line}"


def _results(activity: Activity, room: int) -> Iterator[str]:
    for line in reversed(activity.commits):
        yield f"- commit {line}"
    latest = [activity.last_reply] if activity.last_reply and not activity.open_calls else []
    for answer in [*latest, *reversed(activity.answers)][:3]:
        yield cut_text(answer, room // 3)


def _worklog(activity: Activity) -> Iterator[str]:
    """Yield one line per user request with the work that followed it, newest first."""
    for asked in reversed(activity.requests):
        yield _step(asked)


def _step(asked: UserRequest) -> str:
    edits = sorted(asked.edits.items(), key=lambda item: (-item[1], item[0]))[:4]
    changed = ", ".join(f"{path.rpartition('/')[2]} {count}x" for path, count in edits)
    runs = ", ".join(f"{program} {said}" for program, said in list(asked.runs.items())[-2:])
    parts = [f"{asked.calls} calls" * bool(asked.calls), f"changed {changed}" * bool(changed), one_line(runs, 120)]
    done = "; ".join(part for part in parts if part) or one_line(asked.answer, 100)
    return f"- {one_line(asked.text, 90)}{f' => {done}' if done else ''}"
